"""Dockerfile, compose file and systemd unit: what they start is what the command line has, and does what they rely on.

No container engine and no systemd run here: commands are taken from the files and run as processes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from typer.main import get_command

from memagent.cli import app
from memagent.server.keys import add_key
from tests.faults import FaultServer
from tests.servers import free_port
from tests.test_follow_up import TEXT, served

ROOT = Path(__file__).resolve().parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
UNIT = (ROOT / "deploy/memagent.service").read_text()
ENVIRONMENT = (ROOT / "deploy/memagent.env").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
OURS = {"MEMAGENT_HOME", "MEMAGENT_BASE_URL", "MEMAGENT_API_KEY"}  # test_the_command_of_the_unit… sees that they work


def of_unit(name: str) -> str:
    """The value of a setting."""
    [found] = re.findall(rf"^{name}=(.*)$", UNIT, re.M)
    return str(found)


def of_stage(instruction: str) -> list[str]:
    """The command of an instruction of the stage of the service."""
    stage = DOCKERFILE.partition(" AS service\n")[2].partition("\nFROM ")[0]
    [found] = re.findall(rf"^{instruction} ?(\[.*\])$", stage, re.M)
    return list(yaml.safe_load(found))


COMMANDS = {
    "Dockerfile": of_stage("ENTRYPOINT")[1:],
    "compose": of_stage("ENTRYPOINT")[1:] + COMPOSE["services"]["memagent"]["command"],
    "unit": shlex.split(of_unit("ExecStart"))[1:],
}


@pytest.mark.parametrize("place", COMMANDS)
def test_the_command_line_has_what_is_started(place: str) -> None:
    name, *arguments = COMMANDS[place]
    assert name == "serve"
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    context = command.make_context(name, list(arguments))
    assert context.params["keys"] is not None
    assert context.params["log_format"] == "json"


def test_the_variables_are_those_that_the_command_knows() -> None:
    traced = set(re.findall(r"OTEL_[A-Z_]+", (ROOT / "src/memagent/tracing.py").read_text()))
    own = set(re.findall(r"^#?([A-Z_]+)=", ENVIRONMENT, re.M))
    used = set(re.findall(r"\$\{(\w+)\}", of_unit("ExecStart")))
    assert own - used <= OURS | traced
    assert used <= own
    assert of_unit("Environment").partition("=")[0] in OURS
    assert set(COMPOSE["services"]["memagent"]["environment"]) <= OURS | traced
    stage = DOCKERFILE.partition(" AS service\n")[2].partition("\nFROM ")[0]
    assert set(re.findall(r"^ENV (\w+)=", stage, re.M)) <= OURS


def test_extras_stages_volumes_and_secrets_are_there() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    for named in re.findall(r"(?:memagent|\.)\[([a-z,]+)\]", DOCKERFILE + UNIT):
        assert set(named.split(",")) <= extras
    service = COMPOSE["services"]["memagent"]
    assert f" AS {service['build']['target']}\n" in DOCKERFILE
    assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])
    assert set(service["secrets"]) <= set(COMPOSE["secrets"])
    assert set(service["depends_on"]) <= set(COMPOSE["services"])
    [model] = [one.partition("=")[2] for one in service["command"] if one.startswith("--model=")]
    theirs = COMPOSE["services"]["model"]["command"]
    assert theirs[theirs.index("--alias") + 1] == model
    assert f"--base-url=http://model:{theirs[theirs.index('--port') + 1]}/v1" in service["command"]
    assert service["volumes"][0].partition(":")[2] in DOCKERFILE


def test_the_command_of_the_unit_serves_and_ends_in_time_when_it_is_told_to(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "ann")
    port, state = free_port(), tmp_path / "state"
    with FaultServer(served, delay=0.05) as model:
        given = {"MODEL": "scripted", "MEMAGENT_BASE_URL": model.url, "MEMAGENT_API_KEY": "sk-of-the-model"}
        name, _, home = of_unit("Environment").partition("=")
        command = [
            _filled(word, {"%d": str(tmp_path), "8600": str(port)}, given) for word in shlex.split(of_unit("ExecStart"))
        ]
        environment = {**os.environ, **given, name: _filled(home, {"%S": str(state)}, given)}
        running = subprocess.Popen(
            [sys.executable, "-m", "memagent", *command[1:]], env=environment, stderr=subprocess.PIPE
        )
        try:
            _until_ready(port)
            assert _healthy(port)
            headers = {"Authorization": f"Bearer {key}"}
            asked = {"question": "the code?", "text": TEXT * 20}
            begun = httpx.post(f"http://127.0.0.1:{port}/v1/readings", json=asked, headers=headers)
            assert begun.status_code == 202
            while not model.requests:
                time.sleep(0.01)
            running.send_signal(getattr(signal, of_unit("KillSignal")))
            assert running.wait(float(of_unit("TimeoutStopSec")) / 3) == 0
            assert not _healthy(port)
        finally:
            running.kill()
    assert model.headers[-1]["authorization"] == "Bearer sk-of-the-model"
    assert (state / "memagent/service/journal.sqlite3").exists()


def _filled(text: str, words: Mapping[str, str], variables: Mapping[str, str]) -> str:
    for word, value in {**words, **{f"${{{name}}}": value for name, value in variables.items()}}.items():
        text = text.replace(word, value)
    return text


def _until_ready(port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("the service did not start")


def _healthy(port: int) -> bool:
    """What the check of the image says of a service on this port."""
    check = of_stage("HEALTHCHECK .* CMD")
    assert check[0] == "python"
    command = [sys.executable, *(word.replace("8600", str(port)) for word in check[1:])]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_there_is_time_for_an_orderly_end() -> None:
    graceful = int(re.findall(r"timeout_graceful_shutdown=(\d+)", (ROOT / "src/memagent/server/run.py").read_text())[0])
    for given in (of_unit("TimeoutStopSec"), COMPOSE["services"]["memagent"]["stop_grace_period"].removesuffix("s")):
        assert int(given) >= 3 * graceful


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "memagent.service"
    unit.write_text(UNIT.replace("ExecStart=/opt/memagent/bin/memagent", f"ExecStart={sys.executable} -m memagent"))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert [line for line in found.stderr.splitlines() if "memagent.service" in line] == []
    assert found.returncode == 0
