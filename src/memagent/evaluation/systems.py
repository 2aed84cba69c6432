"""Which runs are one system, and what to call it: by what differs between the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memagent.evaluation.runs import Run


def systems(runs: Sequence[Run]) -> list[str]:
    """A name for each run. Runs of one reader, model and settings over different samples get the same: they are one.

    A name says what sets a system apart: its reader, its model if there are several, each setting that is not the same
    everywhere. Runs that are alike in everything and over the same samples are kept apart by their folders: by as much of
    the ends of their paths as it takes.
    """
    flat = [_described(run) for run in runs]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    differing = [key for key in keys if len({repr(values.get(key)) for values in flat}) > 1]
    names = [_name(values, differing) for values in flat]
    alike: dict[str, list[Run]] = defaultdict(list)
    for name, run in zip(names, runs, strict=True):
        alike[name].append(run)
    return [
        f"{name} · {_told_apart(run.folder, [one.folder for one in alike[name]])}" if _repeated(alike[name]) else name
        for name, run in zip(names, runs, strict=True)
    ]


def _repeated(runs: Sequence[Run]) -> bool:
    """Whether two of the runs are over the same samples."""
    samples = [str(run.header.get("samples", {}).get("sha256", run.folder)) for run in runs]
    return len(set(samples)) < len(samples)


def _told_apart(folder: Path, folders: Sequence[Path]) -> str:
    """The end of a path, with as many parts as tell all the folders apart."""
    paths = {one.resolve().parts for one in folders}
    parts = folder.resolve().parts
    count = next((n for n in range(1, len(parts)) if len({path[-n:] for path in paths}) == len(paths)), len(parts))
    return "/".join(parts[-count:])


def _described(run: Run) -> dict[str, Any]:
    """What decides a run's answers, apart from the samples. The identity of a model says more than its name as typed."""
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
        elif key not in told and (key == "profile.name" or not key.startswith("profile.")):  # templates are no names
            parts.append(f"{key} {values.get(key)}")
    return " · ".join(parts)
