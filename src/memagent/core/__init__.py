"""The reading protocol. Standard library only: no I/O, clock, random numbers or logging."""

from memagent.core.budgets import Budgets, budgets_for, check_budgets, template_tokens, with_overrides
from memagent.core.chunking import MIN_CHUNK_TOKENS, Chunk, Chunks, chunk
from memagent.core.outcomes import Outcome, Rules, Write
from memagent.core.prompts import Profile, profile_from_mapping
from memagent.core.provenance import LineOrigin, Provenance, provenance
from memagent.core.reading import Plan, State, advance, next_turn, plan_reading, split_chunk, state_from_json
from memagent.core.types import Completion, Engine, Sampling, Span, Text, Tokenizer, Turn

__all__ = [
    "MIN_CHUNK_TOKENS",
    "Budgets",
    "Chunk",
    "Chunks",
    "Completion",
    "Engine",
    "LineOrigin",
    "Outcome",
    "Plan",
    "Profile",
    "Provenance",
    "Rules",
    "Sampling",
    "Span",
    "State",
    "Text",
    "Tokenizer",
    "Turn",
    "Write",
    "advance",
    "budgets_for",
    "check_budgets",
    "chunk",
    "next_turn",
    "plan_reading",
    "profile_from_mapping",
    "provenance",
    "split_chunk",
    "state_from_json",
    "template_tokens",
    "with_overrides",
]
