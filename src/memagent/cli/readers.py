"""`memagent readers`."""

from __future__ import annotations

from rich.table import Table

from memagent.cli.console import boundary, out, print_json
from memagent.cli.options import AsJson
from memagent.core import READERS
from memagent.core.readers import option_names
from memagent.settings import AUTO


def readers(as_json: AsJson = False) -> None:
    """List the readers for --reader."""
    with boundary():
        rows = [(name, reader.summary, option_names(name)) for name, reader in READERS.items()]
        rows.append((AUTO, "Chooses direct, parallel, gated or memory, and says why (not for eval and train).", []))
        if as_json:
            print_json([{"name": name, "summary": summary, "options": options} for name, summary, options in rows])
            return
        table = Table(box=None, pad_edge=False)
        for name in ("reader", "what it does", "options"):
            table.add_column(name, no_wrap=name == "reader")
        for name, summary, options in rows:
            table.add_row(name, summary, ", ".join(f"--{option.replace('_', '-')}" for option in options))
        out.print(table)
