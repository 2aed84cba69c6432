"""A service that is killed at random moments under load: every reading that it accepted ends as if nothing had happened.

    python -m benchmarks.service_kills [--kills 50] [--seed 28]

Readings are asked for all the time; the process is killed (SIGKILL) at random moments, also while it starts, and started
again. Then every reading must have ended with the answer, memory, turns and tokens of the same reading in a service that
nobody disturbed; the journal must have each of its turns once; tokens of the day must be those of the readings; and the
model must have been asked no more often than in an undisturbed run but for what the kills interrupted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from memagent.journal import Journal
from memagent.server.keys import LOCAL
from memagent.server.store import Store
from tests.batch.conftest import LINE, code, reply
from tests.faults import FaultServer
from tests.server.service import ServiceProcess, ended

AT_ONCE = 3  # readings under way
_TEXTS = 6  # texts of different lengths, asked for again and again
_WAITING = 20  # readings that are not over, at most
_SIZES = ("--chunk-tokens", "100", "--memory-tokens", "50", "--readings", str(AT_ONCE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run.

    kills        how often the process was killed, starts included
    accepted     readings whose acceptance the client has seen
    unseen       readings that were accepted while the process was killed, so that the client never heard of it
    different    readings that did not end as in the undisturbed run, with what differs
    resumed      readings that went on at a turn that they had reached
    calls        questions to the model beyond those of an undisturbed run; each kill may interrupt `AT_ONCE`
    uncounted    tokens of the readings that the count of the day lacks; negative: that it has twice
    """

    kills: int
    accepted: int
    unseen: int
    different: Sequence[str]
    resumed: int
    calls: int
    uncounted: int


def text(number: int) -> str:
    """A text with its code in the middle."""
    lines = [LINE.format(line) for line in range(20 + 10 * number)]
    lines[len(lines) // 2] = f"The code is {code(number)}."
    return "\n".join(lines)


def asked(number: int) -> dict[str, str]:
    return {"question": f"What is the code of text {number}?", "text": text(number)}


def essence(reading: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal of two readings of a text."""
    if reading["status"] != "answered":
        return {"status": reading["status"], "error": reading.get("error")}
    result = reading["result"]
    quotes = [(quote["cited_text"], quote["start_char_index"]) for quote in result["quotes"]]
    costs = (result["usage"], result["verification"])
    tokens = sum(cost["prompt_tokens"] + cost["completion_tokens"] for cost in costs)
    kept = {name: result[name] for name in ("answer", "status", "memory", "turns", "outcomes")}
    return kept | {"quotes": quotes, "tokens": tokens, "calls": sum(cost["calls"] for cost in costs)}


class Load:
    """Asks for readings until it is told to stop, also while the service is away."""

    def __init__(self, service: ServiceProcess) -> None:
        self.accepted: dict[str, int] = {}
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._service.client as client:
            while not self._stop.wait(0.05):
                with suppress(httpx.TransportError):
                    listed = client.get(f"/v1/readings?limit={2 * _WAITING}").json()["readings"]
                    if sum(one["status"] in ("queued", "running") for one in listed) < _WAITING:
                        number = len(self.accepted) % _TEXTS
                        begun = client.post("/v1/readings", json=asked(number))
                        if begun.status_code == 202:
                            self.accepted[begun.json()["id"]] = number


def undisturbed(home: Path, words: Sequence[str]) -> list[dict[str, Any]]:
    """The essence of a reading of each text, in a service that is not killed."""
    service = ServiceProcess(home, words)
    service.start()
    with service.client as client:
        ids = [client.post("/v1/readings", json=asked(number)).json()["id"] for number in range(_TEXTS)]
        found = [essence(ended(client, id)) for id in ids]
    service.stop()
    return found


def kill(service: ServiceProcess, rng: random.Random) -> int:
    """Kills a service that is there, at a random moment, and starts it again; one start in five is killed as well.

    Returns how often that was."""
    time.sleep(rng.uniform(0.05, 2.0))
    service.kill()
    service.launch()
    if also := rng.random() < 0.2:
        time.sleep(rng.uniform(0.0, 3.0))
        service.kill()
        service.launch()
    service.wait()
    return 1 + also


def run(folder: Path, kills: int, seed: int) -> Outcome:
    """Kills a service so often, and looks at what became of its readings."""
    rng = random.Random(seed)
    with FaultServer(reply, delay=0.02) as server:
        words = ["--model", "scripted", "--base-url", server.url, *_SIZES]
        expected = undisturbed(folder / "undisturbed", words)
        server.requests.clear()
        service = ServiceProcess(folder / "killed", words)
        service.start()
        with Load(service) as load:
            done = sum(kill(service, rng) for _ in range(kills))
        with service.client as client:
            ids = [one["id"] for one in client.get("/v1/readings?limit=1000").json()["readings"]]
            found = {id: ended(client, id) for id in ids}
        service.stop()
        calls = len(server.requests)
    return judged(load.accepted, found, expected, folder / "killed" / "service", kills=done, calls=calls)


def judged(
    accepted: Mapping[str, int], found: Mapping[str, Any], expected: Sequence[Any], home: Path, *, kills: int, calls: int
) -> Outcome:
    """What became of the readings in `found`, by id, which are all that the service knows."""
    due = {id: expected[int(reading["question"].split()[-1].rstrip("?"))] for id, reading in found.items()}
    different = [f"{id} was accepted and is not there" for id in accepted if id not in found]
    for id, reading in found.items():
        if (became := essence(reading)) != due[id]:
            different.append(f"{id}: {became}, undisturbed {due[id]}")
    results = [reading["result"] for reading in found.values() if reading["status"] == "answered"]
    different += journalled(results, home)
    with closing(Store(home)) as store:
        counted = store.spent(LOCAL)
    return Outcome(
        kills=kills,
        accepted=len(accepted),
        unseen=len(found.keys() - accepted.keys()),
        different=different,
        resumed=sum(result["turns_resumed"] > 0 for result in results),
        calls=calls - sum(one["calls"] for one in due.values()),
        uncounted=sum(one["tokens"] for one in due.values()) - counted,
    )


def journalled(results: Sequence[Mapping[str, Any]], home: Path) -> list[str]:
    """What is wrong with the journal of these readings: it has each of them, each of its turns once, and no others."""
    wrong = []
    with Journal.open(home / "journal.sqlite3") as journal:
        if (kept := {one.id for one in journal.list(None)}) != (ids := {one["reading"] for one in results}):
            wrong.append(f"the journal has {len(kept)} readings of {len(ids)}")
        for result in results:
            numbers = [entry.number for entry in journal.turns(result["reading"])]
            if numbers != list(range(result["turns"])):
                wrong.append(f"{result['reading']} has {result['turns']} turns, the journal {numbers}")
    return wrong


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.service_kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=28)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder), given.kills, given.seed))


if __name__ == "__main__":
    main(sys.argv[1:])
