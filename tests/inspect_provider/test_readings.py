"""Readings side by side with one model: settings, failures, and going on where an evaluation was interrupted."""

from __future__ import annotations

import asyncio

import pytest

from memagent.documents import from_text
from memagent.errors import ConfigError, ModelRefusedError
from memagent.inspect_provider.readings import Arguments, Readings
from memagent.journal import Journal
from tests.faults import Fault, FaultServer
from tests.test_follow_up import TEXT, served

SIZES = {"chunk_tokens": 100, "memory_tokens": 50}


def readings(server: FaultServer, **arguments) -> Readings:
    return Readings("scripted", server.url, None, Arguments.of({**SIZES, **arguments}))


async def read(reads: Readings, count: int = 1, question: str = "the code?", **chosen):
    return await asyncio.gather(*(reads.read(from_text(TEXT), question, chosen) for _ in range(count)))


def test_an_unknown_argument_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'temperature': choose from window, .*reader.*, journal"):
        Arguments.of({"reader": "gated", "temperature": 1})


def test_what_cannot_work_is_said_before_the_first_document() -> None:
    with FaultServer(served) as server, pytest.raises(ConfigError, match="none"):
        readings(server, reader="none")


def test_many_are_read_at_once_and_a_task_may_override_the_arguments() -> None:
    with FaultServer(served, delay=0.05) as server:
        reads = readings(server, concurrency=4)
        found = asyncio.run(read(reads, 6, temperature=0.5, answer_tokens=33))
        assert [(one.answer, one.status, one.id) for one in found] == [("4821973", "supported", None)] * 6
        assert server.peak == 4
        assert {body["temperature"] for body in server.requests if body["max_tokens"] == 33} == {0.5}
        assert asyncio.run(read(reads))[0].answer == "4821973", "another event loop"
        reads.close()


def test_turns_of_a_model_in_process_are_generated_together(monkeypatch) -> None:
    reads = Readings("embedded", None, None, Arguments.of({"verify": False}))
    engine, sizes = reads._opened.engine, list[int]()
    generate = engine.generate
    monkeypatch.setattr(engine, "generate", lambda turns: sizes.append(len(turns)) or generate(turns))

    async def ask(codes: list[str]) -> list[str]:
        filler = "The door is open. The lamp is lit. The bread is warm. Off they went. And home by nightfall.\n"
        texts = [f"{filler * 30}A secret number for elite-harbor is {code}.\n{filler * 30}" for code in codes]
        question = "What is the secret number for elite-harbor?"
        return [one.answer for one in await asyncio.gather(*(reads.read(from_text(text), question, {}) for text in texts))]

    for codes in (["4821973", "7305418", "2690147"], ["5082737", "8351669"]):  # in an event loop each
        assert asyncio.run(ask(codes)) == codes
        assert max(sizes) == len(codes)
        sizes.clear()
    reads.close()


def test_verification_can_be_left_out() -> None:
    with FaultServer(served) as server:
        reads = readings(server, verify=False)
        [found] = asyncio.run(read(reads))
        assert (found.answer, found.status, found.turns) == ("4821973", None, len(server.requests))
        reads.close()


def test_a_reading_that_fails_raises_what_ended_it() -> None:
    with FaultServer(served, faults=lambda number: Fault("status", status=400) if number == 3 else None) as server:
        reads = readings(server)
        with pytest.raises(ModelRefusedError):
            asyncio.run(read(reads))
        reads.close()


def test_an_interrupted_evaluation_goes_on_at_the_turns_it_had_reached(tmp_path) -> None:
    journal = tmp_path / "journal.sqlite3"
    with FaultServer(served, faults=lambda number: Fault("status", status=400) if number == 5 else None) as server:
        reads = readings(server, journal=str(journal))
        with pytest.raises(ModelRefusedError):
            asyncio.run(read(reads))
        reads.close()
        asked = len(server.requests)
        other = readings(server, journal=str(journal), reader="gated")
        assert asyncio.run(read(other))[0].turns_resumed == 0, "other settings"
        other.close()
        again = readings(server, journal=str(journal))
        two = asyncio.run(read(again, 2))
        again.close()
        assert {one.answer for one in two} == {"4821973"}
        assert sorted(one.turns_resumed > 0 for one in two) == [False, True], "each reading is gone on with once"
        resumed = max(two, key=lambda one: one.turns_resumed)
        assert resumed.turns == min(two, key=lambda one: one.turns_resumed).turns
        assert asked == 6
        with Journal.open(journal) as kept:
            assert [one.status for one in kept.list()] == ["answered"] * 3


def test_a_sample_that_is_tried_again_goes_on_where_it_was(tmp_path) -> None:
    async def cancelled(reads: Readings, server: FaultServer) -> None:
        task = asyncio.create_task(read(reads))
        while len(server.requests) < 5:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    fault = Fault("status", status=400)
    with FaultServer(served, faults=lambda number: fault if number == 3 else None, delay=0.02) as server:
        reads = readings(server, journal=str(tmp_path / "journal.sqlite3"))
        with pytest.raises(ModelRefusedError):
            asyncio.run(read(reads))
        asyncio.run(cancelled(reads, server))
        [found] = asyncio.run(read(reads))
        assert (found.answer, found.turns_resumed > 0) == ("4821973", True)
        reads.close()
        with Journal.open(tmp_path / "journal.sqlite3") as kept:
            assert [one.status for one in kept.list()] == ["answered"]
