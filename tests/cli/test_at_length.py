"""benchmarks/at_length.py: scores of real runs, collected and compared."""

from __future__ import annotations

import json

import pytest

from benchmarks.at_length import main


@pytest.fixture
def run(memagent, tmp_path):
    """Two samples of one task, read by the embedded model."""
    samples, folder = tmp_path / "samples.jsonl", tmp_path / "run"
    assert memagent("synth", "niah_single_1", "--tokens", "1024", "--samples", "2", "--seed", "5", "-o", samples).code == 0
    assert memagent("eval", samples, "-o", folder, "--batch", "2").code == 0
    return folder


def test_scores_are_collected_replaced_and_compared(run, tmp_path, capsys):
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps({"before": {"1024": {"5": {"niah_single_1": [0.0, 1.0, 1.0], "multihop": [0.0]}}}}))
    main(["add", str(scores), "after", str(run)])
    assert "2 readings added, 0 replaced" in capsys.readouterr().out
    main(["add", str(scores), "after", str(run)])
    assert "0 readings added, 2 replaced" in capsys.readouterr().out
    kept = json.loads(scores.read_text())
    assert kept["after"] == {"1024": {"5": {"niah_single_1": [1.0, 1.0]}}}
    assert kept["before"]["1024"]["5"]["multihop"] == [0.0]
    main(["table", str(scores), "after", "before"])
    out = capsys.readouterr().out
    assert "| niah_single_1 | before | 66.7 (21–94; 3) |" in out
    assert "| mean of needles and vt | after | 100.0 (34–100; 2) |" in out
    assert "| 1,024 | niah_single_1 | +50.0 ± 98.0 | 1, 0 | 2 |" in out  # only of the samples that both have


def test_what_cannot_be_collected_is_named(run, tmp_path, capsys):
    scores = tmp_path / "scores.json"
    scores.write_text("{}")
    records = run / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    first = next(line for line in lines if '"niah_single_1-1024-5-0"' in line)
    records.write_text("".join(line for line in lines if line != first))
    with pytest.raises(SystemExit):
        main(["add", str(scores), "after", str(run)])
    assert "sample 0 comes before 1" in capsys.readouterr().err
    records.write_text(first.replace("niah_single_1-1024-5-0", "mine"))
    with pytest.raises(SystemExit):
        main(["add", str(scores), "after", str(run)])
    assert "mine" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["table", str(scores), "after"])
    assert "'after' is no way to read" in capsys.readouterr().err
    assert scores.read_text() == "{}"
    with pytest.raises(SystemExit):
        main(["table", str(tmp_path / "none.json"), "after"])
    assert "none.json is no file of scores" in capsys.readouterr().err
