"""Runs a reader over a sample file into a run folder: batched in process, concurrent on a server; resumable to the turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memagent.core import Plan
from memagent.core import reading as protocol
from memagent.doubt import DOUBTFUL, Doubt
from memagent.driver import Observer, Transcript, TurnRecord, aread, read_batch
from memagent.entries import turn_entry
from memagent.errors import ConfigError, ModelError, failure_kind
from memagent.evaluation.folder import Key, RunFolder
from memagent.evaluation.records import Record, RecordedTurn
from memagent.folders import describe_machine
from memagent.journal.redaction import strip_urls
from memagent.models.open import OpenModel
from memagent.scoring import scores
from memagent.session import Progress, restore
from memagent.settings import Settings, as_begun, make_plan
from memagent.suite_scoring import own_score
from memagent.tasks.files import Entry, SampleFile
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample
from memagent.threads import together

_BLOCK = 1 << 16  # characters
# Failures that may not happen again; the others would.
TRANSIENT = ("unavailable", "refused", "reply", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One reader and model on one sample file, with `attempts` readings of each sample.

    Several attempts use different seeds, so they need a temperature above 0. `batch` readings run together in process,
    `concurrency` at once on a server; neither changes the prompts.
    """

    samples: SampleFile
    opened: OpenModel
    settings: Settings
    attempts: int = 1
    batch: int = 50
    concurrency: int = 8

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"a run needs at least 1 reading of each sample, not {self.attempts}")
        if self.attempts > 1 and self.settings.sampling.temperature == 0:
            raise ConfigError(
                f"{self.attempts} readings of a sample would be equal at temperature 0: set --temperature above 0"
            )
        # Invalid settings are invalid for every sample, so the run does not start.
        make_plan(LazyText(["A probe."]), "Why?", self.settings, self.opened)

    def config(self) -> dict[str, Any]:
        """The configuration that identifies the run, for JSON."""
        return {
            "model": self.settings.identity,
            "reader": self.settings.reader,
            "settings": self.settings.to_json(),
            "attempts": self.attempts,
            "samples": {
                "path": str(self.samples.path.absolute()),
                "sha256": self.samples.sha256,
                "count": len(self.samples),
            },
            "batch": self.batch if self.opened.engine.lockstep else None,
            "concurrency": None if self.opened.engine.lockstep else self.concurrency,
            **describe_machine(),
        }

    def work(self, done: set[Key]) -> list[tuple[Entry, int]]:
        """The remaining readings, short documents first, so that documents of a batch have similar lengths."""
        entries = sorted(self.samples.entries, key=lambda entry: entry.tokens or entry.size)
        return [(entry, n) for entry in entries for n in range(self.attempts) if (entry.id, n) not in done]


@dataclass(slots=True, kw_only=True)
class Tally:
    """The progress of a run."""

    total: int
    finished: int = 0
    failed: int = 0
    turns: int = 0
    tokens: int = 0

    def add(self, record: Record) -> None:
        self.finished += 1
        self.failed += record.status == "failed"

    def plus(self, other: Tally) -> Tally:
        """Both together, of the total of this one."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in ("finished", "failed", "turns", "tokens")}
        return replace(self, **counts)


Watcher = Callable[[Tally], None]


def evaluate(evaluation: Evaluation, folder: RunFolder, watcher: Watcher | None = None) -> Tally:
    """Performs the remaining readings, and marks the run as finished.

    A failed reading becomes a record. Raises the ModelError of a model that refused or could not be reached several
    times in a row (once more than runs at once, at least three times). These readings are not recorded; they are
    repeated when the run is continued, as are readings that were unfinished when the run stopped.
    """
    work = evaluation.work(folder.done)
    run = _Run(evaluation, folder, Tally(total=len(evaluation.samples) * evaluation.attempts), watcher)
    run.tally.finished = run.tally.total - len(work)
    if evaluation.opened.engine.lockstep:
        for place in range(0, len(work), evaluation.batch):
            run.in_batch(work[place : place + evaluation.batch])
    else:
        asyncio.run(run.at_once(iter(work), min(evaluation.concurrency, len(work))))
    run.settle()
    folder.finish()
    return run.tally


@dataclass(slots=True)
class _Reading:
    """An unfinished reading."""

    sample: Sample
    attempt: int
    progress: Progress
    began: float


class _Run:
    def __init__(self, evaluation: Evaluation, folder: RunFolder, tally: Tally, watcher: Watcher | None) -> None:
        self.evaluation = evaluation
        self.folder = folder
        self.tally = tally
        self._watcher = watcher
        self._lock = threading.Lock()
        self._identity = evaluation.settings.identity
        self._doubt = Doubt[tuple[Record, str | None]](max(2, self.evaluation.concurrency))

    def in_batch(self, work: Sequence[tuple[Entry, int]]) -> None:
        """Runs a batch of readings together, and records each as soon as it ends."""
        readings = [reading for entry, n in work if (reading := self._begin(entry, n)) is not None]
        recorded: set[int] = set()
        observer = self._observer(readings)

        def observe(step: Sequence[tuple[int, TurnRecord]]) -> None:
            observer(step)
            for index, record in step:
                if record.state.finished:
                    recorded.add(index)
                    self._end(readings[index], None)

        plans = [reading.progress.plan for reading in readings]
        states = [reading.progress.state for reading in readings]
        results = read_batch(plans, self.evaluation.opened.engine, states=states, observer=observe, keep=False)
        for index, result in enumerate(results):
            if index not in recorded:
                self._end(readings[index], None if isinstance(result, Transcript) else result)

    async def at_once(self, work: Iterator[tuple[Entry, int]], concurrency: int) -> None:
        """Runs the readings, `concurrency` at a time."""
        async with together() as group:
            for _ in range(concurrency):
                group.create_task(self._keep_reading(work))

    async def _keep_reading(self, work: Iterator[tuple[Entry, int]]) -> None:
        for entry, n in work:
            reading = await asyncio.to_thread(self._begin, entry, n)
            if reading is None:
                continue
            error: ModelError | None = None
            try:
                await aread(
                    reading.progress.plan,
                    self.evaluation.opened.engine,
                    state=reading.progress.state,
                    observer=self._observer([reading]),
                    keep=False,
                )
            except ModelError as raised:
                error = raised
            await asyncio.to_thread(self._end, reading, error)

    def _begin(self, entry: Entry, attempt: int) -> _Reading | None:
        """Plans a reading, and starts or resumes it in the journal. Records a failure and returns None."""
        evaluation, began = self.evaluation, time.monotonic()
        sample = evaluation.samples.load(entry.id)
        settings = own_stream(evaluation.settings, sample.id, attempt)
        try:
            plan = make_plan(sample.document, sample.question, settings, evaluation.opened)
        except ConfigError as error:
            self._write(_record(evaluation, sample, attempt, None, "", (), error), None)
            return None
        with self._lock:
            progress = self._progress(sample, attempt, plan, settings)
        return _Reading(sample, attempt, progress, began)

    def _progress(self, sample: Sample, attempt: int, plan: Plan, settings: Settings) -> Progress:
        journal, key = self.folder.journal, (sample.id, attempt)
        document: dict[str, Any] = {"sample": sample.id, "attempt": attempt}
        known = self.folder.reading_of(key)
        if known is not None:
            opened, now, record = self.evaluation.opened, settings.to_json(), journal.show(known)
            begun = as_begun(now, record.settings, opened.name, opened.base_url)
            journal.check(known, settings=begun, document=document, plan_digest=plan.digest())
            if record.status != "answered":
                journal.claim(known)
            progress = restore(journal, known, plan)
            if begun != now and not progress.identity:
                journal.relocate(known, now)
            return progress
        id = journal.start(
            question=plan.question,
            settings=settings.to_json(),
            document=document,
            plan_digest=plan.digest(),
            planned=plan.turns,
        )
        self.folder.began(key, id)
        return Progress(plan=plan, state=protocol.start(plan), id=id)

    def _observer(self, readings: Sequence[_Reading]) -> Observer:
        def observe(step: Sequence[tuple[int, TurnRecord]]) -> None:
            self.folder.journal.append_many(
                (str(readings[index].progress.id), turn_entry(record)) for index, record in step
            )
            with self._lock:
                for index, record in step:
                    before = readings[index].progress.tokens_read
                    readings[index].progress.add(record)
                    self.tally.tokens += readings[index].progress.tokens_read - before
                    self.tally.turns += 1
            self._tell()

        return observe

    def _end(self, reading: _Reading, error: ModelError | None) -> None:
        progress = reading.progress
        turns = tuple(self._turns(str(progress.id), progress.state.answer))
        record = _record(
            self.evaluation, reading.sample, reading.attempt, progress.plan, progress.state.answer or "", turns, error
        )
        wall, made_by = progress.earlier + time.monotonic() - reading.began, progress.identity or self._identity
        record = replace(record, wall=round(wall, 4), identity="" if made_by == self.folder.config["model"] else made_by)
        if isinstance(error, DOUBTFUL):
            with self._lock:
                self._doubt.hold((record, progress.id), error)
            return
        if record.status == "answered":
            self.settle()
        self._write(record, progress.id)

    def settle(self) -> None:
        """Records the failures that were held back."""
        with self._lock:
            failures = self._doubt.settled()
        for record, id in failures:
            self._write(record, id)

    def _turns(self, id: str, answer: str | None) -> Iterator[RecordedTurn]:
        memory = ""
        for entry in self.folder.journal.turns(id):
            costs = entry.completion
            reply, became = str(costs["text"]).strip(), answer if entry.kind == "answer" else entry.memory
            yield RecordedTurn(
                number=entry.number,
                id=entry.id,
                kind=entry.kind,
                spans=entry.shown,
                outcome=entry.outcome,
                memory=None if entry.memory == memory else entry.memory,
                reply=None if reply == became else reply,
                prompt_tokens=int(str(costs["prompt_tokens"])),
                completion_tokens=int(str(costs["completion_tokens"])),
                cached_tokens=int(str(costs["cached_tokens"])),
                seconds=float(str(costs["seconds"])),
            )
            memory = entry.memory

    def _write(self, record: Record, reading: str | None) -> None:
        with self._lock:
            self.folder.write(record, reading)
            self.tally.add(record)
        self._tell()

    def _tell(self) -> None:
        if self._watcher is not None:
            self._watcher(self.tally)


def own_stream(settings: Settings, sample: str, attempt: int) -> Settings:
    """The settings of one reading, with its own seed, independent of concurrent readings."""
    drawn = settings.sampling
    return replace(settings, sampling=drawn.own(f"{drawn.seed}\x1f{sample}\x1f{attempt}"))


def _count(sample: Sample, opened: OpenModel) -> int:
    """The tokens of a document without a known count, block by block, so that it is equal for every reader."""
    count, document = opened.engine.tokenizer.count, sample.document
    return sum(count(document.read(start, start + _BLOCK)) for start in range(0, len(document), _BLOCK))


def _scores(sample: Sample, answer: str) -> dict[str, float]:
    """By every general scorer, and by the sample's own."""
    given = scores(answer, sample.answers, sample.mode)
    if sample.scorer and sample.scorer not in given:
        given[sample.scorer] = own_score(sample.scorer, answer, sample.answers, sample.mode, sample.meta)
    return given


def _record(
    evaluation: Evaluation,
    sample: Sample,
    attempt: int,
    plan: Plan | None,
    answer: str,
    turns: tuple[RecordedTurn, ...],
    error: Exception | None,
) -> Record:
    kind = failure_kind(error)
    message = None if error is None else strip_urls(str(error))
    if error is None and not answer:
        message, kind = "the model gave an empty answer", "empty"
    return Record(
        sample=sample.id,
        attempt=attempt,
        task=sample.task,
        reader=evaluation.settings.reader,
        question=sample.question,
        answers=sample.answers,
        mode=sample.mode,
        tokens=sample.tokens or _count(sample, evaluation.opened),
        characters=len(sample.document),
        facts=sample.facts,
        meta=sample.meta,
        status="answered" if kind is None else "failed",
        answer=answer,
        error=message,
        error_kind=kind,
        scores=_scores(sample, answer),
        scorer=sample.scorer,
        shown=plan.excerpt if plan else None,
        turns=turns,
        seconds=round(sum(turn.seconds for turn in turns), 6),
    )
