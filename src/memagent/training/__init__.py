"""Training: supervised, by reinforcement learning, and by recipes of both. Only this package and `models` import torch."""

import os

# Barriers that spin waste a shared machine: with them two threads are slower than one. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
