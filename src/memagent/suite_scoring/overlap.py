"""How much of an answer is right: words, characters, sets, and the order of words."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from memagent.scoring import normalize, overlap
from memagent.stemming import stem
from memagent.suite_scoring.meta import needed

_FINAL = re.compile(r"Final Answer: ?\[(.*)\]")


def mrcr(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """OpenAI MRCR: the ratio of difflib's SequenceMatcher, without the `prefix`; 0 if the answer does not begin with it."""
    prefix = needed(meta, "prefix", str)
    if not answer.startswith(prefix) or not answer:
        return 0.0
    given = answer.removeprefix(prefix)
    return max(SequenceMatcher(None, given, one.removeprefix(prefix)).ratio() for one in accepted)


def graphwalks(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """GraphWalks: F1 of the two sets of nodes in the last line, which must hold `Final Answer: [a, b]`."""
    if (given := _nodes(answer)) is None:
        return 0.0
    wanted = [_nodes(one) or set() for one in accepted]
    return 1.0 if given in wanted else max(overlap(given, one) for one in wanted)


def locomo_f1(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """LoCoMo: F1 of the stems of the words, without articles and "and"."""
    given = _locomo_words(answer)
    return max(overlap(given, _locomo_words(one)) for one in accepted)


def locomo_parts(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """LoCoMo, for answers of several parts: over the parts of the accepted answer, the mean of the best F1 with a part of
    the answer. Commas separate parts."""
    parts = [_locomo_words(part) for part in answer.split(",")]

    def over(one: str) -> float:
        wanted = [_locomo_words(part) for part in one.split(",")]
        wanted = [words for words in wanted if words] or wanted
        return sum(max(overlap(part, words) for part in parts) for words in wanted) / len(wanted)

    return max(map(over, accepted))


def f1_characters(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Chinese questions: F1 of the characters, without spaces and punctuation."""
    given = _characters(answer)
    return max(overlap(given, _characters(one)) for one in accepted)


def rouge_l(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """ROUGE-L: F1 of the longest common subsequence of words (runs of a-z and 0-9, in lower case, not stemmed)."""
    given = _rouge_words(answer)

    def over(one: str) -> float:
        wanted = _rouge_words(one)
        return 2 * common / (len(given) + len(wanted)) if (common := _common_length(given, wanted)) else 0.0

    return max(map(over, accepted))


def _nodes(text: str) -> set[str] | None:
    """The nodes in the last line; None if it is not of the form asked for."""
    found = _FINAL.search(text.strip().rpartition("\n")[2])
    return {node.strip() for node in found.group(1).split(",") if node.strip()} if found else None


def _locomo_words(text: str) -> list[str]:
    return [stem(word) for word in normalize(text).split() if word != "and"]


def _characters(text: str) -> list[str]:
    return [one for one in text.lower() if not one.isspace() and unicodedata.category(one)[0] not in "PS"]


def _rouge_words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _common_length(first: Sequence[str], second: Iterable[str]) -> int:
    """The length of the longest common subsequence. A bit for each place of `first`: a row of the usual table at once."""
    places: defaultdict[str, int] = defaultdict(int)
    for number, item in enumerate(first):
        places[item] |= 1 << number
    everything = row = (1 << len(first)) - 1
    for item in second:
        met = row & places.get(item, 0)
        row = ((row + met) | (row - met)) & everything
    return len(first) - row.bit_count()
