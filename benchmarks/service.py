"""The service under load: readings at once on a model that costs nothing, against asking that model directly.

    python -m benchmarks.service [--readings 200] [--words 6000] [--delay 0.01]

A server that answers after `--delay` seconds stands for the model. The same turns, as many at a time, are asked of it
directly, by the client of OpenAI alone. Printed are turns a second of both, the mean seconds of a turn of a reading at p50
and p99 of the readings, and the megabytes of the service after each quarter of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles

import httpx2 as httpx
import openai

from tests.faults import FaultServer
from tests.server.service import free_port

_AT_ONCE = 32


def memory(process: int) -> float:
    """Megabytes that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def directly(server: FaultServer, turns: int, prompt: str) -> float:
    """Seconds for so many turns by the client of OpenAI."""
    client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)

    def ask(_: int) -> None:
        client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": prompt}])

    began = time.perf_counter()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(ask, range(turns)))
    return time.perf_counter() - began


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.service")
    parser.add_argument("--readings", type=int, default=200)
    parser.add_argument("--words", type=int, default=6000)
    parser.add_argument("--delay", type=float, default=0.01)
    given = parser.parse_args(arguments)
    text = " ".join(f"word{number}" for number in range(given.words))
    port = free_port()
    with FaultServer(lambda messages: "noted", delay=given.delay) as server, tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "memagent", "serve", "--port", str(port), "--model", "scripted"]
        command += [
            "--base-url",
            server.url,
            "--readings",
            str(_AT_ONCE),
            "--chunk-tokens",
            "1000",
            "--memory-tokens",
            "100",
        ]
        process = subprocess.Popen(command, env={**os.environ, "MEMAGENT_HOME": home}, stderr=subprocess.DEVNULL)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            wait(client)
            began = time.perf_counter()
            asked = {"question": "what?", "text": text}
            ids = [client.post("/v1/readings", json=asked).json()["id"] for _ in range(given.readings)]
            held = []
            for id in ids:
                while client.get(f"/v1/readings/{id}").json()["status"] in ("queued", "running"):
                    time.sleep(0.05)
                if not len(held) or ids.index(id) >= len(held) * len(ids) // 4:
                    held.append(round(memory(process.pid), 1))
            took = time.perf_counter() - began
            results = [client.get(f"/v1/readings/{id}").json()["result"] for id in ids]
        process.terminate()
        process.wait()
        turns = len(server.requests)
        assert all(one["answer"] == "noted" for one in results)
        waits = [1000 * one["usage"]["seconds"] / one["turns"] for one in results]
        prompt = max((body["messages"][-1]["content"] for body in server.requests), key=len)
        alone = directly(server, turns, prompt)
    cuts = quantiles(waits, n=100)
    print(f"{given.readings} readings, {turns:,} turns: {took:.1f} s, {turns / took:.0f} turns/s")
    print(f"directly, {_AT_ONCE} at a time: {alone:.1f} s, {turns / alone:.0f} turns/s; ratio {alone / took:.2f}")
    print(f"a turn as the readings saw it: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms; the model takes {given.delay} s")
    print(f"megabytes of the service after each quarter: {held}")


def wait(client: httpx.Client) -> None:
    """Until the service is there."""
    while True:
        try:
            if client.get("/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1:])
