"""`memagent profile`: lists, shows and imports prompt profiles."""

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
    """List the available profiles for --profile."""
    with boundary():
        for name, path in profile_paths().items():
            try:
                write(f"{name}  ", (load_profile(path).description, "dim"))
            except ConfigError as error:  # the other profiles remain usable
                write(f"{name}  ", (str(error), "red"))


@app.command("show")
def show(name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a profile, or a TOML file.")]) -> None:
    """Print the TOML of a profile."""
    with boundary():
        load_profile(name)
        path = profile_paths().get(name, Path(name))
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())
        sys.stdout.buffer.flush()


@app.command("import")
def import_profile(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A local checkout of the released MemAgent code.")],
    name: Annotated[str, typer.Option(help="The name of the new profile.")] = "released",
) -> None:
    """Import the prompts of the released code, which its weights were trained with. The code is parsed, never run."""
    with boundary():
        if not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"{name!r} is not a valid profile name: use letters, digits, - and _")
        path = user_folder() / f"{name}.toml"
        write_profile(import_released(folder, name), path)
        write(f"imported; use --profile {name} --rules paper   ", (f"({path})", "dim"))
