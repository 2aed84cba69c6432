"""Finds where a quotation stands in a text, although the two were extracted from one file in different ways."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from functools import cached_property

from memagent.tasks.passages import places


class Searched:
    """A text to look for quotations in."""

    def __init__(self, text: str) -> None:
        self.text = text

    def find(self, wanted: str, start: int = 0, end: int | None = None) -> tuple[int, int] | None:
        """The first place of a quotation within [start, end), as characters: word for word, or else with the same letters
        and digits, whatever the marks and spaces between them. None if there is none."""
        wanted, end = wanted.strip(), len(self.text) if end is None else end
        place = next(places(wanted, self.text, start, end), -1)
        if place < 0 and wanted.count(" ") > 2:  # no chance hit, even if the text runs these words into others
            place = self.text.find(wanted, start, end)
        if place >= 0:
            return place, place + len(wanted)
        letters, offsets = self._letters
        core = _letters(wanted)[0]
        place = letters.find(core, bisect_left(offsets, start)) if core else -1
        while place >= 0 and offsets[place + len(core) - 1] < end:
            first, last = offsets[place], offsets[place + len(core) - 1] + 1
            if not (self.text[first - 1 : first].isalnum() or self.text[last : last + 1].isalnum()):
                return self._with_marks(wanted, first, last)
            place = letters.find(core, place + 1)
        return None

    def _with_marks(self, wanted: str, first: int, last: int) -> tuple[int, int]:
        """Takes in as many marks before and after the place as the quotation has there at most."""
        inner = _letters(wanted)[1]
        for _ in range(inner[0]):
            first -= first > 0 and _is_mark(self.text[first - 1])
        for _ in range(len(wanted) - 1 - inner[-1]):
            last += last < len(self.text) and _is_mark(self.text[last])
        return first, last

    @cached_property
    def _letters(self) -> tuple[str, array[int]]:
        return _letters(self.text)


def _letters(text: str) -> tuple[str, array[int]]:
    """The letters and digits of a text, and the offset of each."""
    offsets = array("Q", (offset for offset, character in enumerate(text) if character.isalnum()))
    return "".join(character for character in text if character.isalnum()), offsets


def _is_mark(character: str) -> bool:
    return not character.isalnum() and not character.isspace()
