"""Training the embedded model. Only this package and `models` import torch."""
