"""Clients of the server: in this process, and of a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, ListRootsResult, Root

from memagent.mcp_server.desk import Desk
from memagent.mcp_server.roots import Roots
from memagent.mcp_server.texts import Texts
from memagent.mcp_server.tools import Server
from memagent.models.open import OpenModel, open_model

SMALL = {"chunk_tokens": 100, "memory_tokens": 50}


def scripted(stack: ExitStack, url: str) -> OpenModel:
    opened = open_model("scripted", base_url=url)
    stack.callback(opened.engine.close)
    return opened


def desk(opened: OpenModel, root: Path, home: Path, **options: Any) -> Desk:
    return Desk(
        opened=opened,
        model="scripted",
        base_url=None,
        tokenizer=None,
        options={**SMALL, **options},
        roots=Roots.of([root]),
        texts=Texts(home / "texts"),
    )


@asynccontextmanager
async def connected(url: str, root: Path, home: Path, *, readings: int = 4, **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process, whose model is at `url`."""
    with ExitStack() as stack:
        client = options.pop("client", {})
        server = Server(desk(scripted(stack, url), root, home, **options), readings)
        async with Client(server, **client) as connection:
            yield connection


def process(*arguments: object, cwd: Path | None = None) -> StdioServerParameters:
    command = ["-m", "memagent", "mcp", *map(str, arguments)]
    return StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ), cwd=cwd)


def announcing(folders: Sequence[Path | str]) -> dict[str, Any]:
    """Options of a client that has roots."""

    async def listed(_: Any) -> ListRootsResult:
        uris = [folder if isinstance(folder, str) else folder.as_uri() for folder in folders]
        return ListRootsResult(roots=[Root(uri=uri) for uri in uris])

    return {"list_roots_callback": listed}


def said(result: CallToolResult) -> str:
    """The error of a tool."""
    assert result.is_error, result.structured_content
    return "".join(part.text for part in result.content if part.type == "text")


def told(result: CallToolResult) -> dict[str, Any]:
    """What a tool gave."""
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content
