"""BM25 over the passages of a document, with the bm25s package (the `eval` extra). Implements `memagent.core.Ranker`."""

from __future__ import annotations

from collections.abc import Iterable

from memagent.errors import MissingExtraError

# A character of Thai, Japanese or Chinese; or a word, as bm25s has it.
_WORD = r"(?u)[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|\b\w\w+\b"


def bm25(passages: Iterable[str], query: str) -> list[int]:
    """The numbers of the passages, the best first; of equal ones the earlier.

    Okapi BM25 as Lucene scores it (k1 1.5, b 0.75); lower-cased words of two and more characters, without English stop
    words; each character of scripts that have no spaces.
    """
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("retrieving passages", "eval") from error
    options = {"token_pattern": _WORD, "stopwords": "en", "return_ids": False, "show_progress": False}
    words, [asked] = bm25s.tokenize(list(passages), **options), bm25s.tokenize([query], **options)
    known = {word for passage in words for word in passage}
    asked = [word for word in asked if word in known]
    if not asked:
        return list(range(len(words)))
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    scores = index.get_scores(asked).tolist()
    return sorted(range(len(words)), key=lambda number: (-scores[number], number))
