"""`memagent serve-key`: what it says of the keys in a file."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from memagent.cli import app
from memagent.server.keys import Keys


def test_a_key_is_replaced_only_where_there_was_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"

    def given(name: str) -> str:
        done = CliRunner().invoke(app, ["serve-key", name, "--keys", str(path), "--replace"])
        assert done.exit_code == 0
        assert Keys(path).name_of(done.stdout.strip()) == name
        return " ".join(done.stderr.split())

    for name in ("ann", "bob"):
        assert given(name).startswith(f"added {name} in ")
    assert given("ann").startswith("gave a new key to ann in ")
    assert Keys(path).names == {"ann", "bob"}
