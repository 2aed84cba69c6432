"""OpenAI's responses: jobs that can be left alone, looked at, cancelled, asked again and listened to.

A response is a job under another name: `resp_…` for `reading-…`. What it shows is computed from the job and the turns in
the journal, its events with their numbers too, so that whoever lost the connection goes on after the last event it had.
"""
