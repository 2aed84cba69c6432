"""How many jobs a minute `memagent batch` does beside a model that costs nothing, and that kills change no result.

    python -m benchmarks.batch [--jobs 2000] [--tokens 400] [--delay 0.005] [--at-once 1 2 4] [--kills 5]

A stub server in a process of its own answers after `--delay` seconds. Each row is one run of the command over the same
jobs, documents in files; its floor is the time that the calls alone take, one after the other in each reading. The last run
is killed `--kills` times at random and continued; its records are compared with those of the run before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults import FaultServer

WORDS = "the sea was grey and the ship went on under a low sky while old men told stories of whales".split()


def reply(messages: list[dict[str, str]]) -> str:
    """The code that a prompt has."""
    found = re.search(r"code is \d+", messages[-1]["content"])
    return found[0] if found else "nothing yet"


def serve(delay: float) -> None:
    """The stub, until standard input is closed."""
    with FaultServer(reply, delay=delay) as server:
        print(server.url, flush=True)
        sys.stdin.read()


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


def command(jobs: Path, out: Path, url: str, at_once: int) -> list[str]:
    words = ["-m", "scripted", "--base-url", url, "--chunk-tokens", "200", "--memory-tokens", "40", "--no-verify", "--json"]
    return [sys.executable, "-m", "memagent", "batch", str(jobs), "-o", str(out), "--at-once", str(at_once), *words]


def records(out: Path) -> dict[str, tuple[str, str, int]]:
    """What must be equal, by job. Raises ValueError for a job with two records."""
    found: dict[str, tuple[str, str, int]] = {}
    for line in (out / "results.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["id"] in found:
            raise ValueError(f"two records of job {record['id']}")
        found[record["id"]] = record["answer"], record["memory"], record["turns"]
    return found


def killed(words: Sequence[str], kills: int, whole: float) -> int:
    """Runs the command, killed at random, to its end. Returns how often it was killed."""
    rng, done = random.Random(3), 0
    while True:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(2, max(4, whole / 2)) if done < kills else None)
            return done
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.batch")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--delay", type=float, default=0.005)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.delay)
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["MEMAGENT_HOME"] = home
        jobs = write_jobs(Path(home), given.jobs, given.tokens)
        stub = [sys.executable, "-m", "benchmarks.batch", "--serve", "--delay", str(given.delay)]
        with subprocess.Popen(stub, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            url, found, took = server.stdout.readline().strip(), {}, 0.0
            print("| at once | seconds | jobs/s | floor, s | turns |\n|---|---|---|---|---|")
            for at_once in given.at_once:
                out, began = Path(home) / f"out-{at_once}", time.perf_counter()
                subprocess.run(command(jobs, out, url, at_once), stdout=subprocess.DEVNULL, check=True)
                took, found = time.perf_counter() - began, records(out)
                turns = sum(turns for _, _, turns in found.values())
                floor = given.delay * turns / at_once
                print(f"| {at_once} | {took:.1f} | {given.jobs / took:.1f} | {floor:.1f} | {turns} |", flush=True)
            done = killed(command(jobs, Path(home) / "killed", url, given.at_once[-1]), given.kills, took)
            same: Any = records(Path(home) / "killed") == found
            print(f"killed {done} times: {'equal' if same else 'DIFFERENT'} records of {len(found)} jobs")
            server.stdin.close()


if __name__ == "__main__":
    main(sys.argv[1:])
