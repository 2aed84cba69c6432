from __future__ import annotations

import json

import pytest

from memagent.tasks.files import SampleFile


@pytest.fixture
def run(memagent, tmp_path):
    """A run of the embedded model in documents of seven chunks."""
    samples = tmp_path / "samples.jsonl"
    made = ("--tokens", "4096", "--samples", "3", "--seed", "5", "--split", "train", "--haystack", "generated:letter")
    assert memagent("synth", "niah_multivalue", *made, "-o", samples).code == 0
    assert memagent("eval", samples, "-o", tmp_path / "run").code == 0
    return tmp_path / "run"


def test_the_embedded_model_keeps_its_memories_in_the_short_document(memagent, run, tmp_path):
    short = tmp_path / "short.jsonl"
    made = memagent("shorten", run, "-o", short, "--right")
    assert (made.code, made.err) == (0, "")
    assert made.out == f"3 samples in {short}; readings left out: none\n"
    assert memagent("eval", short, "-o", tmp_path / "again").code == 0
    before, after = (
        {record["sample"]: record for record in map(json.loads, (folder / "records.jsonl").read_text().splitlines())}
        for folder in (run, tmp_path / "again")
    )
    for sample in SampleFile.open(short):
        made_of = sample.meta["shortened"]
        assert made_of["chunks"] < made_of["of"] == 7
        held, again = (
            [turn["memory"] for turn in record["turns"] if turn.get("memory") is not None]
            for record in (before[made_of["sample"]], after[sample.id])
        )
        assert again == held


def test_bad_input_is_an_error_that_leaves_no_file(memagent, run, tmp_path):
    short, kept = tmp_path / "short.jsonl", tmp_path / "notes.txt"
    samples = (tmp_path / "samples.jsonl").read_bytes()
    kept.write_text("mine")
    for arguments, message in (
        ([run, "-o", short, "--chunks", "1", "--right"], "that need more chunks"),
        ([tmp_path, "-o", short], "it contains no run.json"),
        ([run, run, "-o", short, "--right"], "a run folder was given twice"),
        ([run, "-o", tmp_path / "samples.jsonl", "--right"], "is the sample file of the run"),
        ([run, "-o", kept, "--right"], "is not a sample file that memagent made"),
        ([run, "-o", short, "--samples", kept], "not a line of JSON"),
    ):
        result = memagent("shorten", *arguments)
        assert (result.code, result.out) == (2, "")
        assert message in result.err
    assert not short.exists()
    assert (tmp_path / "samples.jsonl").read_bytes() == samples
    assert kept.read_text() == "mine"
