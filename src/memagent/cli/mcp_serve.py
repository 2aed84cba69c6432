"""`memagent mcp`: readings for other programs' models, over the Model Context Protocol."""

from __future__ import annotations

import contextlib
import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, note
from memagent.cli.options import Chosen, absolute, reads
from memagent.errors import MissingExtraError
from memagent.home import data_folder


@reads
def mcp(
    chosen: Chosen,
    root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files may be read (default: the current one). Repeat for several."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http: the address, of this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="With --http: the port.")] = 8601,
    readings: Annotated[int, typer.Option(min=1, help="Number of readings that run at the same time; others wait.")] = 4,
) -> None:
    """Serve readings to the models of other programs, over the Model Context Protocol."""
    with boundary(), ExitStack() as stack:
        try:
            from memagent.mcp_server.desk import Desk
            from memagent.mcp_server.roots import Roots
            from memagent.mcp_server.serve import Address, serve_http, serve_stdio
            from memagent.mcp_server.texts import Texts
        except ImportError as error:
            raise MissingExtraError("memagent mcp", "mcp") from error
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
        address, roots = Address(host=host, port=port), Roots.of(root or [Path.cwd()])
        address.check()
        with contextlib.redirect_stdout(sys.stderr):  # standard output belongs to the protocol
            opened = chosen.opened(stack)
            chosen.settings(opened)  # what cannot work is said before anything is served
        desk = Desk(
            opened=opened,
            model=chosen.model,
            base_url=chosen.base_url,
            tokenizer=absolute(chosen.tokenizer) if chosen.tokenizer else None,
            options=chosen.options,
            roots=roots,
            texts=Texts((data_folder() / "texts").absolute()),
        )
        where = address.url if http else "standard input and output"
        note(f"{where} · model {chosen.model} · files below {', '.join(map(str, roots.folders))}")
        if http:
            serve_http(desk, readings, address)
        else:
            serve_stdio(desk, readings)
