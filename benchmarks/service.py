"""The service under load: readings at once on a model that costs nothing, against asking that model directly.

    python -m benchmarks.service TURNS.csv MEMORY.csv [--readings 200] [--words 1500] [--delays 0.01 5] [--turns 20000]

A stub that answers after a delay stands for the model. It notes when each reading asks it: what a turn costs is the time
from a reply to the next request of the same reading. The same turns, as many at a time, are asked of it directly by the
client of OpenAI, each conversation one after the other, and measured by the same clock. Then one process serves until
`--turns` turns are done, as fast as it can; its memory is noted as it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, quantiles
from typing import Any

import httpx2 as httpx
import openai

from benchmarks.stub import Times, stub, times
from tests.server.service import ServiceProcess


def memory(process: int) -> float:
    """Megabytes that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def computed(process: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def service(url: str, at_once: int) -> Iterator[tuple[httpx.Client, int]]:
    """A client of a service that reads so many at once, and its process."""
    words = ["--model", "stub", "--base-url", url, "--chunk-tokens", "1000", "--memory-tokens", "100"]
    words += ["--readings", str(at_once), "--readings-per-key", str(at_once), "--concurrency", str(at_once)]
    with tempfile.TemporaryDirectory() as home:
        running = ServiceProcess(Path(home) / "home", words)
        running.start()
        assert running.process is not None
        with running.client as client:
            yield client, running.process.pid
        assert running.stop() == 0


def begin(client: httpx.Client, number: int, text: str) -> str:
    """Asks for a reading, and returns its id."""
    begun = client.post("/v1/readings", json={"question": f"What is noted in conversation {number}?", "text": text})
    begun.raise_for_status()
    return str(begun.json()["id"])


def over(client: httpx.Client, id: str) -> Any:
    """The result of a reading once there is one. Looking seldom costs the service little."""
    while (found := client.get(f"/v1/readings/{id}").json())["status"] in ("queued", "running"):
        time.sleep(0.5)
    return found["result"]


def through(url: str, given: argparse.Namespace, text: str) -> dict[str, Any]:
    """What turns cost in readings of the service."""
    with service(url, given.readings) as (client, process):
        over(client, begin(client, 10**6, text))  # one to warm up
        times(url)
        spent, began = computed(process), time.perf_counter()
        ids = [begin(client, number, text) for number in range(given.readings)]
        answers = {over(client, id)["answer"] for id in ids}
        took, spent = time.perf_counter() - began, computed(process) - spent
    assert answers == {"noted"}
    return row("service", times(url), took, spent)


def directly(url: str, given: argparse.Namespace, text: str, turns: int, delay: float) -> dict[str, Any]:
    """What they cost the client of OpenAI alone, as many at once. Like readings, they do not all begin in one moment."""
    prompt = text[: len(text) * 2 // turns]  # about as long as a chunk and what is said around it

    async def converse(client: openai.AsyncOpenAI, number: int) -> None:
        await asyncio.sleep(delay * number / given.readings)
        for _ in range(turns):
            said = f"conversation {number}\n{prompt}"
            await client.chat.completions.create(model="stub", messages=[{"role": "user", "content": said}])

    async def all_of_them() -> None:
        limits = openai.DEFAULT_CONNECTION_LIMITS
        wide = type(limits)(max_connections=given.readings, max_keepalive_connections=given.readings)
        http = openai.DefaultAsyncHttpxClient(limits=wide)
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600, http_client=http) as client:
            await asyncio.gather(*(converse(client, number) for number in range(given.readings)))

    times(url)
    spent, began = time.process_time(), time.perf_counter()
    asyncio.run(all_of_them())
    return row("directly", times(url), time.perf_counter() - began, time.process_time() - spent)


def row(way: str, noted: Times, took: float, spent: float) -> dict[str, Any]:
    """Milliseconds between a reply and the next request, turns a second, and milliseconds computed for a turn."""
    waits = [1000 * (later[0] - earlier[1]) for moments in noted.values() for earlier, later in pairwise(moments)]
    turns, cuts = sum(map(len, noted.values())), quantiles(waits, n=100)
    values = {"way": way, "turns": turns, "seconds": f"{took:.1f}", "turns_per_second": f"{turns / took:.1f}"}
    return values | {"p50": f"{cuts[49]:.1f}", "p99": f"{cuts[98]:.1f}", "computed": f"{1000 * spent / turns:.2f}"}


def long_run(url: str, given: argparse.Namespace, text: str, turns: int) -> Iterator[tuple[int, float]]:
    """Turns that were done and megabytes of the service, while `--readings` readings are always there."""
    with service(url, given.readings) as (client, process):
        waiting = [begin(client, number, text) for number in range(given.readings)]
        for done in range(-(-given.turns // turns) + 1):
            assert over(client, waiting.pop(0))["answer"] == "noted"
            waiting.append(begin(client, done, text))
            if done % 20 == 0:
                yield done * turns, memory(process)


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.service")
    parser.add_argument("costs", type=Path, metavar="TURNS.csv")
    parser.add_argument("held", type=Path, metavar="MEMORY.csv")
    parser.add_argument("--readings", type=int, default=200)
    parser.add_argument("--words", type=int, default=1500)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.01, 5.0])
    parser.add_argument("--turns", type=int, default=20_000)
    given = parser.parse_args(arguments)
    text = " ".join(f"word{number}" for number in range(given.words))
    costs = []
    for delay in given.delays:
        with stub(delay) as url:
            ours = through(url, given, text)
            turns = ours["turns"] // given.readings
            for made in (ours, directly(url, given, text, turns, delay)):
                costs.append({"delay": delay, "readings": given.readings, **made})
                print(costs[-1], flush=True)
    write(given.costs, costs)
    with stub(given.delays[0]) as url:
        held = list(long_run(url, given, text, turns))
    write(given.held, [{"turns": done, "megabytes": f"{size:.1f}"} for done, size in held])
    slope = linear_regression(*zip(*held[len(held) // 2 :], strict=True)).slope  # caches and pools are full by then
    print(f"{held[-1][0]:,} turns: {held[0][1]:.0f} to {held[-1][1]:.0f} MB")
    print(f"slope of the second half: {1000 * slope:+.3f} MB in 1,000 turns")


if __name__ == "__main__":
    main(sys.argv[1:])
