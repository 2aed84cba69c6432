"""Scores answers. The reward in training and the metric in evaluation are the same named functions.

Every scorer returns a number in [0, 1]: 1 for a right answer, 0 for an empty one. `mode` says what the accepted answers
are: "any", alternatives of which one is enough; "all", parts that are all required. Where nothing else is said, a score is
the best over alternatives and the mean over required parts. An accepted answer of nothing but articles, punctuation and
"and" is never found. Scorers raise ValueError if no answer is accepted.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["any", "all"]
Scorer: TypeAlias = Callable[[str, Sequence[str], Mode], float]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SEPARATORS = re.compile(r"[,;\n、]|\band\b")
_MARKS = {"Pi", "Pf", "Po", "Ps", "Pe"}  # quotation marks, full stops and the like, brackets; not dashes
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# What numbers the lines of a list: "1. ", "(2) ".
_NUMBERED = re.compile(r"^[ \t]*\(?(\d{1,3})[.)][ \t]+(?=\S)", re.MULTILINE)


def normalize(text: str) -> str:
    """Lower case, compatibility form, no punctuation, no English articles, single spaces: as SQuAD's evaluation
    does, and without the marks of other scripts too.

    Without punctuation "1.5" is "15", and "-5" is "5".
    """
    plain = unicodedata.normalize("NFKC", text)
    return _squad_form("".join(one for one in plain if unicodedata.category(one) not in _MARKS))


def strict(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """`any`: 1 if the answer equals an accepted one after normalisation. `all`: the fraction of required answers found.

    For `all` the answer is read as a list, separated by commas, semicolons, "and" or line breaks; an accepted answer with a
    separator in it is found as a run of items. Other items cost nothing, as in RULER's metric: this is recall, and an
    answer that lists everything scores 1. `f1` counts them.
    """
    if mode == "any":
        given = normalize(answer)
        return _over(accepted, mode, lambda one: bool(given) and given == normalize(one))
    items = _bars(_items(answer))
    return _over(accepted, mode, lambda one: bool(_items(one)) and _bars(_items(one)) in items)


def contains(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """1 for each accepted answer whose words occur in the answer, whole and next to each other ("no" is not in "unknown").

    Words are those of the normalised texts. An answer that lists everything it has read scores 1 here: read it beside
    `strict`.
    """
    given = f" {normalize(answer)} "
    return _over(accepted, mode, lambda one: bool(normalize(one)) and f" {normalize(one)} " in given)


def f1(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """F1, the harmonic mean of precision and recall. `any`: of the normalised words. `all`: of the two sets of items.

    For `all` the answer is read as a list as in `strict`, and so are the required answers: one with a separator in it is
    several items. Items count whole, once each, and one that is not required lowers the score.
    """
    if mode == "any":
        given = normalize(answer).split()
        return _over(accepted, mode, lambda one: overlap(given, normalize(one).split()))
    _check_some(accepted)
    return overlap(set(_items(answer)), {item for one in accepted for item in _items(one)})


def all_required(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """1 if `strict` finds all required answers, otherwise 0. Extra items cost nothing, as in `strict`."""
    return float(strict(answer, accepted, mode) == 1)


def ruler(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """The metrics of RULER (arXiv 2404.06654): 1 for each accepted answer that is a substring, whatever the case.

    Characters, not words: "12" is found in "4123". The published needle, tracing and counting tables use the mean over
    required answers, the published question tables the best alternative.
    """
    given = answer.lower()
    return _over(accepted, mode, lambda one: bool(one.strip()) and one.lower() in given)


def released(answer: str, accepted: Sequence[str], mode: Mode = "any") -> float:
    """The lenient metric of the released MemAgent evaluation, only for comparison with published tables.

    `any`: 1 if the normalised answer is a substring of the first accepted one or the other way round; further alternatives
    are not looked at. `all`: as `ruler`. That metric is what the released code reports for questions; its needle tables use
    `ruler`. Known traps, kept on purpose:

    - both directions count: the answer "Par" scores 1 against "Paris", and "no" is found in "unknown";
    - an answer that normalises to nothing ("the", "!!!") is a substring of everything and scores 1.

    An empty answer scores 0 by the contract of this module. The released scripts agree, though not their function: they
    call it for answers that are not empty, and leave out of the mean requests that came back empty. We never leave one out.
    """
    if mode == "all":
        return ruler(answer, accepted, mode)
    given = _squad_form(answer)

    def either_way(one: str) -> bool:
        return bool(answer.strip()) and (given in _squad_form(one) or _squad_form(one) in given)

    return _over(accepted[:1], mode, either_way)


SCORERS: MappingProxyType[str, Scorer] = MappingProxyType(
    {scorer.__name__: scorer for scorer in (strict, contains, f1, all_required, ruler, released)}
)


def scores(answer: str, accepted: Sequence[str], mode: Mode = "any") -> dict[str, float]:
    """The scores of one answer by all scorers."""
    return {name: scorer(answer, accepted, mode) for name, scorer in SCORERS.items()}


def overlap(given: Collection[str], wanted: Collection[str]) -> float:
    """F1 of two collections of words or other items; 0 if nothing is in both."""
    shared = (Counter(given) & Counter(wanted)).total()
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0


def _over(accepted: Sequence[str], mode: Mode, score: Callable[[str], float]) -> float:
    """The best of the alternatives, or the mean of the required parts."""
    _check_some(accepted)
    values = [float(score(one)) for one in accepted]
    return max(values) if mode == "any" else sum(values) / len(values)


def _check_some(accepted: Sequence[str]) -> None:
    if not accepted:
        raise ValueError("there are no accepted answers")


def _squad_form(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _items(text: str) -> list[str]:
    """The normalised items of a list, without the numbers that count them."""
    plain = unicodedata.normalize("NFKC", text).lower()
    numbers = [int(number) for number in _NUMBERED.findall(plain)]
    if len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1)):  # else one may be a value: "(215) 555-0488"
        plain = _NUMBERED.sub("", plain)
    items = (normalize(item) for item in _SEPARATORS.split(plain))
    return [item for item in items if item]


def _bars(items: Sequence[str]) -> str:
    """A form in which one list holds another as a run of whole items exactly if one string holds the other."""
    return f"|{'|'.join(items)}|"
