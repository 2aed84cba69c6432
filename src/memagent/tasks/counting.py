"""Counting words, with the structure and parameters of RULER (arXiv 2404.06654): cwe, common words among uncommon ones in
a numbered list, and fwe, coded words whose frequencies follow a zeta distribution.

The tasks differ from RULER as follows. The word list is ours and smaller; further uncommon words are made up ("dolavemi"),
whereas RULER changes to another list. To fit the length, one uncommon word may occur less often than the others, and
there may be additional dots. There is no worked example before the list, because a document that is read in pieces has
no place for it. The wording is ours, unless a RULER checkout is given.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.tasks.fitting import SHARE
from memagent.tasks.keys import coined
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task
from memagent.tasks.words import Words, split_of

_SHORT = 4096  # tokens under which RULER repeats words less
_AIM = 0.996
_TRIES = 40
_LAST_WORDS = 64  # that are tried to fit the length
_CODE_LETTERS = 6
_ASKED = 3  # coded words
_DOTS = "..."
_PATIENCE = 10_000  # coined words without a new one before the common words count as too short


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The composition of the list. RULER's parameter is named in brackets.

    common  number of common words, which are the answer [num_cw]
    often   occurrences of each common word [freq_cw]; 0: 30, but 6 in documents under 4,096 tokens
    rarely  occurrences of each other word [freq_ucw]; 0: 3, but 1 in documents under 4,096 tokens
    """

    common: int = 10
    often: int = 0
    rarely: int = 0

    def times(self, tokens: int) -> tuple[int, int]:
        """The occurrences of each common and each uncommon word."""
        usual = (6, 1) if tokens < _SHORT else (30, 3)
        return self.often or usual[0], self.rarely or usual[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequentOptions:
    """The distribution of the coded words. RULER's parameter is named in brackets.

    alpha  exponent of the zeta distribution, above 1: the word of rank k makes up 1 / (zeta(alpha) k^alpha) of the text
    """

    alpha: float = 2.0

    def __post_init__(self) -> None:
        if not 1 < self.alpha <= 8:
            raise TaskError(f"alpha must be above 1 and at most 8, not {self.alpha}")


def make_common(name: str, materials: Materials, request: Request, options: CommonOptions) -> Sample:
    """A numbered list. The answer is its most common words."""
    rng = generator(request.seed, name, request.index)
    often, rarely = options.times(request.tokens)
    words = sorted({*materials.words.adjectives, *materials.words.nouns})
    if not (1 <= options.common <= len(words) and 0 < rarely < often):
        raise TaskError(
            f"{options.common} common words {often} times, others {rarely} times: 1 to {len(words)} words can be common,"
            " and they must come more often than others"
        )
    common = rng.sample(words, options.common)
    order, more = rng.getrandbits(64), _uncommon(rng, materials.words, common)
    uncommon: list[str] = []

    def build(size: int, last: int = 0) -> str:
        """The list with `size` entries of uncommon words; the last one is the `last`th of those left."""
        number = -(-size // rarely)
        uncommon.extend(islice(more, max(0, number + last - len(uncommon))))
        used = [*uncommon[: number - 1], uncommon[number - 1 + last]] if number else []
        entries = [word for word in common for _ in range(often)]
        entries += [word for word in used for _ in range(rarely)][:size]
        random.Random(order).shuffle(entries)
        return " ".join(f"{place}. {word}" for place, word in enumerate(entries, 1))

    size, text, have = _fit_size(build, materials.tokenizer, request.tokens, 0)
    for last in range(1, _LAST_WORDS):
        if have >= request.tokens * SHARE:
            break
        other = build(size + 1, last)
        if have < (more_tokens := materials.tokenizer.count(other)) <= request.tokens:
            text, have = other, more_tokens
    question = materials.wording.common.format(count=options.common)
    if str(options.common) not in question:
        raise TaskError(f"{options.common} common words: the wording {materials.wording.name!r} asks for another number")
    meta = {"common": options.common, "often": often, "rarely": rarely}
    return _sample(name, request, question, text, common, have, meta)


def make_frequent(name: str, materials: Materials, request: Request, options: FrequentOptions) -> Sample:
    """Coded words and dots. The answer is the three most frequent words."""
    rng = generator(request.seed, name, request.index)
    order, codes = rng.getrandbits(64), _codes(rng)
    vocabulary = [_DOTS, *islice(codes, max(request.tokens // 50, _ASKED + 2) - 1)]
    whole = zeta(options.alpha)
    # Rounded, so that the last bit of a machine's powers does not matter.
    weights = [round(rank**-options.alpha / whole, 12) for rank in range(1, len(vocabulary) + 1)]
    least = int(1 / (weights[_ASKED] - weights[_ASKED + 1])) + 1  # from here on, rank 4 comes more often than rank 5

    def build(size: int, dots: int = 0) -> str:
        """The text in which a word of weight w comes `size` * w times, rounded down; and `dots` more dots."""
        entries = [_DOTS] * dots
        for word, weight in zip(vocabulary, weights, strict=True):
            if not (times := int(size * weight)):
                break
            entries += [word] * times
        random.Random(order).shuffle(entries)
        return " ".join(entries)

    size, text, have = _fit_size(build, materials.tokenizer, request.tokens, least)
    dots = 0
    while have < request.tokens * SHARE:
        dots += 1
        text = build(size, dots)
        have = materials.tokenizer.count(text)
    meta = {"alpha": options.alpha, "vocabulary": len(vocabulary)}
    return _sample(name, request, materials.wording.frequent, text, vocabulary[1 : _ASKED + 1], have, meta)


def zeta(alpha: float) -> float:
    """Riemann's zeta function for alpha > 1: a sum and the first terms of Euler and Maclaurin's formula for the rest."""
    last = 1000.0
    rest: float = last ** (1 - alpha) / (alpha - 1) - last**-alpha / 2 + alpha * last ** (-alpha - 1) / 12
    return math.fsum(rank**-alpha for rank in range(1, 1001)) + rest


def _sample(
    name: str, request: Request, question: str, text: str, answers: Sequence[str], tokens: int, meta: Mapping[str, float]
) -> Sample:
    if tokens > request.tokens or tokens < request.tokens * SHARE:
        raise TaskError(f"task {name!r}: a document of {request.tokens} tokens cannot be made: it came to {tokens}")
    return checked(
        Sample(
            id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
            task=name,
            question=question,
            document=LazyText([text]),
            answers=tuple(answers),
            mode="all",
            tokens=tokens,
            seed=request.seed,
            meta=meta,
        )
    )


def _fit_size(build: Callable[[int], str], tokenizer: Tokenizer, tokens: int, least: int) -> tuple[int, str, int]:
    """The size, at least `least`, whose text has as many of `tokens` tokens as can be; the text; and its tokens.

    Raises TaskError if the least size has more.
    """
    low, text = least, build(least)
    have = tokenizer.count(text)
    if have > tokens:
        raise TaskError(
            f"a document of {tokens} tokens cannot be made: this task needs at least {have}; ask for more tokens"
        )
    best, high = (low, text, have), least + 2 * tokens + 2
    probe = least + min(512, tokens // 8 + 1)
    rate = max(0.1, (tokenizer.count(build(probe)) - have) / (probe - least))  # tokens an entry, about
    for _ in range(_TRIES):
        if best[2] >= tokens * SHARE or high - low < 2:
            break
        # Entries get longer as the list does: sixteen times the known length is as far as a guess is good.
        size = min(best[0] + int((tokens * _AIM - best[2]) / rate), 16 * (low + probe), high - 1)
        size = max(low + 1, size)
        text = build(size)
        have = tokenizer.count(text)
        if have <= tokens:
            rate = max(0.1, (have - best[2]) / (size - best[0]))
            low, best = size, (size, text, have)
        else:
            rate, high = (have - best[2]) / (size - best[0]), size
    return best


def _uncommon(rng: random.Random, words: Words, common: Sequence[str]) -> Iterator[str]:
    """An endless series of different uncommon words: those of the list, then made-up words that contain no common word.

    All are single words: in pairs of listed words the parts would come more often than the common words do.
    """
    listed = [word for word in dict.fromkeys((*words.adjectives, *words.nouns)) if word not in common]
    rng.shuffle(listed)
    yield from listed
    seen, idle = {*listed, *common}, 0
    while idle < _PATIENCE:
        word = coined(rng, 6, 12)
        idle += 1
        if word not in seen and split_of(word) == split_of(common[0]) and not any(one in word for one in common):
            seen.add(word)
            idle = 0
            yield word
    raise TaskError(f"no words can be coined that hold none of {', '.join(common)}: give a list of longer words")


def _codes(rng: random.Random) -> Iterator[str]:
    """An endless series of different coded words."""
    seen: set[str] = set()
    while True:
        word = "".join(rng.choices(string.ascii_lowercase, k=_CODE_LETTERS))
        if word not in seen:
            seen.add(word)
            yield word


TASKS: tuple[Task[CommonOptions] | Task[FrequentOptions], ...] = (
    Task(
        name="cwe",
        summary="the ten words that a numbered list holds most often",
        make=partial(make_common, "cwe"),
        defaults=CommonOptions(),
    ),
    Task(
        name="fwe",
        summary="the three most frequent coded words",
        make=partial(make_frequent, "fwe"),
        defaults=FrequentOptions(),
    ),
)
