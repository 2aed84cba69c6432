"""Porter's stemmer for English words (Porter 1980), with the additions that are usual in scorers.

The additions are those of the NLTK project: words of two letters stay, a few irregular words have stems of their own, and
"ies", "ied", "y", "alli", "fulli" and "logi" have rules of their own. Words are in lower case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

# (ending, what stands in its place); of the rules that fit, the first is meant
Rules: TypeAlias = Sequence[tuple[str, str]]

_IRREGULAR = {
    "skies": "sky", "sky": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news", "innings": "inning",
    "inning": "inning", "outings": "outing", "outing": "outing", "cannings": "canning", "canning": "canning",
    "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip
_SECOND: Rules = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"),
    ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"),
    ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_THIRD: Rules = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_FOURTH = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plurals, _past, _final_y, _double_suffixes, _suffixes, _last_suffixes, _final_e, _final_l):
        word = step(word)
    return word


def _kinds(word: str) -> str:
    """For each letter "v" or "c"; "y" is a consonant at the beginning and behind a vowel."""
    kinds = ""
    for place, letter in enumerate(word):
        consonant = letter not in "aeiou" and (letter != "y" or place == 0 or kinds[-1] == "v")
        kinds += "c" if consonant else "v"
    return kinds


def _measure(word: str) -> int:
    """How often consonants follow vowels."""
    return _kinds(word).count("vc")


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _kinds(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x and y; or a word of a vowel and a consonant."""
    kinds = _kinds(word)
    return kinds == "vc" or (kinds.endswith("cvc") and word[-1] not in "wxy")


def _replaced(word: str, rules: Rules) -> str:
    for ending, by in rules:
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            return rest + by if _measure(rest) else word
    return word


def _plurals(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word if word.endswith("ss") else word.removesuffix("s")


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        rest = word.removesuffix(ending)
        if word.endswith(ending) and "v" in _kinds(rest):
            return _mended(rest)
    return word


def _mended(word: str) -> str:
    """What is left of a past form or a participle, as a word."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _final_y(word: str) -> str:
    rest = word[:-1]
    return rest + "i" if word.endswith("y") and len(rest) > 1 and _kinds(rest)[-1] == "c" else word


def _double_suffixes(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _double_suffixes(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, _SECOND)


def _suffixes(word: str) -> str:
    return _replaced(word, _THIRD)


def _last_suffixes(word: str) -> str:
    for ending in _FOURTH:
        if word.endswith(ending):
            rest = word.removesuffix(ending)
            fits = _measure(rest) > 1 and (ending != "ion" or rest[-1] in "st")
            return rest if fits else word
    return word


def _final_e(word: str) -> str:
    rest = word[:-1]
    if not word.endswith("e"):
        return word
    return rest if _measure(rest) > 1 or (_measure(rest) == 1 and not _ends_short(rest)) else word


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
