"""More questions of a reading that is there: answered from its memory, or by a search."""

from __future__ import annotations

import asyncio
import json

import pytest

import memagent
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from tests.cli.conftest import FACT
from tests.faults import FaultServer

TEXT = "\n".join(
    f"Line {number} tells of the sea." if number != 30 else f"{FACT} The captain is Ann." for number in range(60)
)
OPTIONS = {"question_tokens": 100, "chunk_tokens": 300, "memory_tokens": 120, "answer_tokens": 60}


def between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].strip()


def script(turn) -> str:
    """Notes the sentences about code and captain, answers from the memory, and quotes."""
    asked, shown, memory = (between(turn.user, tag) for tag in ("question", "section", "memory"))
    if turn.kind == "verify":
        known = {"4821973": FACT, "Ann": "The captain is Ann.", "Line 59": "Line 59 tells of the sea."}
        passage = known[between(turn.user, "answer")]
        return passage if passage in shown else "no support"
    if turn.kind == "query":
        return "Line 59"
    if turn.kind == "answer":
        if "code" in asked:
            return "4821973" if FACT in memory else "not in the document"
        if "captain" in asked:
            return "Ann" if "Ann" in memory else "not in the document"
        return "Line 59" if "Line 59" in memory else "not in the document"
    if "Line 59" in shown + memory and "last" in asked:
        return "Line 59 tells of the sea."
    return f"{FACT} The captain is Ann." if FACT in shown or FACT in memory else "nothing of it"


def model(reply=script) -> OpenModel:
    return OpenModel(engine=ScriptedModel(reply))


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


def test_a_follow_up_is_one_call_with_the_quote_of_the_line_it_rests_on(journal, book) -> None:
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    asked = model()
    second = memagent.follow_up(first, "who is the captain?", model=asked, journal=journal)
    assert (second.answer, second.status, second.usage.calls, second.share_read) == ("Ann", "supported", 1, 0.0)
    assert [turn.kind for turn in asked.engine.turns if turn.kind != "verify"] == ["answer"]
    assert second.memory == first.memory
    assert second.quotes[0].cited_text == "The captain is Ann."
    assert [(one.line, one.start, one.turn) for one in second.provenance] == [
        (one.line, one.start, one.turn) for one in first.provenance
    ]
    assert asyncio.run(memagent.afollow_up(first.id, "who is the captain?", model=model(), journal=journal)).answer == "Ann"


def test_a_follow_up_can_be_followed_up_and_resumed(journal, book) -> None:
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    second = memagent.follow_up(first.id, "who is the captain?", model=model(), journal=journal)
    third = memagent.follow_up(second.id, "and the code?", model=model(), journal=journal)
    assert (third.answer, third.memory, third.status) == ("4821973", first.memory, "supported")
    assert third.provenance == second.provenance != ()

    def gone(turn):
        return memagent.ModelUnavailableError("gone")

    with pytest.raises(memagent.ModelUnavailableError):
        memagent.follow_up(first.id, "who is the captain?", model=model(gone), journal=journal)
    resumed = memagent.resume(journal.list(limit=1)[0].id, model=model(), journal=journal)
    assert (resumed.answer, resumed.quotes) == ("Ann", second.quotes)


def test_a_memory_that_names_a_url_with_a_key_can_be_asked_and_resumed(journal, book) -> None:
    def notes(turn):
        return "The code is at https://ann:secret@example.org/?key=secret"

    def gone(turn):
        return memagent.ModelUnavailableError("gone")

    first = memagent.read(book, "the code?", model=model(notes), journal=journal, verify=False, **OPTIONS)
    with pytest.raises(memagent.ModelUnavailableError):
        memagent.follow_up(first, "who is the captain?", model=model(gone), journal=journal)
    asked = model(lambda turn: "not in the document")
    resumed = memagent.resume(journal.list(limit=1)[0].id, model=asked, journal=journal)
    assert resumed.answer == "not in the document"
    assert between(asked.engine.turns[0].user, "memory") == "The code is at https://example.org/"


def test_a_follow_up_of_what_is_not_there_is_refused_with_the_reason(journal, book) -> None:
    with pytest.raises(memagent.JournalError, match="no reading 'r-nothing'"):
        memagent.follow_up("r-nothing", "q", model=model(), journal=journal)
    with pytest.raises(memagent.JournalError, match="is in no journal: read with journal="):
        memagent.follow_up(memagent.read(book, "the code?", model=model(), **OPTIONS), "q", model=model(), journal=journal)

    def dies(turn):
        return memagent.ModelUnavailableError("gone") if turn.id == "chunk-3" else script(turn)

    with pytest.raises(memagent.ModelUnavailableError):
        memagent.read(book, "the code?", model=model(dies), journal=journal, **OPTIONS)
    broken = journal.list(limit=1)[0]
    with pytest.raises(
        memagent.JournalError, match=f"{broken.id} has no last memory, because its status is 'failed': memagent"
    ):
        memagent.follow_up(broken.id, "q", model=model(), journal=journal)
    whole = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    book.write_text(TEXT + "\nMore.")
    with pytest.raises(memagent.JournalError, match="the document has changed since reading"):
        memagent.follow_up(whole.id, "q", model=model(), journal=journal)
    book.unlink()
    with pytest.raises(memagent.DocumentError):
        memagent.follow_up(whole.id, "q", model=model(), journal=journal)
    assert [record.status for record in journal.list()] == ["answered", "failed"]


def served(messages) -> str:
    from memagent.core import Turn

    prompt = messages[-1]["content"]
    kind = "verify" if prompt.startswith("A question about") else "query" if "search words" in prompt else "update"
    kind = "answer" if kind == "update" and "<section>" not in prompt else kind
    return script(Turn(id="x", kind=kind, user=prompt, max_tokens=1))


def test_the_command_asks_again_and_searches_for_what_the_memory_does_not_hold(tmp_path, monkeypatch, book) -> None:
    from typer.testing import CliRunner

    from memagent.cli import app

    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))

    def run(*arguments: object):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    with FaultServer(served) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        first = run("ask", book, "-q", "the code?", *options)
        assert first.exit_code == 0, first.output
        id = first.stdout.partition("reading ")[2].partition(";")[0]
        server.requests.clear()
        second = run("ask", "--from", id, "-q", "who is the captain?")
        assert (second.exit_code, second.stdout.splitlines()[0]) == (0, "Ann")
        assert "nothing read · 1 turn and 1 to verify" in second.stderr
        assert len(server.requests) == 2
        third = run("ask", "--from", id, "-q", "which line is the last?")
        assert third.exit_code == 1
        assert "with --reread, memagent searches the document" in " ".join(third.stderr.split())
        both = run("ask", "--from", id, "--reread", "-q", "which line is the last? Line 59?", "-q", "the code?")
        assert both.exit_code == 0
        assert "does not hold 1 of 2" in " ".join(both.stderr.split())
        assert [line for line in both.stdout.splitlines() if line in ("Line 59", "4821973")] == ["Line 59", "4821973"]
        again = ["-q", "which line is the last? Line 59?"]
        twice = run("ask", "--from", id, "--reread", *again, "-q", "the code?", *again, "--json")
        answers = [(one["answer"], one["reading"]) for one in json.loads(twice.stdout)["readings"]]
        assert [answer for answer, _ in answers] == ["Line 59", "4821973", "Line 59"]
        assert len({reading for _, reading in answers}) == 3
        for arguments, said in (
            (["--from", id], "no question given"),
            (["--from", id, "-q", "x", "--together"], "leave out --together"),
            (["--from", id, "-q", "x", "--no-journal", "--dry-run"], "leave out --dry-run, --no-journal"),
            (["--from", id, "-q", "x", "--reader", "gated"], "leave out options of the model and of the reading"),
            (["--from", id, "-q", "x", "--memory-tokens", 99], "leave out options of the model"),
            (["--from", id, "-q", "x", "--window", 99], "leave out options of the model"),
            (["--from", id, "-q", "x", "--reread", "--no-verify"], "leave out --no-verify"),
            (["--from", "r-0", "-q", "x"], "has no reading 'r-0'"),
            (["-q", "x"], "no document given"),
            ([book, "-q", "x", "--reread"], "--reread goes with --from"),
        ):
            refused = run("ask", *arguments)
            assert refused.exit_code == 2, refused.output
            assert said in " ".join(refused.stderr.split())
