"""`memagent train`: what is said before anything is trained, and what a run's folder keeps."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from memagent.cli import train as cli
from memagent.files import locked
from tests.cli.terminal import handled, wait_for

CONFIG = """
# Two batches.
start = "embedded"
steps = 2
threads = 1
books = ["{book}"]

[rollout]
prompts = 1
group = 2

[log]
tensorboard = false

[[task]]
name = "one"
task = "niah_single_2"
tokens = [300, 400]
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text("He came home late that evening. Nobody said a word about it.\n\n" * 60)
    path = tmp_path / "two.toml"
    path.write_text(CONFIG.format(book=tmp_path / "book.txt"), encoding="utf-8")
    return path


def test_fields_of_configurations_are_listed(memagent: Callable[..., Any]) -> None:
    listed = memagent("train", "fields", "rl")
    assert listed.code == 0
    assert "rollout.group: whole number, at least 2, default 8\n    Readings of each document" in listed.out
    assert "\n[[task]]  Documents to train on" in listed.out
    assert "task.N.name: text, 1 to 64 letters" in listed.out
    assert memagent("train", "fields", "all").code == 2


def test_a_reader_can_be_trained(memagent: Callable[..., Any], config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused = memagent("train", "rl", config_file, "-o", run, "--reader", "speed")
    assert (refused.code, run.exists()) == (2, False)
    assert "use one of memory, gated, parallel" in refused.err
    trained = memagent("train", "rl", config_file, "-o", run, "--reader", "parallel", "--set", "steps=1", "-q")
    assert trained.code == 0
    assert f"checkpoints: {run / 'last'} ·" in trained.err.replace("\n", ""), "nothing was validated: there is no best one"
    kept = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    assert kept["rollout"] == {"prompts": 1, "group": 2, "reader": "parallel"}


def test_a_run_keeps_its_configuration_and_goes_on_with_it(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    changes = ["--set", "update.rate=3e-5", "--set", "steps=1"]
    assert memagent("train", "rl", config_file, "-o", run, *changes, "-q").code == 0
    kept = run / "config.toml"
    assert "# Two batches." in kept.read_text(encoding="utf-8")
    assert tomllib.loads(kept.read_text(encoding="utf-8"))["update"]["rate"] == 3e-5
    before = kept.read_bytes()
    assert memagent("train", "rl", "-o", run, "--resume", "--set", "start=/nowhere").code == 2
    assert kept.read_bytes() == before  # a run that cannot begin changes nothing
    assert memagent("train", "rl", "-o", run, "--resume", "--set", "steps=2", "-q").code == 0
    after = tomllib.loads(kept.read_text(encoding="utf-8"))
    assert (after["steps"], after["update"]["rate"]) == (2, 3e-5)
    assert (run / "metrics.jsonl").read_text(encoding="utf-8").count('"lr": 3e-05') == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rl", "-o", "{run}"], "a run needs a configuration: give CONFIG"),
        (["rl", "-o", "{run}", "--resume"], "there is no run in"),
        (["sft", "nothing", "-o", "{run}"], "no configuration 'nothing'"),
        (["sft", "embedded:chains", "-o", "{run}"], "say where its weights are, with --set start=FOLDER"),
        (["sft", "embedded-cpu-sft", "-o", "{run}"], "is now the stage 'all-tasks' of the recipe `embedded`"),
        (["rl", "{config}", "-o", "{config}"], "is a file: give a folder"),
        (["rl", "{config}", "-o", "{config}/run"], "cannot be written"),
        (["rl", "{config}", "-o", "{run}", "--set", "steps=none"], "steps: Input should be a valid integer"),
        (["rl", "{config}", "-o", "{run}", "--set", "start=/nowhere"], "/nowhere"),
        (["sft", "{config}", "-o", "{run}"], "two.toml configures `memagent train rl`: use that command"),
        (["sft", "paper-7b", "-o", "{run}"], "paper-7b.toml configures `memagent train rl`: use that command"),
    ],
)
def test_bad_input_is_one_line_and_begins_no_run(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    run = tmp_path / "run"
    result = memagent("train", *(each.format(run=run, config=config_file) for each in arguments))
    assert result.code == 2
    assert said in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not run.exists()


@pytest.mark.parametrize("change", ["rollout.chunk_tokens=100000", "task.0.options={foo=1}", "task.0.weight=0"])
def test_what_is_wrong_with_the_documents_of_a_run_begins_none(
    memagent: Callable[..., Any], tmp_path: Path, change: str
) -> None:
    (tmp_path / "book.txt").write_text("It rained. The sea was grey. " * 400)
    config = tmp_path / "rl.toml"
    task = '[[task]]\nname = "one"\ntask = "niah_single_2"\ntokens = [256, 300]\n'
    config.write_text(f'start = "embedded"\nsteps = 1\nbooks = ["{tmp_path}/book.txt"]\n{task}')
    refused = memagent("train", "rl", config, "-o", tmp_path / "run", "--set", change)
    assert refused.code == 2
    assert not (tmp_path / "run").exists()


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_without_verl_its_extra_is_named(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "verl" else find_spec(name))
    for more in ([], ["--dry-run"]):
        result = memagent("train", "rl", config_file, "-o", tmp_path / "run", "--engine", "verl", *more)
        assert result.code == 4
        assert "memagent[cluster]" in " ".join(result.err.split())
        assert not (tmp_path / "run").exists()


def test_a_dry_run_says_what_a_run_takes_and_begins_none(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shown = memagent("train", "rl", config_file, "-o", run, "--dry-run")
    assert (shown.code, run.exists()) == (0, False)
    assert "4,112,192 parameters" in shown.out
    assert re.search(r"1 documents × 2 readings, \d\.\d turns each: \d conversations", shown.out)
    assert re.search(r"memory     about [\d.,]+ [MG]B \(an update and sampling at different times\)", shown.out)
    assert re.search(r"[\d.]+ min of products at [\d.]+ [TG]FLOP/s, as large products reach here, on cpu", shown.out)
    several = memagent("train", "rl", config_file, "-o", run, "--dry-run", "--set", "processes=3", "--tflops", "1")
    assert re.search(r"memory     about [\d.,]+ [MG]B in each of 3 processes, at most \(an update", several.out)
    planned = memagent("train", "rl", config_file, "-o", run, "--dry-run", "--tflops", "400")
    assert "0.0 min of products at 400.00 TFLOP/s, as given" in planned.out
    supervised = memagent("train", "sft", "embedded:copying", "-o", run, "--dry-run", "--tflops", "0.1")
    assert (supervised.code, run.exists()) == (0, False)
    assert re.search(r"a run      [\d,]+ steps, [\d,]+ tokens", supervised.out)
    refused = memagent("train", "rl", config_file, "-o", run, "--tflops", "400")
    assert (refused.code, run.exists()) == (2, False)
    assert "--tflops is for a forecast: it goes with --dry-run" in refused.err


def test_a_run_is_gone_on_with_by_the_engine_that_began_it(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert memagent("train", "rl", config_file, "-o", run, "--set", "steps=1", "-q").code == 0
    before = contents(run)
    result = memagent("train", "rl", "-o", run, "--resume", "--engine", "verl")
    assert result.code == 2
    assert "was begun with --engine local: resume it with the same engine" in " ".join(result.err.split())
    assert contents(run) == before


def test_two_processes_do_not_train_in_one_folder(memagent: Callable[..., Any], config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert memagent("train", "rl", config_file, "-o", run, "--set", "steps=1", "-q").code == 0
    before = contents(run)
    with locked(run):
        result = memagent("train", "rl", "-o", run, "--resume", "--set", "steps=2")
    assert result.code == 2
    assert "another process is at the run" in " ".join(result.err.split())
    assert contents(run) == before


def test_a_run_is_not_begun_again_by_mistake(memagent: Callable[..., Any], config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1, "train": {}}\n', encoding="utf-8")
    result = memagent("train", "rl", config_file, "-o", run)
    assert result.code != 0
    assert "--resume" in result.err


def test_what_a_run_left_that_could_not_begin_is_in_nobodys_way(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").touch()
    assert memagent("train", "rl", config_file, "-o", run, "--set", "steps=1", "-q").code == 0


def test_a_configuration_may_lie_in_the_folder_of_its_run(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config_file = config_file.rename(run / "config.toml")
    assert memagent("train", "rl", config_file, "-o", run, "--set", "steps=1", "-q").code == 0
    assert memagent("train", "rl", config_file, "-o", run).code != 0


def test_a_checkpoint_of_another_version_is_one_line(
    memagent: Callable[..., Any], config_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert memagent("train", "rl", config_file, "-o", run, "--set", "steps=1", "-q").code == 0
    state = torch.load(run / "last" / "trainer.pt", weights_only=True)
    torch.save({**state, "average": None}, run / "last" / "trainer.pt")
    result = memagent("train", "rl", "-o", run, "--resume")
    assert result.code == 2
    assert "another version wrote it" in " ".join(result.err.split())
    assert "Traceback" not in result.err


def test_an_interrupted_run_says_how_to_go_on_if_it_began(config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "memagent", "train", "rl", str(config_file), "-o", str(run), "--set", "steps=99"]

    def interrupted(ready: Callable[[int], bool]) -> str:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: ready(process.pid))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        return said

    assert "can go on" not in interrupted(handled)
    assert f"the run can go on: memagent train rl -o {run} --resume" in interrupted(
        lambda _: (run / "config.toml").exists()
    )
