"""RULER (arXiv 2404.06654): the files that its own code writes. `memagent synth` makes such tasks itself."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole

_TASKS = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
    "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2",
)  # fmt: skip


class RulerRecord(SuiteRecord):
    """`input` is the prompt; its last line asks."""

    index: int
    input: str
    outputs: list[str | int] = Field(min_length=1)
    length: int | None = None


def exercises(record: RulerRecord, place: Place) -> Iterator[Exercise]:
    body, line, question = record.input.rstrip().rpartition("\n")
    if not line or not body.strip():
        raise TaskError("input: expected a document and, in the last line, the question")
    yield Exercise(
        id=f"{place.subset}-{record.length or 'any'}-{record.index}",
        question=question.strip(),
        document=whole(body + "\n"),
        answers=[str(output) for output in record.outputs],
        mode="any" if place.subset.startswith("qa") else "all",
        scorer="ruler",
        category=place.subset,
        meta={"length": record.length or None},
    )


SUITE = Suite(
    name="ruler",
    title="RULER",
    file="niah_single_1/validation.jsonl and the like, as the code of NVIDIA/RULER (GitHub) writes them",
    scorer="ruler",
    official="yes",
    record=RulerRecord,
    exercises=exercises,
    subsets=_TASKS,
)
