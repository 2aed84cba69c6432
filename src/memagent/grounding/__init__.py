"""Passages that support an answer: quotes found again in the source, word for word."""

from memagent.grounding.alignment import THRESHOLD, Alignment, align

__all__ = ["THRESHOLD", "Alignment", "align"]
