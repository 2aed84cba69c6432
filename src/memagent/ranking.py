"""BM25 over the passages of a document, with the bm25s package (the `eval` extra). Implements `memagent.core.Ranker`.

An index takes one pass over the document, a passage at a time. For 193 MB of text that was 17 seconds, at most 0.57 GB
while it was made and 0.28 GB afterwards (`python -m benchmarks.ranking`). The last two are kept as long as their documents
are, because a reading that searches asks several times.
"""

from __future__ import annotations

import hashlib
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from memagent.core import Span, Text
from memagent.core.types import UNSPACED
from memagent.errors import MissingExtraError

Ranking: TypeAlias = Callable[[str], list[int]]

# A character of scripts without spaces; or a word, as bm25s has it.
_WORD = rf"(?u)[{UNSPACED}]|\b\w\w+\b"
_KEPT = 2
_indexes: OrderedDict[tuple[int, bytes], tuple[weakref.ref[Any], Ranking]] = OrderedDict()
_lock = Lock()


def bm25(text: Text, passages: Sequence[Span], query: str) -> list[int]:
    """The numbers of the passages, the best first; of equal ones the earlier.

    Okapi BM25 as Lucene scores it (k1 1.5, b 0.75); lower-cased words of two and more characters, without English stop
    words; each character of scripts that have no spaces.
    """
    places = array("Q", (place for span in passages for place in (span.start, span.end)))
    key = (id(text), hashlib.sha256(places.tobytes()).digest())
    with _lock:  # readings that start together wait for one index instead of making one each
        known = _indexes.get(key)
        if known is None:
            known = _indexes[key] = (weakref.ref(text, partial(_forget, key)), index(text, passages))
            while len(_indexes) > _KEPT:
                _indexes.popitem(last=False)
        _indexes.move_to_end(key)
    return known[1](query)


def index(text: Text, passages: Sequence[Span]) -> Ranking:
    """A function from a query to the numbers of the passages, best first. Raises MissingExtraError without bm25s."""
    try:
        import bm25s
        from bm25s.tokenization import Tokenizer
    except ImportError as error:
        raise MissingExtraError("searching a document", "eval") from error
    words = Tokenizer(lower=True, splitter=_WORD, stopwords="en")
    read = (text.read(span.start, span.end) for span in passages)
    tokens = list(words.streaming_tokenize(read, update_vocab=True, allow_empty=False))
    vocabulary, model, count = words.get_vocab_dict(), bm25s.BM25(), len(passages)
    if indexed := any(tokens):
        model.index((tokens, vocabulary), show_progress=False)

    def rank(query: str) -> list[int]:
        [asked] = bm25s.tokenize([query], token_pattern=_WORD, stopwords="en", return_ids=False, show_progress=False)
        known = [word for word in asked if word in vocabulary]
        if not known or not indexed:
            return list(range(count))
        scores = model.get_scores(known).tolist()
        return sorted(range(count), key=lambda number: (-scores[number], number))

    return rank


def _forget(key: tuple[int, bytes], _: object) -> None:
    _indexes.pop(key, None)
