"""Lost in the Middle (arXiv 2307.03172): the value of a key in a JSON object of random pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.samples import Fact
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole


class PairsRecord(SuiteRecord):
    """The pairs in their order, and the one that is asked for."""

    ordered_kv_records: list[tuple[str, str]] = Field(min_length=1)
    key: str
    value: str


def exercises(record: PairsRecord, place: Place) -> Iterator[Exercise]:
    pairs = record.ordered_kv_records
    if (record.key, record.value) not in pairs:
        raise TaskError("key: expected a key of ordered_kv_records, with the value that it has there")
    number = pairs.index((record.key, record.value))
    lines = [f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}" for key, value in pairs]
    before = "{" + "".join(f"{line},\n " for line in lines[:number])
    fact = Fact(
        text=lines[number], start=len(before), end=len(before) + len(lines[number]), key=record.key, value=record.value
    )
    yield Exercise(
        id=str(place.number),
        question=f'Which value does the key "{record.key}" have in the JSON object? Answer with the value only.',
        document=whole("{" + ",\n ".join(lines) + "}\n"),
        answers=[record.value],
        scorer="ruler",
        category=f"{len(pairs)} keys",
        facts=[fact],
        meta={"depth": number / max(1, len(pairs) - 1), "length": len(pairs)},
    )


SUITE = Suite(
    name="kv-retrieval",
    title="Lost in the Middle, key-value retrieval",
    file="kv-retrieval-75_keys.jsonl.gz, -140_keys and -300_keys of nelson-liu/lost-in-the-middle (GitHub)",
    scorer="ruler",
    official="yes",
    record=PairsRecord,
    exercises=exercises,
)
