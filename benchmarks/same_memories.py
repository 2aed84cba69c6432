"""How many short samples take a model through the memories of the long reading that they were made of.

    memagent shorten runs/long -o short.jsonl
    memagent eval short.jsonl -o runs/short
    python -m benchmarks.same_memories runs/long runs/short

Short readings of other runs than LONG are not counted.
"""

from __future__ import annotations

from pathlib import Path

import typer

from benchmarks.recorded import records
from memagent.evaluation.records import Record


def memories(record: Record) -> list[str]:
    return [turn.memory for turn in record.turns if turn.memory is not None]


def main(long: Path, short: Path) -> None:
    held = {record.key: memories(record) for record in records(long)}
    same = count = 0
    for record in records(short):
        made_of = record.meta.get("shortened", {})
        if (key := (made_of.get("sample"), made_of.get("attempt"))) in held:
            count += 1
            same += memories(record) == held[key]
    typer.echo(f"{same} of {count} readings of {short} go through the memories of {long}")


if __name__ == "__main__":
    typer.run(main)
