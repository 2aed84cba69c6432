"""How many jobs a second `memagent batch` does beside a model that costs nothing, and that kills change no result.

    python -m benchmarks.batch TABLE.csv [--jobs 2000] [--words 300] [--delay 0.05] [--workers 1 2 4] [--kills 5] [--ray]

A stub server in a process of its own answers after `--delay` seconds. Each row is one run of the command over the same
jobs, documents in files, with so many read at a time, or with so many workers on a local Ray cluster; its floor is the time
that the calls alone take. The last run of each way is killed (SIGKILL) `--kills` times at random moments and the command
repeated; its records and its merged table must be those of the run before, times apart, and every call beyond those of an
undisturbed run one that a kill interrupted.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults import FaultServer

WORDS = "the sea was grey and the ship went on under a low sky while old men told stories of whales".split()
_TIMES = ("seconds", "turns_resumed")  # differ from run to run


def reply(messages: list[dict[str, str]]) -> str:
    """The code that a prompt has."""
    found = re.search(r"code is \d+", messages[-1]["content"])
    return found[0] if found else "nothing yet"


def serve(delay: float) -> None:
    """The stub, until standard input is closed."""
    with FaultServer(reply, delay=delay) as server:
        server.routes["/v1/calls"] = lambda _: len(server.requests)
        print(server.url, flush=True)
        sys.stdin.read()


@contextmanager
def stub(delay: float) -> Iterator[str]:
    """The address of a stub in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.batch", "none", "--serve", "--delay", str(delay)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


def calls(url: str) -> int:
    """How often a stub was asked."""
    with urllib.request.urlopen(f"{url}/calls") as answer:
        return int(json.load(answer))


def write_jobs(folder: Path, jobs: int, words: int) -> Path:
    """Documents of so many words, each with its code in the middle."""
    rng = random.Random(7)
    path = folder / "jobs.jsonl"
    with path.open("w") as file:
        for number in range(jobs):
            text = [rng.choice(WORDS) for _ in range(words)]
            text[words // 2] = f"code is {10000 + number}"
            (folder / f"{number}.txt").write_text(" ".join(text))
            file.write(json.dumps({"id": str(number), "document": f"{number}.txt", "question": "Which code?"}) + "\n")
    return path


def command(jobs: Path, out: Path, url: str, workers: int, ray: bool) -> list[str]:
    words = ["-m", "scripted", "--base-url", url, "--chunk-tokens", "200", "--memory-tokens", "40", "--no-verify", "--json"]
    words += ["--ray", "local", "--workers", str(workers)] if ray else []
    return [sys.executable, "-m", "memagent", "batch", str(jobs), "-o", str(out), "--at-once", str(workers), *words]


def records(out: Path) -> dict[str, tuple[Any, ...]]:
    """What must be equal, by job: its record and its row of the table. Raises ValueError for a job with two of them."""
    found: dict[str, tuple[Any, ...]] = {}
    with (out / "results.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    lines = (out / "results.jsonl").read_text().splitlines()
    order = {row["id"]: row for row in rows}
    if not len(order) == len(rows) == len(lines):
        raise ValueError(f"{len(lines)} records, and {len(rows)} rows of {len(order)} jobs")
    for line in lines:
        record = json.loads(line)
        row = {name: value for name, value in order[record["id"]].items() if name not in _TIMES}
        found[record["id"]] = record["answer"], record["memory"], record["turns"], row
    return found


def killed(words: Sequence[str], kills: int, whole: float) -> int:
    """Runs the command, killed at random, to its end. Returns how often it was killed."""
    rng, done = random.Random(3), 0
    while True:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(2, max(4, 2 * whole / (kills + 1))) if done < kills else None)
            return done
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1


def measured(home: Path, jobs: Path, url: str, given: argparse.Namespace, ray: bool) -> Iterator[dict[str, Any]]:
    """A row for each number of workers, then one for the run that is killed."""
    way, found, took, asked = "ray" if ray else "local", {}, 0.0, 0
    for workers in given.workers:
        out, before, began = home / f"{way}-{workers}", calls(url), time.perf_counter()
        subprocess.run(command(jobs, out, url, workers, ray), stdout=subprocess.DEVNULL, check=True)
        took, found, asked = time.perf_counter() - began, records(out), calls(url) - before
        floor = given.delay * asked / workers
        yield row(way, workers, took, given.jobs / took, floor, asked)
    out, before, began = home / f"{way}-killed", calls(url), time.perf_counter()
    done = killed(command(jobs, out, url, given.workers[-1], ray), given.kills, took)
    took, more = time.perf_counter() - began, calls(url) - before - asked
    equal = "yes" if records(out) == found else "NO"
    yield row(way, given.workers[-1], took, given.jobs / took, floor, asked) | {"kills": done, "equal": equal, "more": more}


def row(way: str, workers: int, seconds: float, rate: float, floor: float, asked: int) -> dict[str, Any]:
    values = {"way": way, "workers": workers, "seconds": f"{seconds:.1f}", "jobs_per_second": f"{rate:.2f}"}
    return values | {"floor": f"{floor:.1f}", "calls": asked, "kills": 0, "equal": "", "more": 0}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.batch")
    parser.add_argument("table", type=Path)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--ray", action="store_true", help="measure with a local Ray cluster as well")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.delay)
        return
    with tempfile.TemporaryDirectory() as folder, stub(given.delay) as url, given.table.open("w", newline="") as file:
        home = Path(folder)
        # Ray's own folder has a short name, for its sockets; the journals of its workers lie in TMPDIR.
        os.environ |= {"MEMAGENT_HOME": folder, "TMPDIR": folder, "RAY_TMPDIR": "/tmp", "RAY_AUTH_MODE": "disabled"}
        writer = csv.DictWriter(file, row("", 0, 0, 0, 0, 0), lineterminator="\n")
        writer.writeheader()
        jobs = write_jobs(home, given.jobs, given.words)
        for ray in (False, True) if given.ray else (False,):
            for made in measured(home, jobs, url, given, ray):
                writer.writerow(made)
                file.flush()
                print(made, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
