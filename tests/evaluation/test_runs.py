from __future__ import annotations

import json

import pytest

from memagent.errors import ConfigError, TaskError
from memagent.evaluation.runs import Run
from tests.evaluation.fakes import make_record, make_sample, write_run

RECORDS = [make_record(make_sample(index, tokens=500), fate) for index, fate in enumerate(["kept", "lost", "failed"])]


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", RECORDS)


def change(folder, **values):
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_records_come_back_as_they_were(folder):
    run = Run.open(folder)
    placed = list(run.records())
    assert [one.record for one in placed] == RECORDS
    assert [run.load(one.place, one.size) for one in reversed(placed)] == RECORDS[::-1]
    assert (run.finished, run.expected) == (True, 3)


def test_a_torn_last_line_is_left_out_while_the_run_is_not_finished(folder):
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TaskError, match=r"records\.jsonl, line 3: not a line of JSON"):
        list(Run.open(folder).records())
    change(folder, finished=None)
    assert [one.record for one in Run.open(folder).records()] == RECORDS[:2]


def test_a_torn_line_in_the_middle_is_an_error(folder):
    change(folder, finished=None)
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-30], lines[2], ""]))
    with pytest.raises(TaskError, match="line 2: not a line of JSON"):
        list(Run.open(folder).records())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"version": 3}', "line 1: the record has version 3, but this memagent reads up to version 2"),
        ("[]", "line 1: the record has version None"),
        ('{"version": 2, "sample": "x"}', "line 1: not a reading record: KeyError: 'attempt'"),
        ("", "line 1: not a line of JSON"),
    ],
)
def test_lines_that_are_no_records_are_named(folder, line, message):
    (folder / "records.jsonl").write_text(line + "\n")
    with pytest.raises(TaskError, match=message):
        list(Run.open(folder).records())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scores.strict", "1.0", 'scores.strict must be a number from 0 to 1, not "1.0"'),
        ("scores.strict", 2, "scores.strict must be a number from 0 to 1, not 2"),
        ("scores.strict", True, "scores.strict must be a number from 0 to 1, not true"),
        ("scores", [], "scores must be an object"),
        ("meta", None, "meta must be an object, not null"),
        ("meta.target", 10**400, r"meta.target must be the requested length .* not 1000.*… \(401 characters\)"),
        ("meta.target", "long", 'meta.target must be the requested length in tokens, .* not "long"'),
        ("meta.target", [1], "meta.target must be"),
        ("meta.target", None, "meta.target must be .* not null"),
        ("meta.target", True, "meta.target must be .* not true"),
        ("meta.target", 0, "meta.target must be .* not 0"),
        ("meta.target", 8192.5, "meta.target must be .* not 8192.5"),
        ("tokens", 10**30, "tokens must be a whole number from 0 to 1,000,000,000,000, not 1000"),
        ("tokens", "9", 'tokens must be a whole number .* not "9"'),
        ("characters", -1, "characters must be"),
        ("seconds", float("inf"), "seconds must be a number from 0, not Infinity"),
        ("seconds", float("nan"), "seconds must be a number from 0, not NaN"),
        ("seconds", 10**400, "seconds must be a number from 0, not 1"),
        ("answer", None, "answer must be text, not null"),
        ("answers", [1], r"answers\[0\] must be text, not 1"),
        ("status", "lost", "status must be answered or failed"),
        ("error_kind", [], "error_kind must be text or null"),
        ("mode", 1, "mode must be any or all"),
        ("sample", [], "sample must be text"),
        ("attempt", None, "attempt must be"),
        ("shown", [["a", 2]], "shown must be"),
        ("facts.0.start", "x", r'facts\[0\].start must be a place in the document, not "x"'),
        ("facts.0.value", 5, r"facts\[0\].value must be text, not 5"),
        ("facts.0", 5, "not a reading record"),
        ("turns", 5, "not a reading record"),
        ("turns.1.memory", 5, r"turns\[1\].memory must be text or null, not 5"),
        ("turns.1.spans", [[0, None]], r"turns\[1\].spans must be places in the document, not \[0, null\]"),
        ("turns.1.spans", [[0]], "not a reading record"),
        ("turns.1.seconds", "x", r"turns\[1\].seconds must be a number from 0"),
        ("turns.1.number", None, r"turns\[1\].number must be a whole number"),
        ("turns.1.reply", {}, r"turns\[1\].reply must be text or null"),
    ],
)
def test_a_damaged_record_is_named_by_line_and_field(folder, path, value, message):
    lines = (folder / "records.jsonl").read_text().splitlines()
    values = json.loads(lines[1])
    inner = values
    *way, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in way:
        inner = inner[name]
    inner[last] = value
    (folder / "records.jsonl").write_text("\n".join([lines[0], json.dumps(values), lines[2], ""]))
    with pytest.raises(TaskError, match=rf"records\.jsonl, line 2: .*{message}"):
        list(Run.open(folder).records())


def test_endless_nesting_is_no_record(folder):
    (folder / "records.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(TaskError, match="line 1: not a line of JSON"):
        list(Run.open(folder).records())
    (folder / "run.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is not JSON"):
        Run.open(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"settings": [1]}, r"its settings must be an object, not \[1\]"),
        ({"settings": {"budgets": 5}}, "its settings.budgets must be an object, not 5"),
        ({"settings": {"profile": "compact"}}, 'its settings.profile must be an object, not "compact"'),
        ({"comparison": "x"}, 'its comparison must be an object, not "x"'),
        ({"machine": "m"}, 'its machine must be an object, not "m"'),
        ({"versions": [1]}, r"its versions must be an object, not \[1\]"),
        ({"samples": {"count": "x"}}, 'its samples.count must be a number of samples, not "x"'),
        ({"samples": {"count": 10**400}}, "its samples.count must be a number of samples, not 1"),
        ({"samples": {"sha256": 5}}, "its samples.sha256 must be text, not 5"),
        ({"attempts": True}, "its attempts must be a number of readings, not true"),
        ({"model": ["x"]}, "its model must be text"),
        ({"finished": 5}, "its finished must be text, not 5"),
    ],
)
def test_a_damaged_header_is_named_by_its_field(folder, values, message):
    change(folder, **values)
    with pytest.raises(ConfigError, match=rf"run\.json is damaged: {message}"):
        Run.open(folder)


def test_a_reading_may_be_there_once(folder):
    path = folder / "records.jsonl"
    path.write_text(path.read_text() * 2)
    with pytest.raises(TaskError, match=r"line 4: attempt 0 of niah_single_1-500-0 is already in line 1"):
        list(Run.open(folder).records())


def test_what_is_no_run_folder_is_refused(tmp_path, folder):
    with pytest.raises(ConfigError, match=r"it contains no run\.json"):
        Run.open(tmp_path)
    change(folder, version=9)
    with pytest.raises(ConfigError, match="has version 9, but this memagent reads version 1"):
        Run.open(folder)
    change(folder, version=1, samples=None)
    with pytest.raises(ConfigError, match=r"run\.json is damaged: its samples must be an object, not null"):
        Run.open(folder)
    change(folder, schema="other")
    with pytest.raises(ConfigError, match="does not describe a run"):
        Run.open(folder)
    (folder / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        Run.open(folder)


def test_a_folder_without_records_is_refused(folder):
    (folder / "records.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*records\.jsonl: No such file"):
        Run.open(folder)
