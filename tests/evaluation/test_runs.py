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
        ('{"version": 2}', "line 1: a record of version 2, and this memagent reads version 1"),
        ("[]", "line 1: a record of version None"),
        ('{"version": 1, "sample": "x"}', "line 1: not a record of a reading: KeyError: 'attempt'"),
        ("", "line 1: not a line of JSON"),
    ],
)
def test_lines_that_are_no_records_are_named(folder, line, message):
    (folder / "records.jsonl").write_text(line + "\n")
    with pytest.raises(TaskError, match=message):
        list(Run.open(folder).records())


def test_a_reading_may_be_there_once(folder):
    path = folder / "records.jsonl"
    path.write_text(path.read_text() * 2)
    with pytest.raises(TaskError, match=r"line 4: attempt 0 of niah_single_1-500-0 stands in line 1 already"):
        list(Run.open(folder).records())


def test_what_is_no_run_folder_is_refused(tmp_path, folder):
    with pytest.raises(ConfigError, match=r"there is no run\.json in it"):
        Run.open(tmp_path)
    change(folder, version=9)
    with pytest.raises(ConfigError, match="is of version 9 and this memagent reads version 1"):
        Run.open(folder)
    change(folder, version=1, samples=None)
    with pytest.raises(ConfigError, match="is damaged: its samples and attempts are None and 1"):
        Run.open(folder)
    change(folder, schema="other")
    with pytest.raises(ConfigError, match="does not describe a run"):
        Run.open(folder)
    (folder / "run.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        Run.open(folder)


def test_a_folder_without_records_is_refused(folder):
    (folder / "records.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"records\.jsonl cannot be read: No such file"):
        Run.open(folder)
