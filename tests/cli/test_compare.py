"""`memagent compare`: several readers over the same samples, and which of them to take."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from memagent.evaluation.compare import Compared, compare, suited
from memagent.models.open import open_model
from memagent.settings import make_settings
from memagent.tasks.files import SampleFile
from tests.cli.conftest import FACT, reader
from tests.faults import Fault, FaultServer

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


def compared(name, right, seconds, readings=12, **failures):
    return Compared(
        reader=name,
        parts={"a": (right, readings)},
        failures=failures,
        calls=1,
        prompt_tokens=1,
        completion_tokens=1,
        seconds=seconds,
    )


@pytest.mark.parametrize(
    ("rights", "times", "wanted"),
    [
        ((12, 11, 6), (4, 3, 1), "b"),  # one answer less is as good
        ((12, 10, 6), (4, 3, 1), "a"),
        ((6, 6, 5.5), (4, 3, 1), "c"),  # scores may be parts of one
        ((5, 4, 4), (4, 3, 1), None),  # half of the answers, at least
    ],
)
def test_the_fastest_of_the_best_suits(rights, times, wanted):
    found = [compared(name, right, time) for name, right, time in zip("abc", rights, times, strict=True)]
    best = suited(found)
    assert (best.reader if best else None) == wanted


def test_readers_are_asked_the_same_and_the_right_one_is_named(memagent, samples, server, tmp_path):
    command = ["compare", samples, "-r", "memory", "-r", "truncate", "--through-memory", *options(server)]
    shown = memagent(*command)
    assert shown.code == 0, shown.err
    assert "memory    4 of 4 right (51–100 %)" in shown.out
    assert "truncate  1 of 4 right (5–70 %)" in shown.out
    assert "codes 4/4" in shown.out
    assert "take --reader memory: none has more right answers" in shown.out
    told = memagent(*command, "--json").json
    assert told["suited"] == "memory"
    assert [(one["reader"], one["right"], one["parts"]) for one in told["readers"]] == [
        ("memory", 4, {"codes": {"right": 4, "readings": 4}}),
        ("truncate", 1, {"codes": {"right": 1, "readings": 4}}),
    ]


def test_kept_readings_are_not_made_again(memagent, samples, server, tmp_path):
    command = ["compare", samples, "-r", "memory", "-o", tmp_path / "kept", "--json", *options(server)]
    first = memagent(*command).json
    asked = len(server.requests)
    assert memagent(*command).json == first
    assert len(server.requests) == asked
    report = memagent("report", tmp_path / "kept" / "memory" / "codes", "-o", tmp_path / "report.html")
    assert report.code == 0, report.err


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
    assert {path.stem for path in (tmp_path / "kept" / "questions").iterdir()} == {"one-fact", "not-there", "two-facts"}
    assert told.json["readers"][0]["right"] == 3


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


def test_documents_that_are_too_long_are_told_and_no_failure_of_the_command(memagent, samples, server):
    shown = memagent("compare", samples, "-r", "memory", "-r", "direct", "--through-memory", *options(server))
    assert shown.code == 0, shown.err
    assert "direct    the documents are too long for it" in shown.out


def test_a_model_that_is_right_too_seldom_is_told_so_and_failures_count(memagent, samples):
    with FaultServer(lambda messages: "no idea") as server:
        shown = memagent("compare", samples, "-r", "memory", *options(server))
        assert shown.code == 0
        assert "memory    0 of 4 right" in shown.out
        assert "no reader gets half of the answers right" in shown.out
    with FaultServer(reader, faults=lambda number: Fault("null")) as server:
        shown = memagent("compare", samples, "-r", "memory", *options(server))
        assert shown.code == 4
        assert "failed readings, counted as wrong: 4" in shown.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-r", "nobody"], "there is no reader 'nobody'"),
        (["-r", "auto"], "the reader 'auto' chooses for one document"),
        (["-r", "memory", "--rounds", "2"], "--rounds is an option of none of the readers memory"),
        (["FILE", "--tokens", "900"], "--tokens 900 is the length of made-up documents"),
        (["FILE", "SAME"], "have the same name"),
        (["missing.jsonl"], "missing.jsonl"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_first_call(memagent, samples, server, tmp_path, words, said):
    same = tmp_path / "other" / samples.name
    same.parent.mkdir()
    same.write_bytes(samples.read_bytes())
    given = [{"FILE": samples, "SAME": same}.get(word, word) for word in words]
    refused = memagent("compare", *given, *options(server))
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
    assert not server.requests


def test_progress_is_told_over_all_readers_and_files(samples, server, tmp_path):
    opened = open_model("scripted", base_url=server.url)
    settings = {
        name: make_settings(opened, model="scripted", reader=name, chunk_tokens=100, memory_tokens=50)
        for name in ("memory", "search")
    }
    other = samples.with_name("others.jsonl")
    other.write_bytes(samples.read_bytes())
    files, told = [SampleFile.open(samples), SampleFile.open(other)], []
    with closing(opened.engine):
        list(compare(files, opened, settings, tmp_path / "out", batch=4, concurrency=2, watcher=told.append))
    counts = [one.finished for one in told]
    assert (counts[0], counts[-1], told[-1].total) == (0, 16, 16)
    assert counts == sorted(counts)
    assert [one.turns for one in told] == sorted(one.turns for one in told)
