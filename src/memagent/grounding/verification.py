"""Verification by the model. A place that the memory was written from is shown once more, with question and answer. The
model copies the passage that supports the answer, or says that there is none; what it copies counts only if it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from memagent.core import LineOrigin, Plan, Span, Turn
from memagent.core.outcomes import fit, says
from memagent.core.types import Text
from memagent.grounding.alignment import align
from memagent.grounding.claims import claims, held, touches, units
from memagent.grounding.normal import BULLET
from memagent.grounding.verdict import Located, Quote, Verdict, judged, quote

MOST_CHECKS = 4
_OVERLAP = 8  # pieces of a long place overlap by this part of a chunk
_MARKS = "\"'“”‘’„«»`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A turn that asks for the passage, the place that it shows, and the number of the turn that noted it."""

    turn: Turn
    span: Span
    noted: int


def checks(plan: Plan, question: str, answer: str, origins: Iterable[LineOrigin], most: int = MOST_CHECKS) -> list[Check]:
    """The turns that verify an answer: at most `most`, for the places that share the most words with it."""
    shown = fit(answer, plan.budgets.memory, plan.tokenizer, False)
    return [
        Check(
            turn=Turn(
                id=f"verify-{number}",
                kind="verify",
                system=plan.profile.system,
                user=plan.profile.render(
                    "verify",
                    question=question,
                    answer=shown,
                    chunk=plan.text.read(span.start, span.end),
                ),
                max_tokens=plan.budgets.update_tokens,
                spans=(span,),
            ),
            span=span,
            noted=noted,
        )
        for number, (span, noted) in enumerate(_places(plan, answer, origins, most), 1)
    ]


def verdict_by_model(
    question: str, answer: str, replies: Sequence[tuple[Check, str]], text: Located, unsupported: str
) -> Verdict:
    """What the replies to checks come to. `unsupported` is the reply that says that a place has no such passage."""
    found = [one for check, reply in replies for one in _quotes(check, reply, text, unsupported)]
    quotes = [one for one in found if touches(answer, one.cited_text, question)]
    cited, asserted = [one.cited_text for one in quotes], claims(answer)
    return judged(asserted, [claim for claim in asserted if not held(claim, cited, question)], quotes)


def _quotes(check: Check, reply: str, text: Located, unsupported: str) -> Iterator[Quote]:
    """The passages of a reply that stand in the place that was shown: the reply as a whole, or line by line."""
    if says(reply, unsupported):
        return
    lines = [BULLET.sub("", line).strip().strip(_MARKS).strip() for line in reply.splitlines()]
    for passage in [reply.strip().strip(_MARKS), *lines]:
        places = align(passage, text, [check.span])
        yield from (quote(text, place, check.noted) for place in places)
        if places and passage not in lines:
            return


def _places(plan: Plan, answer: str, origins: Iterable[LineOrigin], most: int) -> list[tuple[Span, int]]:
    """The places to show, those that share the most words with the answer first, and the turns that noted them.

    What a line of the memory shares with the answer counts for all places it came from.
    """
    words = units(answer)
    found: dict[Span, tuple[int, int]] = {}
    for origin in origins:
        line = len(words & units(origin.line))
        for span in (piece for whole in origin.spans for piece in _pieces(plan, whole)):
            shared = line + len(words & units(plan.text.read(span.start, span.end)))
            if span not in found or shared > found[span][0]:
                found[span] = (shared, origin.turn)
    best = sorted(found, key=lambda span: -found[span][0])[:most]
    return [(span, found[span][1]) for span in best]


def _pieces(plan: Plan, span: Span) -> Iterator[Span]:
    """A place, in pieces that a prompt holds."""
    content = _read(plan.text, span)
    ends, room = plan.tokenizer.ends(content), plan.budgets.chunk
    if len(ends) <= room:
        yield span
        return
    for first in range(0, len(ends), room - room // _OVERLAP):
        start = ends[first - 1] if first else 0
        yield replace(span, start=span.start + start, end=span.start + ends[min(first + room, len(ends)) - 1])


def _read(text: Text, span: Span) -> str:
    return text.read(span.start, span.end)
