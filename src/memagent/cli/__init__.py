"""The `memagent` command: parses, builds, calls; no logic. Heavy imports wait until a command needs them."""

from __future__ import annotations

from typing import Any

from memagent.cli import interrupts


def main() -> None:
    """Entry point of the `memagent` command. Signals are handled before anything else is imported."""
    interrupts.install()
    try:
        from memagent.cli.commands import run

        run()
    finally:
        # Whatever an interrupt became on its way here, and wherever it struck, it is an interrupt.
        if interrupts.received():
            interrupts.leave()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'memagent.cli' has no attribute {name!r}")
    from memagent.cli.commands import app

    return app
