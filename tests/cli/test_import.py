"""`memagent import`: from a suite's file to a report of its own scorer, and what people mistype."""

from __future__ import annotations

import json

import pytest

from tests.tasks.suites.invented import HAY, INVENTED

BY_NAME = {one.name: one for one in INVENTED}


def test_the_formats_are_listed_with_their_files(memagent):
    listed = memagent("import")
    assert listed.code == 0
    assert memagent("import", "--list").out == listed.out
    lines = listed.out.splitlines()
    assert {line.split()[0] for line in lines} == {one.suite for one in INVENTED}
    assert "longbench-v2   LongBench v2: data.json of THUDM/LongBench-v2 (Hugging Face)" in lines
    described = {one["format"]: one for one in memagent("import", "--list", "--json").json}
    assert described["longmemeval"]["official"].startswith("no: not the official judge")
    assert described["babilong"]["subsets"][:2] == ["qa1", "qa2"]


def test_from_the_file_to_a_report_of_the_suites_own_scorer(memagent, server, served, tmp_path):
    file = BY_NAME["data.json"].write(tmp_path)
    samples = tmp_path / "samples.jsonl"
    made = memagent("import", "longbench-v2", file, "-o", samples)
    assert made.out.splitlines() == [f"4 samples in {samples}", "  longbench-v2 Single-Document QA: 4"]
    assert "4 samples, all valid" in memagent("validate", samples).out
    server.model = lambda messages: "The correct answer is (B)."
    run = memagent("eval", samples, "-o", tmp_path / "run", *served)
    assert run.code == 0, run.err
    assert "25.0 %  of 4 readings  by choice" in run.out
    again = memagent("eval", samples, "-o", tmp_path / "run", *served, "--json").json
    assert [(cell["strict"], cell["own"]) for cell in again["cells"]] == [(0, 0.25)]
    record = json.loads((tmp_path / "run/records.jsonl").read_text().splitlines()[0])
    assert (record["scorer"], record["meta"]["suite"]) == ("choice", "longbench-v2")
    assert set(record["scores"]) == {"strict", "contains", "f1", "all_required", "ruler", "released", "choice"}
    report = memagent("report", tmp_path / "run")
    assert "scorer `own (choice)`" in report.out
    assert "25.0" in report.out
    strict = memagent("report", tmp_path / "run", "--scorer", "strict")
    assert "scorer `strict`" in strict.out
    assert "25.0" not in strict.out


def test_needles_in_a_haystack(memagent, tmp_path):
    file = BY_NAME["needle_set.json"].write(tmp_path)
    (tmp_path / "book.txt").write_text(HAY)
    command = ["import", "nolima", file, "-o", tmp_path / "s.jsonl", "--haystack", tmp_path / "book.txt"]
    made = memagent(*command, "--tokens", 500, "--depths", 5, "--tokenizer", "bytes", "--json")
    assert made.json["tasks"] == {"nolima onehop": 10, "nolima twohop": 10}
    checked = memagent("validate", tmp_path / "s.jsonl")
    assert checked.code == 0, checked.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["bench", "FILE", "-o", "OUT"], "no format 'bench'; there are babilong, graphwalks"),
        (["qmsum", "FILE"], "give the file of QMSum and the sample file to write"),
        (["qmsum"], "memagent import qmsum FILE -o OUT"),
        (["qmsum", "NONE", "-o", "OUT"], "cannot be read as UTF-8 text: [Errno 2]"),
        (["mrcr", "FILE", "-o", "OUT"], "this is no file of OpenAI MRCR: it has the form of qmsum"),
        (["qmsum", "FILE", "-o", "OUT", "--split", "test"], "the split is 'test'; it must be 'eval' or 'train'"),
        (["qmsum", "FILE", "-o", "OUT", "--category", "all"], "no record of the category all; there are general, specific"),
        (["qmsum", "FILE", "-o", "OUT", "--haystack", "FILE"], "QMSum brings its documents"),
        (["nolima", "FILE", "-o", "OUT"], "pass --haystack"),
        (["qmsum", "FILE", "-o", "FOLDER"], "is a folder"),
    ],
)
def test_what_people_mistype(memagent, tmp_path, arguments, named):
    file = BY_NAME["test.jsonl"].write(tmp_path)
    names = {"FILE": file, "NONE": tmp_path / "none", "OUT": tmp_path / "out.jsonl", "FOLDER": tmp_path}
    result = memagent("import", *(names.get(argument, argument) for argument in arguments))
    assert result.code == 2
    assert named in " ".join(result.err.split())
    assert not (tmp_path / "out.jsonl").exists()
