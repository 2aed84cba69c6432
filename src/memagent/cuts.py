"""The chunks of documents, each cut once for a chunk budget and kept in the journal with the reading that it was cut for.

A reading that is resumed, and another question about the same text, begin without cutting it again: for 200 MB that is
minutes of tokenizing, and much longer where a server counts. What is kept is a cache: a few of the chunks are counted
again before they are used, and what is missing, or of a tokenizer that counts otherwise, is cut anew.
"""

from __future__ import annotations

from functools import partial

from memagent.core import Chunks, Cutter, Text, Tokenizer, cut
from memagent.core.chunking import CUTTING
from memagent.journal import Cut, Journal


class Cuts:
    """The chunks of texts for one model, whose `tokenizer` has that name. With a journal, those that it has too."""

    def __init__(self, journal: Journal | None, tokenizer: str) -> None:
        self._journal = journal
        self._tokenizer = f"{CUTTING}/{tokenizer}"
        self._known: dict[tuple[str, int], Chunks] = {}
        self._fresh: list[tuple[str, int]] = []

    def cutter(self, digest: str, first: Chunks | None = None) -> Cutter:
        """A cutter for the text with that digest. Its first chunks may be known from when it was shorter."""
        return partial(self._cut, digest, first)

    def keep(self, reading: str) -> None:
        """Adds what was cut since the last time to the journal, with a reading. It goes when that is deleted."""
        if self._journal is not None and self._fresh:
            made = [(digest, limit, self._known[digest, limit].to_json()) for digest, limit in self._fresh]
            cuts = [Cut(document=digest, limit=limit, tokenizer=self._tokenizer, chunks=one) for digest, limit, one in made]
            self._journal.keep_cuts(reading, cuts)
            self._fresh.clear()

    def _cut(self, digest: str, first: Chunks | None, text: Text, tokenizer: Tokenizer, limit: int) -> Chunks:
        key = digest, limit
        if key not in self._known:
            stored = self._stored(digest, text, tokenizer, limit)
            self._known[key] = cut(text, tokenizer, limit, first) if stored is None else stored
            if stored is None:
                self._fresh.append(key)
        return self._known[key]

    def _stored(self, digest: str, text: Text, tokenizer: Tokenizer, limit: int) -> Chunks | None:
        """What the journal has, if it still holds."""
        found = self._journal and self._journal.cut(digest, limit, self._tokenizer)
        chunks = Chunks.from_json(found.chunks) if found else Chunks()
        return chunks if chunks.hold(text, tokenizer, limit) else None
