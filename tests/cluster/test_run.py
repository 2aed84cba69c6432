"""Runs on Ray: two learners, a stop and a resume, the merged model; processes that are killed; a watchdog."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from memagent.cluster.merge import whole_weights
from memagent.models.open import EMBEDDED
from memagent.training.checkpoints import verl_shards
from tests.cluster.runs import (
    CONFIG,
    REPOSITORY,
    environment,
    lines,
    memagent,
    metrics,
    same_batch,
    same_batches,
    trained,
    wait_for,
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cluster") / "rl.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished(config_file: Path) -> Path:
    """A run that was stopped after two batches, and gone on with."""
    run = config_file.parent / "run"
    first = memagent("train", "rl", config_file, "-o", run, "--engine", "verl", "--stop-after", 2, "-q")
    assert first.returncode == 0, first.stderr[-3000:]
    second = memagent("train", "rl", "-o", run, "--engine", "verl", "--resume", "-q")
    assert second.returncode == 0, second.stderr[-3000:]
    return run


def test_two_learners_train_what_one_process_does(finished: Path, config_file: Path) -> None:
    small = config_file.parent / "small"
    assert memagent("train", "rl", config_file, "-o", small, "-q").returncode == 0
    ours, verls = metrics(small), metrics(finished)
    assert [(one["step"], *(one.keys() - {"step"})) for one in verls] == [
        (0, "validation"), (1, "train"), (2, "train"), (2, "validation"), (3, "train"), (3, "validation"),
    ]  # fmt: skip
    assert verls[0]["validation"]["mean"]["score"] == pytest.approx(ours[0]["validation"]["mean"]["score"], abs=1e-6)
    same_batches(trained(verls), trained(ours))


def test_other_choices_train_what_one_process_does_too(config_file: Path) -> None:
    changes = (
        'algorithm.old_logprobs="recomputed"', 'algorithm.aggregate="sequence"', "algorithm.kl=0", "update.warmup=2",
        "update.updates=3", "validation.task=[]", "steps=1", "cluster.devices=3",
    )  # fmt: skip
    words = ["-q", *(word for change in changes for word in ("--set", change))]
    logged = []
    for engine in ("local", "verl"):
        run = config_file.parent / f"other-{engine}"
        result = memagent("train", "rl", config_file, "-o", run, "--engine", engine, *words)
        assert result.returncode == 0, result.stderr[-3000:]
        logged.append(trained(metrics(run)))
    [ours], [verls] = logged
    assert ours["lr"] == pytest.approx(1e-4 / 3)
    same_batch(verls, ours)


def test_the_merged_model_is_what_was_trained(finished: Path, tmp_path: Path) -> None:
    exported = memagent("train", "export", finished, tmp_path / "model", "--dtype", "float32")
    assert exported.returncode == 0, exported.stderr[-3000:]
    start, merged = load_file(EMBEDDED / "model.safetensors"), load_file(tmp_path / "model" / "model.safetensors")
    shards = dict(whole_weights(verl_shards(finished, 3)))
    assert merged.keys() == start.keys() <= shards.keys()
    assert all(torch.equal(merged[name], shards[name]) for name in merged)
    moved = max(float((merged[name] - start[name].float()).abs().max()) for name in merged)
    assert 0 < moved < 0.01
    document = tmp_path / "note.txt"
    document.write_text(
        "He came home late. One of the special magic numbers for tall-harbor is: 4096311. She had gone.\n" * 3
    )
    question = "What is the special magic number for tall-harbor?"
    asked = memagent("ask", document, "-q", question, "--model", tmp_path / "model", "--no-journal")
    assert asked.returncode == 0, asked.stderr
    assert "4096311" in asked.stdout
    again = memagent("train", "export", finished, tmp_path / "model")
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_a_checkpoint_that_is_not_whole_is_refused(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (verl_shards(run, 3) / "model_world_size_2_rank_1.pt").unlink()
    result = memagent("train", "export", run, tmp_path / "model")
    assert result.returncode == 2
    assert "1 files of 2 ranks" in " ".join(result.stderr.split())
    note = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    for said in ("", "99"):  # a disk that was full, a folder that was tidied away
        note.write_text(said)
        for words in (("export", run, tmp_path / "model"), ("rl", "-o", run, "--engine", "verl", "--resume")):
            result = memagent("train", *words)
            assert result.returncode == 2
            assert f"says '{said}', and there is no such checkpoint" in " ".join(result.stderr.split())


def test_a_run_is_gone_on_with_as_it_began(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    logged = (run / "metrics.jsonl").read_text()
    result = memagent("train", "rl", "-o", run, "--resume")
    assert result.returncode == 2
    assert "begun with --engine verl" in " ".join(result.stderr.split())
    fewer = memagent("train", "rl", "-o", run, "--resume", "--engine", "verl", "--set", "cluster.devices=1")
    assert fewer.returncode == 2
    assert "that of 2 learners, the configuration has 1" in " ".join(fewer.stderr.split())
    assert (run / "metrics.jsonl").read_text() == logged


def test_batches_without_a_signal_are_counted_and_passed_over(config_file: Path) -> None:
    run = config_file.parent / "silent"
    changes = ("steps=2", "rollout.temperature=0.001", "rollout.resample=0", "validation.task=[]", "cluster.devices=1")
    words = [word for change in changes for word in ("--set", change)]
    result = memagent("train", "rl", config_file, "-o", run, "--engine", "verl", "-q", *words)
    assert result.returncode == 0, result.stderr[-3000:]
    for step, one in enumerate(metrics(run), 1):
        assert one["step"] == step
        assert (one["train"]["groups"], one["train"]["no_signal"]) == (4, 4)
        assert (one["train"]["kept"], one["train"]["updates"]) == (0, 0)


def test_a_killed_process_stops_the_run_and_the_run_goes_on(config_file: Path) -> None:
    run = config_file.parent / "killed"
    changes = ["--set", "steps=40", "--set", "algorithm.kl=0", "--set", "validation.task=[]"]
    begin = ["train", "rl", str(config_file), "-o", str(run), "--engine", "verl", "-q", *changes]
    resume = ["train", "rl", "-o", str(run), "--engine", "verl", "-q", "--resume"]
    done = 0
    for command, victim in ((begin, "WorkerDict"), (resume, "AgentLoopWorker"), (resume, "Server")):
        process = subprocess.Popen(
            [sys.executable, "-m", "memagent", *command],
            cwd=REPOSITORY,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: run.is_dir() and len(lines(run)) > done, process)  # noqa: B023
            _kill(process.pid, victim)
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
        assert process.returncode == 2, err[-3000:]
        assert "Traceback" not in err
        assert "--resume --engine verl" in " ".join(err.split())
        assert len(err) < 1000
        done = len(lines(run))
    steps = [one["step"] for one in metrics(run)]
    assert steps == list(range(1, done + 1))


def test_nothing_hangs_for_longer_than_the_watchdog(config_file: Path) -> None:
    run = config_file.parent / "watched"
    result = memagent("train", "rl", config_file, "-o", run, "--engine", "verl", "-q", "--set", "cluster.watchdog=3")
    assert result.returncode == 2
    assert "the limit (cluster.watchdog) is 3 s" in " ".join(result.stderr.split())


def test_a_full_disk_at_a_checkpoint_stops_the_run(config_file: Path) -> None:
    run = config_file.parent / "full"
    disk = run / "checkpoints"
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    try:
        changes = ("--set", "algorithm.kl=0", "--set", "validation.task=[]", "--set", "cluster.devices=1")
        result = memagent("train", "rl", config_file, "-o", run, "--engine", "verl", "-q", *changes)
    finally:
        subprocess.run(["umount", disk], check=True)
    assert result.returncode == 2
    said = " ".join(result.stderr.split())
    assert "Traceback" not in said
    assert "to go on from the start" in said
    assert [one["step"] for one in metrics(run)] == [1]


def test_a_cluster_that_is_not_there_is_one_line(config_file: Path, tmp_path: Path) -> None:
    changes = ("--set", 'cluster.address="127.0.0.1:1"')
    result = memagent("train", "rl", config_file, "-o", tmp_path / "run", "--engine", "verl", "-q", *changes)
    assert result.returncode == 2
    assert "no Ray cluster can be reached at '127.0.0.1:1'" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def _kill(driver: int, name: str) -> None:
    """Kills a process of the run's Ray, as a machine that runs out of memory would."""
    found: Iterator[psutil.Process] = iter(psutil.Process(driver).children(recursive=True))
    victims = [one for one in found if one.cmdline()[:1] and one.cmdline()[0].startswith(f"ray::{name}")]
    assert victims
    victims[0].send_signal(signal.SIGKILL)
