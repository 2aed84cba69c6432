"""`memagent tasks` and `memagent synth`: files that are right, the same everywhere, and never half there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from memagent.models.open import open_tokenizer
from memagent.tasks.catalog import CATALOG
from memagent.tasks.files import SampleFile
from memagent.tasks.haystack import Haystack
from tests.tasks.invented import hotpot, write

SYNTHETIC = [name for name, task in CATALOG.items() if not task.questions]
TEXT = "It was a quiet day. Mr. Grey looked at the sea and said nothing. Then the rain came from the west. " * 400


def test_tasks_are_listed_with_their_options(memagent):
    listed = memagent("tasks")
    assert listed.code == 0
    assert all(name in listed.out for name in CATALOG)
    one = memagent("tasks", "multihop", "--json").json
    assert one[0]["name"] == "multihop"
    assert one[0]["options"]["hops"]
    assert "hops" in memagent("tasks", "multihop").out
    for (
        published
    ) in "niah_single_1 niah_single_3 niah_multikey_3 niah_multivalue niah_multiquery vt cwe fwe qa_1 qa_2".split():
        assert published in CATALOG


def test_samples_of_every_task_at_every_length(memagent, tmp_path):
    path = tmp_path / "s.jsonl"
    result = memagent("synth", *SYNTHETIC, "--tokens", 2000, "--tokens", 5000, "--samples", 2, "--seed", 5, "-o", path)
    assert result.code == 0, result.err
    count = open_tokenizer("embedded").count
    seen = {}
    for sample in SampleFile.open(path):
        target = sample.meta["target"]
        assert target * 0.99 <= sample.tokens <= target
        assert sample.tokens == count(str(sample.document))
        assert (sample.meta["split"], sample.seed) == ("eval", 5)
        seen.setdefault((sample.task, target), []).append(sample.question)
    assert len(seen) == 2 * len(SYNTHETIC)
    assert all(len(questions) == 2 for questions in seen.values())
    assert "all valid" in memagent("validate", path).out


def test_the_file_does_not_depend_on_the_number_of_workers(memagent, tmp_path):
    command = ["synth", "niah_single_2", "niah_multikey_3", "multihop", "--tokens", 3000, "--samples", 6, "--shared"]
    for workers in (1, 2, 3):
        folder = tmp_path / str(workers)
        assert memagent(*command, "--workers", workers, "-o", folder / "s.jsonl").code == 0
    files = [{path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in "123"]
    assert files[0] == files[1] == files[2]
    assert len(files[0]) == 2  # the samples, and the book that the first and the last task share


def test_parts_of_a_file_can_be_made_apart(memagent, tmp_path):
    command = ["synth", "grid", "--tokens", 1500, "--seed", 9]
    memagent(*command, "--samples", 4, "-o", tmp_path / "all.jsonl")
    memagent(*command, "--samples", 2, "--first", 2, "-o", tmp_path / "last.jsonl")
    everything = (tmp_path / "all.jsonl").read_text().splitlines()
    assert everything[2:] == (tmp_path / "last.jsonl").read_text().splitlines()


def test_shared_and_inline_documents_read_the_same(memagent, tmp_path):
    command = ["synth", "niah_single_2", "--tokens", 2000, "--samples", 3]
    memagent(*command, "--shared", "-o", tmp_path / "shared.jsonl")
    memagent(*command, "--inline", "-o", tmp_path / "inline.jsonl")
    assert list(SampleFile.open(tmp_path / "shared.jsonl")) == list(SampleFile.open(tmp_path / "inline.jsonl"))


def test_millions_of_tokens_take_little_disk(memagent, tmp_path):
    path = tmp_path / "long.jsonl"
    assert memagent("synth", "niah_single_2", "--tokens", 4_000_000, "--samples", 2, "-o", path).code == 0
    assert sum(one.stat().st_size for one in tmp_path.iterdir() if one.is_file()) < 2_000_000
    for sample in SampleFile.open(path):
        assert 3_960_000 <= sample.tokens <= 4_000_000
        [fact] = sample.facts
        assert fact.value == sample.answers[0]


def test_any_text_words_and_tokenizer(memagent, tmp_path):
    (tmp_path / "hay.txt").write_text(TEXT)
    words = [f"w{letter}{other}q" for letter in "abcdefghij" for other in "klmnopqrstuvwxyz"]
    (tmp_path / "words.txt").write_text("\n".join(words))
    path = tmp_path / "s.jsonl"
    result = memagent(
        "synth", "niah_single_2", "--tokens", 3000, "--samples", 2, "--haystack", tmp_path / "hay.txt",
        "--words", tmp_path / "words.txt", "--tokenizer", "bytes", "-o", path,
    )  # fmt: skip
    assert result.code == 0, result.err
    for sample in SampleFile.open(path):
        assert sample.task == "niah_single_2 haystack=hay.txt words=words.txt"
        assert 2970 <= len(str(sample.document).encode()) <= 3000
        assert "the rain came" in str(sample.document)
        assert all(part in words for part in sample.facts[0].key.split("-"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["niah_singel"], "no task named 'niah_singel'; known: niah_single_1"),
        (["niah_multiquery", "--tokens", 20], "20 tokens"),
        (["niah_single_2", "--tokenizer", "nowhere/tokenizer.json"], "no tokenizer 'nowhere/tokenizer.json'"),
        (["qa_1"], "needs a question file: give one with --questions"),
        (["qa_1", "--questions", "gone.json"], "gone.json"),
        (["niah_single_2", "--haystack", "gone.txt"], "gone.txt"),
        (["niah_single_2", "--words", "gone.txt"], "gone.txt"),
        (["niah_single_2", "--wording", "gone"], "gone"),
        (["niah_single_2", "--set", "keys"], "--set 'keys' does not have the form name=value"),
        (["niah_single_2", "--set", "kees=3"], "no option 'kees'; its options: haystack"),
        (["niah_single_2", "--set", "keys=many"], "option keys"),
        (["multihop", "--set", "hops=9"], "hops"),
        (["niah_single_2", "--split", "test"], "must be 'eval' or 'train'"),
    ],
)
def test_what_people_mistype_leaves_no_file(memagent, tmp_path, arguments, named):
    result = memagent("synth", *arguments, "--samples", 3, "-o", tmp_path / "out" / "s.jsonl")
    assert result.code == 2
    assert named in " ".join(result.err.split())
    assert not list(tmp_path.glob("out/*"))


def test_an_earlier_file_stays_if_a_new_one_fails(memagent, tmp_path):
    path = tmp_path / "s.jsonl"
    memagent("synth", "grid", "--tokens", 1500, "--samples", 2, "-o", path)
    before = path.read_bytes()
    assert memagent("synth", "grid", "--tokens", 15, "--samples", 2, "-o", path).code == 2
    assert path.read_bytes() == before


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_leaves_nothing_behind(tmp_path, workers):
    command = [
        "synth",
        "cwe",
        "--tokens",
        "200000",
        "--samples",
        "500",
        "--workers",
        str(workers),
        "-o",
        str(tmp_path / "s.jsonl"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "memagent", *command], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    end = time.monotonic() + 60
    while not (found := list(tmp_path.glob("*.partial"))) or found[0].stat().st_size == 0:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_sample_says_what_it_was_made_with(memagent, tmp_path):
    memagent("synth", "updates", "--tokens", 1500, "--samples", 1, "--set", "values=3", "-o", tmp_path / "s.jsonl")
    values = json.loads((tmp_path / "s.jsonl").read_text())
    assert values["task"] == "updates values=3"
    assert values["meta"]["values"] == 3
    assert sum(fact["needed"] for fact in values["facts"]) == 1


def test_tasks_with_lengths_of_their_own_take_one_length(memagent, tmp_path):
    contract = "This agreement is made by Alder Ltd and Birch Ltd on 3 May 2011. " * 20
    labels = [{"category": "Agreement Date", "clauses": ["3 May 2011"], "answer": "5/3/11"}]
    (tmp_path / "c.jsonl").write_text(json.dumps({"name": "A", "text": contract, "labels": labels}))
    command = ["synth", "cuad", "--questions", tmp_path / "c.jsonl", "--samples", 1, "-o", tmp_path / "s.jsonl"]
    twice = memagent(*command, "--tokens", 1000, "--tokens", 2000)
    assert twice.code == 2
    assert "pass a single value" in " ".join(twice.err.split())
    assert memagent(*command).code == 0
    [sample] = SampleFile.open(tmp_path / "s.jsonl")
    assert str(sample.document).strip() == contract.strip()


def test_no_file_of_another_kind_is_replaced(memagent, tmp_path):
    letter = tmp_path / "letter.md"
    letter.write_text("Dear reader,\n")
    result = memagent("synth", "grid", "--tokens", 1500, "--samples", 1, "-o", letter)
    assert result.code == 2
    assert "is not a sample file" in " ".join(result.err.split())
    assert letter.read_text() == "Dear reader,\n"


def test_behind_a_link_the_texts_stand_beside_the_file(memagent, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real" / "s.jsonl")
    command = ["synth", "grid", "--tokens", 1500, "--samples", 1, "--shared", "-o", tmp_path / "link.jsonl"]
    assert memagent(*command).code == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert "all valid" in memagent("validate", tmp_path / "real" / "s.jsonl").out


def test_training_words_make_another_task(memagent, tmp_path):
    text = ["--haystack", "generated:letter"]
    memagent("synth", "grid", "--tokens", 1500, "--samples", 1, "--split", "train", *text, "-o", tmp_path / "s.jsonl")
    values = json.loads((tmp_path / "s.jsonl").read_text())
    assert (values["task"], values["meta"]["split"]) == ("grid haystack=generated:letter split=train", "train")


def test_samples_for_training_are_not_made_of_what_evaluation_uses(memagent, tmp_path):
    (tmp_path / "whale.txt").write_text(Haystack.shipped().text, encoding="utf-8")
    dev, mixed = [record | {"split": "dev"} for record in hotpot(2)], hotpot(3)
    mixed[0]["split"] = "test"
    write(tmp_path / "dev.json", dev)
    write(tmp_path / "mixed.json", mixed)

    def synth(*arguments):
        return memagent("synth", *arguments, "--split", "train", "-o", tmp_path / "s.jsonl")

    refused = synth("niah_single_2", "--tokens", 1500, "--samples", 1)
    assert (refused.code, "which comes with the package, is for evaluation" in " ".join(refused.err.split())) == (2, True)
    refused = synth("niah_single_2", "--tokens", 1500, "--samples", 1, "--haystack", tmp_path / "whale.txt")
    assert (refused.code, "in which memagent evaluates" in " ".join(refused.err.split())) == (2, True)
    asked = ["hqa", "--tokens", 600, "--samples", 2, "--questions"]
    refused = synth(*asked, tmp_path / "dev.json")
    assert (refused.code, "all questions are for evaluation" in " ".join(refused.err.split())) == (2, True)
    assert not (tmp_path / "s.jsonl").exists()
    assert synth("vt", "--tokens", 1500, "--samples", 1).code == 0, "its text is noise"
    assert synth(*asked, tmp_path / "mixed.json").code == 0
    made = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert {one["meta"]["question"] for one in made} == {"h1", "h2"}


def test_questions_that_repeat_or_may_not_be_for_training_are_said(memagent, tmp_path):
    marked = [record | {"split": "train"} for record in hotpot(3)]
    write(tmp_path / "plain.json", hotpot(3))
    write(tmp_path / "marked.json", marked)

    def said(name, samples, *more):
        options = ["--tokens", 600, "--samples", samples, "--questions", tmp_path / name, "-o", tmp_path / "s.jsonl"]
        made = memagent("synth", "hqa", *options, *more)
        assert made.code == 0
        return " ".join(made.err.split())

    assert "again" not in said("plain.json", 3)
    assert "4 of 7 samples ask one of 3 questions again, in another text: they are not independent" in said("plain.json", 7)
    assert "no line says which split it is of" not in said("plain.json", 3)
    assert "plain.json: no line says which split it is of" in said("plain.json", 3, "--split", "train")
    assert "no line says which split it is of" not in said("marked.json", 3, "--split", "train")
