"""How often a memory changes at a chunk that states nothing of what is asked for.

    python -m benchmarks.false_finds OUT.csv RUN...

Each RUN is a run of `memagent eval` with `memory` or `gated` on samples that say where their facts are. A turn is quiet if
its chunk shows no part of a needed fact. The first turn of a reading, which writes the form of the memory, does not count,
and neither does one whose reply was asked for again.
The table has a row for each run and task: readings, mean score, readings with a quiet turn that changed the memory, quiet
turns, and those that did.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.recorded import records
from memagent.evaluation.diagnosis import RETRIES
from memagent.evaluation.records import Record
from memagent.evaluation.report.findings import score_of
from memagent.evaluation.shorten import READERS
from memagent.files import atomic_file

COLUMNS = ("run", "task", "tokens", "readings", "score", "disturbed", "quiet", "changed")


@dataclass(slots=True)
class Row:
    readings: int = 0
    score: float = 0.0
    disturbed: int = 0
    quiet: int = 0
    changed: int = 0

    def add(self, record: Record) -> None:
        needed = [fact for fact in record.facts if fact.needed]
        self.readings += 1
        self.score += score_of(record, "own")
        before = self.changed
        updates = [turn for turn in record.turns if turn.kind == "update" and turn.outcome not in RETRIES]
        for turn in updates[1:]:
            if any(map(turn.shows, needed)):
                continue
            self.quiet += 1
            self.changed += turn.memory is not None
        self.disturbed += self.changed > before


def main(output: Path, runs: Annotated[list[Path], typer.Argument()]) -> None:
    rows: dict[tuple[str, str, int], Row] = defaultdict(Row)
    if len({folder.name for folder in runs}) < len(runs):
        raise typer.BadParameter("two runs have the same name: rename a folder")
    for folder in runs:
        for record in records(folder):
            if record.reader not in READERS:
                raise typer.BadParameter(f"{folder}: read with {record.reader!r}, not with {' or '.join(READERS)}")
            if not any(fact.needed for fact in record.facts):
                raise typer.BadParameter(f"{folder}: sample {record.sample} does not say where its facts are")
            rows[folder.name, record.task, int(record.meta.get("target", record.tokens))].add(record)
    with atomic_file(output) as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for (run, task, tokens), row in rows.items():
            score = round(100 * row.score / row.readings, 2)
            writer.writerow([run, task, tokens, row.readings, score, row.disturbed, row.quiet, row.changed])
            typer.echo(
                f"{run} {task} {tokens:,}: {score:.1f} % of {row.readings}; {row.changed} of {row.quiet:,} quiet turns"
            )


if __name__ == "__main__":
    typer.run(main)
