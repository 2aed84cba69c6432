"""`memagent serve`: readings over HTTP."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from memagent import tracing
from memagent.cli.console import boundary, err, note
from memagent.cli.options import Chosen, reads
from memagent.errors import ConfigError, MissingExtraError
from memagent.home import data_folder

_KeyFile = Annotated[Path, typer.Option("--keys", help="The file of keys.")]
_Folder = Annotated[Path | None, typer.Option(help="The folder of readings and files (default: beside the journal).")]
_Patience = Annotated[
    float, typer.Option(min=0, help="Seconds for which readings wait if the model server cannot be reached.")
]
_Drain = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds after SIGTERM in which the service still answers, but accepts no new readings (/ready: 503)."
    ),
]
_UploadMb = Annotated[int, typer.Option(min=1, help="Largest size of a request or an uploaded file, in megabytes.")]
_StoredMb = Annotated[int, typer.Option(min=1, help="Megabytes of documents that are kept for each key.")]
_Operator = Annotated[
    str | None, typer.Option(help="The name of the key that sees the metrics of all keys; others see their own.")
]
_LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="The format of the log: a line for each request, and for each reading that ends."),
]


@reads
def serve(
    chosen: Chosen,
    host: Annotated[str, typer.Option(help="The address to serve on; any but loopback needs --keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to serve on.")] = 8600,
    keys: Annotated[Path | None, typer.Option(help="A file of keys; see `memagent serve-key`.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="A folder whose files requests may name by their paths below it.")
    ] = None,
    folder: _Folder = None,
    readings: Annotated[int, typer.Option(min=1, help="Number of readings that run at the same time.")] = 8,
    readings_per_key: Annotated[int | None, typer.Option(min=1, help="The same for one key (default: --readings).")] = None,
    queue: Annotated[
        int, typer.Option(min=0, help="Number of readings that wait; further ones are refused with 429.")
    ] = 1000,
    queue_per_key: Annotated[int | None, typer.Option(min=0, help="The same for one key (default: --queue).")] = None,
    upload_mb: _UploadMb = 256,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=1, help="Largest number of tokens, in and out, for each key and day (UTC).")
    ] = None,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Days after which ended readings are deleted.")] = None,
    patience: _Patience = 600,
    deadline: Annotated[float | None, typer.Option(min=1, help="Seconds after which the service ends a reading.")] = None,
    drain: _Drain = 0,
    files_per_key: Annotated[int, typer.Option(min=1, help="Number of uploaded files that are kept for each key.")] = 1000,
    stored_mb_per_key: _StoredMb = 10_240,
    operator: _Operator = None,
    log_format: _LogFormat = "text",
) -> None:
    """Serve readings over HTTP, to OpenAI clients and by routes of its own."""
    with boundary(), ExitStack() as stack:
        try:
            from memagent.server.log import set_up
            from memagent.server.run import Place, built
            from memagent.server.run import serve as run
            from memagent.server.values import Limits
        except ImportError as error:
            raise MissingExtraError("memagent serve", "serve") from error
        set_up(log_format)
        tracing.start()
        data = folder or data_folder() / "service"
        place = Place(host=host, port=port, folder=data, keys=keys, root=root, drain=drain, operator=operator)
        place.check()
        opened = chosen.opened(stack)
        limits = Limits(
            readings=readings,
            readings_per_key=readings_per_key or readings,
            queue=queue,
            queue_per_key=queue if queue_per_key is None else queue_per_key,
            upload_bytes=upload_mb << 20,
            files_per_key=files_per_key,
            stored_bytes=stored_mb_per_key << 20,
            tokens_per_day=tokens_per_day,
            patience=patience,
            deadline=deadline,
            keep_days=keep_days,
        )
        app, service = built(stack, place, opened, chosen.model, chosen.base_url, chosen.options, limits)
        say = note if log_format == "text" else logging.getLogger("memagent.server").info
        run(place, app, service, chosen.model, say)


def serve_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    keys: _KeyFile = Path("keys.txt"),
    replace: Annotated[bool, typer.Option("--replace", help="Give a new key to a name that has one.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the key of this name out of the file.")] = False,
) -> None:
    """Add a key to the file of a service, and print it. The file has only its hash. A running service uses it at once."""
    with boundary():
        from memagent.server.keys import add_key, has_key, remove_key

        if replace and remove:
            raise ConfigError("--replace and --remove do not go together: give one of them")
        if remove:
            remove_key(keys, name)
            err.print(f"[dim]removed {name} from {keys}[/]")
            return
        done = "gave a new key to" if has_key(keys, name) else "added"
        typer.echo(add_key(keys, name, replace=replace))
        err.print(f"[dim]{done} {name} in {keys}; the key is not shown again[/]")
