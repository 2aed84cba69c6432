"""Models in process: readings of several documents share the calls of the engine, and come out as one by one."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref

import pytest
from transformers import LlamaConfig

import memagent as package
from memagent.batch.shared import SharedEngine
from memagent.core import Completion, Sampling, Turn
from memagent.errors import ContextTooLongError, ModelReplyError
from memagent.models.local import LocalEngine
from tests.batch.conftest import LINE, timeless
from tests.models.tiny import SHAPE, Counted, make_tiny_causal


class Counting:
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
    inner = Counting()

    async def main():
        engine = SharedEngine(inner, 4)
        return await asyncio.gather(
            *(reading(engine, name, turns) for name, turns in zip("abcd", (3, 5, 3, 5), strict=True))
        )

    made = asyncio.run(main())
    assert made[1] == ["B0", "B1", "B2", "B3", "B4"]
    assert inner.sizes == [4, 4, 4, 2, 2]


def test_readings_with_several_turns_at_once_wait_for_each_other_too():
    inner = Counting()

    async def several(engine, name):
        with engine.reading():
            for number in range(3):
                await asyncio.gather(*(engine.agenerate(turn(f"{name}{number}{one}")) for one in range(4)))
                await asyncio.sleep(0.005 if name == "a" else 0)  # one of them is late each time

    async def main():
        engine = SharedEngine(inner, 8)
        await asyncio.gather(several(engine, "a"), several(engine, "b"))

    asyncio.run(main())
    assert inner.sizes == [8, 8, 8]


def test_a_call_has_no_more_turns_than_it_may_and_a_failure_is_of_its_reading():
    inner = Counting()

    async def one(engine, user):
        with engine.reading():
            return await engine.agenerate(turn(user))

    async def main():
        engine = SharedEngine(inner, 2)
        return await asyncio.gather(*(one(engine, user) for user in ("a", "bad", "c", "d", "e")), return_exceptions=True)

    made = asyncio.run(main())
    assert [one.text for one in made if isinstance(one, Completion)] == ["A", "C", "D", "E"]
    assert isinstance(made[1], ModelReplyError)
    assert inner.sizes == [2, 2, 1]


def test_an_engine_that_breaks_ends_all_that_wait():
    class Broken(Counting):
        def generate(self, turns):
            raise RuntimeError("out of memory")

    async def main():
        engine = SharedEngine(Broken(), 2)
        return await asyncio.gather(*(reading(engine, name, 1) for name in "ab"), return_exceptions=True)

    assert [str(one) for one in asyncio.run(main())] == ["out of memory"] * 2


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = make_tiny_causal(tmp_path_factory.mktemp("model"), LlamaConfig(**SHAPE))
    engine = LocalEngine(folder, dtype="float32")
    yield engine
    engine.close()


def of_tokens(user, tokens):
    return Turn(id="t", kind="update", user=user, max_tokens=tokens, sampling=Sampling(temperature=1.0, seed=1))


def test_turns_join_those_that_are_under_way_where_the_model_allows_that(llama, monkeypatch):
    whole, order = llama.model, []
    turns = {"long": of_tokens("the house on the hill", 300), **{name: of_tokens(name, 3) for name in "abcd"}}
    passes = {10 * number: name for number, name in enumerate(turns) if number}
    reached, came = ({name: threading.Event() for name in "abcd"} for _ in range(2))

    class Waits:
        """In its 10th, 20th, 30th and 40th pass, another turn comes."""

        config, device, calls = whole.config, whole.device, 0

        def __call__(self, **options):
            self.calls += 1
            if (name := passes.get(self.calls)) is not None:
                reached[name].set()
                assert came[name].wait(60)
            return whole(**options)

    async def one(engine, name, turn):
        if name in reached:
            assert await asyncio.to_thread(reached[name].wait, 60)
        with engine.reading():
            asked = asyncio.create_task(engine.agenerate(turn))
            await asyncio.sleep(0)
            if name in came:
                came[name].set()
            made = await asked
        order.append(name)
        return made

    async def main():
        engine = SharedEngine(llama, 8)
        return await asyncio.gather(
            *(one(engine, name, turn) for name, turn in turns.items()),
            one(engine, "too long", of_tokens("word " * 600, 3)),
            return_exceptions=True,
        )

    with monkeypatch.context() as patch:
        patch.setattr(llama, "model", Waits())
        *made, error = asyncio.run(main())
    assert order[-1] == "long"
    assert [one.token_ids for one in made] == [one.token_ids for one in llama.generate(list(turns.values()))]
    assert isinstance(error, ContextTooLongError)


def test_a_model_that_breaks_ends_all_that_are_under_way_and_goes_on_with_the_next(llama, monkeypatch):
    whole = llama.model

    class BreaksOnce:
        config, device, calls = whole.config, whole.device, 0

        def __call__(self, **options):
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("a device is gone")
            return whole(**options)

    monkeypatch.setattr(llama, "model", BreaksOnce())
    turns = [of_tokens(name, 3) for name in "ab"]

    async def main():
        engine = SharedEngine(llama, 8)
        broken = await asyncio.gather(*(engine.agenerate(turn) for turn in turns), return_exceptions=True)
        return broken, await engine.agenerate(turns[0])

    broken, made = asyncio.run(main())
    assert [str(error) for error in broken] == ["a device is gone"] * 2
    assert made.token_ids == llama.generate(turns[:1])[0].token_ids


def test_a_turn_that_is_given_up_is_not_computed_to_its_end(llama, monkeypatch):
    counted = Counted(llama.model)
    monkeypatch.setattr(llama, "model", counted)

    async def main():
        engine = SharedEngine(llama, 8)
        long = asyncio.create_task(engine.agenerate(of_tokens("the house on the hill", 400)))
        await engine.agenerate(of_tokens("a", 3))
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        return await engine.agenerate(of_tokens("b", 3))

    assert asyncio.run(main()).completion_tokens == 3
    assert len(counted.calls) < 100


def test_readings_that_ask_about_one_chunk_a_moment_apart_are_let_in_together(llama, monkeypatch):
    counted = Counted(llama.model)
    monkeypatch.setattr(llama, "model", counted)
    chunk = "the house on the hill is blue. " * 9

    async def one(engine, number):
        with engine.reading():
            await asyncio.sleep(0.003 * number)
            for turn in range(3):
                await engine.agenerate(of_tokens(f"{chunk} {turn} question {number}", 2 + number))

    async def main():
        engine = SharedEngine(llama, 8)
        await asyncio.gather(*(one(engine, number) for number in range(4)))

    asyncio.run(main())
    alone = len(llama.row(of_tokens(chunk, 2)).prompt)
    computed = sum(rows * tokens for rows, tokens in counted.calls if tokens > 1)
    assert computed < 7 * alone, "the chunk once for each of three turns, and not for each of twelve"


def test_an_engine_that_is_closed_fails_its_turns_and_keeps_no_weights(tmp_path):
    engine = LocalEngine(make_tiny_causal(tmp_path, LlamaConfig(**SHAPE)), dtype="float32")
    weights = weakref.ref(engine.model)

    async def main():
        shared = SharedEngine(engine, 8)
        await shared.agenerate(of_tokens("a", 3))
        shared.close()
        gc.collect()
        assert weights() is None
        return await asyncio.gather(*(shared.agenerate(of_tokens(name, 3)) for name in "ab"), return_exceptions=True)

    assert all(isinstance(error, Exception) for error in asyncio.run(main()))


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
