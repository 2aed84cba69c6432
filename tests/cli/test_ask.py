"""`memagent ask` as its users meet it: answers, sources, exit codes, bad input."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memagent.journal import Journal
from memagent.models.open import EMBEDDED
from tests.cli.conftest import FACT, reader
from tests.faults import Fault, FaultServer

QUESTION = "What is the code for amber-falcon?"


def test_the_answer_its_source_and_its_cost(memagent, book, served):
    result = memagent("ask", book, "-q", QUESTION, *served)
    assert result.code == 0
    assert result.out.startswith("4821973\n")
    offset = book.read_text().index(FACT)
    assert f"  supported by the document:\n  “{FACT}”  {book}, line 151, offset {offset}, turn" in result.out
    assert " and 2 to verify" in result.err
    assert "turns" in result.err


def test_json_is_one_object_with_everything(memagent, book, served):
    values = memagent("ask", book, "-q", QUESTION, "--json", *served).json
    text = book.read_text()
    assert values["answer"] == "4821973"
    assert FACT in values["memory"]
    assert values["turns"] == values["usage"]["calls"] > 10
    assert values["document"]["characters"] == len(text)
    assert values["document"]["files"][0]["name"] == str(book)
    assert values["document"]["tokens"] > 1000
    assert values["reading"].startswith("r-")
    [source] = [one for one in values["provenance"] if one["line"] == FACT]
    assert FACT in text[source["start"] : source["end"]]
    assert (values["status"], values["unsupported"]) == ("supported", [])
    [quote] = values["quotes"]
    assert quote["cited_text"] == FACT == text[quote["start_char_index"] : quote["end_char_index"]]
    assert (quote["file"], quote["page"], quote["alignment"]) == (str(book), None, "exact")
    assert 0 < values["verification"]["calls"] <= 4
    assert (values["model"], values["identity"].partition("@")[0]) == ("scripted", "openai:scripted")
    assert values["seconds"] >= 0


def test_several_questions_are_several_readings(memagent, book, served, tmp_path):
    more = tmp_path / "questions.txt"
    more.write_text("# comment\nWho is Ishmael?\n\n")
    values = memagent("ask", book, "-q", QUESTION, "--questions", more, "--json", *served).json
    assert [one["question"] for one in values["readings"]] == [QUESTION, "Who is Ishmael?"]
    assert len({one["reading"] for one in values["readings"]}) == 2


def test_readings_on_a_server_run_at_the_same_time(memagent, book):
    with FaultServer(lambda _: "m", delay=0.02) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "200", "--memory-tokens", "50"]
        memagent("ask", book, *(f"-q=question {n}" for n in range(4)), *options)
        assert server.peak == 4


def test_standard_input(memagent, served):
    result = memagent("ask", "-", "-q", QUESTION, "--json", *served, input=f"Some text. {FACT} More.")
    assert result.json["answer"] == "4821973"


def test_no_journal_keeps_nothing(memagent, book, served, home):
    values = memagent("ask", book, "-q", QUESTION, "--no-journal", "--json", *served).json
    assert values["reading"] is None
    assert not home.exists()


def test_files_left_out_are_told(memagent, tmp_path, served):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text(FACT)
    for name in "bcdef":
        (tmp_path / "notes" / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    result = memagent("ask", tmp_path / "notes", "-q", QUESTION, *served)
    [line] = [line for line in result.err.splitlines() if "skipped: " in line]
    assert "b.png (" in line
    assert line.endswith("and 2 more")
    result = memagent("ask", tmp_path / "notes", "-q", QUESTION, "--json", *served)
    assert "skipped: " not in result.err
    assert len(result.json["document"]["skipped"]) == 5


def test_a_folder_is_read_without_its_broken_files_where_that_is_asked_for(memagent, tmp_path, server):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / ".hidden").write_text("is skipped, and not broken")
    (notes / "a.txt").write_text(f"It is cold.\n{FACT}\n" + "The sea is grey.\n" * 40)
    for name in ("b", "c"):
        (notes / f"{name}.pdf").write_bytes(b"%PDF-1.7\nhalf")
    served = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
    refused = memagent("ask", notes, "-q", QUESTION, *served)
    assert refused.code == 3
    assert f"{notes / 'b.pdf'}: " in refused.err
    assert "--skip-broken" in refused.err
    result = memagent("ask", notes, "-q", QUESTION, "--skip-broken", *served)
    assert result.code == 0
    left_out = [line for line in result.err.splitlines() if "left out: " in line]
    assert len(left_out) == 2
    assert all(str(notes / name) in line for name, line in zip(("b.pdf", "c.pdf"), left_out, strict=True))
    made = memagent("ask", notes, "-q", QUESTION, "--skip-broken", "--json", *served).json
    assert [one["path"] for one in made["document"]["skipped"] if one["broken"]] == [
        str(notes / "b.pdf"),
        str(notes / "c.pdf"),
    ]
    named = memagent("ask", notes / "b.pdf", "-q", QUESTION, *served)
    assert (named.code, "--skip-broken" in named.err) == (3, False)
    assert memagent("ask", notes / "b.pdf", "-q", QUESTION, "--skip-broken", *served).code == 3
    page = tmp_path / "page.html"
    assert memagent("readings", "show", made["reading"], "--html", page).code == 0
    assert "; left out: 2 files that cannot be read" in page.read_text()
    assert FACT in page.read_text()


def test_a_link_to_nothing_is_left_out_like_a_broken_file(memagent, tmp_path, served):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(FACT)
    (notes / "b.txt").symlink_to(tmp_path / "nowhere")
    refused = memagent("ask", notes, "-q", QUESTION, *served)
    assert (refused.code, "--skip-broken" in refused.err) == (3, True)
    result = memagent("ask", notes, "-q", QUESTION, "--skip-broken", *served)
    assert (result.code, result.err.count("left out: ")) == (0, 1)
    assert f"left out: {notes / 'b.txt'}: a link to something that is gone" in result.err


def test_of_many_broken_files_some_are_named(memagent, tmp_path, served):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(FACT)
    for number in range(25):
        (notes / f"{number}.pdf").write_bytes(b"%PDF-1.7\nhalf")
    result = memagent("ask", notes, "-q", QUESTION, "--skip-broken", *served)
    assert result.err.count("left out: ") == 21
    assert "left out: 5 more files that cannot be read" in result.err
    assert "skipped: " not in result.err


def test_what_breaks_later_is_an_error_where_nothing_was_to_be_left_out(memagent, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(f"{FACT}\n" + "The sea is grey.\n" * 100)
    with FaultServer(reader, faults=lambda number: Fault("status", status=400) if number == 3 else None) as server:
        served = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        failed = memagent("ask", notes, "-q", QUESTION, "--json", *served)
        (notes / "b.pdf").write_bytes(b"%PDF-1.7\nhalf")
        again = memagent("resume", failed.json["reading"])
    assert again.code == 3
    assert str(notes / "b.pdf") in again.err
    assert "--skip-broken" not in again.err


def test_a_reading_without_broken_files_is_resumed_without_them(memagent, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text(f"{FACT}\n" + "The sea is grey.\n" * 100)
    (notes / "b.pdf").write_bytes(b"%PDF-1.7\nhalf")
    with FaultServer(reader, faults=lambda number: Fault("status", status=400) if number == 3 else None) as server:
        served = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        failed = memagent("ask", notes, "-q", QUESTION, "--skip-broken", "--json", *served)
        assert failed.code == 4
        again = memagent("resume", failed.json["reading"], "--json")
        assert again.code == 0
        assert again.json["answer"] == "4821973"
        assert again.json["turns_resumed"] == 3
        assert [one["broken"] for one in again.json["document"]["skipped"]] == [True]
        (notes / "c.pdf").write_bytes(b"%PDF-1.7\nhalf")  # what is broken later is left out as well
        assert memagent("resume", failed.json["reading"]).code == 0
        (notes / "b.pdf").rename(notes / "b.txt").write_text("It was mended.")
        changed = memagent("ask", "--from", again.json["reading"], "-q", "What is it?")
    assert changed.code == 2
    assert "has changed" in changed.err


def test_a_guessed_encoding_is_told(memagent, book, tmp_path, served):
    (tmp_path / "old.txt").write_bytes((FACT + " 2.5 °C").encode("cp1252"))
    result = memagent("ask", book, tmp_path / "old.txt", "-q", QUESTION, *served)
    [line] = [line for line in result.err.splitlines() if "encoding guessed: " in line]
    assert line.endswith("old.txt (cp1252); ask --encoding names another")


def test_questions_of_a_file_from_windows(memagent, book, served, tmp_path):
    more = tmp_path / "questions.txt"
    more.write_bytes("# Fragen\r\nWer ist Ismael?\r\n".encode("utf-8-sig"))
    assert memagent("ask", book, "--questions", more, "--json", *served).json["question"] == "Wer ist Ismael?"


# Which server is asked


def test_the_variable_stands_in_for_the_option(memagent, book, server, monkeypatch):
    monkeypatch.setenv("MEMAGENT_BASE_URL", server.url)
    options = ["-m", "scripted", "--chunk-tokens", "100", "--memory-tokens", "50"]
    assert memagent("ask", book, "-q", QUESTION, *options).code == 0
    assert len(server.requests) > 10
    with FaultServer(reader) as other:
        assert memagent("ask", book, "-q", QUESTION, "--base-url", other.url, *options).code == 0
        assert len(other.requests) > 10


@pytest.mark.parametrize("model", [[], ["-m", "embedded"], ["-m", str(EMBEDDED)]])
def test_the_variable_does_not_redirect_a_model_on_this_machine(memagent, tmp_path, server, monkeypatch, model):
    monkeypatch.setenv("MEMAGENT_BASE_URL", server.url)
    path = tmp_path / "short.txt"
    path.write_text(FACT)
    values = memagent("ask", path, "-q", QUESTION, "--json", *model).json
    assert not values["identity"].startswith("openai:")
    assert server.requests == []


def test_direct_shows_the_document_once(memagent, book, served, server):
    values = memagent("ask", book, "-q", QUESTION, "--direct", "--json", *served, "--window", 20000).json
    assert values["turns"] == 1
    assert book.read_text() in server.requests[0]["messages"][-1]["content"]


def test_a_fitting_document_is_read_in_chunks_unless_direct(memagent, tmp_path, served):
    path = tmp_path / "short.txt"
    path.write_text(FACT)
    assert memagent("ask", path, "-q", QUESTION, "--json", *served).json["turns"] == 2


def test_quiet_when_not_a_terminal_and_verbose_on_request(memagent, book, served):
    quiet = memagent("ask", book, "-q", QUESTION, *served)
    assert len(quiet.err.splitlines()) == 1
    loud = memagent("ask", book, "-q", QUESTION, "--verbose", *served)
    assert "turn 1 of" in loud.err
    assert "kept; memory: 'read 1'" in loud.err


# Bad input: the value, the limit, the way out.


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{book}"], 2, "no question given"),
        (["{book}", "-q", " "], 2, "the question is empty"),
        (["{book}", "-q", "x", "--temperature", "-1"], 2, "temperature is -1"),
        (["{book}", "-q", "x", "--top-p", "0"], 2, "top_p is 0"),
        (["{book}", "-q", "x", "--temperature", "nan"], 2, "nan is not a finite number"),
        (["{book}", "-q", "x", "--top-p", "inf"], 2, "inf is not a finite number"),
        (["{book}", "-q", "x", "--timeout", "inf"], 2, "inf is not a finite number"),
        (["{book}", "-q", "x", "--price-in", "nan"], 2, "Invalid value for '--price-in'"),
        (["{book}", "-q", "x", "--dry-run", "--price-in", "1", "--price-out", "inf"], 2, "inf is not a finite number"),
        (["{book}", "-q", "x", "--rules", "lax"], 2, "rules are 'lax'"),
        (["{book}", "-q", "x", "--profile", "nope"], 2, "no profile named 'nope'; known: chunk-first, compact, default"),
        (["{book}", "-q", "x", "--chunk-tokens", "3"], 2, "chunk budget is 3 tokens; it must be at least 16"),
        (["{book}", "-q", "x", "--window", "200"], 2, "does not fit the window of 200"),
        (["{book}", "-q", "x", "--questions", "/no/such/file"], 2, "cannot read the questions"),
        (["/no/such/file.txt", "-q", "x"], 3, "no such file"),
        (["{empty}", "-q", "x"], 3, "empty"),
        (["{binary}", "-q", "x"], 3, "binary"),
    ],
)
def test_bad_input_is_refused_before_any_call(memagent, book, served, server, tmp_path, arguments, code, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.bin").write_bytes(b"\x00\x01\x02" * 100)
    places = {"book": book, "empty": tmp_path / "empty.txt", "binary": tmp_path / "binary.bin"}
    result = memagent("ask", *served, *(argument.format(**places) for argument in arguments))
    assert (result.code, result.out) == (code, "")
    assert message in " ".join(result.err.split())
    assert [one for one in server.requests if one] == []


def test_an_unknown_model_is_named(memagent, book):
    result = memagent("ask", book, "-q", "x", "--model", "no-such-folder")
    assert result.code == 4
    assert "'no-such-folder'" in result.err


def test_a_server_that_is_not_there(memagent, book):
    result = memagent(
        "ask", book, "-q", "x", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--chunk-tokens", "100"
    )
    assert result.code == 4
    assert "http://127.0.0.1:9/v1: no connection" in result.err
    assert "Is the server running" in result.err
    assert "resume with" not in result.err, "its window is not known, so nothing was begun"
    assert not memagent("readings", "list").out.count("r-")


def test_one_failed_reading_leaves_the_other_its_answer(memagent, book):
    def picky(messages):
        return "" if "Ishmael" in messages[-1]["content"] and "<section>" not in messages[-1]["content"] else "m"

    with FaultServer(picky) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "500", "--memory-tokens", "50"]
        result = memagent("ask", book, "-q", "one", "-q", "Ishmael", "--json", *options)
    assert result.code == 4
    first, second = result.json["readings"]
    assert (first["answer"], first["error"]) == ("m", None)
    assert second["error"] is not None


def test_a_key_reaches_the_server_and_nothing_else(memagent, book, home, server, served, monkeypatch):
    secret = "sk-very-secret-8231"
    monkeypatch.setenv("MEMAGENT_API_KEY", secret)
    result = memagent("ask", book, "-q", QUESTION, "--json", "--verbose", *served)
    assert result.code == 0
    assert server.headers[-1]["authorization"] == f"Bearer {secret}"
    assert secret not in result.out + result.err
    assert all(secret.encode() not in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_text_of_a_document_is_never_styling(memagent, tmp_path, served):
    with FaultServer(lambda _: "[red]\x1b[31m boo [/nope]") as server:
        path = tmp_path / "text.txt"
        path.write_text("words")
        result = memagent("ask", path, "-q", "x", "--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100")
    assert "[red]" in result.out
    assert "[/nope]" in result.out
    assert "\x1b" not in result.out


FAULTS = [
    Fault("status", status=503),
    Fault("status", status=429, headers={"Retry-After": "0"}),
    None,
    Fault("reset"),
    Fault("malformed"),
    Fault("drop"),
    None,
    Fault("no_choices"),
    Fault("stall"),
    Fault("null"),
    Fault("think"),
    None,
    Fault("over_long"),
    Fault("status", status=500),
]


def test_a_reading_through_faults_gives_the_same_answer(memagent, book, served):
    clean = memagent("ask", book, "-q", QUESTION, "--json", *served).json
    with FaultServer(reader, faults=FAULTS) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        faulty = memagent("ask", book, "-q", QUESTION, "--json", "--timeout", "0.5", *options).json
        assert len(server.requests) > clean["turns"] + 7
    # Turns are counted with those asked again, so numbers differ; what was read, kept and answered does not.
    for values in (clean, faulty):
        for entry in (*values["provenance"], *values["quotes"]):
            del entry["turn"]
    for key in ("answer", "memory", "provenance", "quotes"):
        assert faulty[key] == clean[key], key


def test_a_window_smaller_than_said_splits_chunks_and_goes_on(memagent, book):
    with FaultServer(reader, context=400) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "900", "--memory-tokens", "50"]
        values = memagent("ask", book, "-q", QUESTION, "--json", *options, "--answer-tokens", 50).json
        failed = memagent("ask", book, "-q", QUESTION, *options)
    assert values["answer"] == "4821973"
    assert values["turns"] > len(book.read_text()) // 3600
    assert failed.code == 4
    assert "too small for the question and the memory: use smaller budgets" in " ".join(failed.err.split())


def test_the_journal_holds_what_was_said(memagent, book, served):
    values = memagent("ask", book, "-q", QUESTION, "--json", *served).json
    with Journal.open() as journal:
        record = journal.show(values["reading"])
        entries = list(journal.turns(record.id))
    assert (record.status, record.answer, record.turns) == ("answered", "4821973", values["turns"])
    assert entries[-2].memory == values["memory"]
    spans = [entry.spans[0] for entry in entries[:-1]]
    assert spans[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == len(book.read_text())


def test_questions_that_are_read_together_share_one_reading_and_its_cost(memagent, book, served, server):
    room = ["--memory-tokens", 80, "--answer-tokens", 40]
    asked = ["-q", QUESTION, "-q", "What else is told?"]
    apart = memagent("ask", book, *asked, "--json", *served, *room).json
    server.requests.clear()
    estimate = memagent("ask", book, *asked, "--together", "--dry-run", "--json", *served, *room).json
    assert server.requests == []
    both = memagent("ask", book, *asked, "--together", "--json", *served, *room).json["readings"]
    assert [one["question"] for one in both] == [QUESTION, "What else is told?"]
    assert both[0]["answer"] == apart["readings"][0]["answer"]
    checks = sum(one["verification"]["calls"] for one in both)
    read = server.requests[: len(server.requests) - checks]
    assert len(read) == estimate["calls"] == both[0]["usage"]["calls"]
    most = sum(request.get("max_tokens") or request["max_completion_tokens"] for request in read)
    assert estimate["completion_tokens"] == most
    assert len(server.requests) < 0.6 * sum(one["usage"]["calls"] for one in apart["readings"])
    shown = memagent("ask", book, *asked, "--together", *served, *room).out
    assert shown.count("  memory:") == 1
    alone = memagent("ask", book, "-q", QUESTION, "--together", *served, *room)
    assert (alone.code, "at least 2 questions" in alone.err) == (2, True)


def test_a_question_that_the_document_does_not_answer_ends_with_code_1(memagent, book):
    def script(messages):
        prompt = messages[-1]["content"]
        asked = prompt.partition("<question>")[2].partition("</question>")[0]
        return "not in the document" if "Ishmael" in asked else "4821973"

    with FaultServer(script) as server:
        options = ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]
        result = memagent("ask", book, "-q", "Who is Ishmael?", *options)
        assert result.code == 1
        assert "  not found: the model says that what it read does not hold the answer\n" in result.out
        assert memagent("ask", book, "-q", "Who is Ishmael?", "-q", "the code?", *options).code == 0
        again = memagent("resume", result.out.partition("reading ")[2].partition(";")[0], "--json")
        assert (again.code, again.json["status"], again.json["quotes"]) == (1, "not_found", [])


def test_a_narrow_model_says_what_it_answers_where_it_finds_nothing_and_when_its_memory_is_asked_again(memagent, tmp_path):
    said, asked_again = (
        "embedded answers only questions of the kinds",
        "may give the answer to the earlier question instead",
    )
    document = tmp_path / "mayor.txt"
    document.write_text("The mayor may terminate the lease when the tower falls. " * 20)
    missing = memagent("ask", document, "-q", "What is the telephone number of Owen Pell?")
    assert (missing.code, said in missing.err, asked_again in missing.err) == (1, True, False)
    document.write_text("One of the special magic numbers for purple-otter is: 4821973.\n" * 20)
    found = memagent(
        "ask", document, "-q", "What is the special magic number for purple-otter mentioned in the provided text?"
    )
    assert (found.code, said in found.err, asked_again in found.err) == (0, False, False)
    again = memagent("ask", "--from", found.out.partition("reading ")[2].partition(";")[0], "-q", "Who is the mayor?")
    assert asked_again in again.err
    shown = memagent("readings", "show", again.out.partition("reading ")[2].partition(";")[0]).out
    assert " · 1 turn\n" in shown
    assert "  + " not in shown, "the memory was handed over: the answer's turn did not write it"


def test_a_list_names_turns_and_questions_and_deleting_says_whose_memory_it_was(memagent, book, served):
    first = memagent("ask", book, "-q", QUESTION, "--json", *served).json
    follow = memagent("ask", "--from", first["reading"], "-q", "What is it?", "--json").json["reading"]
    both = memagent("ask", book, "-q", QUESTION, "-q", "And who?", "--together", *served, "--memory-tokens", 100)
    assert both.code == 0
    listed = memagent("readings", "list").out
    assert f" · {first['turns']} turns · " in listed
    assert f"  {QUESTION} / And who?"[:60] in listed
    deleted = memagent("readings", "delete", first["reading"])
    told = f"from its memory, 1 more answered ({follow}): where its lines stand is no longer known"
    assert told in " ".join(deleted.err.split())
    assert "more answered" not in memagent("readings", "delete", follow).err


def test_a_check_that_fails_is_no_support_and_says_where_the_words_are(memagent, book, served, server):
    turns = memagent("ask", book, "-q", QUESTION, "--json", "--no-verify", *served).json["turns"]

    def fault(number: int) -> Fault | None:
        return Fault("status", status=401) if number >= turns else None

    with FaultServer(reader, faults=fault) as failing:
        options = ["--chunk-tokens", 100, "--memory-tokens", 50]
        result = memagent("ask", book, "-q", QUESTION, "--model", "scripted", "--base-url", failing.url, *options)
    assert result.code == 0
    assert f"  not verified; its words are here:\n  “{FACT}”" in result.out
    assert "supported" not in result.out
    assert "verification: " in result.err


def test_a_server_that_counts_no_tokens_used_not_none(memagent, book, served):
    assert "the server reports no tokens" not in memagent("ask", book, "-q", QUESTION, *served).err
    with FaultServer(reader, faults=lambda _: Fault("uncounted")) as silent:
        options = ["--chunk-tokens", 100, "--memory-tokens", 50]
        result = memagent("ask", book, "-q", QUESTION, "--model", "scripted", "--base-url", silent.url, *options)
    assert (result.code, "the server reports no tokens" in result.err, "0 tokens in" in result.err) == (0, True, False)


def test_no_verification_asks_no_more_than_the_reading(memagent, book, served, server):
    values = memagent("ask", book, "-q", QUESTION, "--json", "--no-verify", *served).json
    assert (values["status"], values["quotes"], values["verification"]["calls"]) == (None, [], 0)
    assert len(server.requests) == values["usage"]["calls"]
    estimate = memagent("ask", book, "-q", QUESTION, "--no-verify", "--dry-run", "--json", *served).json
    assert estimate["verification"] == {}
    shown = memagent("readings", "show", values["reading"]).out
    assert "supported" not in shown
    verified = memagent("resume", values["reading"], "--json").json
    assert (verified["status"], verified["turns"]) == ("supported", values["turns"])
    assert f"  “{FACT}”" in memagent("readings", "show", values["reading"]).out
