"""BM25 over the passages of a document, with the bm25s package (the `eval` extra). Implements `memagent.core.Ranker`.

An index takes one pass over the document, a passage at a time. For 193 MB of text that was 17 seconds, at most 0.57 GB
while it was made and 0.28 GB afterwards (`python -m benchmarks.ranking`). The last two are kept as long as their documents
are, because a reading that searches asks several times. That of a long text is also kept in a folder, if there is one, so
that other processes need not make it again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from memagent.core import Span, Text
from memagent.core.types import UNSPACED
from memagent.errors import MissingExtraError

Ranking: TypeAlias = Callable[[str], list[int]]

# A character of scripts without spaces; or a word, as bm25s has it.
_WORD = rf"(?u)[{UNSPACED}]|\b\w\w+\b"
_KEPT = 2
_LONG = 4_000_000  # characters; the index of a shorter text is made in half a second
_FORMAT = "1"  # of what folders hold; another one makes them again
_indexes: OrderedDict[tuple[int, bytes], tuple[weakref.ref[Any], Ranking]] = OrderedDict()
_lock = Lock()


def bm25(text: Text, passages: Sequence[Span], query: str, *, folder: Path | None = None, store: bool = True) -> list[int]:
    """The numbers of the passages, the best first; of equal ones the earlier.

    Okapi BM25 as Lucene scores it (k1 1.5, b 0.75); lower-cased words of two and more characters, without English stop
    words; each character of scripts that have no spaces. `folder` is for the indexes of this text alone; without `store`,
    nothing is added to it. Raises MissingExtraError without bm25s.
    """
    places = array("Q", (place for span in passages for place in (span.start, span.end)))
    key = (id(text), hashlib.sha256(places.tobytes()).digest())
    with _lock:  # readings that start together wait for one index instead of making one each
        known = _indexes.get(key)
        if known is None:
            kept = folder / f"{_FORMAT}-{key[1].hex()}" if folder and len(text) >= _LONG else None
            known = _indexes[key] = (weakref.ref(text, partial(_forget, key)), index(text, passages, kept, store=store))
            while len(_indexes) > _KEPT:
                _indexes.popitem(last=False)
        _indexes.move_to_end(key)
    return known[1](query)


def index(text: Text, passages: Sequence[Span], kept: Path | None = None, *, store: bool = True) -> Ranking:
    """A function from a query to the numbers of the passages, best first. If the folder `kept` holds the index, it is not
    made again; otherwise `store` puts it there, if it can be. Raises MissingExtraError without bm25s."""
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("searching a document", "eval") from error
    count = len(passages)
    model = _loaded(kept, count) if kept else None
    if model is None:
        model = _indexed(text, passages)
        if kept and store and model is not None:
            with suppress(OSError):  # a full disk: the next process makes the index again
                _store(model, kept)

    def rank(query: str) -> list[int]:
        [asked] = bm25s.tokenize([query], token_pattern=_WORD, stopwords="en", return_ids=False, show_progress=False)
        known = [word for word in asked if model is not None and word in model.vocab_dict]
        if not known:
            return list(range(count))
        scores = model.get_scores(known).tolist()
        return sorted(range(count), key=lambda number: (-scores[number], number))

    return rank


def _indexed(text: Text, passages: Sequence[Span]) -> Any:
    """The index of the passages; None if none of them has a word."""
    import bm25s
    from bm25s.tokenization import Tokenizer

    words = Tokenizer(lower=True, splitter=_WORD, stopwords="en")
    read = (text.read(span.start, span.end) for span in passages)
    tokens = list(words.streaming_tokenize(read, update_vocab=True, allow_empty=False))
    if not any(tokens):
        return None
    model = bm25s.BM25()
    model.index((tokens, words.get_vocab_dict()), show_progress=False)
    return model


def _loaded(folder: Path, count: int) -> Any:
    """The index of `count` passages in a folder, mapped into memory; None if it is not there, or damaged."""
    import bm25s

    try:
        model = bm25s.BM25.load(folder, mmap=True, show_progress=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        return None
    return model if model.scores["num_docs"] == count else None


def _store(model: Any, folder: Path) -> None:
    """Puts an index on disk, whole or not at all. Raises OSError."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))  # for its owner alone
    try:
        model.save(made, show_progress=False)
        for path in made.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        if folder.exists():  # damaged
            shutil.rmtree(folder)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _forget(key: tuple[int, bytes], _: object) -> None:
    _indexes.pop(key, None)
