"""Two Ray nodes on two hosts (network namespaces of this machine): the same numbers as one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.test_run import CONFIG, REPOSITORY, environment, metrics

HOSTS = ("memagent-one", "memagent-two")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
LINKS = ("magent-a", "magent-b")
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
            _ip("netns", "add", host)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
    try:
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


def test_two_nodes_train_what_one_does(hosts: None, tmp_path: Path) -> None:
    config = tmp_path / "rl.toml"
    config.write_text(CONFIG)
    changes = ["--set", "steps=2", "--set", "validation.task=[]", "--set", "save_every=2"]
    run = [sys.executable, "-m", "memagent", "train", "rl", str(config), "--engine", "verl", "-q", *changes]
    alone = subprocess.run(
        [*run, "-o", str(tmp_path / "one")], cwd=REPOSITORY, env=environment(), capture_output=True, text=True
    )
    assert alone.returncode == 0, alone.stderr[-3000:]

    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--block", "--num-gpus=1", "--num-cpus=12", "--disable-usage-stats"]
    nodes = []
    try:
        for host, role in ((0, ["--head", "--port=6399"]), (1, [f"--address={ADDRESSES[0]}:6399"])):
            words = [*start, *role, f"--node-ip-address={ADDRESSES[host]}"]
            nodes.append(_on(host, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(15)
        there = [
            "--set",
            "cluster.nodes=2",
            "--set",
            "cluster.devices=1",
            "--set",
            f'cluster.address="{ADDRESSES[0]}:6399"',
        ]
        driver = _on(0, *run, "-o", str(tmp_path / "two"), *there, stderr=subprocess.PIPE)
        _, err = driver.communicate(timeout=600)
        assert driver.returncode == 0, err[-3000:]
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(timeout=60)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert len(two) == len(one) == 2
    assert two[0]["train"]["reward"] == pytest.approx(one[0]["train"]["reward"], abs=1e-6)
    assert two[0]["train"]["loss"] == pytest.approx(one[0]["train"]["loss"], rel=1e-3, abs=1e-5)
    assert two[0]["train"]["grad_norm"] == pytest.approx(one[0]["train"]["grad_norm"], rel=1e-3)
    assert two[1]["train"]["reward"] == pytest.approx(one[1]["train"]["reward"], abs=2 / 16)
