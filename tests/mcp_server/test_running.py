"""How readings are run: a few at a time, in order to the end when they are cancelled, whatever the engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from memagent.core.types import Turn
from memagent.journal import Journal
from memagent.mcp_server.desk import Desk, Question, resumed
from memagent.mcp_server.running import Runner
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from tests.mcp_server.clients import desk

TEXT = "The sea was grey and calm.\n" * 200
OPTIONS = {"chunk_tokens": 600, "memory_tokens": 100, "question_tokens": 100, "answer_tokens": 100}


def slow(turn: Turn) -> str:
    time.sleep(0.02)
    return "grey"


@pytest.fixture
def model() -> ScriptedModel:
    """A model in this process: all of a reading runs in one thread."""
    return ScriptedModel(slow)


@pytest.fixture
def asked(model: ScriptedModel, root: Path, home: Path) -> Desk:
    return desk(OpenModel(engine=model), root, home, **OPTIONS)


async def quiet(_: int, __: int | None, ___: str) -> None:
    """Reports to nobody."""


def opening(asked: Desk):
    return asked.asked(Question(question="How was the sea?", text=TEXT), asked.roots)


def test_a_reading_that_is_cancelled_ends_after_its_turn_and_is_free_to_be_resumed(
    asked: Desk, model: ScriptedModel
) -> None:
    async def main() -> None:
        runner, begun = Runner(1), asyncio.Event()

        async def report(done: int, _: int | None, __: str) -> None:
            if done >= 2:
                begun.set()

        task = asyncio.create_task(runner.read(opening(asked), report))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with Journal.open() as journal:
            [record] = journal.list()
        assert record.status == "interrupted"
        assert record.turns == len(model.turns)  # the turn under way had ended, and was kept
        result = await runner.read(asked.again(record.id, resumed, asked.roots), quiet)
        assert (result.answer, result.turns_resumed) == ("grey", record.turns)

    asyncio.run(main())


def test_one_that_is_cancelled_while_it_waits_is_never_begun(asked: Desk) -> None:
    async def main() -> None:
        runner, said = Runner(1), list[str]()

        async def report(_: int, __: int | None, words: str) -> None:
            said.append(words)

        first = asyncio.create_task(runner.read(opening(asked), quiet))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(runner.read(opening(asked), report))
        await asyncio.sleep(0.05)
        waiting.cancel()
        assert (await first).answer == "grey"
        assert (await runner.read(opening(asked), quiet)).answer == "grey"
        assert said == ["waiting for another reading to end, number 1 in line"]
        with Journal.open() as journal:
            assert len(journal.list()) == 2

    asyncio.run(main())


def test_several_are_read_side_by_side_with_one_engine(asked: Desk) -> None:
    async def main() -> None:
        runner = Runner(3)
        results = await asyncio.gather(*(runner.read(opening(asked), quiet) for _ in range(5)))
        assert [result.answer for result in results] == ["grey"] * 5
        assert len({result.id for result in results}) == 5

    asyncio.run(main())


def test_what_cannot_be_opened_leaves_room_for_others(asked: Desk) -> None:
    async def main() -> None:
        runner = Runner(1)
        for _ in range(3):
            with pytest.raises(ValueError, match="one of them"):
                await runner.read(asked.asked(Question(question="?"), asked.roots), quiet)
        assert (await runner.read(opening(asked), quiet)).answer == "grey"

    asyncio.run(main())


def test_a_client_that_goes_away_ends_the_reading(asked: Desk) -> None:
    async def gone(done: int, _: int | None, __: str) -> None:
        if done >= 2:
            raise ConnectionError("gone")

    async def main() -> None:
        with pytest.raises(ConnectionError):
            await Runner(1).read(opening(asked), gone)
        with Journal.open() as journal:
            [record] = journal.list()
        assert record.status == "interrupted"

    asyncio.run(main())
