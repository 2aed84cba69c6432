"""Two Ray nodes on two hosts (network namespaces of this machine): the same numbers as one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.runs import CONFIG, REPOSITORY, environment, lines, metrics, same_batches, trained, wait_for

HOSTS = ("memagent-one", "memagent-two")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINKS = ("magent-a", "magent-b")
PORT = 6399
pytestmark = pytest.mark.timeout(900)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Two hosts, each with a name, an address and a cable to the other."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need `ip` (iproute2) and root")
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
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)


def _on(host: int, *words: str, **options: object) -> subprocess.Popen[str]:
    variables = environment() | {
        "GLOO_SOCKET_IFNAME": LINKS[host],
        "TP_SOCKET_IFNAME": LINKS[host],
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": str(REPOSITORY / "src"),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "memagent.cluster.cpu",
    }
    command = ["ip", "netns", "exec", HOSTS[host], *words]
    return subprocess.Popen(command, cwd=REPOSITORY, env=variables, text=True, **options)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def cluster(hosts: None) -> Iterator[None]:
    """A Ray node on each host, with room for one learner."""
    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--block", "--num-gpus=1", "--num-cpus=12", "--disable-usage-stats"]
    nodes = []
    try:
        for host, role in ((0, ["--head", f"--port={PORT}"]), (1, [f"--address={ADDRESSES[0]}:{PORT}"])):
            words = [*start, *role, f"--node-ip-address={ADDRESSES[host]}"]
            nodes.append(_on(host, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(15)
        yield
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(timeout=60)


def _train(config: Path, out: Path, *changes: str) -> list[str]:
    changes = ("validation.task=[]", *changes)
    words = [word for change in changes for word in ("--set", change)]
    return [sys.executable, "-m", "memagent", "train", "rl", str(config), "-o", str(out), "--engine", "verl", "-q", *words]


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "rl.toml"
    path.write_text(CONFIG)
    return path


THERE = ("cluster.nodes=2", "cluster.devices=1", f'cluster.address="{ADDRESSES[0]}:{PORT}"')


def test_two_nodes_train_what_one_does(cluster: None, config_file: Path, tmp_path: Path) -> None:
    steps = ("steps=2", "save_every=2")
    command = _train(config_file, tmp_path / "one", *steps)
    alone = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr[-3000:]
    driver = _on(0, *_train(config_file, tmp_path / "two", *steps, *THERE), stderr=subprocess.PIPE)
    _, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err[-3000:]
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert len(trained(two)) == len(trained(one)) == 2
    same_batches(trained(two), trained(one))


def test_a_lost_node_stops_the_run(cluster: None, config_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "lost"
    driver = _on(0, *_train(config_file, run, "steps=40", "algorithm.kl=0", *THERE), stderr=subprocess.PIPE)
    try:
        wait_for(lambda: bool(lines(run)), driver)
        listed = subprocess.run(["ip", "netns", "pids", HOSTS[1]], capture_output=True, text=True, check=True)
        for process in listed.stdout.split():
            os.kill(int(process), signal.SIGKILL)
        _, err = driver.communicate(timeout=400)
    finally:
        driver.kill()
    assert driver.returncode == 2, err[-3000:]
    assert "Traceback" not in err
    assert "--resume --engine verl" in " ".join(err.split())
