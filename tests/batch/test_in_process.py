"""Models in process: readings of several documents share the calls of the engine, and come out as one by one."""

from __future__ import annotations

import asyncio
import json

import pytest

import memagent as package
from memagent.batch.lockstep import Lockstep
from memagent.core import Completion, Sampling, Turn
from memagent.errors import ModelReplyError
from tests.batch.conftest import LINE, timeless


class Batching:
    """An engine that remembers how many turns each call had."""

    identity, window, overhead, lockstep, concurrency, tokenizer = "batching", 1000, 0, True, 8, None

    def __init__(self):
        self.sizes = []

    def generate(self, turns):
        self.sizes.append(len(turns))
        return [ModelReplyError("no") if turn.user == "bad" else Completion(text=turn.user.upper()) for turn in turns]

    def close(self):
        """Nothing to release."""


def turn(user):
    return Turn(id="t", kind="update", user=user, max_tokens=5, sampling=Sampling())


async def reading(engine, name, turns):
    with engine.reading():
        return [(await engine.agenerate(turn(f"{name}{number}"))).text for number in range(turns)]


def test_turns_of_readings_that_come_and_go_are_generated_together():
    inner = Batching()

    async def main():
        engine = Lockstep(inner, 4)
        return await asyncio.gather(
            *(reading(engine, name, turns) for name, turns in zip("abcd", (3, 5, 3, 5), strict=True))
        )

    made = asyncio.run(main())
    assert made[1] == ["B0", "B1", "B2", "B3", "B4"]
    assert inner.sizes == [4, 4, 4, 2, 2]


def test_readings_with_several_turns_at_once_wait_for_each_other_too():
    inner = Batching()

    async def several(engine, name):
        with engine.reading():
            for number in range(3):
                await asyncio.gather(*(engine.agenerate(turn(f"{name}{number}{one}")) for one in range(4)))
                await asyncio.sleep(0.005 if name == "a" else 0)  # one of them is late each time

    async def main():
        engine = Lockstep(inner, 8)
        await asyncio.gather(several(engine, "a"), several(engine, "b"))

    asyncio.run(main())
    assert inner.sizes == [8, 8, 8]


def test_a_call_has_no_more_turns_than_it_may_and_a_failure_is_of_its_reading():
    inner = Batching()

    async def one(engine, user):
        with engine.reading():
            return await engine.agenerate(turn(user))

    async def main():
        engine = Lockstep(inner, 2)
        return await asyncio.gather(*(one(engine, user) for user in ("a", "bad", "c", "d", "e")), return_exceptions=True)

    made = asyncio.run(main())
    assert [one.text for one in made if isinstance(one, Completion)] == ["A", "C", "D", "E"]
    assert isinstance(made[1], ModelReplyError)
    assert inner.sizes == [2, 2, 1]


def test_an_engine_that_breaks_ends_all_that_wait():
    class Broken(Batching):
        def generate(self, turns):
            raise RuntimeError("out of memory")

    async def main():
        engine = Lockstep(Broken(), 2)
        return await asyncio.gather(*(reading(engine, name, 1) for name in "ab"), return_exceptions=True)

    assert [str(one) for one in asyncio.run(main())] == ["out of memory"] * 2


def test_the_embedded_model_answers_as_it_does_one_by_one(memagent, tmp_path):
    keys = ("amber-falcon", "silver-otter", "green-heron")
    rows = []
    for number, key in enumerate(keys):
        lines = [LINE.format(n) for n in range(60 + 40 * number)]
        lines[30] = f"The access code for {key} is {4821973 + number}."
        (tmp_path / f"{key}.txt").write_text("\n".join(lines))
        rows.append({"id": key, "document": f"{key}.txt", "question": f"What is the access code for {key}?"})
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = memagent("batch", tmp_path / "jobs.jsonl", "-o", tmp_path / "out", "--json")
    assert (result.code, result.json["answered"]) == (0, 3)
    found = timeless(tmp_path / "out")
    for row in rows:
        alone = package.read(tmp_path / row["document"], row["question"])
        record = found[row["id"], row["question"]]
        assert (record["answer"], record["memory"], record["status"]) == (alone.answer, alone.memory, alone.status)
        assert record["quotes"][0]["cited_text"] == alone.quotes[0].cited_text
    assert found["amber-falcon", rows[0]["question"]]["answer"] == "4821973"


@pytest.mark.parametrize("verify", [True, False])
def test_auto_chooses_a_reader_for_each_document(memagent, tmp_path, verify):
    texts = {str(count): " ".join(LINE.format(n) for n in range(count)) for count in (4, 80)}
    rows = [{"id": id, "text": text, "question": "Which sea?"} for id, text in texts.items()]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = [] if verify else ["--no-verify"]
    result = memagent("batch", tmp_path / "jobs.jsonl", "-o", tmp_path / "out", "--reader", "auto", *more)
    assert result.code == 0, result.err
    assert {record["status"] is None for record in timeless(tmp_path / "out").values()} == {not verify}
