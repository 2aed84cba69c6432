"""Which single readings a report shows, and where their documents are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from memagent.errors import ConfigError, TaskError
from memagent.evaluation.report.findings import Findings, Place
from memagent.evaluation.runs import Run
from memagent.tasks.files import SampleFile


def choose(findings: Findings, count: int, samples: Sequence[str] = (), seed: int = 0) -> list[Place]:
    """`count` readings, half right and half wrong, chosen with a seed; or every reading of the named samples.

    Drawn are readings that kept a memory, if there are any: there is more to see in them.
    """
    if samples:
        unknown = set(samples) - {place.sample for place in findings.places}
        if unknown:
            raise ConfigError(
                f"these runs have no reading of the sample {min(unknown)!r}: pass the id of a sample to --sample"
            )
        return [place for place in findings.places if place.sample in samples]
    every = range(len(findings.places))
    pool = [number for number in every if findings.places[number].keeps_memory] or list(every)
    right = [number for number in pool if findings.places[number].row.score == 1]
    wrong = [number for number in pool if findings.places[number].row.score < 1]
    rng = random.Random(seed)
    bad = min(len(wrong), max((count + 1) // 2, count - len(right)))
    good = min(len(right), count - bad)
    return [findings.places[number] for number in sorted(rng.sample(wrong, bad)) + sorted(rng.sample(right, good))]


class Documents:
    """The sample files of runs: those given, else the one a run names, if it is there and is still the same."""

    def __init__(self, given: Sequence[Path]) -> None:
        self._opened: dict[Path, SampleFile | str] = {}
        self._given = [SampleFile.open(path) for path in given]
        self._used: set[str] = set()

    def of(self, run: Run) -> SampleFile | str:
        """The sample file of a run, or why there is none."""
        samples = run.header.get("samples", {})
        digest = samples.get("sha256")
        for file in self._given:
            if file.sha256 == digest:
                self._used.add(file.sha256)
                return file
        path = Path(str(samples.get("path", "")))
        if path not in self._opened:
            self._opened[path] = self._open(path)
        found = self._opened[path]
        if isinstance(found, SampleFile) and found.sha256 != digest:
            return f"{path} has changed since the run"
        return found

    def check_used(self) -> None:
        """Raises ConfigError for a file that belongs to none of the runs that were asked about."""
        for file in self._given:
            if file.sha256 not in self._used:
                raise ConfigError(f"{file.path} is not the sample file of these runs: its digest is {file.sha256[:12]}…")

    @staticmethod
    def _open(path: Path) -> SampleFile | str:
        try:
            return SampleFile.open(path)
        except TaskError as error:
            return str(error)
