"""`memagent profile`: the words around question, memory and chunk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, write
from memagent.errors import ConfigError
from memagent.profiles import load_profile, profile_paths, user_folder, write_profile
from memagent.profiles.released import import_released

app = typer.Typer(help="List, show and import prompt profiles.", no_args_is_help=True)


@app.command("list")
def list_profiles() -> None:
    """List the profiles that can be named with --profile."""
    with boundary():
        for name, path in profile_paths().items():
            try:
                write(f"{name}  ", (load_profile(path).description, "dim"))
            except ConfigError as error:  # the others can still be named
                write(f"{name}  ", (str(error), "red"))


@app.command("show")
def show(name: Annotated[str, typer.Argument(help="A name, or a TOML file.")]) -> None:
    """Print a profile's TOML, byte for byte."""
    with boundary():
        load_profile(name)
        path = profile_paths().get(name, Path(name))
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())
        sys.stdout.buffer.flush()


@app.command("import")
def import_profile(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A local checkout of the released MemAgent code.")],
    name: Annotated[str, typer.Option(help="The name to give it.")] = "released",
) -> None:
    """Read the templates of the released code, by parsing it, so that its weights see the words they were trained on."""
    with boundary():
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{name!r} is not a name for a profile: use letters, digits, - and _")
        path = user_folder() / f"{name}.toml"
        write_profile(import_released(folder, name), path)
        write(f"imported; use it with: --profile {name} --rules paper   ", (f"({path})", "dim"))
