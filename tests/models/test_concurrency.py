"""How many requests are sent at a time: a number, or as many as a server gets faster by."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from memagent.core import Turn
from memagent.errors import ConfigError
from memagent.models.concurrency import MOST, AtOnce, Gate, most_of
from memagent.models.openai_compatible import OpenAIEngine
from tests.faults import Fault, FaultServer


class Server:
    """Answers requests of a hundred tokens in a second each, or slower if there are more than `knee`. Time is its own."""

    def __init__(self, knee: int) -> None:
        self.knee, self.now, self.under_way, self.peak = knee, 0.0, 0, 0

    async def reads(self, gate: Gate, requests: int) -> None:
        """So many requests, all of which want to be sent at once."""
        waiting: list[asyncio.Future[None]] = []

        async def request() -> None:
            async with gate.through() as replied:
                waiting.append(done := asyncio.get_running_loop().create_future())
                self.under_way += 1
                self.peak = max(self.peak, self.under_way)
                await done
                self.under_way -= 1
                replied(100)

        tasks = [asyncio.create_task(request()) for _ in range(requests)]
        while not all(task.done() for task in tasks):
            for _ in range(5):
                await asyncio.sleep(0)
            if waiting:
                self.now += 1 / min(len(waiting), self.knee)
                waiting.pop(0).set_result(None)


def climbed(knee: int) -> tuple[int, int, int]:
    """The number of requests at a time that was settled on, the most there were until then, and afterwards."""

    async def climb() -> tuple[int, int, int]:
        server = Server(knee)
        gate = Gate("auto", clock=lambda: server.now)
        await server.reads(gate, 2000)
        before, server.peak = server.peak, 0
        await server.reads(gate, 300)
        return gate.limit, before, server.peak

    return asyncio.run(climb())


@pytest.mark.parametrize(("knee", "limit"), [(1, 4), (4, 4), (8, 8), (16, 16), (1000, MOST)])
def test_requests_double_up_to_where_a_server_gets_no_faster(knee: int, limit: int) -> None:
    found, before, afterwards = climbed(knee)
    assert (found, afterwards) == (limit, limit)
    assert before == min(MOST, 2 * limit), "the next number is tried once"


def test_a_number_that_is_given_is_kept_to() -> None:
    server = Server(knee=1000)
    gate = Gate(3, clock=lambda: server.now)
    asyncio.run(server.reads(gate, 100))
    assert (gate.limit, server.peak) == (3, 3)


def test_requests_one_after_the_other_say_nothing_about_a_server() -> None:
    async def one_by_one_and_then_many() -> int:
        server = Server(knee=1000)
        gate = Gate("auto", clock=lambda: server.now)
        for _ in range(200):
            await server.reads(gate, 1)
        assert gate.limit == 4
        await server.reads(gate, 2000)
        return gate.limit

    assert asyncio.run(one_by_one_and_then_many()) == MOST


def test_a_request_that_fails_or_is_cancelled_gives_its_place_back() -> None:
    async def fail() -> None:
        gate = Gate(1)
        for _ in range(3):
            with pytest.raises(RuntimeError):
                async with gate.through():
                    raise RuntimeError
        async with gate.through():
            waiting = asyncio.create_task(gate.through().__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
        async with gate.through():
            pass

    asyncio.run(asyncio.wait_for(fail(), 5))


def test_a_server_that_has_too_many_requests_gets_half_as_many() -> None:
    async def refuse() -> list[int]:
        server = Server(knee=1000)
        gate = Gate("auto", clock=lambda: server.now)
        await server.reads(gate, 2000)
        assert gate.limit == MOST
        limits = []
        for _ in range(8):
            async with gate.through():
                await gate.overloaded()
                taken = gate.limit
                if gate._owed:  # that of another request of the same moment
                    await gate.overloaded()
                    assert gate.limit == taken
            limits.append(gate.limit)
            await server.reads(gate, 300)
        return limits

    assert asyncio.run(refuse()) == [32, 16, 8, 4, 2, 1, 1, 1]


def test_places_that_are_free_go_at_once_where_a_server_has_too_many() -> None:
    async def refuse() -> int:
        gate, peak, under_way = Gate("auto"), 0, 0

        async def request() -> None:
            nonlocal peak, under_way
            async with gate.through():
                under_way += 1
                peak = max(peak, under_way)
                await asyncio.sleep(0)
                under_way -= 1

        async with gate.through():
            await gate.overloaded()
            under_way += 1
            tasks = [asyncio.create_task(request()) for _ in range(6)]
            for _ in range(20):
                await asyncio.sleep(0)
            under_way -= 1
        await asyncio.gather(*tasks)
        return peak

    assert asyncio.run(refuse()) == 2


def test_a_given_number_stays_where_a_server_has_too_many() -> None:
    gate = Gate(8)
    asyncio.run(gate.overloaded())
    assert gate.limit == 8


def test_too_many_requests_of_an_engine_are_sent_again_with_fewer_at_a_time() -> None:
    turns = [Turn(kind="update", id=f"chunk-{number}", user="one two three", max_tokens=20) for number in range(60)]

    def busy(number: int) -> Fault | None:
        return Fault("status", status=429, headers={"Retry-After": "0"}) if 4 <= number < 8 else None

    with FaultServer(faults=busy, delay=0.01) as server, OpenAIEngine("scripted", server.url, concurrency="auto") as engine:
        results = engine.generate(turns)
        assert [getattr(one, "text", one) for one in results] == ["one two three"] * 60
        assert engine.concurrency <= 4


@pytest.mark.parametrize("concurrency", [0, -1, "many", 1.5, None])
def test_what_is_no_number_of_requests_is_named(concurrency: AtOnce) -> None:
    with pytest.raises(ConfigError, match=f"concurrency is {concurrency!r}"):
        most_of(concurrency)


def test_an_engine_goes_back_where_a_real_server_answers_one_after_the_other() -> None:
    one_at_a_time = threading.Lock()

    def slowly(messages: list[dict[str, str]]) -> str:
        with one_at_a_time:
            time.sleep(0.004)
        return "one two three"

    turns = [Turn(kind="update", id=f"chunk-{number}", user="one two three", max_tokens=20) for number in range(300)]
    with FaultServer(slowly) as server, OpenAIEngine("scripted", server.url, concurrency="auto") as engine:
        engine.generate(turns)
        assert engine.concurrency <= 16, "more gain nothing"


def test_an_engine_finds_what_a_real_server_takes() -> None:
    turns = [Turn(kind="update", id=f"chunk-{number}", user="one two three", max_tokens=20) for number in range(300)]
    with FaultServer(delay=0.02) as server, OpenAIEngine("scripted", server.url, concurrency="auto") as engine:
        assert engine.concurrency == 4
        results = engine.generate(turns)
        assert [getattr(one, "text", one) for one in results] == ["one two three"] * 300
        assert engine.concurrency > 4, "twice as many waits of 20 ms end in the same time"
        assert server.peak <= MOST
