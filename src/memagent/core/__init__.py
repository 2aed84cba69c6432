"""The reading protocol and its readers. Standard library only: no I/O, clock, random numbers or logging."""

from memagent.core.budgets import Budgets, budgets_for, check_budgets, template_tokens, with_overrides
from memagent.core.chunking import MIN_CHUNK_TOKENS, Chunk, Chunks, Cutter, chunk, cut
from memagent.core.outcomes import AnswerForm, Outcome, Rules
from memagent.core.prompts import Profile, profile_from_mapping
from memagent.core.provenance import LineOrigin, Provenance, provenance
from memagent.core.readers import READERS, make_reader, register
from memagent.core.reading import Plan, Reader, State, advance, pending, plan_reading, split, start, turn
from memagent.core.types import Batch, Batching, Completion, Engine, Ranker, Sampling, Span, Text, Tokenizer, Turn

__all__ = [
    "MIN_CHUNK_TOKENS",
    "READERS",
    "AnswerForm",
    "Batch",
    "Batching",
    "Budgets",
    "Chunk",
    "Chunks",
    "Completion",
    "Cutter",
    "Engine",
    "LineOrigin",
    "Outcome",
    "Plan",
    "Profile",
    "Provenance",
    "Ranker",
    "Reader",
    "Rules",
    "Sampling",
    "Span",
    "State",
    "Text",
    "Tokenizer",
    "Turn",
    "advance",
    "budgets_for",
    "check_budgets",
    "chunk",
    "cut",
    "make_reader",
    "pending",
    "plan_reading",
    "profile_from_mapping",
    "provenance",
    "register",
    "split",
    "start",
    "template_tokens",
    "turn",
    "with_overrides",
]
