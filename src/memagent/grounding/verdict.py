"""What is known of an answer once it was checked against the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from memagent.core.types import Text
from memagent.grounding.alignment import Alignment, Kind
from memagent.grounding.fields import Field

Status: TypeAlias = Literal["supported", "partly", "unsupported", "not_found"]


class Located(Text, Protocol):
    """A text whose offsets can be said as file, page and offset."""

    def locate(self, offset: int) -> Any:
        """The place, with `file` and `page` (None where there are no pages); as a string, for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A passage of the document that supports an answer: `document.read(start_char_index, end_char_index) == cited_text`.

    `alignment` is how the passage that was named was found: word for word, with typesetting levelled out, nearly so; or
    "search": it is the sentence around the words of the answer. `score` is the per cent that agrees.
    `turn` is the number of the turn that first noted it. `field` is the field of a JSON answer that it is for, as a JSON
    Pointer; None: it is for the answer as a whole.
    """

    cited_text: str
    start_char_index: int
    end_char_index: int
    file: str
    page: int | None
    place: str
    turn: int
    alignment: Kind | Literal["search"]
    score: float = 100.0
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the document supports an answer.

    status       supported: each claim of the answer is; partly: some of them; unsupported: none; not_found: the answer says
                 that the document does not hold one; None: it could not be verified, as `error` says, and the quotes are
                 those of a search for its words
    quotes       passages with something of the answer, in the order of the document: those that support it, if any do.
                 Of an answer that is JSON, one for each field, in the order of the fields
    unsupported  the claims that no passage holds; of an answer that is JSON, its fields, as "pointer: value"
    error        why it could not be verified as it should have been, or None
    """

    status: Status | None
    quotes: tuple[Quote, ...] = ()
    unsupported: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Verdict:
        """The verdict that `to_json` wrote; what else there is, such as its cost, is left out."""
        return cls(
            status=values["status"],
            quotes=tuple(Quote(**one) for one in values["quotes"]),
            unsupported=tuple(values["unsupported"]),
            error=values["error"],
        )


def judged(asserted: Sequence[str], missing: Sequence[str], quotes: list[Quote]) -> Verdict:
    """The verdict on claims of which no passage holds those that are `missing`. Nothing supports an answer without any."""
    status: Status = (
        "partly"
        if 0 < len(missing) < len(asserted)
        else "unsupported"
        if missing or not quotes or not asserted
        else "supported"
    )
    return Verdict(status=status, quotes=in_order(quotes), unsupported=tuple(missing))


def on_fields(asked: Sequence[Field], cited: Mapping[str, Quote]) -> Verdict:
    """The verdict on the fields of an answer, from a quote for each that has one, by its pointer."""
    missing = [str(field) for field in asked if field.pointer not in cited]
    quotes = [replace(cited[field.pointer], field=field.pointer) for field in asked if field.pointer in cited]
    return replace(judged([field.pointer for field in asked], missing, quotes), quotes=tuple(quotes))


def quote(text: Located, place: Alignment, turn: int, *, searched: bool = False) -> Quote:
    """The quote of an aligned passage."""
    where = text.locate(place.start)
    return Quote(
        cited_text=text.read(place.start, place.end),
        start_char_index=place.start,
        end_char_index=place.end,
        file=where.file,
        page=where.page,
        place=str(where),
        turn=turn,
        alignment="search" if searched else place.kind,
        score=place.score,
    )


def in_order(quotes: list[Quote]) -> tuple[Quote, ...]:
    """Quotes in the order of the document, without those that lie within another."""
    kept: list[Quote] = []
    for one in sorted(quotes, key=lambda found: (found.start_char_index, -found.end_char_index)):
        if not kept or one.end_char_index > kept[-1].end_char_index:
            kept.append(one)
    return tuple(kept)
