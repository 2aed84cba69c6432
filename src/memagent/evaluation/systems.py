"""Groups runs into compared systems, and names a system by what differs between the runs."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memagent.evaluation.runs import Run


def systems(runs: Sequence[Run]) -> list[str]:
    """The name of the system of each run. Runs of one reader, model and settings over different samples are one system.

    A name contains the reader, the model if there are several, and each setting that differs between the runs. Equal runs
    over the same samples are repetitions; their names also contain as much of the ends of their paths as needed.
    """
    flat = [_described(run) for run in runs]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    differing = [key for key in keys if len({repr(values.get(key)) for values in flat}) > 1]
    names = [
        _name(values, [key for key in differing if _tells(key, values, flat)]) + _wording(values, flat) for values in flat
    ]
    alike: dict[str, list[Run]] = defaultdict(list)
    for name, run in zip(names, runs, strict=True):
        alike[name].append(run)
    return [
        f"{name} · {_told_apart(run.folder, [one.folder for one in alike[name]])}" if _repeated(alike[name]) else name
        for name, run in zip(names, runs, strict=True)
    ]


def _tells(key: str, values: Mapping[str, Any], flat: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a setting tells a system from others. Options of a reader tell only systems of that reader apart."""
    if not key.startswith("reader_options."):
        return True
    same = [repr(other.get(key)) for other in flat if other["reader"] == values["reader"]]
    return len(set(same)) > 1


def _wording(values: Mapping[str, Any], flat: Sequence[Mapping[str, Any]]) -> str:
    """What tells a profile from others of its name, which have other words; "" if there are none."""

    def words(one: Mapping[str, Any]) -> str:
        return repr(sorted((key, repr(value)) for key, value in one.items() if key.startswith("profile.")))

    name, mine = values.get("profile.name"), words(values)
    if all(words(one) == mine for one in flat if one.get("profile.name") == name):
        return ""
    return f" · profile {name} {hashlib.sha256(mine.encode()).hexdigest()[:6]}"


def _repeated(runs: Sequence[Run]) -> bool:
    """Whether two of the runs are over the same samples."""
    samples = [str(run.header.get("samples", {}).get("sha256", run.folder)) for run in runs]
    return len(set(samples)) < len(samples)


def _told_apart(folder: Path, folders: Sequence[Path]) -> str:
    """The end of a path, with enough parts to distinguish all the folders."""
    paths = {one.resolve().parts for one in folders}
    parts = folder.resolve().parts
    count = next((n for n in range(1, len(parts)) if len({path[-n:] for path in paths}) == len(paths)), len(parts))
    return "/".join(parts[-count:])


def _described(run: Run) -> dict[str, Any]:
    """What determines the answers of a run, apart from the samples. `model` is the model's identity, not its typed name."""
    header = run.header
    known = {"reader": header.get("reader"), "model": header.get("model"), "attempts": header.get("attempts")}
    return {**_flat(header.get("settings") or {}), **_flat(header.get("comparison") or {}), **known}


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _name(values: Mapping[str, Any], differing: Sequence[str]) -> str:
    parts = [str(values["reader"])]
    told = {"reader", "identity", "window"} if "model" in differing else {"reader", "identity"}
    for key in differing:
        if key == "model":
            parts.append(str(values["model"]))
        elif key not in told and (
            key == "profile.name" or not key.startswith("profile.")
        ):  # templates are too long for a name
            parts.append(f"{key} {values.get(key)}")
    return " · ".join(parts)
