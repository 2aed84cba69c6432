"""The service: readings over HTTP, for any OpenAI client and for our own routes.

A `Job` is a reading that someone asked for: it waits in a queue, is read like every other reading, is in the journal turn
by turn, and goes on by itself after a restart. All routes submit jobs and look at them; there is no second way to read.
"""
