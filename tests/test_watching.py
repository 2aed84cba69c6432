"""Standing questions: each run reads what is new, says what changed, and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import memagent
from memagent import watching
from memagent.cli import app
from memagent.errors import ConfigError, DocumentError
from memagent.files import locked
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.settings import make_settings
from tests.documents.document_samples import write_pdf
from tests.faults import Fault, FaultServer

OPTIONS = {"question_tokens": 60, "chunk_tokens": 120, "memory_tokens": 80, "answer_tokens": 60}
CAPTAIN, PORT = "Who is the captain?", "Which port?"


def reply(prompt: str) -> str:
    """Keeps the last sentence about captain or port that it saw, as its question asks."""

    def between(tag: str) -> str:
        return prompt.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()

    asked, section, memory = between("question"), between("section"), between("memory")
    what = "captain" if "captain" in asked else "port"
    said = [sentence for sentence in section.replace("\n", " ").split(".") if f"The {what} is" in sentence]
    if prompt.startswith("A question about"):
        named = [one.strip() for one in said if between("answer") in one]
        return named[-1] if named else "no support"
    if "<section>" not in prompt:
        return memory.rpartition(" ")[2] if "The" in memory else "not in the document"
    return said[-1].strip() if said else memory


def model(script=lambda turn: reply(turn.user)) -> OpenModel:
    return OpenModel(engine=ScriptedModel(script))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def notes(tmp_path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "day-01.txt").write_text(
        "We sailed. The captain is Ann. " + "".join(f"Hour {n} was calm. " for n in range(30))
    )
    return folder


@pytest.fixture
def journal(home):
    with memagent.Journal.open() as journal:
        yield journal


def added(notes: Path, **options) -> watching.Watch:
    settings = make_settings(model(), model="scripted", **{**OPTIONS, **options})
    return watching.add("ship", [str(notes)], [CAPTAIN, PORT], settings)


def answers(update: watching.Update) -> list[str | None]:
    return [one.answer for one in update.watch.questions]


def test_each_run_reads_what_is_new_and_says_which_answers_changed(notes, journal) -> None:
    added(notes)
    first = watching.run("ship", model(), journal)
    assert answers(first) == ["Ann", "not in the document"]
    assert [new.question for _, new in first.changed] == [CAPTAIN, PORT]
    (notes / "day-02.txt").write_text("The port is Lima. ")
    asked = model()
    second = watching.run("ship", asked, journal)
    assert answers(second) == ["Ann", "Lima"]
    assert [(old.answer, new.answer) for old, new in second.changed] == [("not in the document", "Lima")]
    assert second.changes.new == (str(notes / "day-02.txt"),)
    [quote] = second.watch.questions[1].verdict.quotes
    assert (quote.cited_text, quote.file) == ("The port is Lima", str(notes / "day-02.txt"))
    updates = [turn for turn in asked.engine.turns if turn.kind == "update"]
    assert 2 <= len(updates) <= 4  # the last chunk again, and what is new, for two questions
    third = watching.run("ship", model([]), journal)
    assert (third.changed, third.readings, answers(third)) == ([], (), ["Ann", "Lima"])
    assert watching.show("ship") == third.watch


def test_the_order_in_which_files_come_is_the_order_of_the_text(notes, journal) -> None:
    added(notes)
    watching.run("ship", model(), journal)
    (notes / "day-00.txt").write_text("The captain is Bob.")  # sorts before what was read
    assert answers(watching.run("ship", model(), journal))[0] == "Bob"
    with (notes / "day-01.txt").open("a") as file:
        file.write("The captain is Cid.")
    grown = watching.run("ship", model(), journal)
    assert (answers(grown)[0], grown.changes.grown) == ("Cid", (str(notes / "day-01.txt"),))
    [quote] = grown.watch.questions[0].verdict.quotes
    text = (notes / "day-01.txt").read_text()
    assert quote.place == f"{notes / 'day-01.txt'}, line {text.count(chr(10)) + 1}, offset {text.index(quote.cited_text)}"


def test_edited_and_deleted_files_are_told_and_what_came_from_them_is_marked(notes, journal) -> None:
    added(notes)
    watching.run("ship", model(), journal)
    (notes / "day-01.txt").write_text("We sailed. The captain is Eve. ")
    (notes / "day-02.txt").write_text("The port is Lima. ")
    update = watching.run("ship", model(), journal)
    assert update.changes.edited == (str(notes / "day-01.txt"),)
    assert answers(update) == ["Ann", "Lima"]
    assert [one.doubtful for one in update.watch.questions] == [("The captain is Ann",), ()]
    (notes / "day-02.txt").unlink()
    again = watching.run("ship", model([]), journal)
    assert (again.watch.edited, again.watch.gone) == ((str(notes / "day-01.txt"),), (str(notes / "day-02.txt"),))
    assert [one.doubtful for one in again.watch.questions] == [("The captain is Ann",), ("The port is Lima",)]
    rebuilt = watching.run("ship", model(), journal, rebuild=True)
    assert answers(rebuilt) == ["Eve", "not in the document"]
    assert (rebuilt.watch.edited, rebuilt.watch.gone) == ((), ())
    copies = [path.read_text() for path in (watching.folder_of("ship") / "text").glob("*.txt")]
    assert not any("Ann" in copy or "Lima" in copy for copy in copies)
    assert [one.doubtful for one in rebuilt.watch.questions] == [(), ()]


def test_an_edit_is_told_whatever_its_length(notes, journal) -> None:
    (notes / "day-02.txt").write_text("All is calm. The end.\n\n")
    (notes / "day-03.txt").write_text("The port is Lima. ")
    added(notes)
    watching.run("ship", model(), journal)
    for before, after in (("Ann", "Eve"), ("Eve", "Eleanor")):  # as long as it was, and longer
        path = notes / "day-01.txt"
        path.write_text(path.read_text().replace(before, after))
        assert watching.run("ship", model([]), journal).changes.edited == (str(path),)
    (notes / "day-02.txt").write_text("All is calm. The end.")  # what is between files looks like the lines that are gone
    edited = watching.run("ship", model([]), journal).changes.edited
    assert edited == (str(notes / "day-01.txt"), str(notes / "day-02.txt"))


def test_white_space_alone_is_nothing_new(notes, journal) -> None:
    added(notes)
    watching.run("ship", model(), journal)
    with (notes / "day-01.txt").open("a") as file:
        file.write("\n \n")
    still = watching.run("ship", model([]), journal)
    assert (still.changes.grown, still.changes.edited, still.readings) == ((), (), ())
    with (notes / "day-01.txt").open("a") as file:
        file.write("The port is Lima. ")
    assert answers(watching.run("ship", model(), journal)) == ["Ann", "Lima"]


def test_a_line_that_another_file_holds_as_well_is_not_doubted(tmp_path, journal) -> None:
    notes = tmp_path / "log"
    notes.mkdir()
    for name, said in (("a", "The captain is Ann. "), ("b", "The captain is Ann. "), ("c", "The port is far. ")):
        (notes / f"{name}.txt").write_text(said)
    added(notes)
    watching.run("ship", model(), journal)
    doubted = []
    for name in ("c", "b", "a"):
        (notes / f"{name}.txt").write_text("Nothing. ")
        doubted.append(watching.run("ship", model([]), journal).watch.questions[0].doubtful)
    assert doubted == [(), (), ("The captain is Ann",)]


def test_a_quote_from_a_pdf_names_its_page(notes, journal) -> None:
    write_pdf(notes / "day-02.pdf", ["All is calm.", "The port is Lima."])
    added(notes)
    [quote] = watching.run("ship", model(), journal).watch.questions[1].verdict.quotes
    assert (quote.file, quote.page) == (str(notes / "day-02.pdf"), 2)


def test_a_run_whose_server_fails_keeps_the_answers_and_goes_on_in_the_next(notes, journal) -> None:
    added(notes)
    watching.run("ship", model(), journal)
    (notes / "day-02.txt").write_text("The port is Lima. The captain is Bob. ")
    failing = watching.run("ship", model(lambda _: memagent.ModelUnavailableError("gone")), journal)
    assert [reading.error for reading in failing.readings] == ["gone", "gone"]
    assert answers(failing) == ["Ann", "not in the document"]
    (notes / "day-03.txt").write_text("The port is Oslo. ")
    still = watching.run("ship", model(lambda _: memagent.ModelUnavailableError("gone")), journal)
    assert answers(still) == ["Ann", "not in the document"]
    assert answers(watching.run("ship", model(), journal)) == ["Bob", "Oslo"]


def test_a_question_that_always_fails_does_not_hold_up_the_others(notes, journal) -> None:
    def fails(turn):
        return (
            memagent.ModelUnavailableError("gone") if "port" in turn.user.partition("</question>")[0] else reply(turn.user)
        )

    added(notes)
    watching.run("ship", model(fails), journal)
    for name in ("Bob", "Cid"):
        (notes / f"day-{name}.txt").write_text(f"The captain is {name}. ")
        update = watching.run("ship", model(fails), journal)
        assert (answers(update), [one.error for one in update.readings]) == ([name, None], [None, "gone"])
    (notes / "port.txt").write_text("The port is Lima. ")
    assert answers(watching.run("ship", model(), journal)) == ["Cid", "Lima"]


def test_a_run_that_ended_at_its_verification_is_finished_by_the_next(notes, journal) -> None:
    class Killed(BaseException):
        pass

    def dies(turn):
        if turn.kind == "verify":
            raise Killed
        return reply(turn.user)

    added(notes)
    with pytest.raises(Killed):
        watching.run("ship", model(dies), journal)
    assert answers(watching.run("ship", model(), journal)) == ["Ann", "not in the document"]
    (notes / "day-02.txt").write_text("The port is Lima. ")
    with pytest.raises(Killed):
        watching.run("ship", model(dies), journal)
    assert answers(watching.run("ship", model(), journal)) == ["Ann", "Lima"]


def test_a_rebuild_that_finds_no_files_deletes_nothing(notes, journal) -> None:
    added(notes)
    before = answers(watching.run("ship", model(), journal))
    notes.rename(notes.parent / "elsewhere")
    with pytest.raises(DocumentError):
        watching.run("ship", model(), journal, rebuild=True)
    (notes.parent / "elsewhere").rename(notes)
    again = watching.run("ship", model([]), journal)
    assert (answers(again), again.changes.new) == (before, ())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_are_no_text_are_kept(notes, journal) -> None:
    added(notes)
    (notes / os.fsdecode(b"day-\xe9.txt")).write_text("The port is Lima. ")
    assert answers(watching.run("ship", model(), journal)) == ["Ann", "Lima"]
    assert answers(watching.run("ship", model([]), journal)) == ["Ann", "Lima"]


def test_a_deleted_reading_is_read_afresh(notes, journal) -> None:
    added(notes)
    first = watching.run("ship", model(), journal)
    journal.delete(first.watch.questions[0].reading)
    again = watching.run("ship", model(), journal)  # although nothing is new
    assert (answers(again), len(again.readings)) == (answers(first), 2)
    journal.delete(again.watch.questions[0].reading)
    (notes / "day-02.txt").write_text("The port is Lima. ")
    assert answers(watching.run("ship", model(), journal)) == ["Ann", "Lima"]


def test_bad_input_is_refused_and_nothing_is_lost(notes, journal, home) -> None:
    with pytest.raises(ConfigError, match=r"there is no watch 'ship'; there are: none"):
        watching.run("ship", model(), journal)
    for name in ("", "../x", "a/b", ".hidden", "x" * 65):
        with pytest.raises(ConfigError, match="a watch cannot be named"):
            watching.show(name)
    with pytest.raises(ConfigError, match="a watch cannot read standard input"):
        watching.add("ship", ["-"], [PORT], make_settings(model(), model="scripted", **OPTIONS))
    with pytest.raises(ConfigError, match="the reader 'search' cannot go on in a document that has grown"):
        added(notes, reader="search")
    added(notes)
    with pytest.raises(ConfigError, match="there is a watch 'ship' already"):
        added(notes)
    first = watching.run("ship", model(), journal)
    with locked(watching.folder_of("ship")), pytest.raises(ConfigError, match="'ship' is running already"):
        watching.run("ship", model(), journal)
    notes.rename(notes.parent / "elsewhere")
    with pytest.raises(DocumentError, match="notes"):
        watching.run("ship", model(), journal)
    assert [one.answer for one in watching.show("ship").questions] == answers(first)
    (notes.parent / "elsewhere").rename(notes)
    other = OpenModel(engine=ScriptedModel(lambda turn: "x", name="another"))
    (notes / "day-02.txt").write_text("More.")
    with pytest.raises(memagent.JournalError, match="identity"):
        watching.run("ship", other, journal)
    assert answers(watching.run("ship", model(), journal)) == answers(first)
    (watching.folder_of("ship") / "watch.json").write_text("{")
    with pytest.raises(ConfigError, match=r"is damaged .* remove the watch 'ship' and add it again"):
        watching.show("ship")


def command(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def served(server: FaultServer) -> list[str]:
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "60", "--memory-tokens", "40"]


def test_the_commands(notes, tmp_path) -> None:
    with FaultServer(lambda messages: reply(messages[-1]["content"])) as server:
        assert "there is no watch" in command("watch", "run").stderr
        assert command("watch", "add", "ship", notes, "-q", CAPTAIN, "-q", PORT, *served(server)).exit_code == 0
        ran = command("watch", "run")
        assert ran.exit_code == 0, ran.output
        assert "ship: 1 new, 2 of 2 answers changed" in ran.stdout
        (notes / "day-02.txt").write_text("The port is Lima. ")
        (notes / "day-01.txt").write_text("Nothing. ")
        ran = command("watch", "run", "ship")
        assert "ship: 1 new, 1 of 2 answers changed\n" in ran.stdout
        assert (
            "Which port?\nLima\n  before: not in the document\n  supported by the document:\n  “The port is Lima”"
            in ran.stdout
        )
        assert f"  edited since it was read: {notes / 'day-01.txt'}; memagent watch run ship --rebuild" in ran.stdout
        assert "  from a file that was edited or deleted: The captain is Ann" in ran.stdout
        [values] = json.loads(command("watch", "run", "--json").stdout)
        assert (values["changed"], values["files"]["new"], values["errors"]) == ([], [], {})
        assert [one["answer"] for one in values["questions"]] == ["Ann", "Lima"]
        assert "Lima" in command("watch", "show", "ship").stdout
        assert [one["name"] for one in json.loads(command("watch", "list", "--json").stdout)] == ["ship"]
        assert "ship" in command("watch", "list").stdout
        assert command("watch", "remove", "ship").exit_code == 0
        refused = command("watch", "show", "ship")
        assert (refused.exit_code, "there is no watch 'ship'" in refused.stderr) == (2, True)
    assert not watching.folder_of("ship").exists()


def test_a_run_that_failed_and_the_next_say_so(notes) -> None:
    faults = [Fault("status", status=402)] * 2
    with FaultServer(lambda messages: reply(messages[-1]["content"]), faults=faults) as server:
        command("watch", "add", "ship", notes, "-q", CAPTAIN, *served(server))
        for first in ("1 new", "what the run before could not read"):
            ran = command("watch", "run", "ship")
            assert ran.exit_code == 4
            assert f"ship: {first}, 0 of 1 answers changed, 1 failed: the next run tries again\n" in ran.stdout
        ran = command("watch", "run", "ship").stdout
        assert "ship: what the run before could not read, 1 of 1 answers changed\n" in ran
        assert "ship: nothing new, 0 of 1 answers changed\n" in command("watch", "run", "ship").stdout


def test_a_watch_remembers_where_its_model_is_served_now(notes) -> None:
    def answers(messages):
        return reply(messages[-1]["content"])

    with FaultServer(answers) as server:
        command("watch", "add", "ship", notes, "-q", PORT, *served(server))
        assert command("watch", "run", "ship").exit_code == 0
    (notes / "day-02.txt").write_text("The port is Lima. ")
    with FaultServer(answers) as server:
        assert command("watch", "run", "ship", "--base-url", server.url).exit_code == 0
        (notes / "day-03.txt").write_text("The port is Oslo. ")
        assert command("watch", "run", "ship").exit_code == 0
        assert server.requests
        [reading] = json.loads(command("readings", "list", "--json").stdout)
        shown = json.loads(command("readings", "show", reading["reading"], "--json").stdout)
        assert shown["settings"]["base_url"] == server.url


def test_a_file_that_cannot_be_read_holds_up_no_other_and_is_tried_again(notes) -> None:
    with FaultServer(lambda messages: reply(messages[-1]["content"])) as server:
        command("watch", "add", "ship", notes, "-q", PORT, *served(server))
        assert command("watch", "run", "ship").exit_code == 0
        (notes / "day-01.txt").write_bytes(b"\x00\x01\x02" * 400)  # was read, and is broken now
        (notes / "day-02.pdf").write_bytes(b"%PDF-1.7\n" + b"half of it" * 50)
        (notes / "day-03.txt").write_text("The port is Lima. ")
        ran = command("watch", "run", "ship")
        assert ran.exit_code == 3
        assert "ship: 1 new, 1 of 1 answers changed\n" in ran.stdout
        assert "deleted since" not in ran.stdout
        told = " ".join(ran.stderr.split())
        assert told.count("not read, and tried again in the next run") == 2
        assert "day-01.txt" in told
        assert "day-02.pdf" in told
        values = json.loads(command("watch", "run", "--json").stdout)[0]
        assert values["files"]["broken"] == [str(notes / "day-01.txt"), str(notes / "day-02.pdf")]
        (notes / "day-02.pdf").unlink()
        (notes / "day-01.txt").write_text("Nothing. ")
        ran = command("watch", "run", "ship")
        assert (ran.exit_code, "edited since it was read" in ran.stdout) == (0, True)


def test_what_a_closed_folder_holds_is_not_taken_for_deleted(notes, journal, monkeypatch) -> None:
    (notes / "more").mkdir()
    (notes / "more" / "day-02.txt").write_text("The port is Lima. ")
    added(notes)
    watching.run("ship", model(), journal)
    listed = Path.iterdir

    def deny(folder):  # root may open any folder
        if folder.name == "more":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", deny)
    update = watching.run("ship", model([]), journal)
    assert [one.path for one in update.broken] == [str(notes / "more")]
    assert update.changes.deleted == ()


def test_a_watch_of_what_is_not_there_yet_says_so(notes) -> None:
    with FaultServer(lambda messages: "x") as server:
        there = command("watch", "add", "ship", notes, f"{notes}/*.none", "-q", CAPTAIN, *served(server))
        typo = command("watch", "add", "typo", f"{notes}s", "-q", CAPTAIN, *served(server))
    assert (there.exit_code, "no such file" in there.stderr) == (0, False)
    assert (typo.exit_code, f"{notes}s: there is no such file or folder yet" in typo.stderr) == (0, True)


def test_a_watch_that_cannot_be_run_does_not_hold_up_the_others(notes, tmp_path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    (lost / "a.txt").write_text("Nothing. ")
    with FaultServer(lambda messages: reply(messages[-1]["content"])) as server:
        for name, folder in (("lost", lost), ("ship", notes)):
            assert command("watch", "add", name, folder, "-q", CAPTAIN, *served(server)).exit_code == 0
        (lost / "a.txt").unlink()
        lost.rmdir()
        ran = command("watch", "run")
        assert ran.stderr.count("memagent: ") == ran.stderr.count("memagent: lost: ") == 1, "it is told once, with its name"
        assert "ship: 1 new, 1 of 1 answers changed" in ran.stdout
        assert ran.exit_code == command("watch", "run", "lost").exit_code == 3


def test_a_run_that_was_killed_goes_on(notes, home) -> None:
    with FaultServer(lambda messages: reply(messages[-1]["content"]), delay=0.05) as server:
        assert command("watch", "add", "ship", notes, "-q", CAPTAIN, "-q", PORT, *served(server)).exit_code == 0
        assert command("watch", "run").exit_code == 0
        (notes / "day-02.txt").write_text(
            "".join(f"Wave {n} was high. " for n in range(90)) + "The port is Lima. The captain is Bob. "
        )
        for waited in (2, 6):
            asked = len(server.requests)
            process = subprocess.Popen([sys.executable, "-m", "memagent", "watch", "run"], stderr=subprocess.PIPE)
            deadline = time.monotonic() + 60
            while len(server.requests) < asked + waited:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        (notes / "day-03.txt").write_text("The port is Oslo. ")
        [values] = json.loads(command("watch", "run", "--json").stdout)
        assert [one["answer"] for one in values["questions"]] == ["Bob", "Oslo"]
        prompts = [request["messages"][-1]["content"] for request in server.requests]
        updates = [prompt for prompt in prompts if "<section>" in prompt and not prompt.startswith("A question about")]
        assert len(updates) - len(set(updates)) <= 4  # what was in flight when it was killed, two questions twice
