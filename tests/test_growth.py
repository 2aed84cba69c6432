"""Documents that grow: what is read on equals one reading of the whole."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import memagent
from memagent.cli import app
from memagent.core import chunking
from memagent.core.readers import READERS, MemoryReader
from memagent.growth import growing
from memagent.models.open import EMBEDDED, OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.models.tokenizers import ByteTokenizer, FileTokenizer
from memagent.session import Session
from memagent.settings import Settings, make_settings
from tests.cli.conftest import FACT, reader
from tests.faults import FaultServer
from tests.helpers import SpreadTokenizer

OPTIONS = {"question_tokens": 60, "chunk_tokens": 200, "memory_tokens": 80, "answer_tokens": 60}


def script(turn) -> str:
    """A model whose every reply depends on all that it is shown, so that equal results mean equal prompts."""
    made = random.Random(turn.user)
    words = " ".join(made.choice(("sea", "ship", "whale", "nothing new", "captain")) for _ in range(made.randint(1, 5)))
    if turn.kind in ("update", "note") and made.random() < 0.3:
        return "nothing new"
    return f"{turn.kind} {made.randrange(10**6)} {words}"


def model(reply=script) -> OpenModel:
    return OpenModel(engine=ScriptedModel(reply))


def text(rng: random.Random, sentences: int) -> str:
    what, ends = ("the sea", "a ship", "whales"), (". ", ".\n", ".\n\n")
    return "".join(f"Line {rng.randrange(1000)} tells of {rng.choice(what)}{rng.choice(ends)}" for _ in range(sentences))


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


@pytest.mark.parametrize("how", growing())
def test_reading_on_equals_one_reading_of_the_whole_at_any_split(journal, tmp_path, how) -> None:
    rng = random.Random(how)
    for number in range(40):
        whole = text(rng, rng.randint(3, 60))
        cut = rng.randint(1, len(whole) - 1)
        if not whole[:cut].strip():
            continue
        path = tmp_path / f"{number}.txt"
        path.write_text(whole[:cut], newline="")
        first = memagent.read(path, "q?", model=model(), journal=journal, reader=how, **OPTIONS)
        path.write_text(whole, newline="")
        asked = model()
        grown = memagent.extend(first, model=asked, journal=journal)
        there = memagent.read(path, "q?", model=model(), reader=how, **OPTIONS)
        same = ("answer", "memory", "provenance", "turns", "outcomes", "share_read", "status", "quotes")
        assert [getattr(grown, name) for name in same] == [getattr(there, name) for name in same]
        assert grown.id == first.id
        new = [turn for turn in asked.engine.turns if turn.kind != "verify"]
        assert len(new) == grown.turns - grown.turns_resumed


@pytest.mark.parametrize("how", growing())
def test_reading_on_again_and_again_equals_one_reading(journal, tmp_path, how) -> None:
    rng, path = random.Random(f"again/{how}"), tmp_path / "log.txt"
    path.write_text(text(rng, 20))
    grown = memagent.read(path, "q?", model=model(), journal=journal, reader=how, **OPTIONS)
    for _ in range(12):
        with path.open("a") as file:
            file.write(text(rng, rng.randint(1, 15)))
        grown = memagent.extend(grown, model=model(), journal=journal)
    there = memagent.read(path, "q?", model=model(), reader=how, **OPTIONS)
    same = ("answer", "memory", "provenance", "turns", "outcomes", "share_read", "status", "quotes")
    assert [getattr(grown, name) for name in same] == [getattr(there, name) for name in same]
    assert grown.usage.prompt_tokens == there.usage.prompt_tokens
    again = memagent.resume(grown.id, model=model([]), journal=journal)
    assert [getattr(again, name) for name in same] == [getattr(there, name) for name in same]


TOKENIZERS = {"bytes": ByteTokenizer, "spread": SpreadTokenizer, "embedded": lambda: FileTokenizer.load(EMBEDDED)}


@pytest.mark.parametrize("how", growing())
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("fits", [100, 10_000])  # characters of a chunk that the model takes; longer ones are split
def test_however_tokens_are_counted_reading_on_equals_one_reading(
    journal, tmp_path, monkeypatch, how, tokenizer, fits
) -> None:
    """Where a token ends may depend on text far behind it, and chunks on where the document ended. Every reading on is
    killed once, and resumed."""
    monkeypatch.setattr(chunking, "_BLOCK_CHARS", 1)

    class Killed(BaseException):
        pass

    def reply(turn):
        long = turn.kind in ("update", "note") and len(turn.spans[0]) > fits
        return memagent.ContextTooLongError("too long") if long else script(turn)

    def asked(script) -> OpenModel:
        return OpenModel(engine=ScriptedModel(script, tokenizer=TOKENIZERS[tokenizer]()))

    rng, path, resumed = random.Random(f"{how}/{tokenizer}/{fits}"), tmp_path / "log.txt", 0
    sizes = {"question_tokens": 20, "chunk_tokens": 130, "memory_tokens": 50, "answer_tokens": 60}
    options = {**sizes, "reader": how, "verify": False}
    whole = text(rng, 250)
    near = [
        size + rng.randint(1, 400) for size in rng.sample(range(len(whole) // 4, len(whole) - 400), 4) for _ in range(3)
    ]
    cuts = sorted(set(near))
    path.write_text(whole[: cuts[0]])
    grown = memagent.read(path, "q?", model=asked(reply), journal=journal, **options)
    for cut in cuts[1:]:
        path.write_text(whole[:cut])
        calls = iter(range(rng.randint(0, 1)))

        def dies(turn, calls=calls):
            if next(calls, None) is None:
                raise Killed
            return reply(turn)

        with pytest.raises(Killed):
            memagent.extend(grown, model=asked(dies), journal=journal)
        grown = memagent.resume(grown.id, model=asked(reply), journal=journal)
        there = memagent.read(path, "q?", model=asked(reply), **options)
        same = ("answer", "memory", "provenance", "turns", "outcomes", "share_read")
        assert [getattr(grown, name) for name in same] == [getattr(there, name) for name in same]
        resumed += grown.turns_resumed
    first_pass = [turn for turn in journal.turns(grown.id) if turn.id.startswith(("chunk-", "round-1/chunk-"))]
    assert resumed > len(first_pass)


def test_only_what_was_added_is_read(journal, tmp_path) -> None:
    path = tmp_path / "log.txt"
    rng = random.Random(1)
    path.write_text(text(rng, 200))
    first = memagent.read(path, "q?", model=model(), journal=journal, **OPTIONS)
    with path.open("a") as file:
        file.write(text(rng, 10))
    asked = model()
    grown = memagent.extend(first.id, model=asked, journal=journal)
    shown = [turn.spans[0].start for turn in asked.engine.turns if turn.kind == "update"]
    assert 1 <= len(shown) <= 4
    assert first.turns - 2 == grown.turns_resumed
    again = memagent.extend(first.id, model=model([]), journal=journal)  # nothing was added
    assert (again.answer, again.turns) == (grown.answer, grown.turns)


def test_more_files_are_read_on_and_without_blocking(journal, tmp_path) -> None:
    rng = random.Random(2)
    for name in ("monday", "tuesday", "wednesday"):
        (tmp_path / f"{name}.txt").write_text(text(rng, 40))
    paths = [tmp_path / f"{name}.txt" for name in ("monday", "tuesday", "wednesday")]
    reading = memagent.read(paths[0], "q?", model=model(), journal=journal, **OPTIONS)
    reading = memagent.extend(reading, paths[1], model=model(), journal=journal)
    reading = asyncio.run(memagent.aextend(reading.id, [paths[2]], model=model(), journal=journal))
    whole = memagent.read(paths, "q?", model=model(), **OPTIONS)
    assert (reading.answer, reading.memory, reading.provenance) == (whole.answer, whole.memory, whole.provenance)
    assert [one["name"] for one in reading.document["files"]] == [str(path) for path in paths]


def test_a_document_is_read_on_and_asked_again_in_the_encoding_that_was_given(journal, tmp_path) -> None:
    path, how = tmp_path / "log.txt", "cp1250"  # where cp1252 has £
    settings = make_settings(model(), model="scripted", **OPTIONS)
    path.write_bytes("Das Schiff kostet Ł 5. Größer ist nur die See.\n".encode(how) * 5)
    with memagent.load([path]) as guessed, memagent.load([path], encoding=how) as document:
        assert guessed.digest != document.digest
        session = Session(document, model(), settings, journal, paths=[str(path)])
        [reading] = session.run(session.start(["q?"]))
    for _ in range(2):  # what was extended keeps its encoding
        with path.open("ab") as file:
            file.write("Schöner ist nichts.\n".encode(how) * 5)
        reading = memagent.extend(reading, model=model(), journal=journal)
    asked = memagent.follow_up(reading, "and?", model=model(), journal=journal)
    again = memagent.follow_up(asked, "and?", model=model(), journal=journal)
    assert again.document["digest"] == asked.document["digest"] == reading.document["digest"]


def test_a_reading_on_that_was_killed_is_resumed(journal, tmp_path) -> None:
    class Killed(BaseException):
        pass

    path = tmp_path / "log.txt"
    rng = random.Random(3)
    path.write_text(text(rng, 60))
    first = memagent.read(path, "q?", model=model(), journal=journal, **OPTIONS)
    with path.open("a") as file:
        file.write(text(rng, 60))
    whole = memagent.read(path, "q?", model=model(), **OPTIONS)
    calls = iter(range(100))

    def dies(turn):
        if next(calls) == 3:
            raise Killed
        return script(turn)

    with pytest.raises(Killed):
        memagent.extend(first, model=model(dies), journal=journal)
    assert journal.show(first.id).status == "running"
    resumed = memagent.resume(first.id, model=model(), journal=journal)
    assert (resumed.answer, resumed.memory, resumed.turns) == (whole.answer, whole.memory, whole.turns)


def test_a_reading_that_ended_early_ends_there_again(journal, tmp_path) -> None:
    def enough(turn):
        return "the answer is 7\nenough" if turn.id == "chunk-2" else script(turn)

    path = tmp_path / "log.txt"
    path.write_text(text(random.Random(4), 60))
    options = {"reader": "gated", "reader_options": {"exit": True}, **OPTIONS}
    first = memagent.read(path, "q?", model=model(enough), journal=journal, **options)
    with path.open("a") as file:
        file.write("And more. " * 50)
    grown = memagent.extend(first, model=model(enough), journal=journal)
    whole = memagent.read(path, "q?", model=model(enough), **options)
    assert (grown.answer, grown.turns, grown.share_read) == (whole.answer, whole.turns, whole.share_read)
    assert grown.turns == 3


def test_text_that_changed_before_the_end_is_refused_with_the_place_and_nothing_is_lost(journal, tmp_path) -> None:
    path = tmp_path / "log.txt"
    before = "".join(f"Line {number} of the log.\n" for number in range(12_000))
    path.write_text(before)
    options = {**OPTIONS, "chunk_tokens": 50_000}
    first = memagent.read(path, "q?", model=model(), journal=journal, **options)
    changed = before[:150_000] + "X" + before[150_001:]
    path.write_text(changed + "More.\n")
    with pytest.raises(
        memagent.JournalError, match=r"has changed between characters 131,072 and 196,608 \(.*log\.txt, line "
    ):
        memagent.extend(first, model=model([]), journal=journal)
    path.write_text(before[:-2] + "X\nMore.\n")
    with pytest.raises(memagent.JournalError, match=r"has changed between characters 262,144 and its end"):
        memagent.extend(first, model=model([]), journal=journal)
    path.write_text(before[:1000])
    with pytest.raises(memagent.JournalError, match=r"has 1,000 characters, and had .* it did not grow"):
        memagent.extend(first, model=model([]), journal=journal)
    record = journal.show(first.id)
    assert (record.status, record.answer, record.turns) == ("answered", first.answer, first.turns)
    path.write_text(before + "More.\n")
    assert memagent.extend(first, model=model(), journal=journal).error is None


def test_readers_that_choose_from_the_whole_document_are_refused(journal, tmp_path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text(random.Random(5), 30))
    direct = memagent.read(path, "q?", model=model(), journal=journal, reader="direct", **{**OPTIONS, "chunk_tokens": 9000})
    with pytest.raises(memagent.JournalError, match=r"used the reader 'direct', which cannot go on .* ask again"):
        memagent.extend(direct, model=model([]), journal=journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShoutingReader(MemoryReader):
    """As the guide's own reader."""

    name: ClassVar[str] = "shouting"

    def update_prompt(self, plan, state, text):
        return MemoryReader.update_prompt(self, plan, state, text).replace(plan.question, plan.question.upper())


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReader(ShoutingReader):
    """Shows the length of the document, which changes when it grows."""

    name: ClassVar[str] = "length"
    grows: ClassVar[bool] = False


def test_which_readers_can_go_on_is_a_property_of_their_classes(journal, tmp_path, monkeypatch) -> None:
    assert growing() == ["memory", "gated", "parallel", "recall", "append"]
    for cls in (ShoutingReader, LengthReader):
        monkeypatch.setitem(READERS, cls.name, cls)
    rng, path = random.Random(6), tmp_path / "log.txt"
    path.write_text(text(rng, 30))
    own, other = (
        memagent.read(path, "q?", model=model(), journal=journal, reader=how, **OPTIONS) for how in ("shouting", "length")
    )
    with path.open("a") as file:
        file.write(text(rng, 30))
    grown = memagent.extend(own, model=model(), journal=journal)
    there = memagent.read(path, "q?", model=model(), reader="shouting", **OPTIONS)
    assert (grown.answer, grown.memory, grown.turns) == (there.answer, there.memory, there.turns)
    assert grown.turns_resumed > 3
    with pytest.raises(
        memagent.JournalError, match=r"used the reader 'length', which cannot go on .* append, shouting can"
    ):
        memagent.extend(other, model=model([]), journal=journal)


@pytest.mark.parametrize("how", growing())
def test_a_reading_that_stopped_goes_on_in_the_grown_document_as_one_reading(journal, tmp_path, how) -> None:
    rng, path = random.Random(f"stopped/{how}"), tmp_path / "log.txt"
    for stop in (0, 1, 3, 6):
        path.write_text(text(rng, 40))
        calls = iter(range(stop))

        def dies(turn, calls=calls):
            return script(turn) if next(calls, None) is not None else memagent.ModelUnavailableError("gone")

        with pytest.raises(memagent.ModelUnavailableError):
            memagent.read(path, "q?", model=model(dies), journal=journal, reader=how, **OPTIONS)
        with path.open("a") as file:
            file.write(text(rng, 20))
        grown = memagent.extend(journal.list(limit=1)[0].id, model=model(), journal=journal)
        there = memagent.read(path, "q?", model=model(), reader=how, **OPTIONS)
        same = ("answer", "memory", "provenance", "turns", "outcomes", "share_read", "status", "quotes")
        assert [getattr(grown, name) for name in same] == [getattr(there, name) for name in same]
        if how != "parallel":  # whose turns of one step fail together
            assert stop - 1 <= grown.turns_resumed <= stop  # the old last chunk goes on, and is read again


def test_a_reading_of_several_questions_is_read_on_by_the_command_alone(journal, tmp_path) -> None:
    path, rng = tmp_path / "log.txt", random.Random(8)
    path.write_text(text(rng, 40))
    options = {**OPTIONS, "question_tokens": 200, "chunk_tokens": 300}
    asked = ["first?", "second?"]
    first, _ = memagent.read_many(path, asked, model=model(), journal=journal, together=True, **options)
    with path.open("a") as file:
        file.write(text(rng, 30))
    with pytest.raises(memagent.JournalError, match=f"answers 2 questions: extend it with memagent extend {first.id}"):
        memagent.extend(first, model=model([]), journal=journal)
    whole = memagent.read_many(path, asked, model=model(), together=True, **options)
    with memagent.load([path]) as document:
        record = journal.show(first.id)
        session = Session(document, model(), Settings.from_json(record.settings), journal)
        grown = session.run([session.extend(first.id)])
    assert [(one.answer, one.memory, one.turns) for one in grown] == [(one.answer, one.memory, one.turns) for one in whole]


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounds_that_follow_the_memory_read_on_as_one_reading_of_the_whole(journal, tmp_path, rounds) -> None:
    chosen = {"reader": "parallel", "reader_options": {"focus": True, "rounds": rounds}, **OPTIONS}
    for seed in range(8):
        rng = random.Random(seed)
        before, after = tmp_path / f"{seed}.txt", tmp_path / f"{seed}-whole.txt"
        begun, more = text(rng, 40), text(rng, 20)
        before.write_text(begun)
        first = memagent.read(before, "q?", model=model(), journal=journal, **chosen)
        before.write_text(begun + more)
        after.write_text(begun + more)
        grown = memagent.extend(first.id, model=model(), journal=journal)
        whole = memagent.read(after, "q?", model=model(), journal=journal, **chosen)
        assert (grown.answer, grown.memory) == (whole.answer, whole.memory)


def test_a_reading_that_another_process_is_at_is_left_to_it(journal, tmp_path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text(random.Random(6), 40))
    first = memagent.read(path, "q?", model=model(), journal=journal, **OPTIONS)
    with memagent.Journal.open(journal.path) as other:
        other.extend(first.id, document={}, plan_digest="x", planned=1, keep=2, base={})
        with pytest.raises(memagent.JournalError, match="is in use by process"):
            journal.extend(first.id, document={}, plan_digest="x", planned=1, keep=1, base={})
    assert journal.show(first.id).turns == 2


def test_the_command_reads_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))

    def run(*arguments: object):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    path, more = tmp_path / "log.txt", tmp_path / "more.txt"
    path.write_text("Nothing of note.\n" * 100)
    more.write_text(f"{FACT}\n")
    with FaultServer(reader) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        first = run("ask", path, "-q", "the code?", "--json", *options)
        assert json.loads(first.stdout)["answer"] == "not found"
        id, turns = json.loads(first.stdout)["reading"], json.loads(first.stdout)["turns"]
        same = run("extend", id)
        assert same.exit_code == 0
        assert "nothing was added" in same.stderr
        grown = run("extend", id, more)
        assert (grown.exit_code, grown.stdout.splitlines()[0]) == (0, "4821973")
        assert f"{more}, line 1" in grown.stdout
        assert f"{turns} turns, 2 of them new" in grown.stderr or f"{turns + 1} turns, 2 of them new" in grown.stderr
        assert json.loads(run("readings", "list", "--json").stdout)[0]["reading"] == id
        assert json.loads(run("resume", id, "--json").stdout)["answer"] == "4821973"
        path.write_text("Something else.\n" * 120)
        refused = run("extend", id)
        assert refused.exit_code == 2
        assert "has changed" in " ".join(refused.stderr.split())
        assert json.loads(run("readings", "show", id, "--json").stdout)["answer"] == "4821973"
