"""Several readers of one model over the same samples: how often each is right, and what its readings cost.

A failed reading is a wrong one. Which reader suits a model is decided by right answers first, and by time among those that
are as good: with few samples, one answer more or less says nothing, and nor does a little time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import fsum
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from memagent.driver import read_batch
from memagent.errors import ConfigError, ModelUnavailableError
from memagent.evaluation.folder import RunFolder
from memagent.evaluation.records import Record
from memagent.evaluation.runner import TRANSIENT, Evaluation, Tally, Watcher, evaluate
from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import Interval, wilson
from memagent.models.open import OpenModel, open_tokenizer
from memagent.settings import Settings, make_plan
from memagent.tasks.files import SampleFile
from memagent.tasks.synthesis import Recipe, write_samples

# What made-up questions ask for, by the name of their file: one fact, one that the document does not hold, and one that
# leads to another. Facts are worded as the embedded model has never seen them.
_ASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "one-fact": ("facts", {"wordings": "eval"}),
    "not-there": ("facts", {"wordings": "eval", "absent": True}),
    "two-facts": ("multihop", {"hops": 2}),
}
# A reader that is right less often than this does not suit a model.
_LEAST = 0.5
# Answers that a reader may have less than the best and be as good: one, and no more than this share of all.
_NEAR = 0.1
# A reader must be so many times as fast to be preferred to one that was named before it.
_FASTER = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What one reader made of all samples.

    parts    the sum of the scores, from 0 to 1 each, and the number of readings, by file; by file and task for a file with
             several tasks
    failures readings that ended without an answer, by kind; they are in `parts` as 0
    calls, prompt_tokens, completion_tokens, seconds
             means of the readings that ended with an answer, None if there are none; `seconds` are from the start of a
             reading to its answer, beside those that run at the same time
    """

    reader: str
    parts: Mapping[str, tuple[float, int]]
    failures: Mapping[str, int]
    calls: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    seconds: float | None

    @property
    def right(self) -> float:
        """The sum of all scores."""
        return fsum(score for score, _ in self.parts.values())

    @property
    def readings(self) -> int:
        return sum(count for _, count in self.parts.values())

    @property
    def interval(self) -> Interval:
        """95 % of the share of right answers (Wilson)."""
        return wilson(self.right, self.readings)

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def too_long(self) -> bool:
        """Whether every document is too long for this reader."""
        return self.failures.get("too_long", 0) == self.readings

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        parts = {name: {"right": score, "readings": count} for name, (score, count) in self.parts.items()}
        return {**asdict(self), "parts": parts, "right": self.right, "readings": self.readings, **asdict(self.interval)}


def made_up(folder: Path, tokens: int, samples: int, seed: int = 0) -> list[SampleFile]:
    """Files of made-up questions about documents of `tokens` tokens (of the embedded model), `samples` of each kind.

    They are written to `folder`, or found there. Raises ConfigError if others are there.
    """
    with TemporaryDirectory() as passing:
        for name, (task, options) in _ASKED.items():
            recipe = Recipe(
                tasks=(task,),
                tokens=(tokens,),
                samples=samples,
                tokenizer=partial(open_tokenizer, "embedded"),
                seed=seed,
                options=options,
                shared=False,
            )
            kept, made = folder / f"{name}.jsonl", Path(passing) / f"{name}.jsonl"
            write_samples(recipe, made)
            if not kept.exists():
                write_samples(recipe, kept)
            elif kept.read_bytes() != made.read_bytes():
                raise ConfigError(
                    f"{kept} has other questions than {samples} about {tokens:,} tokens: give the numbers that they were"
                    " made with (--samples, --tokens), or another folder"
                )
    return [SampleFile.open(folder / f"{name}.jsonl") for name in _ASKED]


def warm_up(samples: SampleFile, opened: OpenModel, settings: Settings) -> None:
    """Reads a sample for nothing: the first reading of a model in this process takes longer than others."""
    first = samples.load(samples.entries[0].id)
    try:
        plan = make_plan(first.document, first.question, settings, opened)
    except ConfigError:
        return  # too long for this reader
    read_batch([plan], opened.engine, keep=False)


def read_all(
    files: Sequence[SampleFile],
    opened: OpenModel,
    settings: Settings,
    out: Path,
    *,
    batch: int,
    concurrency: int,
    watcher: Watcher | None = None,
) -> Compared:
    """Reads all samples with the reader of the settings.

    The runs stay in `out`, in a folder for each file; those that are there are continued, and readings that failed because
    of the server are made again. Raises as `evaluate`, and ModelUnavailableError if all readings failed for that reason.
    """
    parts: dict[str, list[Record]] = {}
    before = Tally(total=sum(len(samples) for samples in files))
    for samples in files:
        evaluation = Evaluation(samples=samples, opened=opened, settings=settings, batch=batch, concurrency=concurrency)
        run = out / samples.path.stem
        with RunFolder.open(run, evaluation.config(), again=(*TRANSIENT, "empty")) as folder:
            before = before.plus(evaluate(evaluation, folder, _onward(watcher, before)))
        several = len({entry.task for entry in samples.entries}) > 1
        for placed in Run.open(run).records():
            part = f"{samples.path.stem}: {placed.record.task}" if several else samples.path.stem
            parts.setdefault(part, []).append(placed.record)
    records = [record for part in parts.values() for record in part]
    if records and all(record.error_kind in ("unavailable", "refused") for record in records):
        raise ModelUnavailableError(f"every reading failed, the last with: {records[-1].error}")
    return _compared(settings.reader, parts)


def _onward(watcher: Watcher | None, before: Tally) -> Watcher | None:
    """A watcher of one run that tells another of all runs."""
    return None if watcher is None else lambda tally: watcher(before.plus(tally))


def _compared(reader: str, parts: Mapping[str, Sequence[Record]]) -> Compared:
    records = [record for name in sorted(parts) for record in sorted(parts[name], key=lambda one: one.key)]
    answered = [record for record in records if record.error_kind is None]
    return Compared(
        reader=reader,
        parts={name: (fsum(map(_right, part)), len(part)) for name, part in parts.items()},
        failures=dict(Counter(record.error_kind for record in records if record.error_kind is not None)),
        calls=_mean([len(record.turns) for record in answered]),
        prompt_tokens=_mean([sum(turn.prompt_tokens for turn in record.turns) for record in answered]),
        completion_tokens=_mean([sum(turn.completion_tokens for turn in record.turns) for record in answered]),
        seconds=_mean([record.wall for record in answered]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _right(record: Record) -> float:
    """The score of an answer by its sample's own scorer; otherwise it has to contain an accepted answer."""
    return record.scores[record.scorer or "contains"]


def suited(found: Sequence[Compared]) -> Compared | None:
    """The first of those that are as right as the best, or one behind it that is clearly faster.

    None if no reader is right often enough.
    """
    good = [one for one in found if one.seconds is not None and one.right >= _LEAST * one.readings]
    most = max((one.right for one in good), default=0.0)
    chosen: Compared | None = None
    for one in good:
        near = most - one.right <= min(1.0, _NEAR * one.readings) + 1e-9
        if near and (chosen is None or _FASTER * (one.seconds or 0.0) < (chosen.seconds or 0.0)):
            chosen = one
    return chosen
