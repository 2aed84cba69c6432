"""The same training on verl and Ray: `memagent train rl CONFIG --engine verl`.

verl does placement, data plane, learners, rollouts with weight sync and checkpoints; what is here is what is MemAgent. Only
`settings` and `layout` import nothing heavy: everything else runs in processes that verl has started.
"""
