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
from memagent.grounding.fields import Field, places, states
from memagent.grounding.normal import BULLET
from memagent.grounding.verdict import Located, Quote, Verdict, judged, on_fields, quote

MOST_CHECKS = 4
MOST_FIELD_CHECKS = 16  # of an answer that has fields
_OVERLAP = 8  # pieces of a long place overlap by this part of a chunk
_MARKS = "\"'“”‘’„«»`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A turn that asks for the passage, the place that it shows, and the number of the turn that noted it."""

    turn: Turn
    span: Span
    noted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that an answer may rest on: what it says, its words and those of a line that was noted there, and the number
    of that turn."""

    span: Span
    text: str
    words: frozenset[str]
    line: frozenset[str]
    noted: int

    def shared(self, words: set[str]) -> int:
        """How many words it shares; a word of the line as well counts twice."""
        return len(words & self.words) + len(words & self.line)


def checks(plan: Plan, question: str, answer: str, origins: Iterable[LineOrigin]) -> list[Check]:
    """The turns that verify an answer: at most MOST_CHECKS, for the places that share the most words with it.

    What a line of the memory shares with the answer counts for all places it came from.
    """
    best, words = list[Place](), units(answer)
    for place in sorted(_places(plan, origins), key=lambda place: -place.shared(words)):
        if len(best) < MOST_CHECKS and all(place.span != one.span for one in best):
            best.append(place)
    return [_check(plan, question, answer, number, place) for number, place in enumerate(best, 1)]


def field_checks(plan: Plan, question: str, asked: Sequence[Field], origins: Iterable[LineOrigin]) -> list[Check]:
    """The turns that verify the fields of an answer: each field is shown with the place that is most likely to state it.

    That is one that has its value, of several the one that shares the most words with field and line. Fields with one
    place share a turn. There are at most MOST_FIELD_CHECKS; fields beyond them are shown with the most used place.
    """
    known = list(_places(plan, origins))
    groups: dict[Span, tuple[Place, list[Field]]] = {}
    for field in asked if known else ():
        place = _likely(field, known)
        groups.setdefault(place.span, (place, []))[1].append(field)
    ranked = sorted(groups.values(), key=lambda group: -len(group[1]))
    kept = ranked[:MOST_FIELD_CHECKS]
    for _, fields in ranked[MOST_FIELD_CHECKS:]:
        kept[0][1].extend(fields)
    return [
        _check(plan, question, "\n".join(map(str, fields)), number, place) for number, (place, fields) in enumerate(kept, 1)
    ]


def _likely(field: Field, known: Sequence[Place]) -> Place:
    words = units(str(field))
    return max(known, key=lambda place: (next(places(field, place.text), None) is not None, place.shared(words)))


def _check(plan: Plan, question: str, answer: str, number: int, place: Place) -> Check:
    shown = fit(answer, plan.budgets.memory, plan.tokenizer, False)
    prompt = plan.profile.render("verify", question=question, answer=shown, chunk=place.text)
    turn = Turn(
        id=f"verify-{number}",
        kind="verify",
        system=plan.profile.system,
        user=prompt,
        max_tokens=plan.budgets.update_tokens,
        spans=(place.span,),
    )
    return Check(turn=turn, span=place.span, noted=place.noted)


def verdict_by_model(
    question: str, answer: str, replies: Sequence[tuple[Check, str]], text: Located, unsupported: str
) -> Verdict:
    """What the replies to checks come to. `unsupported` is the reply that says that a place has no such passage."""
    found = [one for check, reply in replies for one in _quotes(check, reply, text, unsupported)]
    quotes = [one for one in found if touches(answer, one.cited_text, question)]
    cited, asserted = [one.cited_text for one in quotes], claims(answer)
    return judged(asserted, [claim for claim in asserted if not held(claim, cited, question)], quotes)


def verdict_on_fields(
    asked: Sequence[Field], replies: Sequence[tuple[Check, str]], text: Located, unsupported: str
) -> Verdict:
    """What the replies to `field_checks` come to: for each field, the first passage that states it."""
    found = [one for check, reply in replies for one in _quotes(check, reply, text, unsupported)]
    cited = {field.pointer: one for field in reversed(asked) for one in reversed(found) if states(field, one.cited_text)}
    return on_fields(asked, cited)


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


def _places(plan: Plan, origins: Iterable[LineOrigin]) -> Iterator[Place]:
    """The places that the lines of the memory came from."""
    known: dict[Span, tuple[str, frozenset[str]]] = {}
    for origin in origins:
        line = frozenset(units(origin.line))
        for span in (piece for whole in origin.spans for piece in _pieces(plan, whole)):
            if span not in known:
                text = _read(plan.text, span)
                known[span] = text, frozenset(units(text))
            text, words = known[span]
            yield Place(span=span, text=text, words=words, line=line, noted=origin.turn)


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
