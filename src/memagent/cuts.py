"""The chunks of documents, each cut once in each way and kept in the journal as long as there is a reading of it. What is
made of them for a search is kept beside the journal as long.

A reading that is resumed, and another question about the same text, begin without cutting it again: for 200 MB that is
minutes of tokenizing, and much longer where a server counts. What is kept is a cache: a few of the chunks are counted
again before they are used, and what is missing, damaged, or of a tokenizer that counts otherwise is cut anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Self

from memagent.core import Chunks, Cutter, Ranker, Text, Tokenizer, cut
from memagent.core.chunking import CUTTING
from memagent.errors import JournalError
from memagent.journal import Cut, Journal
from memagent.ranking import bm25
from memagent.settings import Settings


class Cuts:
    """The chunks of texts for one model, whose `tokenizer` has that name. With a journal, those that it has too."""

    def __init__(self, journal: Journal | None, tokenizer: str) -> None:
        self._journal = journal
        self._tokenizer = tokenizer
        self._known: dict[tuple[str, int], Chunks] = {}
        self._kept = set[tuple[str, int]]()
        self.stores = True

    @classmethod
    def of(cls, settings: Settings, journal: Journal | None) -> Self:
        """Those for a model and a journal. Wherever a model is served, it is expected to count alike; chunks that are taken
        from the journal are counted to see that it does."""
        return cls(journal, settings.model if settings.base_url else settings.identity)

    def cutter(self, digest: str, first: Chunks | None = None) -> Cutter:
        """A cutter for the text with that digest. Its first chunks may be known from when it was shorter."""
        return partial(self._cut, digest, first)

    def ranker(self, digest: str) -> Ranker:
        """A ranker for the passages of the text with that digest. Its index goes with the readings of the journal, so that
        what only looks at a plan (`stores` is False) leaves none."""
        return partial(bm25, folder=self._journal.beside(digest), store=self.stores) if self._journal else bm25

    @contextmanager
    def kept(self, digest: str) -> Iterator[list[Cut]]:
        """How the text with that digest was cut here, for a journal to keep in this block: with the chunks that it does not
        have yet."""
        keys = [key for key in self._known if key[0] == digest]
        yield [Cut(document=digest, way=self._way(key[1]), chunks=self._fresh(key)) for key in keys]
        self._kept.update(keys)

    def _fresh(self, key: tuple[str, int]) -> bytes | None:
        return None if key in self._kept else json.dumps(self._known[key].to_json()).encode()

    def _cut(self, digest: str, first: Chunks | None, text: Text, tokenizer: Tokenizer, limit: int) -> Chunks:
        key = digest, limit
        if key not in self._known:
            stored = self._stored(digest, text, tokenizer, limit)
            self._known[key] = cut(text, tokenizer, limit, first) if stored is None else stored
            if stored is not None:
                self._kept.add(key)
        return self._known[key]

    def _stored(self, digest: str, text: Text, tokenizer: Tokenizer, limit: int) -> Chunks | None:
        """What the journal has, if it still holds. A journal that cannot be read has none; writing to it says why."""
        found = None
        with suppress(JournalError):
            found = self._journal and self._journal.cut(digest, self._way(limit))
        if not found:
            return None
        try:
            chunks = Chunks.from_json(json.loads(found))
        except (ValueError, TypeError, KeyError, OverflowError):  # it is damaged
            return None
        return chunks if chunks.hold(text, tokenizer, limit) else None

    def _way(self, limit: int) -> str:
        """How a text is cut: what its chunks follow from, as a digest, because a name may be any text."""
        values: Sequence[str | int] = (CUTTING, self._tokenizer, limit)
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()
