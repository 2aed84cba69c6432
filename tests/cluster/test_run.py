"""Runs on Ray: two learners, a stop and a resume, the merged model; processes that are killed; a watchdog."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.runs import CONFIG, REPOSITORY, environment, lines, memagent, metrics, wait_for

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
    ours_by_step = {one["step"]: one["train"] for one in ours if "train" in one}
    verls_by_step = {one["step"]: one["train"] for one in verls if "train" in one}
    assert verls[0]["validation"]["mean"]["score"] == pytest.approx(ours[0]["validation"]["mean"]["score"], abs=1e-6)
    # The same documents and random streams; what is sampled can differ in the rounding of batches, seldom in a reading.
    one_reading = 1 / 16
    for step, expected in ours_by_step.items():
        found = verls_by_step[step]
        assert found["updates"] == expected["updates"]
        assert found["groups"] == pytest.approx(expected["groups"], abs=4)
        assert found["reward"] == pytest.approx(expected["reward"], abs=2 * one_reading)
        if (found["reward"], found["kept"]) == (expected["reward"], expected["kept"]):
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-2, abs=1e-4)
            assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-2)
    assert verls_by_step[1]["reward"] == pytest.approx(ours_by_step[1]["reward"], abs=1e-6)
    assert verls_by_step[1]["loss"] == pytest.approx(ours_by_step[1]["loss"], rel=1e-3, abs=1e-5)


def test_the_merged_model_answers(finished: Path, tmp_path: Path) -> None:
    exported = memagent("train", "export", finished, tmp_path / "model", "--dtype", "float32")
    assert exported.returncode == 0, exported.stderr[-3000:]
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
    assert "there is no checkpoint yet" in said
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
