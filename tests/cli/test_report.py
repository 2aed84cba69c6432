from __future__ import annotations

import json

import pytest

from tests.evaluation.fakes import make_record, make_sample, write_run, write_samples


@pytest.fixture
def runs(tmp_path):
    samples = [make_sample(index, tokens=1000, place=0.3) for index in range(4)]
    file = write_samples(tmp_path / "samples.jsonl", samples)
    memory = [make_record(sample, fate) for sample, fate in zip(samples, ("kept", "lost", "kept", "missed"), strict=True)]
    whole = [make_record(sample, "kept", reader="direct") for sample in samples]
    return [
        write_run(tmp_path / "memory", memory, file=file),
        write_run(tmp_path / "direct", whole, reader="direct", file=file),
    ]


def test_a_page_and_tables(memagent, runs, tmp_path):
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    result = memagent("report", *runs, "-o", page, "--markdown", tables, "--title", "Needles")
    assert (result.code, result.out) == (0, "")
    assert f"{page}: 8 readings of 2 runs" in result.err
    assert "<h1>Needles</h1>" in page.read_text()
    assert page.read_text().count('<details class="reading"') == 4
    assert "# Needles" in tables.read_text()


def test_tables_alone_are_printed(memagent, runs):
    result = memagent("report", runs[0])
    assert result.code == 0
    assert r"| niah\_single\_1 | memory | 50.0 (15.0–85.0; 4) |" in result.out
    assert result.err == ""


def test_one_reading_by_its_sample(memagent, runs, tmp_path):
    page = tmp_path / "report.html"
    assert memagent("report", *runs, "-o", page, "--sample", "niah_single_1-1000-1").code == 0
    assert page.read_text().count('<details class="reading"') == 2


def test_a_moved_sample_file(memagent, runs, tmp_path):
    page = tmp_path / "report.html"
    moved = (tmp_path / "samples.jsonl").rename(tmp_path / "elsewhere.jsonl")
    assert memagent("report", *runs, "-o", page).code == 0
    assert "The text of the document is not shown" in page.read_text()
    assert memagent("report", *runs, "-o", page, "--samples", moved).code == 0
    assert "The text of the document is not shown" not in page.read_text()


def test_what_is_wrong_is_said_and_nothing_is_written(memagent, runs, tmp_path):
    page = tmp_path / "report.html"
    for arguments, message in (
        ([tmp_path], "it contains no run.json"),
        ([*runs, "--scorer", "exact"], "unknown scorer 'exact'"),
        ([*runs, "--sample", "nobody"], "no reading of the sample 'nobody'"),
        ([runs[0], runs[0]], "a run folder was given twice"),
        ([*runs, "--markdown", page], "cannot be both the page and the tables"),
    ):
        result = memagent("report", *arguments, "-o", page)
        assert result.code == 2, arguments
        assert message in " ".join(result.err.split())
        assert not page.exists()


def test_options_about_the_page_need_one(memagent, runs):
    for option, value in (("--sample", "niah_single_1-1000-1"), ("--readings", "4"), ("--samples", runs[0])):
        result = memagent("report", runs[0], option, value)
        assert (result.code, result.out) == (2, "")
        assert f"{option} is about the page: name its file with -o" in result.err


def test_a_record_of_another_version_is_refused(memagent, runs, tmp_path):
    records = runs[0] / "records.jsonl"
    records.write_text(records.read_text().replace('"version": 2', '"version": 7', 1))
    result = memagent("report", *runs, "-o", tmp_path / "report.html")
    assert result.code == 2
    assert "records.jsonl, line 1: the record has version 7" in " ".join(result.err.split())


def test_records_are_never_overwritten(memagent, runs):
    before = (runs[0] / "records.jsonl").read_bytes()
    result = memagent("report", *runs, "-o", runs[0] / "records.jsonl")
    assert result.code == 2
    assert "is not a report" in result.err
    assert (runs[0] / "records.jsonl").read_bytes() == before


@pytest.fixture
def training(tmp_path):
    folder = tmp_path / "warm"
    folder.mkdir()
    (folder / "config.toml").write_text("[schedule]\nsteps = 40\n")
    lines = [{"step": step, "train": {"loss": 1 / step}} for step in (20, 40)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_curves_of_a_training_run(memagent, training, tmp_path):
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    result = memagent("report", training, "-o", page, "--markdown", tables)
    assert (result.code, result.out) == (0, "")
    assert f"{page}: the curves of warm, " in result.err
    assert "<h1>Training</h1>" in page.read_text()
    assert 'http-equiv="refresh"' not in page.read_text()
    printed = memagent("report", training, "--title", "Warm")
    assert printed.out == tables.read_text().replace("# Training", "# Warm")
    assert "| training: loss | 0.025 (best 0.025 at 40) |" in printed.out


def test_a_finished_training_run_is_watched_no_longer(memagent, training):
    result = memagent("report", training, "--watch", "1")
    assert result.code == 0
    assert "the runs are finished" in result.err
    assert "<h1>Training</h1>" in (training / "report.html").read_text()


def test_ctrl_c_ends_watching(memagent, training, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("memagent.evaluation.report.training_page.time.sleep", interrupted)
    result = memagent("report", training, "--watch", "5")
    assert result.code == 130
    assert 'http-equiv="refresh"' not in (training / "report.html").read_text()


def test_what_is_wrong_with_training_runs_is_said(memagent, runs, training, tmp_path):
    page = tmp_path / "report.html"
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.toml").write_text("")
    for arguments, message in (
        ([*runs, training], "report training runs and runs of memagent eval separately"),
        ([tmp_path / "begun"], "has no metrics to draw: its metrics.jsonl does not exist"),
        ([training, "--scorer", "f1"], "--scorer is for runs of memagent eval"),
        ([training, "--sample", "x"], "--sample is for runs of memagent eval"),
        ([training, "--watch", "0"], "the minimum is 1"),
        ([training, "--watch", "5", "--markdown", tmp_path / "t.md"], "omit --markdown"),
        ([*runs, "--watch", "5"], "--watch is for training runs"),
        ([training, training], "a run folder was given twice"),
    ):
        result = memagent("report", *arguments, "-o", page)
        assert result.code == 2, arguments
        assert message in " ".join(result.err.split())
        assert not page.exists()
