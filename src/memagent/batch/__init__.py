"""Many documents, each with its own questions: read here or on a Ray cluster, each question to exactly one record.

`jobs` is the file of jobs, `folder` where results are kept, `reading` what is done with one job; `local` and `on_ray` run
all of them.
"""
