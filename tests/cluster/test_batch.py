"""`memagent batch --ray`: workers, drivers and nodes that are killed lose no job and give none two records."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from memagent.journal import Journal
from tests.batch.conftest import SERVED, records, reply, timeless, write_jobs
from tests.cluster.runs import REPOSITORY, environment
from tests.faults import Fault, FaultServer

pytestmark = pytest.mark.timeout(600)


def command(jobs: Path, out: Path, url: str, *more: object) -> list[str]:
    words = ["-o", out, "--base-url", url, *SERVED, "--json", *more]
    return [sys.executable, "-m", "memagent", "batch", *map(str, [jobs, *words])]


def variables(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    # Ray's own folder has a short name, for its sockets.
    folders = {"MEMAGENT_HOME": str(home), "TMPDIR": str(home / "tmp"), "RAY_TMPDIR": "/tmp"}
    return environment() | folders | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": paths}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, home: Path) -> tuple[Path, dict[Any, Any], int]:
    """Jobs, one of them without its document, and their records without Ray."""
    folder = tmp_path_factory.mktemp("whole")
    jobs = write_jobs(folder, 24, lines=30)
    (folder / "d7.txt").unlink()
    with FaultServer(reply) as server:
        ended = subprocess.run(
            command(jobs, folder / "out", server.url), env=variables(home), capture_output=True, text=True
        )
        assert ended.returncode == 4, ended.stderr
        return jobs, comparable(folder / "out"), len(server.requests)


def comparable(out: Path) -> dict[Any, Any]:
    """The records, each job once, without what names the server."""
    return {key: {**record, "identity": ""} for key, record in timeless(out).items()}


@pytest.fixture
def started(home: Path) -> Iterator[Any]:
    """Starts commands, and ends those that are left with all that they started."""
    begun: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        log = (home / "log").open("a+")
        begun.append(subprocess.Popen(words, env=variables(home), stdout=subprocess.PIPE, stderr=log, text=True))
        return begun[-1]

    yield start
    for process in begun:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the command has ended"
        assert time.monotonic() < end
        time.sleep(0.02)


def workers_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that read, of a local cluster."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if "ray::" in " ".join(child.cmdline()) and "Worker" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


def kill_a_reader(process: subprocess.Popen[str], home: Path, rng: random.Random) -> None:
    """Kills a worker with a reading under way that has turns in the journal. It is stopped while that is looked up, so
    that the reading cannot end in between."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found := workers_below(process):
            victim = rng.choice(found)
            victim.suspend()
            if any(victim.pid in reading_processes(path) for path in home.glob("tmp/memagent-*/*.sqlite3")):
                victim.kill()
                return
            victim.resume()
        time.sleep(0.02)
    raise AssertionError("no worker had a reading under way")


def reading_processes(path: Path) -> set[int]:
    """The processes that have readings under way in a journal, with turns in it."""
    with Journal.open(path) as journal:
        found = [record for record in journal.list(limit=None, status="running") if record.turns]
    return {int(record.owner.split()[1]) for record in found}


def test_the_records_are_those_without_ray(whole: Any, tmp_path: Path, home: Path) -> None:
    jobs, expected, _ = whole
    with FaultServer(reply) as server:
        words = command(jobs, tmp_path / "out", server.url, "--ray", "local", "--workers", 2)
        ended = subprocess.run(words, env=variables(home), capture_output=True, text=True)
    assert ended.returncode == 4, ended.stderr
    assert json.loads(ended.stdout)["failures"] == {"document": 1}
    assert comparable(tmp_path / "out") == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_that_are_killed_are_replaced_and_their_jobs_go_on(
    whole: Any, tmp_path: Path, home: Path, started: Any, seed: int
) -> None:
    jobs, expected, calls = whole
    rng = random.Random(seed)
    with FaultServer(reply, delay=0.05) as server:
        process = started(*command(jobs, tmp_path / "out", server.url, "--ray", "local", "--workers", 2))
        for _ in range(2):
            after = len(server.requests) + rng.randrange(5, calls // 4)
            wait_for(lambda after=after: len(server.requests) >= after, process)
            kill_a_reader(process, home, rng)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 4
        assert len(server.requests) < calls * 1.5
    assert json.loads(out)["failures"] == {"document": 1}
    assert comparable(tmp_path / "out") == expected
    assert any(record["turns_resumed"] for record in records(tmp_path / "out"))


def test_a_driver_that_is_killed_goes_on_and_repeats_no_finished_job(whole: Any, tmp_path: Path, started: Any) -> None:
    jobs, expected, calls = whole
    with FaultServer(reply, delay=0.05) as server:
        words = command(jobs, tmp_path / "out", server.url, "--ray", "local", "--workers", 2)
        process = started(*words)
        wait_for(lambda: len(server.requests) > calls // 2, process)
        process.kill()
        process.wait()
        assert (tmp_path / "out" / "results.jsonl").read_bytes().count(b"\n")  # its last line may be half written
        again = started(*words)
        again.communicate(timeout=300)
        assert again.returncode == 4
        assert len(server.requests) < calls * 1.5
    assert comparable(tmp_path / "out") == expected


def test_a_driver_that_is_killed_goes_on_at_another_server(whole: Any, tmp_path: Path, started: Any) -> None:
    jobs, expected, calls = whole
    half, at_once = calls // 2, 8
    with FaultServer(reply, faults=lambda number: Fault("stall") if number >= half else None) as server:
        process = started(*command(jobs, tmp_path / "out", server.url, "--ray", "local", "--workers", 2))
        wait_for(lambda: len(server.requests) == half + at_once, process)  # all workers wait, each reading at some turn
        process.kill()
        process.wait()
        before = [record["identity"] for record in records(tmp_path / "out")]
    first = f"openai:scripted@{server.url}"
    assert first in before
    with FaultServer(reply) as elsewhere:
        again = started(*command(jobs, tmp_path / "out", elsewhere.url, "--ray", "local", "--workers", 2))
        out, _ = again.communicate(timeout=300)
        assert again.returncode == 4
        assert calls - half <= len(elsewhere.requests) <= calls - half + at_once
    second, found = f"openai:scripted@{elsewhere.url}", records(tmp_path / "out")
    made_by = [record["identity"] for record in found if record["identity"]]  # but the one that has no document
    assert [record["identity"] for record in found][: len(before)] == before
    assert set(made_by) == {first, second}
    assert json.loads(out)["models"] == {first: made_by.count(first), second: made_by.count(second)}
    assert any(record["turns_resumed"] for record in found if record["identity"] == second)
    assert comparable(tmp_path / "out") == expected


def test_an_interrupt_says_how_to_go_on(whole: Any, tmp_path: Path, home: Path) -> None:
    jobs, _, _ = whole
    with FaultServer(reply, delay=0.05) as server:
        words = command(jobs, tmp_path / "out", server.url, "--ray", "local", "--workers", 2)
        process = subprocess.Popen(words, env=variables(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(server.requests) > 10, process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "repeat the same command" in err
    assert "Traceback" not in err


def test_what_ends_the_command_is_said_in_a_line(whole: Any, tmp_path: Path, home: Path) -> None:
    jobs, _, _ = whole
    with FaultServer(reply) as server:
        words = command(jobs, tmp_path / "out", server.url, "--ray", "127.0.0.1:1")
        ended = subprocess.run(words, env=variables(home), capture_output=True, text=True)
    assert ended.returncode == 4
    assert "no Ray cluster can be reached at '127.0.0.1:1'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_the_embedded_model_reads_in_workers(tmp_path: Path, home: Path) -> None:
    text = (
        "It was a cold morning. The access code for amber-falcon is 4821973. They sailed on. " + "The sea was grey. " * 200
    )
    rows = [
        {"id": str(n), "text": text, "question": "What is the access code for amber-falcon?", "meta": n} for n in range(4)
    ]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["batch", tmp_path / "jobs.jsonl", "-o", tmp_path / "out", "--ray", "local", "--workers", 1]
    command = [sys.executable, "-m", "memagent", *map(str, words)]
    ended = subprocess.run(command, env=variables(home), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert {record["answer"] for record in records(tmp_path / "out")} == {"4821973"}
