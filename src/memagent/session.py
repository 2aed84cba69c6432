"""Plans, runs, records and resumes readings of one document with one model and any number of questions."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, cast

from memagent import tracing
from memagent.choice import Choice, choose, with_reader
from memagent.core import Chunks, LineOrigin, Plan, State, Text
from memagent.core import reading as protocol
from memagent.core.outcomes import reply_text
from memagent.core.readers.kept import KeptReader
from memagent.core.readers.together import TogetherState
from memagent.core.types import Usage
from memagent.cuts import Cuts
from memagent.documents import Document
from memagent.driver import Observer, Transcript, TurnRecord, arun, run
from memagent.entries import completion_of, costs, turn_entry
from memagent.errors import JournalError, MemagentError, ModelError, ModelReplyError
from memagent.grounding.run import Answered, Verified, averify, is_json, verify
from memagent.growth import Beginning, base, check_grown, keep
from memagent.journal import Journal, ReadingRecord, TurnEntry, check_text
from memagent.models.open import OpenModel
from memagent.result import Ledger, Reading, no_answer, sources
from memagent.settings import AUTO, Settings, as_begun, asked_together, make_plan
from memagent.threads import check_cancelled


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of one reading: its plan, state and cost, for watchers.

    `earlier` is what the engine took, in seconds, before the reading was resumed. `closed` says that the journal has its
    answer already, `identity` is the model that gave it before, and `verdicts` is what the journal has of a verification,
    one for each question. `resumed`: turns that the journal had already. `cut`: the last reply had no more tokens before
    its reasoning ended.
    """

    plan: Plan
    state: State
    id: str | None = None
    ledger: Ledger = field(default_factory=Ledger)
    earlier: float = 0.0
    closed: bool = False
    identity: str = ""
    verdicts: Sequence[Verified | None] = ()
    cut: bool = False
    resumed: int = 0

    @property
    def turns_left(self) -> int:
        """The remaining turns, unless a turn is repeated or a chunk is split."""
        return self.plan.reader.left(self.plan, self.state)

    @property
    def tokens_read(self) -> int:
        """The document tokens read so far."""
        return self.state.tokens_read

    def add(self, record: TurnRecord) -> None:
        """Adds a finished turn."""
        self.state, completion = record.state, record.completion
        self.cut = completion.finish == "length" and not reply_text(completion, "", False)[0]
        said = {"text": completion.text, **costs(completion)}
        self.ledger.add(record.number, record.kind, record.spans, record.outcome, record.memory, said)


_OF_A_FILE = ("name", "kind", "bytes", "encoding", "guessed")

Watcher: TypeAlias = Callable[[Sequence[Progress]], None]


class Session:
    """Reads `document` with an opened model under `settings`. With a journal, every turn is on disk before the next.

    `paths` are those of the document, so that the journal can say how to load it again; `label` is kept there beside them.
    `verified`: answers are checked against the document.
    """

    def __init__(
        self,
        document: Document,
        opened: OpenModel,
        settings: Settings,
        journal: Journal | None = None,
        *,
        paths: Sequence[str] = (),
        verified: bool = True,
        label: Mapping[str, Any] | None = None,
        cuts: Cuts | None = None,
    ) -> None:
        self.document = document
        self.opened = opened
        self.settings = settings
        self.journal = journal
        self.paths = list(paths)
        self.verified = verified
        self.label = dict(label or {})
        self._cuts = cuts or Cuts.of(settings, journal)
        self.choice: Choice | None = None

    def _choose(self, questions: Sequence[str]) -> None:
        """Replaces the reader `auto` by one that suits all questions: the longest leaves the least room for a text."""
        if self.settings.reader != AUTO:
            return
        question = max(questions, key=self.opened.engine.tokenizer.count)
        cutter = self._cuts.cutter(self.document.digest)
        self.choice = choose(self.document, question, self.settings, self.opened, cutter)
        self.settings = with_reader(self.settings, self.opened, self.choice.reader)

    def plans(self, questions: Sequence[str]) -> Iterator[Plan]:
        """The plans for several questions, all with the same reader. Raises ConfigError."""
        self._choose(questions)
        return map(self.plan, questions)

    def plan(self, question: str) -> Plan:
        """The plan for a question; the document is cut once for all. Raises ConfigError."""
        return self._plan(question, self.document, self.document.digest)

    def _plan(self, question: str, text: Text, digest: str, first: Chunks | None = None) -> Plan:
        """The plan for a question in the text with that digest, whose first chunks may be known."""
        self._choose([question])
        cutter, ranker = self._cuts.cutter(digest, first), self._cuts.ranker(digest)
        return make_plan(text, question, self.settings, self.opened, cutter, ranker)

    def only_plans(self) -> None:
        """From now on, plans leave nothing on disk: no reading will be entered that it would go with."""
        self._cuts.stores = False

    def tokens(self, plan: Plan) -> int:
        """The tokens of the document that a plan is for. Where the reader shows an excerpt, they are estimated from that:
        counting them takes minutes in a document of many megabytes."""
        if plan.excerpt is None:
            return plan.tokens
        shown = sum(span.end - span.start for span in plan.excerpt)
        return round(plan.tokens * len(self.document) / max(1, shown))

    def together(self, questions: Sequence[str]) -> list[str]:
        """From now on, several questions are asked in one reading. Returns the one question that stands for them.

        Raises ConfigError, with the sum, if a budget is too small for so many.
        """
        self.settings, asked = asked_together(self.settings, questions, self.opened)
        return [asked]

    def start(self, questions: Sequence[str]) -> list[Progress]:
        """Plans a reading for every question and adds them to the journal, without calling the model.

        Like `resume` and `extend`, it stops before it changes the journal if it is done as `cancellable` and cancelled.
        """
        plans = list(self.plans(questions))
        check_cancelled()
        return [
            Progress(plan=plan, state=protocol.start(plan), id=self._enter(plan), ledger=first_ledger(self.journal, plan))
            for plan in plans
        ]

    def resume(self, id: str) -> Progress:
        """Resumes a reading from the journal. A finished reading is returned with its answer.

        Raises JournalError if document or settings are not those it was begun with, naming what differs, or if it is under
        way, here or in another process.
        """
        assert self.journal is not None
        record = self.journal.resumable(id)
        # A file may have moved; its text may not have changed.
        before = [str(path) for path in cast(Sequence[Any], record.document.get("paths") or ())]
        if self.document.digest != record.document["digest"] and self.paths and before and self.paths != before:
            said = f"{self.paths[0]} is not the text that was read, which was at {', '.join(before)}"
            raise JournalError(f"reading {record.id}: {said}")
        check_text(record, self.document.digest)  # before it is cut, which may take minutes
        plan = self.plan(record.question)
        document = {**record.document, "digest": self.document.digest, "characters": len(self.document)}
        settings = self._as_begun(record)
        self.journal.check(record.id, settings=settings, document=document, plan_digest=plan.digest())
        closed = record.status == "answered"
        check_cancelled()
        if not closed:
            with self._cuts.kept(self.document.digest) as cuts:
                self.journal.claim(record.id, cuts=cuts)
        reading = restore(self.journal, record.id, plan)
        if (self.paths and self.paths != before) or settings != self.settings.to_json():
            answered_by = reading.identity or self.settings.identity
            self.journal.relocate(record.id, {**self.settings.to_json(), "identity": answered_by}, self.paths or None)
        reading.closed = closed
        reading.verdicts = [Verified.from_json(one) for one in record.verdicts or ()]
        return reading

    def extend(self, id: str) -> Progress:
        """Goes on with a reading, answered or not, whose document has grown: what was added is read with the memory so far.

        The result is that of one reading of the grown document. Raises JournalError if the settings are not those it was
        begun with, if its text has changed before the end, or for a reader that cannot go on.
        """
        assert self.journal is not None
        record = self.journal.resumable(id)
        check_grown(record, self.document)
        before = int(str(record.document["characters"]))
        if len(self.document) == before:
            return self.resume(record.id)
        old = self._plan(record.question, Beginning(self.document, before), str(record.document["digest"]))
        settings = self._as_begun(record)
        self.journal.check(record.id, settings=settings, document=record.document, plan_digest=old.digest())
        plan = self._plan(record.question, self.document, self.document.digest, old.chunks.settled)
        held = base(self.journal, record.id)
        count = keep(self.journal.turns(record.id, held.turns), old.chunks, plan.chunks, held)
        check_cancelled()
        with self._cuts.kept(self.document.digest) as cuts:
            self.journal.extend(
                record.id,
                document=self._described(plan),
                plan_digest=plan.digest(),
                planned=plan.turns,
                keep=count,
                base=held.to_json(),
                cuts=cuts,
            )
        if settings != self.settings.to_json():
            self.journal.relocate(record.id, self.settings.to_json(), self.paths)
        return restore(self.journal, record.id, plan)

    def _as_begun(self, record: ReadingRecord) -> dict[str, Any]:
        """The settings, to compare with those of a reading."""
        return as_begun(self.settings.to_json(), record.settings, self.opened.name, self.opened.base_url)

    def run(self, readings: Sequence[Progress], watcher: Watcher | None = None) -> list[Reading]:
        """Runs readings to their end. A failed reading becomes a Reading with an `error`; the others continue.

        The watcher is called by one thread at a time, not always the same.
        """
        began = time.monotonic()
        plans, states = [reading.plan for reading in readings], [reading.state for reading in readings]
        observer = self._observer(readings, watcher, began)
        with self._under_way(readings), tracing.readings(self.opened.engine, _named(readings)) as spans:
            results = run(plans, self.opened.engine, states=states, observer=observer, keep=False)
            made = self._finish(readings, results, began)
            answers = self._unverified(readings, made)
            verdicts = verify(answers, self.opened.engine, self.document)
            return _ended(spans, readings, self._with_verdicts(readings, made, verdicts))

    async def arun(self, readings: Sequence[Progress], watcher: Watcher | None = None) -> list[Reading]:
        """Like `run`, without blocking the event loop."""
        began = time.monotonic()
        plans, states = [reading.plan for reading in readings], [reading.state for reading in readings]
        observer = self._observer(readings, watcher, began)
        with self._under_way(readings), tracing.readings(self.opened.engine, _named(readings)) as spans:
            results = await arun(plans, self.opened.engine, states=states, observer=observer, keep=False)
            made = await asyncio.to_thread(self._finish, readings, results, began)
            answers = await asyncio.to_thread(self._unverified, readings, made)
            verdicts = await averify(answers, self.opened.engine, self.document)
            return _ended(spans, readings, await asyncio.to_thread(self._with_verdicts, readings, made, verdicts))

    def _under_way(self, readings: Sequence[Progress]) -> AbstractContextManager[None]:
        """Keeps others, in this process too, from going on with these readings meanwhile."""
        if self.journal is None:
            return nullcontext()
        return self.journal.under_way([reading.id for reading in readings if reading.id is not None])

    def _enter(self, plan: Plan) -> str | None:
        if self.journal is None:
            return None
        with self._cuts.kept(self.document.digest) as cuts:
            return self.journal.start(
                question=plan.question,
                settings=self.settings.to_json(),
                document=self._described(plan),
                plan_digest=plan.digest(),
                planned=plan.turns,
                cuts=cuts,
            )

    def _described(self, plan: Plan) -> dict[str, Any]:
        """What the journal has of the document."""
        counts = {"tokens": self.tokens(plan), "shown": plan.tokens}
        own = {"paths": self.paths, **self.document.loading, "checks": list(self.document.checks)}
        return {**describe(self.document), **counts, **own, **self.label}

    def _observer(self, readings: Sequence[Progress], watcher: Watcher | None, began: float) -> Observer:
        lock = threading.Lock()

        def observe(step: Sequence[tuple[int, TurnRecord]]) -> None:
            if self.journal is not None:
                self.journal.append_many((str(readings[index].id), turn_entry(record)) for index, record in step)
            with lock:
                for index, record in step:
                    readings[index].add(record)
                    self._close(readings[index], began)
                if watcher is not None:
                    watcher([readings[index] for index, _ in step])

        return observe

    def _close(self, reading: Progress, began: float) -> None:
        """Adds an answer to the journal immediately, independent of the other readings."""
        if self.journal is None or reading.id is None or reading.closed or not reading.state.answer:
            return
        self.journal.finish(reading.id, reading.state.answer, reading.earlier + time.monotonic() - began)
        reading.closed = True

    def _finish(
        self, readings: Sequence[Progress], results: Sequence[Transcript | ModelError], began: float
    ) -> list[list[Reading]]:
        """The results of each reading, one for each of its questions."""
        return [self._results(reading, result, began) for reading, result in zip(readings, results, strict=True)]

    def _unverified(self, readings: Sequence[Progress], made: Sequence[Sequence[Reading]]) -> list[Answered]:
        """The answers to verify: those of readings that succeeded and were not verified before."""
        if not self.verified:
            return []
        return [
            Answered(
                reading=index,
                plan=reading.plan,
                question=result.question,
                answer=result.answer,
                origins=self._origins(reading),
            )
            for index, (reading, results) in enumerate(zip(readings, made, strict=True))
            if not reading.verdicts
            for result in results
            if result.error is None
        ]

    def _with_verdicts(
        self, readings: Sequence[Progress], made: Sequence[Sequence[Reading]], verdicts: Sequence[Verified]
    ) -> list[list[Reading]]:
        """The results of each reading with their verdicts, old and new; new ones are added to the journal."""
        fresh, finished = iter(verdicts), list[list[Reading]]()
        for reading, results in zip(readings, made, strict=True):
            known = list(reading.verdicts)
            if self.verified and not known:
                known = [next(fresh) if result.error is None else None for result in results]
                whole = [one for one in known if one is not None]
                sound = len(whole) == len(results) and all(one.verdict.error is None for one in whole)
                if self.journal is not None and reading.id is not None and sound:  # others are tried again on resume
                    self.journal.verified(reading.id, [one.to_json() for one in whole])
            pairs = zip(results, known or [None] * len(results), strict=True)
            finished.append([result.verified(one) if one else result for result, one in pairs])
        return finished

    def _results(self, reading: Progress, result: Transcript | ModelError, began: float) -> list[Reading]:
        """The result of a reading, one for each of its questions. Turns and usage are counted with the first."""
        whole = self._result(reading, result, began)
        if not isinstance(reading.state, TogetherState):
            return [whole]
        texts = [text or "" for text in reading.state.answers] or [""] * len(self.settings.together)
        made = [self._one(whole, reading, *pair) for pair in zip(self.settings.together, texts, strict=True)]
        return [made[0], *(replace(one, turns=0, turns_resumed=0, outcomes={}, usage=Usage()) for one in made[1:])]

    def _one(self, whole: Reading, reading: Progress, question: str, answer: str) -> Reading:
        """The result for one question of a reading for several."""
        cause = whole.cause if reading.state.answer is None else None  # it ended before it had its answers
        cause = cause or (None if answer else ModelReplyError("the model gave an empty answer"))
        return replace(whole, question=question, answer=answer, error=str(cause) if cause else None, cause=cause)

    def _origins(self, reading: Progress) -> tuple[LineOrigin, ...]:
        """Where the answer came from: the lines of the memory, or the text that the answer's turn showed."""
        ledger = reading.ledger
        if reading.state.finished and ledger.last_spans:
            return (LineOrigin(line="", turn=ledger.turns - 1, spans=ledger.last_spans),)
        return ledger.origins

    def _result(self, reading: Progress, result: Transcript | ModelError, began: float) -> Reading:
        cause = result if isinstance(result, ModelError) else None
        if cause is None and not reading.state.answer:
            cause = ModelReplyError(no_answer(reading.state.mistake, reading.cut))
        self._close(reading, began)  # one that was killed after its answer, before this was entered
        if cause is not None and self.journal is not None and reading.id is not None:
            self.journal.fail(reading.id, str(cause))
        answer, ledger, plan = reading.state.answer or "", reading.ledger, reading.plan
        return Reading(
            question=plan.question,
            answer=answer,
            data=json.loads(answer) if is_json(plan, answer) else None,
            memory=reading.state.memory,
            id=reading.id,
            error=str(cause) if cause else None,
            cause=cause,
            turns=ledger.turns,
            turns_resumed=reading.resumed,
            share_read=ledger.characters_read / max(1, len(self.document)),
            outcomes=dict(ledger.outcomes),
            usage=ledger.usage,
            provenance=sources(ledger.origins, self.document),
            document={**describe(self.document), "tokens": self.tokens(plan)},
            model=self.settings.model,
            identity=reading.identity or self.settings.identity,
            seconds=reading.earlier + time.monotonic() - began,
        )


def _named(readings: Sequence[Progress]) -> list[tuple[str | None, str]]:
    """What traces call readings by."""
    return [(reading.id, reading.plan.reader.name) for reading in readings]


def _ended(
    spans: Sequence[tracing.ReadingSpan], readings: Sequence[Progress], made: Sequence[Sequence[Reading]]
) -> list[Reading]:
    """All results, once the spans of their readings have ended, if there are any."""
    for span, reading, (first, *more) in zip(spans, readings, made, strict=False):
        turns, resumed = reading.ledger.turns, reading.resumed
        span.ended(turns=turns, resumed=resumed, status=None if more else first.status, error=first.cause)
    return [result for results in made for result in results]


def restore(journal: Journal, id: str, plan: Plan) -> Progress:
    """A reading from the journal: its state, cost and provenance, from its stored turns.

    The state is the last one stored, and what the splits and completions after it lead to. A reading that ended with an
    empty answer is asked for its answer again.
    """
    held = base(journal, id)
    first, ledger = held.turns, held if held.turns else first_ledger(journal, plan)
    reading = Progress(plan=plan, state=protocol.start(plan), id=id, ledger=ledger)
    replayed = list[TurnEntry]()
    snapshot: Mapping[str, Any] | None = None
    for entry in journal.turns(id, max(0, first - 1)):  # of the last turn of the base, the state is needed
        if entry.number >= first:
            reading.ledger.take(entry)
        if entry.state is None:
            replayed.append(entry)
        else:
            snapshot, replayed = entry.state, []
    reading.earlier, reading.resumed = reading.ledger.usage.seconds, reading.ledger.turns
    if snapshot is not None:
        reading.state = plan.reader.load(snapshot)
    for entry in replayed:
        for split in entry.splits:
            reading.state = protocol.split(plan, reading.state, split)
        if reading.state.answer == "":  # the next turn was asked after an earlier resume
            reading.state = plan.reader.reopen(plan, reading.state)
        reading.state = protocol.advance(plan, reading.state, entry.id, completion_of(entry.completion))
    if reading.state.answer == "":
        reading.state = plan.reader.reopen(plan, reading.state)
    if reading.state.answer:
        reading.identity = str(journal.show(id).settings.get("identity", ""))
    return reading


def first_ledger(journal: Journal | None, plan: Plan) -> Ledger:
    """The ledger of a reading that begins: the lines of a memory that another reading left are traced through that one."""
    if not isinstance(plan.reader, KeptReader) or journal is None:
        return Ledger()
    with suppress(MemagentError):  # it was deleted since, or is of another version
        return Ledger(ledger_of(journal, noted_by(journal, plan.reader.reading)).provenance)
    return Ledger()


def noted_by(journal: Journal, id: str) -> str:
    """The id of the reading that noted a memory which may have been handed on from follow-up to follow-up.

    Raises JournalError if one of them is not there any more.
    """
    settings = Settings.from_json(journal.show(id).settings)
    while settings.reader == KeptReader.name:
        id = str(settings.reader_options["reading"])
        settings = Settings.from_json(journal.show(id).settings)
    return id


def ledger_of(journal: Journal, id: str) -> Ledger:
    """The ledger of a reading in the journal, from its turns."""
    ledger = Ledger()
    for entry in journal.turns(id):
        ledger.take(entry)
    return ledger


def left_by(journal: Journal, record: ReadingRecord, document: Document) -> str:
    """The memory that a reading ended with. Raises JournalError if it has not ended, or the document has changed."""
    if record.status != "answered":
        raise JournalError(
            f"reading {record.id} has no last memory, because its status is {record.status!r}: memagent resume {record.id}"
        )
    if record.document["digest"] != document.digest:
        raise JournalError(
            f"the document has changed since reading {record.id}: its memory is of the text before. Read it again"
        )
    last = next(journal.turns(record.id, record.turns - 1), None)
    return last.memory if last else ""


def describe(document: Document) -> dict[str, Any]:
    """The identity and origin of a document, for JSON."""
    return {
        "digest": document.digest,
        "characters": len(document),
        "files": [{name: getattr(file, name) for name in _OF_A_FILE} for file in document.files],
        "skipped": [asdict(one) for one in document.skipped],
    }
