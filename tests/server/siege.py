"""A real service with three keys under hostile requests, and what it let out."""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from memagent.server.keys import add_key
from tests.faults import FaultServer
from tests.server.hostile import INJECTED, LIMIT, OWN, Attack, Target, attacks
from tests.server.service import ServiceProcess, ended

_SIZES = ("--chunk-tokens", "200", "--memory-tokens", "60", "--upload-mb", str(LIMIT >> 20))
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_PATIENCE = 60.0  # seconds for an answer


@dataclass(slots=True, kw_only=True)
class Report:
    """What a siege came to: answers by kind and status ("none": no answer), and what should not have been.

    `answered`: whether the service then answered a normal reading. `megabytes`: what its process held before, after each
    fifty requests, and at the end.
    """

    statuses: Mapping[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)
    answered: bool = False
    megabytes: list[float] = field(default_factory=list)


def besiege(folder: Path, count: int, seed: int) -> Report:
    """Sends so many hostile requests to a service, whose other two owners have readings and files that nobody may see."""
    keys, home = folder / "keys.txt", folder / "home-of-the-service"
    given = {name: add_key(keys, name) for name in ("ann", "bob", "cat")}
    (folder / "root").mkdir()
    with FaultServer(lambda messages: "noted") as server:
        words = ["--model", "scripted", "--base-url", server.url, "--keys", str(keys), "--root", str(folder / "root")]
        service = ServiceProcess(home, [*words, *_SIZES])
        service.start()
        try:
            return _besieged(service, given, folder, count, seed)
        finally:
            service.stop()


def _besieged(service: ServiceProcess, keys: Mapping[str, str], folder: Path, count: int, seed: int) -> Report:
    assert service.process is not None
    report, (attacker, *others) = Report(), keys.values()
    kept = [_possessions(service, key, f"canary-{number}") for number, key in enumerate(others)]
    target = Target(
        port=service.port,
        key=attacker,
        readings=[reading for reading, _ in kept],
        files=[file for _, file in kept],
        secret=str(folder / "keys.txt"),
    )
    _read_something(service, attacker)
    report.megabytes.append(_memory(service.process.pid))
    secrets = ["canary-0", "canary-1", "Traceback", *keys.values()]
    unseen = [*secrets, str(folder), f"\r\n{INJECTED}"]
    for number, attack in enumerate(attacks(target, seed, count), 1):
        judge(report, attack, _answer(service.port, attack), unseen)
        if number % 50 == 0:
            report.megabytes.append(_memory(service.process.pid))
    report.answered = _read_something(service, attacker)
    report.megabytes.append(_memory(service.process.pid))
    log = service.log
    report.wrong += [
        f"the log has {secret!r}: {_around(log, secret)}" for secret in (*secrets, OWN, "noted") if secret in log
    ]
    for reading, key in zip(target.readings, others, strict=True):
        with service.client as client:
            if client.get(f"/v1/readings/{reading}", headers=_bearer(key)).json()["status"] != "answered":
                report.wrong.append("a reading of another owner is no longer there")
    return report


def _around(log: str, found: str) -> str:
    """What the log says where it has something that it should not have."""
    start = log.index(found)
    return log[max(0, start - 500) : start + 5000]


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _possessions(service: ServiceProcess, key: str, canary: str) -> tuple[str, str]:
    """The ids of a reading and a file of an owner, in which a canary sits."""
    with service.client as client:
        asked = {"question": f"What of {canary}?", "text": f"{canary} is in this text."}
        reading = client.post("/v1/readings", json=asked, headers=_bearer(key)).json()["id"]
        ended(client, reading, headers=_bearer(key))
        file = client.post("/v1/files", files={"file": (f"{canary}.txt", canary.encode())}, headers=_bearer(key))
    return reading, file.json()["id"]


def _read_something(service: ServiceProcess, key: str) -> bool:
    """Whether a normal reading is answered."""
    with service.client as client:
        begun = client.post("/v1/readings", json={"question": "What?", "text": OWN * 100}, headers=_bearer(key))
        found = ended(client, begun.json()["id"], headers=_bearer(key))
    return bool(found["status"] == "answered" and found["result"]["answer"] == "noted")


def _answer(port: int, attack: Attack) -> bytes:
    """All that comes back, until the service closes the connection, or for a request that is never whole, we do."""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection:
        with suppress(ConnectionError):  # it may close before it has heard everything
            for part in attack.parts:
                connection.sendall(part)
                time.sleep(attack.pause)
        connection.settimeout(2.0 if attack.silent else _PATIENCE)
        received = b""
        with suppress(TimeoutError, ConnectionError):
            while part := connection.recv(1 << 16):
                received += part
        return received


def judge(report: Report, attack: Attack, answer: bytes, secrets: Sequence[str]) -> None:
    """Notes an answer, and what is wrong with it. What the attacker has sent is no secret."""
    found = _STATUS.match(answer)
    status = found[1].decode() if found else "none"
    report.statuses[attack.kind][status] += 1
    allowed = status[0] == "4" or (attack.fair and status[0] in "23") or (attack.silent and status == "none")
    sent, text = (data.decode("utf-8", "replace").lower() for data in (b"".join(attack.parts), answer))
    leaks = [secret for secret in secrets if secret.lower() in text and secret.lower() not in sent]
    if not allowed or leaks:
        report.wrong.append(f"{attack.kind}: {status}, leaks {leaks}, to {sent[:300]!r}: {text[:300]!r}")


def _memory(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
