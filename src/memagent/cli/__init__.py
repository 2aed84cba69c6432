"""The `memagent` command line. Heavy libraries are imported only when a command needs them."""

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
        # A library may have replaced the interrupt by another error, or suppressed it.
        if interrupts.received():
            interrupts.leave()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'memagent.cli' has no attribute {name!r}")
    from memagent.cli.commands import app

    return app
