"""Are held-out wordings right only because others of training are much like them?

    memagent synth facts --tokens 2048 --samples 256 --seed 7301 --set wordings=eval -o facts.jsonl
    memagent eval facts.jsonl --model FOLDER -o runs/facts
    python -m benchmarks.near_wordings runs/facts

A sentence (a question) is near if all of its words, but those that every text has, stand in one sentence (question) of
training for the same attribute, in any order and among others. Prints how many of the held-out ones are near, and how many
readings are right (95 % Wilson interval) with a near sentence, with a near question only, and with neither.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import wilson
from memagent.tasks.facts import attributes

_HELD_OUT = 3
_EVERYWHERE = frozenset(
    "a all an any and are as at be been by can could did do does for from had has have how i in is it its may me more my of"
    " on or please s shall so tell than that the there this to up was we were what when where which who whom whose will"
    " with you your would".split()
)


def words(text: str) -> set[str]:
    """The words of a wording that not every text has."""
    return set(re.sub(r"[^a-z]", " ", re.sub(r"\{.\}", " ", text.lower())).split()) - _EVERYWHERE


def near(texts: Sequence[str]) -> Iterator[str]:
    """Those held out that are near one of the others."""
    trained = [words(text) for text in texts[:-_HELD_OUT]]
    for text in texts[-_HELD_OUT:]:
        if len(words(text)) > 1 and any(words(text) <= one for one in trained):
            yield text


def drawn(templates: Iterable[str], text: str) -> bool:
    """Whether a text was made of one of these."""
    patterns = (re.sub(r"\\\{.\\\}", "(.+)", re.escape(one)) for one in templates)
    return any(re.fullmatch(pattern, text, re.IGNORECASE) for pattern in patterns)


def main(folder: str) -> None:
    for what in ("statements", "questions"):
        held = [list(near(getattr(one, what))) for one in attributes()]
        print(f"{what}: {sum(map(len, held))} of {_HELD_OUT * len(held)} held-out ones are near one of training")
    outcomes: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    known = {one.name: one for one in attributes()}
    for placed in Run.open(folder).records():
        record = placed.record
        [fact] = [one for one in record.facts if one.needed]
        attribute = known[fact.key.rpartition(", ")[2]]
        sentence = drawn(near(attribute.statements), fact.text)
        question = drawn(near(attribute.questions), record.question)
        kind = "near sentence" if sentence else "near question only" if question else "neither"
        outcomes[kind][record.scores["strict"] == 1] += 1
    for kind, found in sorted(outcomes.items()):
        interval = wilson(found[True], found.total())
        print(f"{kind}: {found[True] / found.total():.1%} ({interval.low:.0%} to {interval.high:.0%}) of {found.total()}")


if __name__ == "__main__":
    main(sys.argv[1])
