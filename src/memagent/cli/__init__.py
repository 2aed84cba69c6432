"""The `memagent` command line. Heavy libraries are imported only when a command needs them."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from memagent.cli import interrupts

INTERNAL = 70  # as sysexits.h has it


def main() -> None:
    """Entry point of the `memagent` command. Signals are handled before anything else is imported."""
    interrupts.install()
    try:
        from memagent.cli.commands import run

        run()
    except Exception:  # 1 would say that the document does not hold the answer
        if sys.stderr is not None and not interrupts.received():
            traceback.print_exc()
        raise SystemExit(INTERNAL) from None
    finally:
        # A library may have replaced the interrupt by another error, or suppressed it.
        if interrupts.received():
            interrupts.leave()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'memagent.cli' has no attribute {name!r}")
    from memagent.cli.commands import app

    return app
