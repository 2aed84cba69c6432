"""Runs: one record for each reading, failures among them; stopped anywhere, a run goes on to the same records."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from memagent.core.types import Completion
from memagent.errors import ConfigError, ModelRefusedError, ModelReplyError
from memagent.evaluation.folder import RunFolder
from memagent.evaluation.records import record_from_json
from memagent.evaluation.runner import TRANSIENT, Evaluation, evaluate
from memagent.models.open import Defaults, OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.settings import make_settings
from memagent.tasks.files import SampleFile
from tests.helpers import WordTokenizer

LINE = "Line {} tells of the sea and of nothing else in particular."


class Stopped(Exception):  # noqa: N818  # not an error
    """What a kill looks like from inside."""


def model(turn):
    """Keeps a sentence about the asked key once it has seen it."""
    key = turn.user.split("<question>")[1].split("</question>")[0].split()[-1].rstrip("?\n")
    found = next((line for line in turn.user.splitlines() if f"for {key} is" in line), "")
    if turn.kind == "answer":
        return found.rstrip(".").split()[-1] if found else "not found"
    return found or "nothing yet seen"


@pytest.fixture
def samples(tmp_path):
    rows = []
    for number in range(6):
        lines = [LINE.format(n) for n in range(40 + 10 * number)]
        lines[20] = f"The code for k{number} is {number}{number}."
        text = "\n".join(lines)
        start = text.index("The code")
        fact = {
            "text": lines[20],
            "start": start,
            "end": start + len(lines[20]),
            "key": f"k{number}",
            "value": f"{number * 11}",
        }
        row = {"id": f"s{number}", "task": "codes", "question": f"What is the code for k{number}?", "document": text}
        rows.append({**row, "answers": [f"{number}{number}"], "facts": [fact], "tokens": len(text.split())})
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SampleFile.open(path)


READER_OPTIONS = ("passages", "through_memory", "exit")


def an_evaluation(samples, script=model, lockstep=True, budgets=None, reader="memory", **options):
    engine = ScriptedModel(script, window=1000, tokenizer=WordTokenizer())
    engine.lockstep = lockstep
    opened = OpenModel(engine=engine, defaults=Defaults())
    given = {"question_tokens": 20, "chunk_tokens": 100, "memory_tokens": 60, "answer_tokens": 20, **(budgets or {})}
    chosen = {name: options.pop(name) for name in READER_OPTIONS if name in options}
    settings = make_settings(opened, model="scripted", profile="default", reader=reader, reader_options=chosen, **given)
    return Evaluation(samples=samples, opened=opened, settings=settings, **options)


def few(reader):
    """Options with which a reader that retrieves finds room for its passages."""
    return {"passages": 2} if reader == "retrieve" else {}


def run(evaluation, path, **options):
    with RunFolder.open(path, evaluation.config(), **options) as folder:
        tally = evaluate(evaluation, folder)
    return tally, records(path)


def records(path):
    lines = (path / "records.jsonl").read_text().splitlines()
    return {record.key: record for record in (record_from_json(json.loads(line)) for line in lines)}


def timeless(record):
    turns = tuple(replace(turn, seconds=0.0) for turn in record.turns)
    return replace(record, wall=0.0, seconds=0.0, turns=turns)


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("reader", ["memory", "truncate", "retrieve", "append", "direct"])
def test_every_reader_leaves_a_record_for_every_sample(samples, tmp_path, reader, lockstep):
    evaluation = an_evaluation(samples, reader=reader, lockstep=lockstep, **few(reader))
    tally, found = run(evaluation, tmp_path / "run")
    assert set(found) == {(f"s{number}", 0) for number in range(6)}
    assert tally.finished == tally.total == 6
    config = json.loads((tmp_path / "run/run.json").read_text())
    assert config["reader"] == reader
    assert config["finished"]
    assert not list((tmp_path / "run").glob("journal*"))
    for record in found.values():
        assert record.reader == reader
        assert set(record.scores) >= {"strict", "contains", "f1", "all_required", "released"}
        assert (record.shown is None) == (reader in ("memory", "append", "direct"))
        if reader in ("memory", "retrieve", "append"):
            assert record.scores["strict"] == 1, record.answer


def test_the_turns_of_a_record_tell_how_the_memory_came_about(samples, tmp_path):
    _, found = run(an_evaluation(samples), tmp_path / "run")
    record = found["s5", 0]
    updates = [turn for turn in record.turns if turn.kind == "update"]
    assert updates[0].spans[0].start == 0
    assert updates[-1].spans[-1].end == record.characters
    assert all(a.spans[-1].end == b.spans[0].start for a, b in itertools.pairwise(updates))
    changed = [turn for turn in record.turns if turn.memory is not None]
    assert [turn.memory for turn in changed] == ["nothing yet seen", "The code for k5 is 55."]
    assert changed[1].spans[0].start <= record.facts[0].start < changed[1].spans[0].end
    assert record.memory == "The code for k5 is 55."
    assert {turn.reply for turn in record.turns} == {None}
    assert record.turns[-1].kind == "answer"
    assert all(turn.prompt_tokens > 0 for turn in record.turns)


def test_what_the_model_said_is_kept_where_nothing_came_of_it(samples, tmp_path):
    def rambling(turn):
        return "No relevant information." if turn.id == "chunk-2" else model(turn)

    _, found = run(an_evaluation(samples, rambling), tmp_path / "run")
    turn = found["s5", 0].turns[1]
    assert (turn.outcome, turn.memory, turn.reply) == ("unchanged", None, "No relevant information.")


def test_batching_and_concurrency_do_not_change_the_records(samples, tmp_path):
    _, one = run(an_evaluation(samples, batch=1), tmp_path / "one")
    for name, options in {
        "all": {"batch": 50},
        "two": {"batch": 2},
        "server": {"lockstep": False, "concurrency": 4},
    }.items():
        _, other = run(an_evaluation(samples, **options), tmp_path / name)
        assert {key: timeless(record) for key, record in one.items()} == {k: timeless(r) for k, r in other.items()}


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("stop_at", [1, 7, 12, 19, 27])
def test_a_stopped_run_goes_on_and_asks_no_finished_turn_again(samples, tmp_path, stop_at, lockstep):
    _, whole = run(an_evaluation(samples), tmp_path / "whole")
    calls = []

    def stopping(turn):
        if len(calls) == stop_at:
            raise Stopped
        calls.append(turn.user)
        return model(turn)

    options = {"batch": 3, "concurrency": 2, "lockstep": lockstep}
    with pytest.raises(Stopped):
        run(an_evaluation(samples, stopping, **options), tmp_path / "run")
    finished = len(records(tmp_path / "run"))
    again = an_evaluation(samples, **options)
    _, found = run(again, tmp_path / "run")
    assert {key: timeless(record) for key, record in found.items()} == {k: timeless(r) for k, r in whole.items()}
    total = sum(len(record.turns) for record in whole.values())
    lost = (options["batch"] if lockstep else options["concurrency"]) - (not lockstep)
    assert total - stop_at <= len(again.opened.engine.turns) <= total - stop_at + lost
    assert finished < 6


def test_a_torn_last_record_is_read_again(samples, tmp_path):
    _, whole = run(an_evaluation(samples), tmp_path / "run")
    file = tmp_path / "run/records.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert len(file.read_text().splitlines()) == 6
    again = an_evaluation(samples)
    tally, found = run(again, tmp_path / "run")
    assert tally.finished == 6
    assert {key: timeless(record) for key, record in found.items()} == {k: timeless(r) for k, r in whole.items()}
    assert len(again.opened.engine.turns) == len(found["s5", 0].turns)


def test_a_finished_run_asks_nothing(samples, tmp_path):
    run(an_evaluation(samples), tmp_path / "run")
    again = an_evaluation(samples)
    assert run(again, tmp_path / "run")[0].finished == 6
    assert again.opened.engine.turns == []


def test_changed_settings_samples_and_readers_are_refused_by_name(samples, tmp_path):
    run(an_evaluation(samples), tmp_path / "run")
    for changed, named in [
        (an_evaluation(samples, reader="append"), 'reader: "memory" → "append"'),
        (an_evaluation(samples, budgets={"chunk_tokens": 90}), "settings.budgets.chunk: 100 → 90"),
        (an_evaluation(samples, budgets={"temperature": 0.5}, attempts=2), "attempts: 1 → 2"),
    ]:
        with pytest.raises(ConfigError, match=named):
            run(changed, tmp_path / "run")
    rows = [json.loads(line) for line in samples.path.read_text().splitlines()]
    rows[0]["answers"] = ["something else"]
    samples.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"samples\.sha256"):
        run(an_evaluation(SampleFile.open(samples.path)), tmp_path / "run")


def test_other_folders_and_other_versions_are_refused(samples, tmp_path):
    evaluation = an_evaluation(samples)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="does not contain a run"):
        run(evaluation, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    run(evaluation, tmp_path / "run")
    file = tmp_path / "run/run.json"
    for values, named in [({"version": 99}, "has version 99"), ({"versions": {"memagent": "9.9"}}, "memagent: 9.9 →")]:
        before = file.read_text()
        file.write_text(json.dumps(json.loads(before) | values))
        with pytest.raises(ConfigError, match=named):
            run(evaluation, tmp_path / "run")
        file.write_text(before)
    line = json.loads((tmp_path / "run/records.jsonl").read_text().splitlines()[0])
    (tmp_path / "run/records.jsonl").write_text(json.dumps(line | {"version": 99}) + "\n")
    with pytest.raises(ConfigError, match="line 1: the record has version 99"):
        run(evaluation, tmp_path / "run")


def test_two_processes_do_not_write_one_run(samples, tmp_path):
    evaluation = an_evaluation(samples)
    with RunFolder.open(tmp_path / "run", evaluation.config()), pytest.raises(ConfigError, match="another process"):
        RunFolder.open(tmp_path / "run", evaluation.config())


@pytest.mark.parametrize("lockstep", [True, False])
def test_failures_are_records_and_can_be_read_again(samples, tmp_path, lockstep):
    def failing(turn):
        if "k2" in turn.user:
            return ModelReplyError("nonsense from https://user:hunter2@host/v1")
        return Completion(text="") if turn.kind == "answer" and "k3" in turn.user else model(turn)

    tally, found = run(an_evaluation(samples, failing, lockstep=lockstep), tmp_path / "run")
    assert (tally.finished, tally.failed) == (6, 2)
    broken, empty = found["s2", 0], found["s3", 0]
    assert (broken.status, broken.error_kind, broken.answer) == ("failed", "reply", "")
    assert "hunter2" not in (tmp_path / "run/records.jsonl").read_text()
    assert (empty.status, empty.error_kind) == ("failed", "empty")
    assert broken.scores["strict"] == empty.scores["strict"] == 0
    again = an_evaluation(samples, lockstep=lockstep)
    tally, found = run(again, tmp_path / "run", again=(*TRANSIENT, "empty"))
    assert (tally.finished, len(found)) == (6, 6)
    assert found["s2", 0].scores["strict"] == found["s3", 0].scores["strict"] == 1


def test_a_document_too_long_for_a_reader_is_a_failure_of_that_reader(samples, tmp_path):
    _, found = run(an_evaluation(samples, reader="direct", budgets={}), tmp_path / "run")
    short = an_evaluation(samples, reader="direct", through_memory=True)
    _, found = run(short, tmp_path / "turns")
    assert {record.error_kind for record in found.values()} == {"too_long"}
    assert all(record.tokens for record in found.values())


def test_a_question_over_the_budget_fails_its_sample_only(samples, tmp_path):
    rows = [json.loads(line) for line in samples.path.read_text().splitlines()]
    rows[0]["question"] = "why " * 50
    samples.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, found = run(an_evaluation(SampleFile.open(samples.path)), tmp_path / "run")
    assert found["s0", 0].error_kind == "config"
    assert "50 tokens" in found["s0", 0].error
    assert sum(record.scores["strict"] for record in found.values()) == 5


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_model_that_refuses_everything_stops_the_run(samples, tmp_path, lockstep):
    options = {"lockstep": lockstep, "batch": 2, "concurrency": 2}
    with pytest.raises(ModelRefusedError, match="wrong key"):
        run(an_evaluation(samples, lambda turn: ModelRefusedError("wrong key"), **options), tmp_path / "run")
    # What a server failed that is down for all of them says nothing about the samples: the same command reads them again.
    assert records(tmp_path / "run") == {}
    assert not json.loads((tmp_path / "run/run.json").read_text())["finished"]
    _, found = run(an_evaluation(samples, **options), tmp_path / "run")
    assert sum(record.scores["strict"] for record in found.values()) == 6


def test_other_failures_do_not_say_that_the_server_is_there(samples, tmp_path):
    def ailing(turn):
        return ModelReplyError("garbled") if "k1" in turn.user else ModelRefusedError("wrong key")

    options = {"lockstep": False, "concurrency": 1}
    with pytest.raises(ModelRefusedError, match="wrong key"):
        run(an_evaluation(samples, ailing, **options), tmp_path / "run")
    assert {record.error_kind for record in records(tmp_path / "run").values()} == {"reply"}
    _, found = run(an_evaluation(samples, **options), tmp_path / "run")
    assert sorted(str(record.error_kind) for record in found.values()) == ["None"] * 5 + ["reply"]


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_server_that_refuses_one_reading_has_failed_it(samples, tmp_path, lockstep):
    def picky(turn):
        return ModelRefusedError("not this one") if "k2" in turn.user or "k5" in turn.user else model(turn)

    _, found = run(an_evaluation(samples, picky, lockstep=lockstep, batch=1, concurrency=1), tmp_path / "run")
    assert len(found) == 6
    assert {key[0] for key, record in found.items() if record.error_kind == "refused"} == {"s2", "s5"}


def test_how_much_runs_at_once_may_change_when_a_run_goes_on(samples, tmp_path):
    run(an_evaluation(samples, batch=2), tmp_path / "run")
    run(an_evaluation(samples, batch=3), tmp_path / "run")


def test_a_document_without_a_count_has_one_length_for_all_readers(samples, tmp_path):
    rows = [json.loads(line) for line in samples.path.read_text().splitlines()]
    samples.path.write_text("".join(json.dumps(row | {"tokens": 0}) + "\n" for row in rows))
    again = SampleFile.open(samples.path)
    lengths = []
    for reader in ("memory", "truncate", "retrieve", "append", "direct"):
        evaluation = an_evaluation(again, reader=reader, **few(reader))
        _, found = run(evaluation, tmp_path / reader)
        lengths.append({key: record.tokens for key, record in found.items()})
    assert all(one == lengths[0] for one in lengths)
    assert all(lengths[0].values())


def test_a_kill_before_the_first_record_leaves_a_folder_that_goes_on(samples, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json.1234.partial").write_text("{")
    run(an_evaluation(samples), tmp_path / "run")
    with pytest.raises(ConfigError, match="is a file"):
        run(an_evaluation(samples), samples.path)


def test_several_readings_of_a_sample_draw_from_their_own_seeds(samples, tmp_path):
    with pytest.raises(ConfigError, match="temperature"):
        an_evaluation(samples, attempts=3)
    evaluation = an_evaluation(samples, attempts=3, budgets={"temperature": 1.0, "seed": 7})
    _, found = run(evaluation, tmp_path / "run")
    assert set(found) == {(f"s{number}", attempt) for number in range(6) for attempt in range(3)}
    first = [turn for turn in evaluation.opened.engine.turns if turn.id == "chunk-1"]
    assert len({turn.sampling.seed for turn in first}) == 18
    other = an_evaluation(samples, attempts=3, budgets={"temperature": 1.0, "seed": 7}, batch=1)
    run(other, tmp_path / "other")
    seeds = {turn.user + str(turn.sampling.seed) for turn in evaluation.opened.engine.turns}
    assert seeds == {turn.user + str(turn.sampling.seed) for turn in other.opened.engine.turns}


def test_a_record_has_the_score_of_the_scorer_that_its_sample_names(samples, tmp_path):
    rows = [json.loads(line) for line in samples.path.read_text().splitlines()[:2]]
    rows[0] |= {"scorer": "first_number"}
    rows[1] |= {"scorer": "contains"}
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, found = run(an_evaluation(SampleFile.open(tmp_path / "own.jsonl")), tmp_path / "run")
    assert found["s0", 0].scorer == "first_number"
    assert found["s0", 0].scores["first_number"] == 1
    assert set(found["s1", 0].scores) == set(found["s0", 0].scores) - {"first_number"}
    assert record_from_json(found["s0", 0].to_json() | {"scorer": ""}).scorer == ""
    plain = {key: value for key, value in found["s0", 0].to_json().items() if key != "scorer"}
    assert record_from_json(plain).scorer == "", "a record of an earlier version"
