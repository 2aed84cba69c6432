"""Finding quotes again: how many of those that models change, how many of those that they invent, and how long it takes.

    python -m benchmarks.alignment OUT.csv TEXT… [--quotes N] [--place CHARACTERS]
        [--threshold SCORE] [--near] [--characters N] [--seed N]

Passages of 60 to 400 characters are drawn from the TEXT files (anything memagent reads) and changed. A faithful one is
found if what is returned covers it, give or take a word at either end (each piece of it, where words were left out). An
invented one must not be found. All are looked for in a place of `--place` characters around the passage, as in
verification, and in the whole text, which with `--characters` is made so long by repeating the sentences of the TEXT
files in another order each time. `found` is the share that was found at the right place, `elsewhere` the share that
was found at another one.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TypeAlias

from memagent.core.types import Span
from memagent.documents import Document, from_text, load
from memagent.grounding import THRESHOLD, Alignment, align
from memagent.grounding.normal import normal

COLUMNS = "quotes change n found elsewhere milliseconds slowest whole_found whole_elsewhere whole_milliseconds".split()
_SLACK = 24  # characters at either end
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage, and the pieces of it that a quote keeps, as characters of the text."""

    start: int
    end: int
    text: str


# A quote, and the pieces of the text that it is made of; none: it is invented.
Changed: TypeAlias = tuple[str, Sequence[tuple[int, int]]]
Change: TypeAlias = Callable[[random.Random, Passage, Document], Changed]


def whole(passage: Passage, quote: str) -> Changed:
    return quote, [(passage.start, passage.end)]


def as_it_is(rng: random.Random, passage: Passage, text: Document) -> Changed:
    return whole(passage, passage.text)


def case(rng: random.Random, passage: Passage, text: Document) -> Changed:
    return whole(passage, rng.choice((str.upper, str.lower, str.capitalize))(passage.text))


def white_space(rng: random.Random, passage: Passage, text: Document) -> Changed:
    return whole(passage, re.sub(r"\s+", lambda _: rng.choice((" ", "  ", "\n", "\u00a0")), passage.text))


def hyphenation(rng: random.Random, passage: Passage, text: Document) -> Changed:
    words = [match for match in _WORD.finditer(passage.text) if len(match.group()) > 5]
    quote = passage.text
    for match in sorted(rng.sample(words, min(2, len(words))), key=lambda one: -one.start()):
        at = match.start() + rng.randint(2, len(match.group()) - 2)
        quote = quote[:at] + rng.choice(("-\n", "\u00ad", "-\n  ")) + quote[at:]
    return whole(passage, quote)


def typography(rng: random.Random, passage: Passage, text: Document) -> Changed:
    quote = passage.text.replace("--", "—").replace("'", "’").replace("fi", "ﬁ")
    quote = re.sub(r'"([^"]*)"', "“\\1”", quote).replace("...", "…")
    return whole(passage, f"“{quote}”")


def full_stop(rng: random.Random, passage: Passage, text: Document) -> Changed:
    return whole(passage, f'"{passage.text.rstrip(".,;: ")}."')


def wrong_word(rng: random.Random, passage: Passage, text: Document) -> Changed:
    match = rng.choice(list(_WORD.finditer(passage.text)))
    return whole(passage, passage.text[: match.start()] + another(rng, text) + passage.text[match.end() :])


def missing_word(rng: random.Random, passage: Passage, text: Document) -> Changed:
    match = rng.choice(list(_WORD.finditer(passage.text))[1:-1])
    return whole(passage, passage.text[: match.start()].rstrip() + passage.text[match.end() :])


def ellipsis(rng: random.Random, passage: Passage, text: Document) -> Changed:
    words = list(re.finditer(r"\S+", passage.text))
    first = rng.randint(3, len(words) // 2)
    second = rng.randint(first + 1, len(words) - 3)
    left, right = passage.text[: words[first - 1].end()], passage.text[words[second].start() :]
    pieces = [(passage.start, passage.start + len(left)), (passage.end - len(right), passage.end)]
    return left + rng.choice((" ... ", "…", " [...] ", "... ")) + right, pieces


def another_place(rng: random.Random, passage: Passage, text: Document) -> Changed:
    """A passage from far away: in the whole text it is faithful, so it is not looked for there."""
    other = draw(rng, text)
    while abs(other.start - passage.start) < 50_000:
        other = draw(rng, text)
    return other.text, []


def other_number(rng: random.Random, passage: Passage, text: Document) -> Changed:
    if not any(char.isdigit() for char in passage.text):
        number = rng.randint(2, 99)
        place = rng.choice([match.end() for match in _WORD.finditer(passage.text)])
        return f"{passage.text[:place]} {number}{passage.text[place:]}", []
    return re.sub(r"\d+", lambda match: str(int(match.group()[:15]) + rng.randint(1, 9)), passage.text, count=1), []


def shuffled(rng: random.Random, passage: Passage, text: Document) -> Changed:
    words = passage.text.split()
    rng.shuffle(words)
    return " ".join(words), []


def words_of_the_text(rng: random.Random, passage: Passage, text: Document) -> Changed:
    return " ".join(another(rng, text) for _ in passage.text.split()), []


FAITHFUL: tuple[Change, ...] = (
    as_it_is,
    case,
    white_space,
    hyphenation,
    typography,
    full_stop,
    ellipsis,
    wrong_word,
    missing_word,
)
INVENTED: tuple[Change, ...] = (another_place, other_number, shuffled, words_of_the_text)


def another(rng: random.Random, text: Document) -> str:
    """A word of the text."""
    while True:
        start = rng.randrange(max(1, len(text) - 200))
        words = _WORD.findall(text.read(start, start + 200))[1:-1]
        if words:
            return str(rng.choice(words))


def draw(rng: random.Random, text: Document) -> Passage:
    """A passage of at least ten words, from word to word, without an ellipsis of its own."""
    while True:
        start = rng.randrange(len(text) - 600)
        content = text.read(start, start + rng.randint(60, 400))
        begin, end = content.find(" ") + 1, content.rfind(" ")
        passage = content[begin:end].strip()
        begin = content.find(passage, begin)
        if len(_WORD.findall(passage)) >= 10 and ".." not in passage and "…" not in passage and ". . " not in passage:
            return Passage(start + begin, start + begin + len(passage), passage)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.alignment")
    parser.add_argument("out", type=Path)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--quotes", type=int, default=160, help="of each change")
    parser.add_argument("--place", type=int, default=20_000)
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    parser.add_argument("--near", action="store_true", help="look in places only, not in the whole text")
    parser.add_argument("--characters", type=int, help="of the text, made of the sentences of the TEXT files")
    parser.add_argument("--seed", type=int, default=27)
    given = parser.parse_args(arguments)
    with text_of(given) as text, given.out.open("w", encoding="utf-8", newline="") as file:
        print(f"{len(text):,} characters", file=sys.stderr)
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        for change in (*FAITHFUL, *INVENTED):
            row = measured(change, text, given, random.Random(f"{given.seed}/{change.__name__}"))
            rows.writerow(row)
            print(row, file=sys.stderr)


def text_of(given: argparse.Namespace) -> Document:
    """The text to look in."""
    document = load(given.texts)
    if given.characters is None:
        return document
    with document:
        sentences = _SENTENCE.split(document.read(0, len(document)))
    rng, parts, length = random.Random(given.seed), list[str](), 0
    while length < given.characters:
        rng.shuffle(sentences)
        parts += sentences
        length += sum(len(one) + 1 for one in sentences)
    return from_text(" ".join(parts)[: given.characters])


def measured(change: Change, text: Document, given: argparse.Namespace, rng: random.Random) -> dict[str, object]:
    """A row for a change: in a place, and in the whole text."""
    tries, quotes, place, threshold = [], given.quotes, given.place, given.threshold
    for _ in range(quotes):
        passage = draw(rng, text)
        quote, pieces = change(rng, passage, text)
        start = max(0, passage.start - rng.randrange(place - len(passage.text)))
        tries.append((quote, pieces, Span(start=start, end=min(len(text), start + place))))
    near = [looked_for(quote, pieces, text, span, threshold) for quote, pieces, span in tries]
    sought = [] if given.near or change is another_place else tries
    far = [looked_for(quote, pieces, text, None, threshold) for quote, pieces, _ in sought]
    return {
        "quotes": "invented" if change in INVENTED else "faithful",
        "change": change.__name__.replace("_", " "),
        "n": quotes,
        "found": round(mean(one == "right" for one, _ in near), 4),
        "elsewhere": round(mean(one == "wrong" for one, _ in near), 4),
        "milliseconds": round(1000 * mean(seconds for _, seconds in near), 2),
        "slowest": round(1000 * max(seconds for _, seconds in near), 2),
        "whole_found": round(mean(one == "right" for one, _ in far), 4) if far else "",
        "whole_elsewhere": round(mean(one == "wrong" for one, _ in far), 4) if far else "",
        "whole_milliseconds": round(1000 * mean(seconds for _, seconds in far), 2) if far else "",
    }


def looked_for(
    quote: str, pieces: Sequence[tuple[int, int]], text: Document, span: Span | None, threshold: float
) -> tuple[str, float]:
    """Whether a quote was found ("right", "wrong", "none"), and the seconds it took."""
    began = time.perf_counter()
    places = align(quote, text, None if span is None else [span], threshold=threshold)
    seconds = time.perf_counter() - began
    if not places:
        return "none", seconds
    right = len(places) == len(pieces) and all(
        same(text, one, start, end) for one, (start, end) in zip(places, pieces, strict=True)
    )
    return ("right" if right else "wrong"), seconds


def same(text: Document, found: Alignment, start: int, end: int) -> bool:
    """Whether a passage was found: there, or word for word at another place, as contracts repeat themselves."""
    if abs(found.start - start) <= _SLACK and abs(found.end - end) <= _SLACK:
        return True
    return normal(text.read(start, end)).text in normal(text.read(found.start - _SLACK, found.end + _SLACK)).text


if __name__ == "__main__":
    main(sys.argv[1:])
