"""Text to hide facts in: loading books, taking a window from a random place, finding where a sentence may be inserted."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Sequence
from pathlib import Path

from memagent.errors import TaskError

# A place to insert a sentence: after the end of a sentence and the space or line end behind it.
_SENTENCE_END = re.compile(r"(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)[.!?][\"'”’)]*\s+(?=[\"'“‘(A-Z])")
_SPACE = re.compile(r"\s")


class Haystack:
    """One or more texts. `window` takes a piece from a random place of one of them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = [text for text in texts if text.strip()]
        if not self.texts:
            raise TaskError("a haystack needs at least one text that is not empty")
        self._sizes = [len(text) for text in self.texts]

    @classmethod
    def load(cls, paths: Sequence[Path | str]) -> Haystack:
        """Reads UTF-8 files: .txt, .md, or the same gzipped. Raises TaskError that names the file."""
        return cls([read_text(Path(path)) for path in paths])

    def window(self, rng: random.Random, chars: int) -> str:
        """At least `chars` characters from a random place, from the start of a sentence on, to a space.

        A text that is too short is joined with the next ones, and repeated if all of them are too short.
        """
        which = rng.choices(range(len(self.texts)), weights=self._sizes)[0]
        text = self.texts[which]
        place = rng.randrange(max(1, len(text) - chars))
        if place:
            match = _SENTENCE_END.search(text, place, min(len(text), place + 4000))
            place = match.end() if match else place
        pieces = [text[place : place + chars]]
        have, end = len(pieces[0]), place + chars
        while have < chars:
            which = (which + 1) % len(self.texts)
            text, end = self.texts[which], chars - have
            pieces.append(text[:end])
            have += len(pieces[-1])
        tail = _SPACE.search(text, end)
        pieces.append(text[end : tail.start() if tail else len(text)])
        return "".join(pieces)


def read_text(path: Path) -> str:
    """A text file, gzipped or not. Line ends become "\\n". Raises TaskError that names the file."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return raw.decode("utf-8").replace("\r\n", "\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {error}") from error


def sentence_borders(text: str) -> list[int]:
    """Offsets at which a sentence may be inserted; 0 and the end are always among them."""
    inner = [match.end() for match in _SENTENCE_END.finditer(text)]
    return [0, *(place for place in inner if 0 < place < len(text)), len(text)]
