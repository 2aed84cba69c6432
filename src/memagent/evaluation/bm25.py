"""Passages of a document ranked against a question by BM25, with the bm25s package (the `eval` extra)."""

from __future__ import annotations

from collections.abc import Iterable

from memagent.errors import MissingExtraError


def best_passages(passages: Iterable[str], question: str, count: int) -> list[int]:
    """Numbers of the `count` best passages, in the order of the document. Of equal ones the earlier are taken.

    Okapi BM25 as Lucene scores it (k1 1.5, b 0.75); lower-cased words of two and more characters, without stop words.
    Where no word of the question occurs, the first passages are returned.
    """
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("retrieving passages", "eval") from error
    texts = list(passages)
    if len(texts) <= count:
        return list(range(len(texts)))
    words = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    [asked] = bm25s.tokenize([question], stopwords="en", return_ids=False, show_progress=False)
    known = {word for passage in words for word in passage}
    asked = [word for word in asked if word in known]
    if not asked:
        return list(range(count))
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    scores = index.get_scores(asked).tolist()
    best = sorted(range(len(texts)), key=lambda number: (-scores[number], number))[:count]
    return sorted(best)
