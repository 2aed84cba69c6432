"""Several readers of one model over the same samples: how often each is right, and what its readings cost.

A failed reading is a wrong one. Which reader suits a model is decided by right answers first, and by time among those that
are as good: with few samples, one answer more or less says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from memagent.evaluation.folder import RunFolder
from memagent.evaluation.records import Record
from memagent.evaluation.runner import Evaluation, Tally, Watcher, evaluate
from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import Interval, wilson
from memagent.models.open import OpenModel, open_tokenizer
from memagent.settings import Settings
from memagent.tasks.files import SampleFile
from memagent.tasks.synthesis import Recipe, write_samples

# What made-up questions ask for, by the name of their file: one fact, one that the document does not hold, and one that
# leads to another. Facts are worded as the embedded model has never seen them.
_ASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "one-fact": ("facts", {"wordings": "eval"}),
    "not-there": ("facts", {"wordings": "eval", "absent": True}),
    "two-facts": ("multihop", {"hops": 2}),
}
# A model whose best reader is right less often than this cannot read in any of these ways.
LEAST = 0.5
# Answers that a reader may have less than the best, and still be as good.
_NEAR = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What one reader made of all samples.

    parts    the sum of the scores, from 0 to 1 each, and the number of readings, by file; by task for a file with several
    failures readings that ended without an answer, by kind; they are in `parts` as 0
    calls, prompt_tokens, completion_tokens, seconds
             means of a reading; `seconds` from its start to its answer, beside those that run at the same time
    """

    reader: str
    parts: Mapping[str, tuple[float, int]]
    failures: Mapping[str, int]
    calls: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float

    @property
    def right(self) -> float:
        """The sum of all scores."""
        return sum(score for score, _ in self.parts.values())

    @property
    def readings(self) -> int:
        return sum(count for _, count in self.parts.values())

    @property
    def interval(self) -> Interval:
        """95 % of the share of right answers (Wilson)."""
        return wilson(self.right, self.readings)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "reader": self.reader,
            "right": self.right,
            "readings": self.readings,
            "low": self.interval.low,
            "high": self.interval.high,
            "parts": {name: {"right": score, "readings": count} for name, (score, count) in self.parts.items()},
            "failures": dict(self.failures),
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": self.seconds,
        }


def compare(
    files: Sequence[SampleFile],
    opened: OpenModel,
    settings: Mapping[str, Settings],
    out: Path,
    *,
    batch: int,
    concurrency: int,
    watcher: Watcher | None = None,
) -> Iterator[Compared]:
    """Reads all samples with every reader, one after the other. `settings` are by the name of the reader.

    The runs stay in `out`, in a folder for each reader and file; those that are there already are continued. Raises as
    `evaluate`.
    """
    before = Tally(total=len(settings) * sum(len(samples) for samples in files))
    for name, chosen in settings.items():
        parts: dict[str, list[Record]] = {}
        for samples in files:
            evaluation = Evaluation(samples=samples, opened=opened, settings=chosen, batch=batch, concurrency=concurrency)
            run = out / name / samples.path.stem
            with RunFolder.open(run, evaluation.config()) as folder:
                before = before.plus(evaluate(evaluation, folder, _onward(watcher, before)))
            several = len({entry.task for entry in samples.entries}) > 1
            for placed in Run.open(run).records():
                part = placed.record.task if several else samples.path.stem
                parts.setdefault(part, []).append(placed.record)
        yield _compared(name, parts)


def _onward(watcher: Watcher | None, before: Tally) -> Watcher | None:
    """A watcher of one run that tells another of all runs."""
    return None if watcher is None else lambda tally: watcher(before.plus(tally))


def made_up(folder: Path, tokens: int, samples: int, seed: int = 0) -> list[SampleFile]:
    """Writes files of made-up questions about documents of `tokens` tokens (of the embedded model), `samples` of each kind,
    and opens them. Files that are there already are overwritten by the same, if the numbers are."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[SampleFile] = []
    for name, (task, options) in _ASKED.items():
        path = folder / f"{name}.jsonl"
        recipe = Recipe(
            tasks=(task,),
            tokens=(tokens,),
            samples=samples,
            tokenizer=partial(open_tokenizer, "embedded"),
            seed=seed,
            options=options,
            shared=False,
        )
        write_samples(recipe, path)
        files.append(SampleFile.open(path))
    return files


def _compared(reader: str, parts: Mapping[str, Sequence[Record]]) -> Compared:
    records = [record for part in parts.values() for record in part]
    return Compared(
        reader=reader,
        parts={name: (sum(map(_right, part)), len(part)) for name, part in parts.items()},
        failures=Counter(record.error_kind for record in records if record.error_kind is not None),
        calls=mean(len(record.turns) for record in records),
        prompt_tokens=mean(sum(turn.prompt_tokens for turn in record.turns) for record in records),
        completion_tokens=mean(sum(turn.completion_tokens for turn in record.turns) for record in records),
        seconds=mean(record.wall for record in records),
    )


def _right(record: Record) -> float:
    """The score of an answer by its sample's own scorer; otherwise it has to contain an accepted answer."""
    return record.scores[record.scorer or "contains"]


def suited(found: Sequence[Compared]) -> Compared | None:
    """The fastest of those that are as right as the best; None if even that one is right too seldom."""
    best = max(found, key=lambda one: one.right, default=None)
    if best is None or best.right < LEAST * best.readings:
        return None
    return min((one for one in found if best.right - one.right <= _NEAR), key=lambda one: one.seconds)
