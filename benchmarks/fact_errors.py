"""What a model gets wrong of the task `facts`, one fact asked for, and where.

    memagent synth facts --tokens 2048 --samples 256 --seed 7301 --set wordings=eval -o facts.jsonl
    memagent eval facts.jsonl --model FOLDER -o runs/facts
    python -m benchmarks.fact_errors runs/facts

Prints how many readings are right (95 % Wilson interval) by what comes first in the sentence, value or subject ("646 souls
call Nuganton their home"), and by whether its wording and that of the question are near one of training; and what the
others answer: nothing, another attribute of the subject, something about another subject, or something else.

A held-out sentence (or question) is near if all of its words, but those that every text has, stand in one sentence (or
question) of training for the same attribute, in any order and among others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from benchmarks.recorded import records
from memagent.evaluation.statistics import wilson
from memagent.tasks.facts import ABSENT, HELD_OUT, attributes

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
    trained = [words(text) for text in texts[:-HELD_OUT]]
    for text in texts[-HELD_OUT:]:
        if len(words(text)) > 1 and any(words(text) <= one for one in trained):
            yield text


def drawn(templates: Iterable[str], text: str) -> bool:
    """Whether a text was made of one of these."""
    patterns = (re.sub(r"\\\{.\\\}", "(.+)", re.escape(one)) for one in templates)
    return any(re.fullmatch(pattern, text, re.IGNORECASE) for pattern in patterns)


def groups(record: Any) -> Iterator[str]:
    """What its accuracy is counted under: the order and the nearness of its wordings, or that there is no answer."""
    needed = [fact for fact in record.facts if fact.needed]
    if not needed:
        yield "no answer in the document"
        return
    [fact] = needed
    subject, _, name = fact.key.rpartition(", ")
    [attribute] = [one for one in attributes() if one.name == name]
    yield "value first" if fact.text.index(fact.value) < fact.text.index(subject) else "subject first"
    if drawn(near(attribute.statements), fact.text):
        yield "near sentence"
    else:
        yield "near question only" if drawn(near(attribute.questions), record.question) else "neither near"


def mistake(record: Any) -> str:
    """What a wrong answer says."""
    if record.answer in ABSENT:
        return "nothing"
    [asked] = record.meta["keys"]
    told = [fact for fact in record.facts if fact.value in (record.answer or "")]
    if not told:
        return "something else"
    same = any(fact.key.rpartition(", ")[0] == asked.rpartition(", ")[0] for fact in told)
    return "another attribute of the subject" if same else "another subject"


def main(folder: Path) -> None:
    """Prints the counts of a run. FOLDER is that of `memagent eval`."""
    found: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    mistakes: Counter[str] = Counter()
    for record in records(folder):
        if not record.task.startswith("facts") or len(record.meta["keys"]) != 1:
            raise typer.BadParameter(f"{folder} has {record.sample}, no reading of `facts` with one fact asked for")
        right = record.scores["strict" if any(fact.needed for fact in record.facts) else "abstention"] == 1
        for group in groups(record):
            found[group][right] += 1
        if not right:
            mistakes[mistake(record)] += 1
    for group, counts in sorted(found.items()):
        interval = wilson(counts[True], counts.total())
        share = f"{counts[True] / counts.total():.1%} ({interval.low:.0%} to {interval.high:.0%}) of {counts.total()}"
        print(f"{group}: {share}")
    print(f"instead of the answer: {dict(mistakes.most_common())}")
    for what in ("statements", "questions"):
        held = [list(near(getattr(one, what))) for one in attributes()]
        print(f"{what}: {sum(map(len, held))} of {HELD_OUT * len(held)} held-out ones are near one of training")


if __name__ == "__main__":
    typer.run(main)
