"""Conversations as one text: sessions with their dates, and in them turns with their speakers."""

from __future__ import annotations

from collections.abc import Iterable

from memagent.core.types import Span
from memagent.tasks.samples import Fact


class Dialogue:
    """Collects sessions and turns. `text` is what has been collected."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def session(self, number: int, date: str) -> None:
        """Begins a session, behind an empty line."""
        dated = f", {date.strip()}" if date.strip() else ""
        self._add(f"{self._gap()}Session {number}{dated}\n")

    def turn(self, speaker: str, words: str, *, apart: bool = False) -> Span:
        """Adds what a speaker says, behind an empty line if `apart`. Returns its place."""
        lead = self._gap() if apart else ""
        said = f"{speaker.strip()}: {words.strip()}"
        start = self._size + len(lead)
        self._add(f"{lead}{said}\n")
        return Span(start=start, end=start + len(said))

    def facts(self, places: Iterable[Span]) -> list[Fact]:
        """The turns that the answer needs."""
        text = self.text
        return [Fact(text=text[place.start : place.end], start=place.start, end=place.end) for place in places]

    def _gap(self) -> str:
        return "\n" if self._parts else ""

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
