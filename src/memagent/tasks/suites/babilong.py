"""BABILong (arXiv 2406.10149): bAbI's facts about people and things, hidden in books."""

from __future__ import annotations

from collections.abc import Iterator

from memagent.errors import TaskError
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole

_ROOMS = "bathroom bedroom garden hallway kitchen office"
_YES_NO = "no yes"
# The possible answers of each bAbI task.
LABELS = {
    name: tuple(words.split())
    for names, words in {
        "qa1 qa2 qa3 qa4 qa11 qa12 qa13": _ROOMS,
        "qa5": "Bill Fred Jeff Mary apple football milk",
        "qa6 qa9 qa17 qa18": _YES_NO,
        "qa7": "none one two three",
        "qa8": "apple football milk nothing",
        "qa10": "maybe no yes",
        "qa14": "bedroom cinema kitchen office park school",
        "qa15": "cat mouse sheep wolf",
        "qa16": "gray green white yellow",
        "qa19": "e,e e,n e,s n,e n,n n,w s,e s,s s,w w,n w,s w,w",
        "qa20": "bedroom bored garden hungry kitchen thirsty tired",
    }.items()
    for name in names.split()
}


class BabilongRecord(SuiteRecord):
    """`input` is the document."""

    input: str
    question: str
    target: str


def exercises(record: BabilongRecord, place: Place) -> Iterator[Exercise]:
    target = record.target.strip()
    asked = record.question.lower()
    wanted = set(target.lower().split(",")) | {target.lower()}
    known = [label for label in LABELS[place.subset] if label.lower() in wanted or label.lower() not in asked]
    if not wanted & {label.lower() for label in known}:
        raise TaskError(f"target: {target!r} is no answer of {place.subset}: {', '.join(LABELS[place.subset])}")
    yield Exercise(
        id=f"{place.subset}-{place.length or 'any'}-{place.number}",
        question=record.question.strip(),
        document=whole(record.input),
        answers=[target],
        scorer="babilong",
        category=place.subset,
        meta={"labels": known, "length": place.length},
    )


SUITE = Suite(
    name="babilong",
    title="BABILong",
    file="data/qa1/4k.json and the like of RMT-team/babilong, or Parquet of babilong-1k-samples (Hugging Face)",
    scorer="babilong",
    official="yes",
    record=BabilongRecord,
    exercises=exercises,
    subsets=tuple(sorted(LABELS, key=lambda name: int(name[2:]))),
)
