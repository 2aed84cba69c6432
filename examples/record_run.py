"""Runs `make ask` and draws what the terminal shows: docs/assets/run.svg.

python examples/record_run.py
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 118


def main() -> int:
    """Records the run. Returns its exit status."""
    command = [sys.executable, "examples/ask_a_book.py"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ make ask", style="bold"))
    console.print(Text.from_ansi(run.stdout.rstrip()))
    console.save_svg(str(ROOT / "docs/assets/run.svg"), title="memagent")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
