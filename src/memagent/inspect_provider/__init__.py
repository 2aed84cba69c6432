"""Readings as a model of inspect_ai: `inspect eval TASK --model memagent/NAME`."""
