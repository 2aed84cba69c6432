"""What a report is made from: one pass over the records of some runs. Turns are looked at and let go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError, TaskError
from memagent.evaluation.diagnosis import diagnose
from memagent.evaluation.records import Record
from memagent.evaluation.runs import Run, check_apart
from memagent.evaluation.summary import Row, Summary, row_of, summarize
from memagent.evaluation.systems import systems
from memagent.evaluation.tally import Tally
from memagent.scoring import SCORERS
from memagent.suite_scoring import OWN, meant, own_score


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run of a report: its system, its current number of records, and the identities of the models that made them.

    They are several if a server moved.
    """

    run: Run
    system: str
    records: int
    models: tuple[str, ...]

    @property
    def state(self) -> str:
        """ "finished", or the progress."""
        whole = self.run.finished and self.records >= self.run.expected
        return "finished" if whole else f"unfinished: {self.records:,} of {self.run.expected:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The location of a reading in its run."""

    run: int
    place: int
    size: int
    sample: str
    attempt: int
    keeps_memory: bool
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything in a report except single readings. `tallies` are by system, `by_task` by (system, task)."""

    scorer: str
    parts: tuple[Part, ...]
    summary: Summary
    tallies: Mapping[str, Tally]
    by_task: Mapping[tuple[str, str], Tally]
    places: tuple[Place, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        return self.summary.systems


def gather(folders: Sequence[str | Path], scorer: str = OWN) -> Findings:
    """Reads the runs once. Raises ConfigError or TaskError, naming file and line, for what is no run of this version.

    The scorer "own" is for each sample the one that it names, and strict if it names none.
    """
    if scorer not in (*SCORERS, OWN):
        raise ConfigError(f"unknown scorer {scorer!r}: choose one of {', '.join((*SCORERS, OWN))}")
    check_apart(folders)
    runs = [Run.open(folder) for folder in folders]
    names = systems(runs)
    by_task: dict[tuple[str, str], Tally] = defaultdict(Tally)
    places: list[Place] = []
    parts: list[Part] = []
    named: set[str] = set()
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        before, models = len(places), dict[str, None]()
        for placed in run.records():
            record = placed.record
            named.add(record.scorer or "strict")
            models[run.model_of(record)] = None
            score = score_of(record, scorer)
            diagnosis = diagnose(record)
            by_task[name, record.task].add(diagnosis, score)
            places.append(
                Place(
                    run=number,
                    place=placed.place,
                    size=placed.size,
                    sample=record.sample,
                    attempt=record.attempt,
                    keeps_memory=diagnosis.updates and record.shown is None,
                    row=row_of(record, name, score),
                )
            )
        made_by = tuple(filter(None, models)) or (str(run.header.get("model") or "–"),)
        parts.append(Part(run=run, system=name, records=len(places) - before, models=made_by))
    if not places:
        raise ConfigError(f"nothing to report: no finished readings in {', '.join(str(run.folder) for run in runs)}")
    return Findings(
        scorer=scorer if scorer != OWN else "strict" if named == {"strict"} else f"{OWN} ({', '.join(sorted(named))})",
        parts=tuple(parts),
        summary=summarize([place.row for place in places], list(dict.fromkeys(names))),
        tallies={name: _together(name, by_task) for name in names},
        by_task=dict(by_task),
        places=tuple(places),
    )


def _together(system: str, by_task: Mapping[tuple[str, str], Tally]) -> Tally:
    return sum((tally for (name, _), tally in by_task.items() if name == system), Tally())


def score_of(record: Record, scorer: str) -> float:
    """As recorded; a scorer that is newer than the record scores now. A reading that failed has 0."""
    if record.status == "failed":
        return 0.0
    name = meant(scorer, record.scorer)
    if name in record.scores:
        return record.scores[name]
    try:
        return own_score(name, record.answer, record.answers, record.mode, record.meta)
    except ValueError as error:
        raise TaskError(f"sample {record.sample}: its answer cannot be scored: {error}") from error
