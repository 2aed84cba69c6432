"""`memagent batch` on two Ray nodes (network namespaces of this machine), one of which is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.conftest import records
from tests.cluster.runs import REPOSITORY, environment

HOSTS = ("memagent-three", "memagent-four")
ADDRESSES = ("10.78.0.1", "10.78.0.2")
LINKS = ("magent-c", "magent-d")
PORT = 6401
pytestmark = pytest.mark.timeout(600)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _on(host: int, home: Path, *words: str) -> subprocess.Popen[str]:
    """A process on one host, with a temporary folder of that host's own."""
    folder = home / str(host)
    folder.mkdir(parents=True, exist_ok=True)
    variables = environment() | {"MEMAGENT_HOME": str(home), "TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
    variables["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    command = ["ip", "netns", "exec", HOSTS[host], *words]
    log = (home / f"log-{host}").open("a")
    return subprocess.Popen(command, env=variables, stdout=log, stderr=log, text=True)


@pytest.fixture
def nodes() -> Iterator[Path]:
    """Two hosts with a cable between them, and a Ray node with room for one worker on each; and a folder for the test."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need `ip` (iproute2) and root")
    begun = []
    home = Path(tempfile.mkdtemp())  # the names of sockets have to be short
    try:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)  # of a session that was killed
            try:
                _ip("netns", "add", host)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        _ip("link", "add", LINKS[0], "type", "veth", "peer", "name", LINKS[1])
        for host, link, address in zip(HOSTS, LINKS, ADDRESSES, strict=True):
            _ip("link", "set", link, "netns", host)
            _ip("-n", host, "addr", "add", f"{address}/24", "dev", link)
            _ip("-n", host, "link", "set", link, "up")
            _ip("-n", host, "link", "set", "lo", "up")
        start = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
        for host, role in ((0, ["--head", f"--port={PORT}"]), (1, [f"--address={ADDRESSES[0]}:{PORT}"])):
            begun.append(_on(host, home, *start, *role, f"--node-ip-address={ADDRESSES[host]}"))
            time.sleep(15)
        yield home
    finally:
        for process in begun:
            process.terminate()
        for process in begun:
            process.wait(timeout=60)
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _done(out: Path) -> int:
    """The records that are written to their end."""
    file = out / "results.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_a_batch_outlives_a_node_that_is_lost(nodes: Path) -> None:
    text = "It was a cold morning. The access code for amber-falcon is 4821973. " + "The sea was grey. " * 1500
    question = "What is the access code for amber-falcon?"
    rows = [{"id": str(number), "text": text, "question": question} for number in range(40)]
    jobs, out = nodes / "jobs.jsonl", nodes / "out"
    jobs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["batch", str(jobs), "-o", str(out), "--ray", f"{ADDRESSES[0]}:{PORT}", "--at-once", "2"]
    driver = _on(0, nodes, sys.executable, "-m", "memagent", *words)
    end = time.monotonic() + 200
    try:
        journal = f"1/memagent-{os.getuid()}/*.sqlite3"
        while not (list(nodes.glob(journal)) and _done(out) > 4):
            assert driver.poll() is None, (nodes / "log-0").read_text()[-2000:]
            assert time.monotonic() < end, (nodes / "log-0").read_text()[-2000:]
            time.sleep(0.2)
        listed = subprocess.run(["ip", "netns", "pids", HOSTS[1]], capture_output=True, text=True, check=True)
        for process in listed.stdout.split():
            os.kill(int(process), signal.SIGKILL)
        assert _done(out) < len(rows)
        assert driver.wait(timeout=300) == 0, (nodes / "log-0").read_text()[-2000:]
    finally:
        driver.kill()
    found = records(out)
    assert sorted(record["id"] for record in found) == sorted(row["id"] for row in rows)
    assert {record["answer"] for record in found} == {"4821973"}
