"""Prompt profiles on disk: those shipped, those in the user's data folder, and any TOML file."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memagent.core.prompts import Profile, profile_from_mapping
from memagent.errors import ConfigError
from memagent.home import data_folder

_SHIPPED = Path(__file__).parent


def load_profile(name: str | Path) -> Profile:
    """A profile by name (shipped, or imported by the user), or from a path to a TOML file.

    Raises ConfigError that names the file and what is wrong with it, or lists the known names.
    """
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) > 1:
        return read_profile(path)
    known = profile_paths()
    if str(name) not in known:
        raise ConfigError(f"no profile named {str(name)!r}; known: {', '.join(known)}; or give a path to a TOML file")
    return read_profile(known[str(name)])


def read_profile(path: Path) -> Profile:
    """A profile from a TOML file. What the file does not say is as in the shipped profile that it names as its `base`."""
    values = _values(path)
    if (base := values.pop("base", None)) is not None:
        known = _named(_SHIPPED)
        if not isinstance(base, str) or base not in known or known[base] == path:
            raise ConfigError(f"{path}: base is {base!r}; it must be another one of {', '.join(known)}")
        values = {**_templates(read_profile(known[base])), **values}
    return profile_from_mapping(values, str(path))


def profile_paths() -> dict[str, Path]:
    """Name → file of every profile that can be named; a user's profile hides a shipped one of the same name."""
    return _named(_SHIPPED) | _named(user_folder())


def user_folder() -> Path:
    """Where imported profiles are kept."""
    return data_folder() / "profiles"


def write_profile(profile: Profile, path: Path) -> None:
    """Writes a profile as TOML, to a file that appears whole or not at all. Reading it gives the same profile."""
    # A JSON string is a valid TOML basic string, apart from DEL.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in asdict(profile).items()]
    text = "\n".join(lines).replace("\x7f", "\\u007f") + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"the profile cannot be written to {path}: {error}") from error


def _named(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _templates(profile: Profile) -> dict[str, Any]:
    """What a profile says, without what it is called."""
    own = ("name", "version", "description")
    return {name: value for name, value in asdict(profile).items() if name not in own}


def _values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the profile {path} cannot be read: {error}") from error
