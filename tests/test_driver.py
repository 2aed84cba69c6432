"""The drivers: identical transcripts, whoever drives; failures stay in their reading."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import threading

import pytest

from memagent.core import Budgets, Completion, Sampling, Turn, make_reader, plan_reading
from memagent.core.readers.chunkwise import ChunkState
from memagent.driver import aread, arun, ask, read, read_batch, run
from memagent.errors import ContextTooLongError, JournalError, ModelUnavailableError
from memagent.models.scripted import ScriptedModel
from memagent.profiles import load_profile
from memagent.threads import together
from tests.core.test_reading import PROFILE
from tests.helpers import StringText, WordTokenizer

TEXTS = ["a b c " * 9, "d " * 50, "e", "f g " * 33]


def plans(seed=None):
    return [
        plan_reading(
            StringText(text),
            "why?",
            reader=make_reader(),
            tokenizer=WordTokenizer(),
            profile=PROFILE,
            budgets=Budgets(question=5, chunk=16, memory=6, answer=5),
            sampling=Sampling(temperature=1.0, seed=seed) if seed is not None else None,
        )
        for text in TEXTS
    ]


def think(turn):
    """A pure function of the turn that sometimes replies too long, empty, or finds the chunk too large."""
    digest = hashlib.sha256(f"{turn.user}{turn.sampling.seed}".encode()).digest()
    if turn.spans and len(turn.spans[0]) > 40:
        return ContextTooLongError("too long")
    if digest[0] % 5 == 0:
        return ""
    return " ".join(digest.hex()[:6] for _ in range(digest[1] % 9))


def scripted(lockstep=True):
    engine = ScriptedModel(think)
    engine.lockstep = lockstep
    return engine


def test_sync_async_batch_and_run_give_identical_transcripts():
    one_by_one = [read(plan, scripted()) for plan in plans(seed=1)]
    in_flight = [asyncio.run(aread(plan, scripted())) for plan in plans(seed=1)]
    assert in_flight == one_by_one
    assert read_batch(plans(seed=1), scripted()) == one_by_one
    for lockstep in (True, False):
        assert run(plans(seed=1), scripted(lockstep)) == one_by_one
        assert asyncio.run(arun(plans(seed=1), scripted(lockstep))) == one_by_one
    assert any(record.outcome == "fitted" for transcript in one_by_one for record in transcript.records)


class Flowing(ScriptedModel):
    """Takes turns while it works on others, and ends one in each step: of those that it has, any."""

    def __init__(self, script, order=0):
        super().__init__(script)
        self.draw, self.under_way, self.given_up = random.Random(order), {}, []

    def batch(self):
        return self

    idle = False

    def add(self, key, turn):
        assert key not in self.under_way
        self.under_way[key] = turn

    def discard(self, key):
        self.given_up.append(key)
        del self.under_way[key]

    def step(self):
        if not self.under_way:
            return []
        key = self.draw.choice(list(self.under_way))
        return list(zip([key], self.generate([self.under_way.pop(key)]), strict=True))


@pytest.mark.parametrize("order", range(5))
def test_an_engine_that_takes_turns_on_the_way_gives_identical_transcripts(order):
    one_by_one = [read(plan, scripted()) for plan in plans(seed=1)]
    engine = Flowing(think, order)
    assert run(plans(seed=1), engine) == one_by_one
    assert (engine.under_way, engine.given_up) == ({}, [])
    for plan, whole in zip(plans(seed=1), one_by_one, strict=True):
        stop = whole.records[len(whole.records) // 2]
        assert read(plan, Flowing(think, order), state=stop.state).state == whole.state


@pytest.mark.parametrize("order", range(5))
def test_a_reading_that_fails_gives_up_what_is_under_way_of_it_and_the_others_end(order):
    def fails(turn):
        return ModelUnavailableError("gone") if "f g" in turn.user else "m"

    made = [
        plan_reading(
            StringText(text), "why?", reader=make_reader("parallel"), tokenizer=WordTokenizer(),
            profile=load_profile("default"), budgets=Budgets(question=5, chunk=16, memory=6, answer=5),
        )
        for text in TEXTS
    ]  # fmt: skip
    engine, told = Flowing(fails, order), []
    *whole, failed = read_batch(made, engine, observer=lambda step: told.extend(index for index, _ in step))
    assert isinstance(failed, ModelUnavailableError)
    assert [one.answer for one in whole] == ["m", "m", "m"]
    assert engine.given_up
    assert {index for index, _ in engine.given_up} == {3}
    assert engine.under_way == {}
    assert 3 not in told


def test_every_reading_stopped_after_any_turn_ends_the_same():
    for plan in plans():
        whole = read(plan, scripted())
        for stop, record in enumerate(whole.records):
            resumed = read(plan, scripted(), state=record.state)
            assert resumed.records == whole.records[stop + 1 :]
            assert resumed.state == whole.state


def test_permuting_a_batch_permutes_the_results():
    results = read_batch(plans(), scripted())
    assert read_batch(plans()[::-1], scripted()) == results[::-1]


def test_one_failure_leaves_the_others_alone():
    def fails_for_d(turn):
        return ModelUnavailableError("gone") if "C d" in turn.user else "m"

    for lockstep in (True, False):
        engine = ScriptedModel(fails_for_d)
        engine.lockstep = lockstep
        results = run(plans(), engine)
        assert [type(result).__name__ for result in results] == [
            "Transcript",
            "ModelUnavailableError",
            "Transcript",
            "Transcript",
        ]


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_bug_is_not_a_failed_reading(lockstep):
    engine = ScriptedModel([ZeroDivisionError()] * 4)
    engine.lockstep = lockstep
    with pytest.raises(ZeroDivisionError):
        run(plans(), engine)


@pytest.mark.parametrize("lockstep", [True, False])
def test_turns_after_a_reading_have_their_failures_in_their_place_and_a_bug_is_raised(lockstep):
    def asked(*replies):
        engine = ScriptedModel(lambda turn: replies[int(turn.id)])
        engine.lockstep = lockstep
        turns = [Turn(id=str(number), kind="verify", user="?", max_tokens=5) for number in range(3)]
        return ask([(0, turn) for turn in turns], engine)

    first, second, third = asked("a", ModelUnavailableError("gone"), "c")
    assert (first.text, str(second), third.text) == ("a", "gone", "c")
    with pytest.raises(ZeroDivisionError):
        asked("a", ZeroDivisionError(), "c")


def test_the_observer_hears_of_each_turn_before_the_next_is_asked():
    plan, heard = plans()[0], []

    def script(turn):
        assert turn.id not in heard
        assert len(heard) == len(engine.turns) - 1
        return "m"

    engine = ScriptedModel(script)
    read(plan, engine, observer=lambda step: heard.extend(record.id for _, record in step))
    assert heard == ["chunk-1", "chunk-2", "answer"]


def test_an_observer_that_fails_stops_the_reading():
    def broken(step):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        read(plans()[0], ScriptedModel(lambda turn: "m"), observer=broken)


def test_run_works_inside_a_running_loop():
    async def notebook():
        return run(plans(), scripted(lockstep=False))

    assert asyncio.run(notebook()) == run(plans(), scripted())


def test_an_interruption_inside_a_running_loop_stops_the_reading():
    main = threading.main_thread().ident

    class Slow(ScriptedModel):
        """Is interrupted at its second turn, which does not end by itself."""

        async def agenerate(self, turn):
            made = await super().agenerate(turn)
            if len(self.turns) == 2:
                signal.pthread_kill(main, signal.SIGINT)
                await asyncio.Event().wait()
            return made

    engine = Slow(lambda turn: "m")
    engine.lockstep = False

    async def notebook():
        run(plans()[3:], engine)

    loop = asyncio.new_event_loop()  # asyncio.run takes the signal for itself, a notebook's loop does not
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    loop.close()
    assert len(engine.turns) == 2 < plans()[3].turns


def test_cancelling_stops_after_the_turn_under_way():
    async def cancelled():
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def script(turn):
            loop.call_soon_threadsafe(started.set)
            return "m"

        engine = ScriptedModel(script)
        task = asyncio.create_task(arun(plans() * 40, engine))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        asked = len(engine.turns)
        await asyncio.sleep(0.05)
        assert len(engine.turns) == asked

    asyncio.run(cancelled())


def test_an_answer_that_does_not_fit_the_window_ends_the_reading():
    engine = ScriptedModel(lambda turn: ContextTooLongError("no") if turn.kind == "answer" else "m")
    with pytest.raises(ContextTooLongError, match="question and the memory"):
        read(plans()[2], engine)


def test_a_scripted_model_that_runs_out_says_so():
    with pytest.raises(IndexError, match="2 replies; turn 'answer' asks"):
        read(plans()[0], ScriptedModel(["a", Completion(text="b")]))


def test_a_finished_state_is_returned_as_it_is():
    assert read(plans()[0], ScriptedModel([]), state=ChunkState(answer="x")).answer == "x"


def test_what_is_not_a_failed_reading_stops_the_others_at_once():
    engine = scripted(lockstep=False)
    heard = []

    def broken(step):
        heard.append(step)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(plans() * 10, engine, observer=broken)
    assert len(engine.turns) <= 2 * len(TEXTS) * 10  # each reading was at its first turn, or just past it
    assert len(engine.turns) < sum(plan.turns for plan in plans() * 10) / 2


def test_records_are_kept_only_on_demand():
    for lockstep in (True, False):
        results = run(plans(), scripted(lockstep), keep=False)
        assert [result.records for result in results] == [()] * len(TEXTS)
        assert [result.state for result in results] == [result.state for result in run(plans(), scripted())]


def test_a_slow_observer_does_not_block_the_event_loop():
    import time

    async def measure():
        gaps = []

        async def heartbeat():
            last = time.monotonic()
            while True:
                await asyncio.sleep(0.005)
                gaps.append(time.monotonic() - last)
                last = time.monotonic()

        beating = asyncio.create_task(heartbeat())
        await arun(plans()[:1], scripted(lockstep=False), observer=lambda step: time.sleep(0.3))
        beating.cancel()
        return max(gaps)

    assert asyncio.run(measure()) < 0.25


def test_fewer_turns_at_once_than_are_under_way_are_no_failure():
    class Shrinking(ScriptedModel):
        """An engine that works on four turns, and then on one at a time."""

        async def agenerate(self, turn):
            await asyncio.sleep(0.001 * len(self.turns))
            self.concurrency = 1
            return await super().agenerate(turn)

    engine = Shrinking(lambda turn: "a note")
    engine.lockstep, engine.concurrency = False, 4
    text = StringText("f g " * 100)
    plan = plan_reading(
        text, "why?", reader=make_reader("parallel"), tokenizer=WordTokenizer(), profile=load_profile("default"),
        budgets=Budgets(question=5, chunk=16, memory=7, answer=5),
    )  # fmt: skip
    transcript = asyncio.run(aread(plan, engine))
    assert transcript.answer == "a note"


def test_verification_leaves_it_to_the_engine_how_many_turns_are_under_way():
    turns = [(0, Turn(kind="answer", id=f"t{number}", user=f"{number}", max_tokens=9)) for number in range(40)]
    peak = 0

    class Wide(ScriptedModel):
        async def agenerate(self, turn):
            nonlocal peak
            under_way.add(turn.id)
            peak = max(peak, len(under_way))
            await asyncio.sleep(0.001)
            under_way.discard(turn.id)
            return await super().agenerate(turn)

    under_way: set[str] = set()
    engine = Wide(lambda turn: turn.user)
    engine.lockstep, engine.concurrency = False, 4
    assert [made.text for made in ask(turns, engine)] == [str(number) for number in range(40)]
    assert peak == 40


def test_the_error_that_stops_a_group_of_tasks_keeps_its_cause():
    async def broken() -> None:
        raise JournalError("no room") from OSError("disk")

    async def whole() -> None:
        async with together() as group:
            group.create_task(broken())

    with pytest.raises(JournalError) as raised:
        asyncio.run(whole())
    assert isinstance(raised.value.__cause__, OSError)
