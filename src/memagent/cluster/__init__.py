"""The same training on verl and Ray: `memagent train rl CONFIG --engine verl`.

verl does placement, data plane, learners, rollouts with weight sync and checkpoints; what is here is what is MemAgent.
`settings`, `layout`, `run` and `merge` run where the command does, the rest in processes that Ray starts.
"""
