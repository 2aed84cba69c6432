"""Verification by the model. A place that the memory was written from is shown once more, with question and answer. The
model copies the passage that supports the answer, or says that there is none; what it copies counts only if it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from memagent.core import LineOrigin, Plan, Span, Turn
from memagent.core.outcomes import fit, says
from memagent.core.spans import merged
from memagent.core.types import Text
from memagent.grounding.alignment import align
from memagent.grounding.claims import claims, held, touches, units
from memagent.grounding.fields import Field, Passage, places, states
from memagent.grounding.normal import BULLET, WORD
from memagent.grounding.verdict import Located, Quote, Verdict, judged, quote

MOST_CHECKS = 4
MOST_FIELD_CHECKS = 16  # of an answer that has fields
_OVERLAP = 8  # pieces of a long place overlap by this part of their size
_WIDE = 400_000  # characters of places that are all looked at; of wider ones, the most telling parts are
_PART, _MOST_PARTS = 10_000, 32  # characters of a part, and how many
_MARKS = "\"'“”‘’„«»`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A turn that asks for the passage, the place that it shows, and the number of the turn that noted it. `fields` are
    the pointers of those that it asks about; (): it is about the answer as a whole."""

    turn: Turn
    span: Span
    noted: int
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that an answer may rest on: what it says, its words and those of a line that was noted there, and the number
    of that turn."""

    span: Span
    passage: Passage
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
    for place in sorted(_places(plan, answer, origins), key=lambda place: -place.shared(words)):
        if len(best) < MOST_CHECKS and all(place.span != one.span for one in best):
            best.append(place)
    return [_check(plan, question, answer, number, place) for number, place in enumerate(best, 1)]


def field_checks(plan: Plan, question: str, asked: Sequence[Field], origins: Iterable[LineOrigin]) -> list[Check]:
    """The turns that verify the fields of an answer: each field is shown with the place that is most likely to state it.

    That is one that has its value, of several the one that shares the most words with field and line. Fields with one
    place share a turn, as many as a memory would hold. There are at most MOST_FIELD_CHECKS; about further fields, no turn
    asks.
    """
    groups: dict[Span, tuple[Place, list[Field]]] = {}
    known = list(_places(plan, " ".join(map(str, asked)), origins))
    for field in asked if known else ():
        place = _likely(field, known)
        groups.setdefault(place.span, (place, []))[1].append(field)
    turns = [(place, part) for place, fields in groups.values() for part in _fitting(plan, fields)]
    most = sorted(turns, key=lambda turn: -len(turn[1]))[:MOST_FIELD_CHECKS]
    return [
        replace(
            _check(plan, question, "\n".join(map(str, fields)), number, place),
            fields=frozenset(field.pointer for field in fields),
        )
        for number, (place, fields) in enumerate(most, 1)
    ]


def _fitting(plan: Plan, fields: Sequence[Field]) -> Iterator[list[Field]]:
    """The fields in parts that a memory would hold."""
    part, size = list[Field](), 0
    for field in fields:
        tokens = plan.tokenizer.count(str(field)) + 1
        if part and size + tokens > plan.budgets.memory:
            yield part
            part, size = [], 0
        part, size = [*part, field], size + tokens
    yield part


def _likely(field: Field, known: Sequence[Place]) -> Place:
    words, there = units(str(field)), dict[Span, bool]()

    def rank(place: Place) -> tuple[bool, int]:
        if place.span not in there:
            there[place.span] = next(places(field, place.passage), None) is not None
        return there[place.span], place.shared(words)

    return max(known, key=rank)


def _check(plan: Plan, question: str, answer: str, number: int, place: Place) -> Check:
    shown = fit(answer, plan.budgets.memory, plan.tokenizer, False)
    prompt = plan.profile.render("verify", question=question, answer=shown, chunk=place.passage.text)
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


def quotes_of_fields(
    asked: Sequence[Field], replies: Sequence[tuple[Check, str]], text: Located, unsupported: str
) -> dict[str, Quote]:
    """For each field, by its pointer, the passage of the replies to `field_checks` that states it best: word for word
    before in other words, and from the turn that asked about it before another. Only that turn can support true and false.
    """
    found = [
        (check, one, Passage(one.cited_text))
        for check, reply in replies
        for one in _quotes(check, reply, text, unsupported, by_line=True)
    ]
    cited: dict[str, Quote] = {}
    for field in asked:
        ranked = [(_rank(field, check, passage), one) for check, one, passage in found]
        best = max(ranked, key=lambda pair: pair[0], default=None)
        if best is not None and best[0] > (0, False):
            cited[field.pointer] = best[1]
    return cited


def _rank(field: Field, check: Check, passage: Passage) -> tuple[int, bool]:
    """How well a passage states a field: (0, False) for not at all."""
    own = field.pointer in check.fields
    if isinstance(field.value, bool):
        return int(own), own
    if next(places(field, passage), None) is not None:
        return 2, own
    return (1, own) if states(field, passage) else (0, False)


def _quotes(check: Check, reply: str, text: Located, unsupported: str, by_line: bool = False) -> list[Quote]:
    """The passages of a reply that stand in the place that was shown: the reply as a whole, or if it does not, or runs over
    the end of a file, its lines. `by_line`: the lines first, so that each of several facts that follow one another has a
    passage of its own."""
    if says(reply, unsupported):
        return []
    whole = [reply.strip().strip(_MARKS)]
    lines = [BULLET.sub("", line).strip().strip(_MARKS).strip() for line in reply.splitlines()]
    for passages in (lines, whole) if by_line else (whole, lines):
        places = [place for passage in passages for place in align(passage, text, [check.span])]
        places = [place for place in places if text.locate(place.start).file == text.locate(place.end - 1).file]
        if places:
            return [quote(text, place, check.noted) for place in places]
    return []


def _places(plan: Plan, said: str, origins: Iterable[LineOrigin]) -> Iterator[Place]:
    """The places that the lines of the memory came from. Where that is much of a long document, as after a merge of notes
    from everywhere, they are the parts of it that have the most words of what is `said`."""
    lines = [(frozenset(units(one.line)), one) for one in origins]
    spans = list(dict.fromkeys(span for _, one in lines for span in one.spans))
    if sum(map(len, merged(spans))) > _WIDE:
        spans = _telling(plan.text, said, list(merged(spans)))
    for span in spans:
        own = [(line, one.turn) for line, one in lines if any(_meet(span, place) for place in one.spans)]
        for piece in _pieces(plan, span):
            text = _read(plan.text, piece)
            passage, words = Passage(text), frozenset(units(text))
            yield from (Place(span=piece, passage=passage, words=words, line=line, noted=turn) for line, turn in own)


def _telling(text: Text, said: str, spans: Sequence[Span]) -> list[Span]:
    """The parts of spans that have the most of these words, in the order of the document. They are read one by one."""
    words = {word.lower() for word in WORD.findall(said)}
    step = _PART - _PART // _OVERLAP
    starts = [(start, span.end) for span in spans for start in range(span.start, span.end, step)]
    parts = [Span(start=start, end=min(end, start + _PART)) for start, end in starts]

    def shared(part: Span) -> int:
        content = _read(text, part).lower()
        return sum(word in content for word in words)

    return sorted(nlargest(_MOST_PARTS, parts, key=shared), key=lambda part: part.start)


def _meet(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


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
