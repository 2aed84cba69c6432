"""Real processes, really killed: the same command goes on, to the records of a run that nobody killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.batch.conftest import SERVED, records, reply, timeless, write_jobs
from tests.faults import FaultServer

# Runs the command and prints how much memory it had at most.
MEASURED = """
import sys
from memagent.cli import app
try:
    app()
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""


def command(jobs, out, server, *more):
    words = ["-o", out, "--base-url", server.url, *SERVED, "--at-once", 4, "--json", *more]
    return [sys.executable, "-m", "memagent", "batch", *map(str, [jobs, *words])]


def wait_for(condition, process):
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Twenty-five jobs, and the records of a run of them that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    jobs = write_jobs(folder, 25, lines=20)
    (folder / "d7.txt").unlink()
    with FaultServer(reply) as server:
        ended = subprocess.run(command(jobs, folder / "out", server), capture_output=True, text=True)
        assert ended.returncode == 4, ended.stderr
        return jobs, timeless(folder / "out"), len(server.requests)


def comparable(found):
    """Without what names the server."""
    return {key: {**record, "identity": ""} for key, record in found.items()}


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_it_goes_on_and_does_nothing_twice(whole, tmp_path, seed):
    jobs, expected, calls = whole
    rng, out, kills = random.Random(seed), tmp_path / "out", 0
    with FaultServer(reply, delay=0.005) as server:
        while kills < 4:
            process = subprocess.Popen(command(jobs, out, server), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            after = len(server.requests) + rng.randrange(1, calls // 5)
            try:
                wait_for(lambda after=after: len(server.requests) >= after, process)
                time.sleep(rng.uniform(0, 0.03))
            finally:
                process.kill()
                process.communicate()
            kills += 1
        ended = subprocess.run(command(jobs, out, server), capture_output=True, text=True)
        assert ended.returncode == 4, ended.stderr
        time.sleep(0.2)
        assert calls <= len(server.requests) <= calls + kills * 4  # those that were being answered at a kill
    assert comparable(timeless(out)) == comparable(expected)
    assert json.loads(ended.stdout)["failures"] == {"document": 1}
    assert any(record["turns_resumed"] for record in records(out))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on(whole, tmp_path, number):
    jobs, expected, _ = whole
    with FaultServer(reply, delay=0.02) as server:
        process = subprocess.Popen(
            command(jobs, tmp_path / "out", server), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_for(lambda: len(server.requests) > 20, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "repeat the same command" in err
        assert "Traceback" not in err
        ended = subprocess.run(command(jobs, tmp_path / "out", server), capture_output=True, text=True)
        assert ended.returncode == 4, ended.stderr
    assert comparable(timeless(tmp_path / "out")) == comparable(expected)


def test_two_processes_cannot_do_the_same_batch(whole, tmp_path):
    jobs, _, _ = whole
    tried = threading.Event()

    def held(messages):
        if len(server.requests) > 3:
            tried.wait(60)
        return reply(messages)

    with FaultServer(held) as server:
        first = subprocess.Popen(
            command(jobs, tmp_path / "out", server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: len(server.requests) > 3, first)
            second = subprocess.run(command(jobs, tmp_path / "out", server), capture_output=True, text=True)
        finally:
            first.kill()
            first.wait()
            tried.set()
    assert second.returncode == 2
    assert "another process" in second.stderr


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_jobs_or_their_texts(tmp_path):
    """2,000 jobs, 40 MB of texts in their file: as much memory as 20 of them, and an index."""

    def most(count):
        folder = tmp_path / str(count)
        folder.mkdir()
        rows = ({"id": f"j{n}", "text": f"The code is {n}. " + "sea " * 5000, "question": "What?"} for n in range(count))
        with (folder / "jobs.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        words = command(folder / "jobs.jsonl", folder / "out", server, "--reader", "truncate")[3:]
        ended = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert len(timeless(folder / "out")) == count
        return int(ended.stderr.split()[-2]) / 1024  # MiB

    with FaultServer(lambda _: "4") as server:
        few, many = most(20), most(2000)
    print(f"{few:.0f} MiB for 20 jobs, {many:.0f} MiB for 2,000", file=sys.stderr)
    assert many < few + 15
