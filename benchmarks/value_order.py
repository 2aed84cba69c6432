"""Does a model find a value that stands before what it is said of ("646 souls call Nuganton their home")?

    memagent synth facts --tokens 2048 --samples 200 --seed 199 --set wordings=train -o facts.jsonl
    memagent eval facts.jsonl --model FOLDER -o runs/facts
    python -m benchmarks.value_order runs/facts

Readings of the task `facts`, one fact asked for, by what comes first in the sentence: how many are right (95 % Wilson
interval), and how many of the others note nothing, or something false.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import wilson
from memagent.tasks.facts import ABSENT


def main(folder: str) -> None:
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for placed in Run.open(folder).records():
        record = placed.record
        [fact] = [one for one in record.facts if one.needed]
        subject = fact.key.rpartition(", ")[0]
        order = "value first" if fact.text.index(fact.value) < fact.text.index(subject) else "subject first"
        wrong = "nothing noted" if record.answer in ABSENT else "false"
        outcomes[order]["right" if record.scores["strict"] == 1 else wrong] += 1
    for order, found in sorted(outcomes.items()):
        n, right = found.total(), found["right"]
        interval = wilson(right, n)
        print(f"{order}: {right / n:.1%} ({interval.low:.0%} to {interval.high:.0%}) of {n}; {dict(found)}")


if __name__ == "__main__":
    main(sys.argv[1])
