"""The objects that Python gives: a reading that is gone on from, and watches."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import re
import threading
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest

import memagent
from memagent.embedded import FOLDER as EMBEDDED
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from tests.faults import FaultServer
from tests.test_follow_up import OPTIONS, TEXT, model

FALCON = "What is the access code for amber-falcon?"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


def test_a_reading_is_asked_another_question_with_its_own_model_and_journal(journal, book) -> None:
    reading = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    second = reading.ask("who is the captain?")
    assert (second.answer, second.status, second.usage.calls) == ("Ann", "supported", 1)
    assert second.ask("and the code?").answer == "4821973"
    assert asyncio.run(reading.aask("who is the captain?")).answer == "Ann"
    assert reading.ask("who is the captain?", verify=False).status is None
    assert len(journal.list()) == 5


def test_a_reading_is_extended_with_its_own_model_and_journal(journal, book) -> None:
    reading = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    with book.open("a") as file:
        file.write("\nLine 60 tells of the sea.")
    longer = reading.extend()
    assert (longer.id, longer.document["characters"] > reading.document["characters"]) == (reading.id, True)
    more = book.with_name("more.txt")
    more.write_text("Line 61 tells of the sea.")
    assert len(asyncio.run(longer.aextend(more)).document["files"]) == 2


def test_a_reading_that_is_in_no_journal_says_how_to_go_on_from_one(book) -> None:
    reading = memagent.read(book, "the code?", model=model(), **OPTIONS)
    with pytest.raises(memagent.JournalError, match="read with journal="):
        reading.ask("who is the captain?")
    with pytest.raises(memagent.JournalError, match="read with journal="):
        reading.extend()


def test_every_function_gives_readings_that_can_be_gone_on_from(journal, book) -> None:
    for one in (
        *memagent.read_many(book, ["the code?"], model=model(), journal=journal, **OPTIONS),
        *asyncio.run(memagent.aread_many(book, ["the code?"], model=model(), journal=journal, **OPTIONS)),
        memagent.resume(journal.list()[0].id, model=model(), journal=journal),
        *memagent.resume_many(journal.list()[0].id, model=model(), journal=journal),
        asyncio.run(memagent.aresume(journal.list()[0].id, model=model(), journal=journal)),
    ):
        assert one.ask("who is the captain?").answer == "Ann"


class Stop(BaseException):
    """What a watcher of one's own raises."""


def raises(error):
    def watcher(moved) -> None:
        raise error

    return watcher


def refused(turn) -> Exception:
    return memagent.ModelRefusedError("no")


@pytest.mark.parametrize("ending", ["error", "watcher", "interrupt", "resume"])
def test_what_is_raised_names_the_reading_that_it_ended(journal, book, ending) -> None:
    opened, watcher, expected = {
        "watcher": (model(), raises(Stop()), Stop),
        "interrupt": (model(), raises(KeyboardInterrupt()), KeyboardInterrupt),
    }.get(ending, (model(refused), None, memagent.ModelRefusedError))
    options = {"model": opened, "journal": journal, "watcher": watcher}
    with pytest.raises(expected) as first:
        memagent.read(book, "the code?", **options, **OPTIONS)
    if ending == "resume":
        id, first.value.reading = first.value.reading, None
        with pytest.raises(expected) as first:
            memagent.resume(id, **options)
    assert [first.value.reading] == [record.id for record in journal.list()]
    if ending == "error":
        with pytest.raises(expected) as other:
            asyncio.run(memagent.aread(book, "the code?", **options, **OPTIONS))
        assert [other.value.reading, first.value.reading] == [record.id for record in journal.list()]


def test_what_is_raised_before_a_reading_was_entered_names_none(tmp_path, journal, book) -> None:
    memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    for document, question, chosen in (
        (book, "the code?", {"model": str(tmp_path / "nowhere")}),
        (tmp_path / "none.txt", "the code?", {"model": model()}),
        (book, "", {"model": model()}),
    ):
        with pytest.raises(memagent.MemagentError) as raised:
            memagent.read(document, question, journal=journal, **chosen, **OPTIONS)
        assert raised.value.reading is None
    with pytest.raises(memagent.ModelError) as raised:
        memagent.read(book, "the code?", model=model(refused), **OPTIONS)
    assert raised.value.reading is None, "there is no journal"


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("error", [StopIteration, KeyboardInterrupt, SystemExit])
def test_what_a_watcher_raises_ends_the_reading_with_or_without_a_running_loop(book, caplog, lockstep, error) -> None:
    opened = model()
    opened.engine.lockstep = lockstep
    options = {"model": opened, "watcher": raises(error()), **OPTIONS}
    with pytest.raises(RuntimeError if error is StopIteration else error):
        asyncio.run(memagent.aread(book, "the code?", **options))
    with pytest.raises(RuntimeError if error is StopIteration and not lockstep else error):
        memagent.read(book, "the code?", **options)
    gc.collect()
    assert caplog.text == "", "no task was left with an error that nobody has seen"


def test_an_engine_that_raises_stop_iteration_does_not_hang_either(book) -> None:
    def script(turn):
        raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        asyncio.run(memagent.aread(book, "the code?", model=model(script), **OPTIONS))


def test_a_watcher_that_would_have_to_be_awaited_is_refused(book, journal) -> None:
    async def watcher(moved) -> None: ...

    class Watching:
        async def __call__(self, moved) -> None: ...

    for one in (watcher, Watching()):
        with pytest.raises(TypeError, match="async function"):
            memagent.read(book, "the code?", model=model(), journal=journal, watcher=one, **OPTIONS)
    assert journal.list() == ()


@pytest.mark.parametrize("again", [memagent.aread, memagent.aresume, memagent.aextend])
def test_a_reading_that_is_cancelled_while_it_is_planned_stops_at_once_and_enters_nothing(journal, again) -> None:
    text, options, large = TEXT * 120, {"model": model(), "journal": journal}, {**OPTIONS, "chunk_tokens": 3000}
    begun, cancelled, parts = threading.Event(), threading.Event(), []

    def follower(end: int) -> None:
        """Holds the document at its first part until the reading is cancelled."""
        parts.append(end)
        begun.set()
        assert cancelled.wait(60)

    stopped = model(refused) if again == memagent.aresume else model()
    [first] = memagent.read_many(memagent.from_text(text), ["the code?"], model=stopped, journal=journal, **large)
    before, document = journal.list(), memagent.from_text(text + "\nMore." * (again == memagent.aextend))
    document.follower = follower
    work = (
        again(document, "the code?", **options, **large)
        if again == memagent.aread
        else again(first.id, document, **options)
    )

    async def run() -> None:
        task, loop = asyncio.create_task(work), asyncio.get_running_loop()
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        loop.call_soon(loop.call_soon, cancelled.set)  # after the task has heard of it
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert journal.list() == before
    assert len(parts) == 1


@pytest.mark.parametrize("opened_again", [False, True])
def test_a_reading_that_is_under_way_is_not_resumed_in_the_same_process_either(journal, book, opened_again) -> None:
    said = []

    def watcher(moved) -> None:
        with memagent.Journal.open(journal.path) if opened_again else nullcontext(journal) as same:
            for again in (memagent.resume, memagent.extend) if not moved[0].closed else ():
                with pytest.raises(memagent.JournalError) as refusal:
                    again(moved[0].id, journal=same, model=model())
                said.append(str(refusal.value))

    reading = memagent.read(book, "the code?", model=model(), journal=journal, watcher=watcher, **OPTIONS)
    assert (reading.answer, len(said)) == ("4821973", 2 * reading.turns - 2)
    assert all(f"reading {reading.id} is in use by process {os.getpid()} on " in one for one in said)
    with pytest.raises(KeyboardInterrupt) as stopped:
        memagent.read(book, "the code?", model=model(), journal=journal, watcher=raises(KeyboardInterrupt()), **OPTIONS)
    assert memagent.resume(stopped.value.reading, journal=journal, model=model()).answer == "4821973"


def test_a_model_may_be_a_folder_and_an_engine_is_told_how_it_is_given(book, journal) -> None:
    codes = memagent.from_text("The access code for amber-falcon is 4821973.")
    reading = memagent.read(codes, FALCON, model=EMBEDDED, journal=journal, verify=False)
    assert (reading.answer, journal.show(reading.id).settings["model"]) == ("4821973", str(EMBEDDED))
    for wrong in (memagent.ScriptedModel(["a note"]), model()):
        with pytest.raises(TypeError, match=r"OpenModel\(engine=…\)"):
            memagent.open_model(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"of type ScriptedModel: an engine is given as OpenModel\(engine=…\)"):
        memagent.read(book, "the code?", model=memagent.ScriptedModel(["a note"]), **OPTIONS)  # type: ignore[arg-type]


def test_a_base_url_beside_an_opened_model_is_refused(book, journal) -> None:
    given = {"model": model(), "base_url": "http://127.0.0.1:1/v1", "journal": journal}
    reading = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    for work in (
        lambda: memagent.read(book, "the code?", **given, **OPTIONS),
        lambda: memagent.resume(reading.id, **given),
        lambda: reading.ask("the code?", base_url="http://127.0.0.1:1/v1"),
        lambda: memagent.watch("codes", book, "the code?", **given, **OPTIONS),
    ):
        with pytest.raises(memagent.ConfigError, match="this one is open already: leave it out"):
            work()
    assert len(journal.list()) == 1


def test_messages_name_what_there_is_in_python(book, journal) -> None:
    reading = memagent.read(memagent.from_text(TEXT), "the code?", model=model(), journal=journal, **OPTIONS)
    with pytest.raises(memagent.JournalError, match=r"after the id \(`document` in Python\)"):
        reading.ask("the code?")
    for given, message in (
        ({"base_url": "http://127.0.0.1:1/v1"}, r"--model, `model` in Python"),
        ({"model": "nowhere"}, r"--base-url \(`base_url` in Python\)"),
    ):
        with pytest.raises(memagent.MemagentError, match=message):
            memagent.read(book, "the code?", **given)


def served(messages) -> str:
    return "4821973" if "code" in messages[-1]["content"] else "a note"


@pytest.mark.parametrize("opening", ["embedded", "folder", "server", "server with a password and a tokenizer"])
def test_a_reading_with_an_opened_model_is_gone_on_from_by_its_id_alone(tmp_path, monkeypatch, journal, opening) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin").symlink_to(EMBEDDED)
    path = tmp_path / "codes.txt"
    path.write_text("The access code for amber-falcon is 4821973.\n")
    with FaultServer(served) as server:
        url, secret = server.url, server.url.replace("//", "//ann:pass@")
        spec, options, kept = {
            "embedded": ("embedded", {}, ("embedded", None)),
            "folder": ("twin", {}, (str(tmp_path / "twin"), None)),
            "server": ("scripted", {"base_url": url}, ("scripted", url)),
        }.get(opening, ("scripted", {"base_url": secret, "tokenizer": "twin"}, ("scripted", url)))
        opened = memagent.open_model(spec, **options)
        stopped = memagent.aread(path, FALCON, model=opened, journal=journal, watcher=raises(Stop()), verify=False)
        with pytest.raises(Stop):
            asyncio.run(stopped)
        [record] = journal.list()
        opened.engine.close()
        assert (record.settings["model"], record.settings["base_url"]) == kept
        assert "pass" not in repr(opened)
        monkeypatch.chdir("/")
        whole = memagent.resume(record.id, journal=journal, verify=False)
        assert (whole.answer, whole.turns_resumed) == ("4821973", 1)
        assert memagent.follow_up(record.id, FALCON, journal=journal, verify=False).answer == "4821973"
        path.write_text(path.read_text() + "One more line.\n")
        assert memagent.extend(record.id, journal=journal, verify=False).answer == "4821973"


def test_a_watch_with_an_opened_model_is_run_without_it(tmp_path, journal) -> None:
    path = tmp_path / "codes.txt"
    path.write_text("The access code for amber-falcon is 4821973.\n")
    memagent.watch("codes", path, FALCON, model=memagent.open_model("embedded"), verify=False)
    again = memagent.watch("codes", path, FALCON, verify=False, journal=journal)
    assert [new.answer for _, new in again.run().changed] == ["4821973"]


def test_the_way_to_go_on_is_no_part_of_what_is_written_or_compared(journal, book) -> None:
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    again = memagent.resume(first.id, model=model(), journal=journal)
    assert "again" not in first.to_json()
    assert "Journal" not in repr(first)
    json.dumps(first.to_json())
    assert (again.answer, again.memory, again.quotes) == (first.answer, first.memory, first.quotes)


def test_a_reading_can_be_copied_pickled_and_made_a_dict(journal, book) -> None:
    reading = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    for twin in (copy.deepcopy(reading), pickle.loads(pickle.dumps(reading))):
        assert twin == reading
        assert twin.again == {}
    assert asdict(reading)["answer"] == reading.answer


def test_a_string_is_one_question(book) -> None:
    [one] = memagent.read_many(book, "the code?", model=model(), **OPTIONS)
    [two] = asyncio.run(memagent.aread_many(book, "the code?", model=model(), **OPTIONS))
    assert one.question == two.question == "the code?"
    with pytest.raises(memagent.ConfigError, match="at least 2 questions"):
        memagent.read_many(book, "the code?", model=model(), together=True, **OPTIONS)


# Watches


def counting() -> OpenModel:
    """Answers with the last line number that it saw."""

    def reply(turn) -> str:
        numbers = re.findall(r"day (\d{3})|up to (\d{3})", turn.user)
        return f"up to {max(map(max, numbers))}" if numbers else "nothing yet"

    return OpenModel(engine=ScriptedModel(reply))


def notes(tmp_path, *numbers: int):
    folder = tmp_path / "notes"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"day-{number}.txt").write_text(f"This is day {number} of the voyage.\n")
    return folder


def test_a_watch_is_added_once_and_run_again(tmp_path, journal) -> None:
    options = {"model": counting(), "journal": journal, "verify": False, **OPTIONS}
    watch = memagent.watch("voyage", notes(tmp_path, 101), ["how far?"], **options)
    [(before, after)] = watch.run().changed
    assert (before.answer, after.answer) == (None, "up to 101")
    notes(tmp_path, 102)
    again = memagent.watch("voyage", notes(tmp_path), ["how far?"], **options)
    update = asyncio.run(again.arun())
    assert [(old.answer, new.answer) for old, new in update.changed] == [("up to 101", "up to 102")]
    assert [Path(name).name for name in update.changes.new] == ["day-102.txt"]
    opened = asyncio.run(memagent.awatch("voyage", **options))
    assert [one.answer for one in opened.show().questions] == ["up to 102"]
    assert opened.run().changed == []
    opened.remove()
    with pytest.raises(memagent.ConfigError, match="there is no watch 'voyage'"):
        memagent.watch("voyage", **options)


def test_another_watch_of_that_name_is_refused(tmp_path, journal) -> None:
    options = {"model": counting(), "journal": journal, **OPTIONS}
    folder = notes(tmp_path, 101)
    memagent.watch("voyage", folder, ["how far?"], **options)
    for paths, questions, other in (
        (folder, ["how long?"], {}),
        (tmp_path, ["how far?"], {}),
        (folder, ["how far?"], {"encoding": "latin-1"}),
        (folder, ["how far?"], {"reader": "gated"}),
    ):
        with pytest.raises(memagent.ConfigError, match="there is a watch 'voyage' already"):
            memagent.watch("voyage", paths, questions, **{**options, **other})


def test_options_that_a_watch_has_no_use_for_are_refused_and_one_question_is_one(tmp_path, journal) -> None:
    options = {"model": counting(), "journal": journal, **OPTIONS}
    with pytest.raises(memagent.ConfigError, match="leave out together"):
        memagent.watch("voyage", notes(tmp_path, 101), ["how far?"], together=True, **options)
    watch = memagent.watch("voyage", notes(tmp_path), "how far?", **options)
    assert [one.question for one in watch.show().questions] == ["how far?"]


def test_a_watcher_sees_the_readings_of_a_watch(tmp_path, journal) -> None:
    seen: list[int] = []
    options = {"model": counting(), "journal": journal, "watcher": lambda moved: seen.append(len(moved)), **OPTIONS}
    memagent.watch("voyage", notes(tmp_path, 101), ["how far?"], **options).run()
    assert seen


def test_an_option_that_there_is_not_is_an_error(tmp_path, journal, book) -> None:
    with pytest.raises(TypeError, match="there is no option 'chunk_token': use chunk_tokens"):
        memagent.read(book, "the code?", model=model(), chunk_token=100)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="there is no option 'bogus': use answer_tokens, base_url, "):
        memagent.watch("notes", book, ["the code?"], model=model(), bogus=1)  # type: ignore[call-arg]
    reading = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    for again in (reading.ask, reading.extend, lambda *_, **given: memagent.resume(reading.id, **given)):
        with pytest.raises(TypeError, match="there is no option 'jornal': use journal"):
            again("x", jornal=journal)


def test_the_encoding_of_text_can_be_named_and_is_remembered(tmp_path, journal) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(f"Ünwerter Ärger: {TEXT}".encode("cp1252"))
    with pytest.raises(memagent.ConfigError, match="klingon"):
        memagent.read(path, "the code?", model=model(), encoding="klingon", **OPTIONS)
    reading = memagent.read(path, "the code?", model=model(), journal=journal, encoding="cp1252", **OPTIONS)
    assert journal.show(reading.id).document["encoding"] == "cp1252"
    assert reading.ask("the code?").answer == reading.answer


@pytest.mark.parametrize("name", ["skip_broken", "together", "verify"])
def test_what_is_no_switch_is_refused(book, name: str) -> None:
    document = memagent.from_text(TEXT)
    for value in ("no", 0, None):
        for source in (book, document):
            with pytest.raises(memagent.ConfigError, match=f"{name} is {value!r}; it must be True or False"):
                memagent.read_many(source, ["the code?"], model=model(), **{name: value}, **OPTIONS)
