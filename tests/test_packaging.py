"""What is built for others holds what it needs, and says its version once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import memagent

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "memagent/py.typed",
    "memagent/embedded/model/model.safetensors",
    "memagent/embedded/model/memagent.toml",
    "memagent/embedded/model/tokenizer.json",
    "memagent/embedded/recipe.toml",
    "memagent/profiles/default.toml",
    "memagent/training/presets/paper-7b.toml",
    "memagent/tasks/data/moby_dick.txt.gz",
    "memagent/evaluation/report/page.html.j2",
    "memagent/page/page.html.j2",
    "memagent/page/script.js",
    "memagent/page/style.css",
    "memagent/server/web/home.html.j2",
    "memagent/server/web/base.html.j2",
    "memagent/server/web/login.html.j2",
    "memagent/server/web/message.html.j2",
    "memagent/server/web/service.css",
    "memagent/server/web/service.js",
    "memagent/server/web/icon.svg",
    "memagent/core/readers/memory.py",
    "memagent/cluster/agent_loop.yaml",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what a checkout holds, without an index."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", out, source], check=True)
    [built] = out.glob("*.whl")
    return built


def test_the_wheel_holds_what_is_needed_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not [name for name in NEEDED if name not in names]
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]
    assert wheel.stat().st_size < 12 * 2**20


def test_the_version_is_said_once(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(f"memagent-{memagent.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {memagent.__version__}\n" in metadata
    assert not re.search(r"^version = \"", (ROOT / "pyproject.toml").read_text(), re.M)
    shown = subprocess.run([sys.executable, "-m", "memagent", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"memagent {memagent.__version__}"


def test_the_container_copies_what_a_build_needs() -> None:
    """No container engine is at hand in the tests: what is copied must at least be there and not ignored."""
    ignored = (ROOT / ".dockerignore").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}\n" in ignored
