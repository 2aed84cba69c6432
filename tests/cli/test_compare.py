"""`memagent compare`: several readers over the same samples, and which of them to take."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from pathlib import Path
from statistics import mean

import pytest

from memagent.cli.compare import _speed as speed
from memagent.evaluation.compare import Compared, read_all, suited
from memagent.evaluation.statistics import wilson
from memagent.evaluation.summary import Cell
from memagent.models.open import open_model
from memagent.settings import make_settings
from memagent.tasks.files import SampleFile
from tests.cli.conftest import FACT, reader
from tests.cli.terminal import Terminal
from tests.faults import Fault, FaultServer
from tests.models.tiny import make_tiny_model

LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(60)]


@pytest.fixture
def samples(tmp_path):
    """A fact at four places, the first of which is the beginning: there `truncate` shows it."""
    rows = []
    for number, place in enumerate([0, 20, 30, 40]):
        text = "\n".join([*LINES[:place], FACT, *LINES[place:]])
        rows.append({"id": f"s{number}", "task": "codes", "question": "What is the code?", "document": text})
    path = tmp_path / "codes.jsonl"
    path.write_text("".join(json.dumps({**row, "answers": ["4821973"], "tokens": 900}) + "\n" for row in rows))
    return path


def options(server):
    return ["--model", "scripted", "--base-url", server.url, "--chunk-tokens", "100", "--memory-tokens", "50"]


def compared(name, right, seconds, readings=12, *models):
    whole = Cell(
        task="",
        length=0,
        system=name,
        samples=readings,
        readings=readings,
        mean=right / readings,
        interval=wilson(right, readings),
        failures={} if seconds is not None else {"too_long": readings},
        document=None,
        seconds=seconds,
        prompt_tokens=seconds,
        completion_tokens=seconds,
        turns=seconds,
    )
    return Compared(reader=name, whole=whole, parts={}, models=dict.fromkeys(models, readings))


@pytest.mark.parametrize(
    ("rights", "times", "readings", "wanted"),
    [
        ((12, 11, 6), (4, 3, 1), 12, "b"),  # one answer less is as good
        ((12, 11, 12), (4, 3.5, 3.4), 12, "a"),  # a little time is not worth it
        ((12, 10, 6), (4, 3, 1), 12, "a"),
        ((10, 12, 12), (1, 3, 2), 12, "c"),
        ((24, 22, 23), (4, 1, 2), 24, "c"),  # of many answers, one
        ((6, 6, 5.5), (4, 3, 1), 12, "b"),  # each has half of the answers right, at least
        ((5, 4, 4), (4, 3, 1), 12, None),
        ((1, 0, 0), (4, 3, 1), 1, "a"),  # of few answers, one is much
        ((3, 2, 1), (4, 3, 1), 3, "a"),
        ((0, 1, 1), (None, 3, 4), 1, "b"),
        ((1, 1, 1), (0.0, 0.0, None), 1, "a"),
    ],
)
def test_the_first_of_the_best_suits_unless_another_is_clearly_faster(rights, times, readings, wanted):
    found = [compared(name, right, time, readings) for name, right, time in zip("abc", rights, times, strict=True)]
    best = suited(found)
    assert (best.reader if best else None) == wanted


@pytest.mark.parametrize(
    ("first", "second", "third", "wanted"),
    [
        (["A"], ["A"], ["A"], "c"),
        (["A"], ["B"], ["B"], "a"),
        (["A"], ["B"], ["A"], "c"),
        (["A", "B"], ["A", "B"], ["B"], "a"),  # each of them has readings at two
    ],
)
def test_a_reader_is_not_preferred_because_its_server_was_faster(first, second, third, wanted):
    found = [
        compared(name, 1, time, 1, *models)
        for name, time, models in zip("abc", (4, 2, 1), (first, second, third), strict=True)
    ]
    best = suited(found)
    assert best is not None
    assert best.reader == wanted
    assert (speed(found[0], found[2]) != "") == (first == third == ["A"])


def test_readers_are_asked_the_same_and_the_right_one_is_named(memagent, samples, server, tmp_path):
    command = ["compare", samples, "-r", "memory", "-r", "truncate", "--through-memory", *options(server)]
    shown = memagent(*command)
    assert shown.code == 0, shown.err
    assert "memory    4 of 4 right (95 %: 51–100 %)  " in shown.out
    assert "truncate  1 of 4 right (95 %: 5–70 %)  " in shown.out
    assert "codes 4/4" in shown.out
    assert "take --reader memory: none has more right answers" in shown.out
    assert shown.err == ""  # a bar is for a terminal
    told = memagent(*command, "--json").json
    assert told["suited"] == "memory"
    assert [(one["reader"], one["right"], one["parts"]) for one in told["readers"]] == [
        ("memory", 4, {"codes": {"right": 4, "readings": 4}}),
        ("truncate", 1, {"codes": {"right": 1, "readings": 4}}),
    ]


def test_an_answer_counts_if_it_contains_the_accepted_one_or_as_its_sample_says(memagent, samples):
    strict = samples.with_name("strict.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    strict.write_text("".join(json.dumps({**row, "scorer": "strict"}) + "\n" for row in rows))

    def wordy(messages):
        reply = reader(messages)
        return f"The code is {reply}." if reply == "4821973" else reply

    with FaultServer(wordy) as server:
        told = memagent("compare", samples, strict, "-r", "memory", "--json", *options(server)).json
    assert {name: part["right"] for name, part in told["readers"][0]["parts"].items()} == {"codes": 4, "strict": 0}
    assert (told["readers"][0]["right"], told["readers"][0]["readings"]) == (4, 8)


def test_a_sample_in_two_files_counts_twice_and_seconds_are_those_of_waiting(memagent, samples, server, tmp_path):
    more = samples.with_name("more.jsonl")
    more.write_text(samples.read_text() + "\n")
    command = ["compare", samples, more, "-r", "memory", "-o", tmp_path / "kept", "--json", *options(server)]
    [one] = memagent(*command).json["readers"]
    assert (one["right"], one["readings"], one["low"]) == (8, 8, pytest.approx(wilson(8, 8).low))
    kept = [path.read_text().splitlines() for path in (tmp_path / "kept").rglob("records.jsonl")]
    records = [json.loads(line) for lines in kept for line in lines]
    assert one["seconds"] == pytest.approx(mean(record["wall"] for record in records))
    assert one["seconds"] != pytest.approx(mean(record["seconds"] for record in records))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((4.0, 1.0), ", and it is 4.0 × as fast as a"),
        ((1.0, 1.1), ""),
        ((1.0, 4.0), "; a is 4.0 × as fast"),
        ((0.0, 1.0), ""),
    ],
)
def test_speed_is_told_beside_the_first_where_it_tells_something(times, said):
    first, best = (compared(name, 1, seconds) for name, seconds in zip("ab", times, strict=True))
    assert speed(first, best) == said


def test_kept_readings_are_not_made_again_and_can_be_reported(memagent, samples, server, tmp_path):
    command = ["compare", samples, "-r", "memory", "-o", tmp_path / "kept", *options(server)]
    first = memagent(*command)
    asked = len(server.requests)
    assert memagent(*command).out == first.out
    assert len(server.requests) == asked
    [told] = [line for line in first.out.splitlines() if "memagent report" in line]
    pattern = told.partition("memagent report ")[2].partition(" -o")[0]
    report = memagent("report", *Path("/").glob(pattern.lstrip("/")), "-o", tmp_path / "report.html")
    assert report.code == 0, report.err


@pytest.mark.parametrize("at_once", [1, 8])  # with one, the run ends at the third failure; with eight, all are recorded
def test_readings_that_failed_because_of_the_server_are_made_again(memagent, samples, tmp_path, at_once):
    command = ["compare", samples, "-r", "memory", "-r", "search", "-o", tmp_path / "kept", "--concurrency", at_once]
    with FaultServer(reader, faults=lambda number: Fault("status", status=401)) as server:
        refused = memagent(*command, *options(server))
        assert refused.code == 4
        assert "401" in refused.err
        assert "take" not in refused.out
        port = int(server.url.rpartition(":")[2].split("/")[0])
    with FaultServer(reader, port=port) as server:
        shown = memagent(*command, *options(server))
    assert shown.code == 0, shown.err
    assert "memory    4 of 4 right" in shown.out


def test_made_up_questions_are_about_facts_that_are_there_that_are_not_and_that_lead_on(memagent, tmp_path):
    sizes = ["--samples", "1", "--tokens", "700", "-r", "memory", "-r", "gated"]
    told = memagent("compare", *sizes, "-o", tmp_path / "kept", "--json")
    assert told.code == 0, told.err
    for one in told.json["readers"]:
        assert {name: part["readings"] for name, part in one["parts"].items()} == {
            "one-fact": 1,
            "not-there": 1,
            "two-facts": 1,
        }
    questions = sorted((tmp_path / "kept" / "questions").iterdir())
    assert {path.stem for path in questions} == {"one-fact", "not-there", "two-facts"}
    assert told.json["readers"][0]["right"] == 3
    nothing = json.loads(questions[0].read_text())
    assert "not in the document" in nothing["answers"]
    written = [path.read_bytes() for path in questions]
    other = memagent("compare", "--samples", "2", *sizes[2:], "-o", tmp_path / "kept")
    assert other.code == 2
    assert "has other questions than 2 about 700 tokens" in " ".join(other.err.split())
    assert [path.read_bytes() for path in questions] == written


def test_made_up_documents_have_six_chunks_if_nothing_is_said(memagent, server, tmp_path):
    told = memagent("compare", "--samples", "1", "-r", "memory", "-o", tmp_path / "kept", "--json", *options(server))
    assert told.code == 0, told.err
    for path in (tmp_path / "kept" / "questions").iterdir():
        assert json.loads(path.read_text())["meta"]["target"] == 600


def test_the_first_reader_in_process_does_not_pay_for_the_start(memagent, samples, monkeypatch):
    read = []
    monkeypatch.setattr("memagent.evaluation.compare.read_batch", lambda plans, engine, keep: read.append(len(plans)))
    sizes = ["--samples", "1", "--tokens", "700"]
    assert memagent("compare", *sizes, "-r", "memory", "-r", "gated", "--json").code == 0
    assert read == [1]


def test_readers_that_a_profile_has_no_words_for_are_left_out_unless_they_are_named(memagent, samples, tmp_path):
    profile = tmp_path / "one.toml"
    update, answer = "Q {question} M {memory} C {chunk}", "Q {question} M {memory}"
    profile.write_text(f'name = "one"\nempty_memory = "none"\nupdate = "{update}"\nanswer = "{answer}"')
    with FaultServer(reader) as server:
        words = ["compare", samples, "--profile", profile, *options(server)]
        usual = memagent(*words, "--json")
        assert usual.code == 0, usual.err
        assert [one["reader"] for one in usual.json["readers"]] == ["memory", "search"]
        assert "gated is left out: the profile 'one' has no wording for the reader 'gated'" in " ".join(usual.err.split())
        named = memagent(*words, "-r", "gated")
    assert named.code == 2
    assert "has no wording for the reader 'gated'" in " ".join(named.err.split())


def test_documents_that_are_too_long_are_told_and_no_failure_of_the_model(memagent, samples, server):
    usual = ["compare", samples, "--through-memory", *options(server)]
    shown = memagent(*usual, "-r", "memory", "-r", "direct")
    assert shown.code == 0, shown.err
    assert "direct    the documents are too long for it" in shown.out
    assert "take --reader memory" in shown.out
    shown = memagent(*usual, "-r", "direct")
    assert shown.code == 0, shown.err
    assert "every document is too long for these readers" in shown.out


def test_a_model_that_is_right_too_seldom_is_told_so_and_failures_count(memagent, samples):
    with FaultServer(lambda messages: "no idea") as server:
        shown = memagent("compare", samples, "-r", "memory", *options(server))
        assert shown.code == 0
        assert "memory    0 of 4 right" in shown.out
        assert "no reader gets half of the answers right" in shown.out
    with FaultServer(lambda messages: "<think>Hm.</think>") as server:
        shown = memagent("compare", samples, "-r", "memory", *options(server))
        assert shown.code == 4
        assert "failed readings, counted as wrong: 4 (empty)" in shown.out
        assert "no reading ended with an answer" in shown.out
        told = memagent("compare", samples, "-r", "memory", *options(server), "--json").json
        assert (told["suited"], told["readers"][0]["seconds"], told["readers"][0]["readings"]) == (None, None, 4)


def test_tasks_of_several_files_are_kept_apart(memagent, samples, server):
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    for name, tasks in (("both", ("codes", "other")), ("codes-2", ("codes", "codes"))):
        lines = [json.dumps({**row, "task": task}) for row, task in zip(rows[: len(tasks)], tasks, strict=False)]
        samples.with_name(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    files = [samples, samples.with_name("both.jsonl"), samples.with_name("codes-2.jsonl")]
    told = memagent("compare", *files, "-r", "memory", "--json", *options(server)).json
    parts = {name: part["readings"] for name, part in told["readers"][0]["parts"].items()}
    assert parts == {"codes": 4, "both: codes": 1, "both: other": 1, "codes-2": 2}


def test_a_model_that_was_trained_for_other_readers_is_told(memagent, samples, tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    (folder / "memagent.toml").write_text('readers = ["recall"]')
    refused = memagent("compare", samples, "--model", folder)
    assert refused.code == 2
    assert "name readers with -r; it knows recall" in " ".join(refused.err.split())


def test_lines_of_results_are_whole_on_a_terminal(samples, server):
    readers = ["-r", "memory", "-r", "search"]
    with Terminal("compare", samples, *readers, *options(server), both=True, columns=160) as terminal:
        assert terminal.finish() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown).replace("\r", "\n")
    assert [line.split()[0] for line in plain.splitlines() if " right (95 %" in line] == ["memory", "search"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-r", "nobody"], "there is no reader 'nobody'"),
        (["-r", "auto"], "the reader 'auto' chooses for one document"),
        (["-r", "memory", "--rounds", "2"], "--rounds is an option of none of the readers memory"),
        (["-r", "kept"], "the reader 'kept' goes on from another reading"),
        (["FILE", "--tokens", "900"], "--tokens 900 is for made-up questions"),
        (["FILE", "--samples", "2"], "--samples 2 is for made-up questions"),
        (
            ["FILE", "-r", "memory", "--from-text"],
            "--through-memory/--from-text is an option of none of the readers memory",
        ),
        (["FILE", "SAME"], "has the same samples as"),
        (["FILE", "NAMESAKE"], "have the same name"),
        (["FILE", "-o", "FILE"], "is a file: choose a folder"),
        (["FILE", "-o", "FULL"], "has something else in it, codes.jsonl"),
        (["missing.jsonl"], "missing.jsonl"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_first_call(memagent, samples, server, tmp_path, words, said):
    same, namesake = tmp_path / "other" / "same.jsonl", tmp_path / "third" / samples.name
    for path, content in ((same, samples.read_text()), (namesake, samples.read_text().replace("sea", "lake"))):
        path.parent.mkdir()
        path.write_text(content)
    paths = {"FILE": samples, "SAME": same, "NAMESAKE": namesake, "FULL": namesake.parent}
    given = [paths.get(word, word) for word in words]
    refused = memagent("compare", *given, *options(server))
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
    assert not server.requests


def test_progress_is_told_over_all_files(samples, server, tmp_path):
    opened = open_model("scripted", base_url=server.url)
    settings = make_settings(opened, model="scripted", chunk_tokens=100, memory_tokens=50)
    other = samples.with_name("others.jsonl")
    other.write_bytes(samples.read_bytes())
    files, told = [SampleFile.open(samples), SampleFile.open(other)], []
    with closing(opened.engine):
        read_all(files, opened, settings, tmp_path / "out", batch=4, concurrency=2, watcher=told.append)
    counts = [one.finished for one in told]
    assert (counts[0], counts[-1], told[-1].total) == (0, 8, 8)
    assert counts == sorted(counts)
    assert [one.turns for one in told] == sorted(one.turns for one in told)


def test_readers_whose_extra_is_missing_are_left_out(memagent, samples, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    shown = memagent("compare", samples, "--through-memory", *options(server))
    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines() if " right (95 %" in line] == ["memory", "gated"]
    assert "search is left out" in shown.err
    named = memagent("compare", samples, "-r", "search", *options(server))
    assert named.code == 4
    assert "memagent[eval]" in named.err
