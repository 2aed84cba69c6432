"""Ways to reach a model: one module per adapter, each an `Engine`."""
