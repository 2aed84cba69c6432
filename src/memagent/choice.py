"""The reader `auto`: which reader suits a document, a model and an engine, and why.

A document that fits the window is shown whole. A longer one is read in parallel at a server that takes several turns at a
time, and otherwise in order, with gates: rounds show every chunk at least twice, and where one processor computes all of
them, that takes twice as long (docs/results/readers.md). Readers that the profile has no words for, that the model was not
trained for or does not suit, or whose budgets do not fit are left out; the paper's reader is what remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memagent.core import Cutter, Plan, Text, cut
from memagent.core.budgets import JOIN_SLACK, PAPER_WINDOW
from memagent.errors import ConfigError, TooLongError
from memagent.models.open import OpenModel
from memagent.settings import AUTO, Settings, make_plan, reader_options

# Fewer chunks, or turns at a time, than these do not pay for the merge of a parallel reading.
_CHUNKS, _AT_ONCE = 8, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A reader and the reason for it. `plans` are the plans of all readers that could be used, by name."""

    reader: str
    reason: str
    plans: Mapping[str, Plan]


def choose(text: Text, question: str, settings: Settings, opened: OpenModel, cutter: Cutter = cut) -> Choice:
    """The reader for a document, whose chunks the cutter is asked for several times.

    Raises ConfigError for budgets or a question that no reader can work with.
    """
    plans: dict[str, Plan] = {}
    for name in ("memory", "gated", "parallel", "direct"):
        if name != "memory" and not opened.suits(name):
            continue
        if name == "direct" and (not opened.defaults.direct or _certainly_long(plans["memory"], settings.window)):
            continue
        try:
            plan = make_plan(text, question, with_reader(settings, opened, name), opened, cutter)
        except (ConfigError, TooLongError):
            if name == "memory":
                raise
            continue
        plans[name] = plan
    count, at_once = len(plans["memory"].chunks), opened.engine.concurrency
    if "direct" in plans:
        return Choice(reader="direct", reason="the document fits the window", plans=plans)
    served = not getattr(opened.engine, "in_process", opened.engine.lockstep)
    if "parallel" in plans and served and count >= _CHUNKS and at_once >= _AT_ONCE:
        return Choice(reader="parallel", reason=f"{count:,} chunks, {at_once} at a time", plans=plans)
    if "gated" not in plans:
        reason = "no other reader suits the model, its profile and the document"
        return Choice(reader="memory", reason=reason, plans=plans)
    reasons = (
        ("few chunks", count < _CHUNKS),
        ("in this process", not served),
        (f"{at_once} at a time", at_once < _AT_ONCE),
    )
    few = next((reason for reason, holds in reasons if holds), "no parallel reader")
    return Choice(reader="gated", reason=f"{count:,} chunks, {few}", plans=plans)


def _certainly_long(plan: Plan, window: int | None) -> bool:
    """Whether a document, counted chunk by chunk, exceeds the window. It is not read and counted as one text to find out.

    Each border between chunks may have added tokens. A window that is not known is taken for the paper's.
    """
    return plan.tokens - JOIN_SLACK * len(plan.chunks) > (PAPER_WINDOW if window is None else window)


def with_reader(settings: Settings, opened: OpenModel, name: str, given: Mapping[str, Any] | None = None) -> Settings:
    """The settings with a reader in place of `auto`."""
    assert settings.reader == AUTO
    return replace(settings, reader=name, reader_options=reader_options(opened, name, given))
