"""What a training step costs on a cluster: arithmetic and a simulation. Nothing here runs on a GPU.

`model` has the constants with their sources, and the arithmetic; `simulation` plays the readings of a rollout;
`python -m benchmarks.scaling` prints the tables behind docs/results/scaling.md.
"""
