"""`memagent ask --dry-run`: what a reading would ask for, counted without a call."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest

from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import EstimateTokenizer
from tests.cli.conftest import CountingServer

QUESTION = "What is the code for amber-falcon?"


def test_dry_run_calls_nothing_and_counts_what_a_run_asks(memagent, book, served, server):
    estimate = memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", "--price-in", 1, "--price-out", 2, *served).json
    assert server.requests == []
    values = memagent("ask", book, "-q", QUESTION, "--json", *served).json
    assert estimate["calls"] == values["turns"]
    assert estimate["tokens"] == values["document"]["tokens"]
    checks = estimate["verification"]
    assert checks["calls"] == 4
    tokens = [estimate[name] + checks[name] for name in ("prompt_tokens", "completion_tokens")]
    assert estimate["cost"] == pytest.approx((tokens[0] + 2 * tokens[1]) / 1e6)
    assert estimate["seconds"] is None
    again = memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", *served).json
    assert again["seconds"] > 0


def test_a_dry_run_counts_time_that_readings_shared_once(memagent, book, served, home):
    def ask(count: int, *more: str):
        return memagent("ask", book, *(f"-q=question {n}" for n in range(count)), "--json", *served, *more).json

    ask(4)
    ask(1)
    began = time.time() + 1000  # later than its turns, which count as well
    times = [(0, 100), (0, 104), (0, 90), (5, 80), (190, 200)]
    with contextlib.closing(sqlite3.connect(home / "journal.sqlite3")) as journal:
        for key, (first, last) in enumerate(times, start=1):
            values = [began + last, last - first, key]
            journal.execute("UPDATE readings SET touched = ?, seconds = ? WHERE key = ?", values)
        journal.commit()
    estimated = {count: ask(count, "--dry-run")["seconds"] for count in (1, 2, 3, 4, 8)}
    assert estimated == pytest.approx({1: 10, 2: 20, 3: 104, 4: 104, 8: 208})
    short = ask(1, "--dry-run")["tokens"]
    book.write_text(book.read_text() * 3)
    long = ask(1, "--dry-run")
    assert long["seconds"] == pytest.approx(10 * long["tokens"] / short)
    assert ask(1, "--dry-run", "--model", "another")["seconds"] is None


def test_prompt_tokens_of_a_dry_run_bound_what_full_memories_send(memagent, book):
    """Counted in what the server was really sent, with the tokenizer of the estimate."""
    memory = "the sea " * 200
    with CountingServer(lambda _: memory.strip()) as server:
        while server.tokenizer.count(memory) > 120:
            memory = memory[:-8]
        options = ["--model", "scripted", "--base-url", server.url, "--tokenizer", EMBEDDED, "--window", 4096]
        options += ["--chunk-tokens", 200, "--memory-tokens", 128, "--answer-tokens", 128]
        for questions in (["-q", QUESTION], ["-q", QUESTION, "-q", "Who sails on the sea, and what for?"]):
            server.requests.clear()
            estimate = memagent("ask", book, *questions, "--dry-run", "--json", *options).json
            assert memagent("ask", book, *questions, *options).code == 0
            asked = [one for one in server.requests if not one["messages"][-1]["content"].startswith("A question about")]
            sent = sum(map(server.count, asked))
            assert len(asked) == estimate["calls"]
            assert sent <= estimate["prompt_tokens"] <= 2 * sent
            most = sum(request.get("max_tokens") or request["max_completion_tokens"] for request in asked)
            assert estimate["completion_tokens"] == most
            checks = [one for one in server.requests if one not in asked]
            assert 0 < len(checks) <= estimate["verification"]["calls"] == 4 * (len(questions) // 2)
            assert sum(map(server.count, checks)) <= estimate["verification"]["prompt_tokens"]


def test_a_direct_dry_run_counts_the_document_once(memagent, book, server, served):
    options = [*served, "--direct", "--window", 20000]
    estimate = memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", *options).json
    assert estimate["calls"] == 1
    assert estimate["tokens"] < estimate["prompt_tokens"] < estimate["tokens"] + 1000


def test_a_dry_run_takes_the_chunks_of_an_earlier_reading(memagent, book, served, monkeypatch):
    asked = ["ask", book, "-q", QUESTION, "--json", *served]
    before = memagent(*asked, "--dry-run").json
    memagent(*asked)
    monkeypatch.setattr("memagent.cuts.cut", lambda *_: pytest.fail("the document was cut again"))
    again = memagent(*asked, "--dry-run").json
    assert again == {**before, "seconds": again["seconds"]}


@pytest.mark.parametrize("more", [[], ["--no-journal"]])
def test_a_dry_run_makes_no_journal(memagent, book, served, home, more):
    result = memagent("ask", book, "-q", QUESTION, "--dry-run", *served, *more)
    assert result.code == 0
    assert "without repeated turns" in result.out
    assert not home.exists()


def test_a_dry_run_needs_no_home_that_can_be_written(memagent, book, served, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "file" / "home"))
    assert memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", *served).json["seconds"] is None
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal.sqlite3").write_text("not a journal")
    assert memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", *served).json["seconds"] is None
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "damaged"))
    memagent("ask", book, "-q", QUESTION, *served)
    with contextlib.closing(sqlite3.connect(tmp_path / "damaged" / "journal.sqlite3")) as journal:
        journal.execute("UPDATE readings SET settings = '{'")
        journal.execute("DROP TABLE cuts_used")
        journal.execute("DROP TABLE cuts")
        journal.commit()
    assert memagent("ask", book, "-q", QUESTION, "--dry-run", "--json", *served).json["seconds"] is None


def test_an_estimate_counts_a_question_as_often_as_a_prompt_shows_it(memagent, book, served, tmp_path):
    profile, prompts = tmp_path / "twice.toml", []
    for again in ("", " {question} {question}"):
        templates = f'update = "Q {{question}} M {{memory}} C {{chunk}}{again}"\nanswer = "{{question}} {{memory}}"'
        verify = f'verify = "Q {{question}} A {{answer}} C {{chunk}}{again}"'
        profile.write_text(f'name = "x"\nempty_memory = "none"\n{templates}\n{verify}')
        told = memagent("ask", book, "-q", QUESTION, "--profile", profile, "--dry-run", "--json", *served).json
        prompts.append((told, told["verification"]))
    for once, thrice in zip(*prompts, strict=True):  # the reading, and the check of its answer
        assert once["calls"] == thrice["calls"]
        assert thrice["prompt_tokens"] - once["prompt_tokens"] >= 2 * EstimateTokenizer().count(QUESTION) * once["calls"]
