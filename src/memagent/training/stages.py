"""The stages of a recipe as runs, each in a folder of its own: planned, checked against what is there, and trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from memagent.errors import ConfigError
from memagent.files import atomic_file
from memagent.training.config import Mixture, ReadingMixture, SftConfig, checked
from memagent.training.recipe import CONFIGS, Stage, configured, load_recipe
from memagent.training.rl_config import RlConfig, TaskMix

_FINISHED = "finished.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A stage with its checked configuration, `text` in TOML, and the folder of its run. `before`: the folder of the run
    that it goes on from; None where the configuration says where it starts. `blend`: the models whose mean it starts from,
    by folder."""

    stage: Stage
    config: SftConfig | RlConfig
    text: str
    folder: Path
    before: Path | None
    blend: Mapping[Path, float]

    @property
    def schedule(self) -> int:
        """Steps of the whole schedule."""
        return self.config.schedule.steps if isinstance(self.config, SftConfig) else self.config.steps

    @property
    def steps(self) -> int:
        return min(self.schedule, self.stage.stop_after or self.schedule)

    @property
    def parts(self) -> list[str]:
        """Names of what it trains on; that there is one for each of several readers is not repeated."""
        config = self.config
        parts: Sequence[Mixture | ReadingMixture | TaskMix]
        parts = [*config.mixture, *config.reading] if isinstance(config, SftConfig) else config.task
        return list(dict.fromkeys(part.name.removesuffix(f"_{part.reader}") for part in parts))

    @property
    def finished(self) -> bool:
        return (self.folder / _FINISHED).is_file()

    @property
    def reached(self) -> int | None:
        """The step of its last checkpoint."""
        last = self.folder / "last"
        return int(last.resolve().stem) if last.is_symlink() else None


def plan(source: str | Path, folder: Path, changes: Sequence[str] = ()) -> list[Planned]:
    """The stages of a recipe as runs in FOLDER/STAGE. A change "STAGE.a.b=c" is for one stage, "sft.a.b=c" for all of that
    kind, "a.b=c" for all. Raises ConfigError that names the stage and the field."""
    recipe, planned = load_recipe(source), list[Planned]()
    names = [stage.name for stage in recipe.stage]
    _check_heads(changes, names)
    for place, stage in enumerate(recipe.stage):
        before = folder / names[place - 1] if place else None
        origin = recipe.origin(place)
        blend = {folder / name / "last": share for name, share in stage.blend.items()}
        start = str(folder / origin.name / "last") if origin else None
        if blend and start:
            blend = {Path(start): 1 - sum(blend.values()), **blend}
            start = str(folder / stage.name / "start")
        config, text = configured(recipe, source, stage, start, _meant(stage, names, changes), CONFIGS[stage.kind])
        given = not stage.resume and config.start != start
        planned.append(
            Planned(
                stage=stage,
                config=config,
                text=text,
                folder=folder / stage.name,
                before=None if given else before,
                blend={} if given else blend,
            )
        )
    return planned


def check_begun(planned: Sequence[Planned], chosen: Sequence[Planned]) -> None:
    """Raises ConfigError if a chosen stage has nothing to start from, or has a run that does not fit the recipe."""
    finished = {one.folder: one.finished for one in planned}
    for one in chosen:
        for source in list(one.blend)[1:]:
            if not finished[source.parent] and source.parent not in [other.folder for other in chosen]:
                raise ConfigError(
                    f"stage {one.stage.name!r} blends {source.parent.name!r}, which is not finished in {source.parent}:"
                    f" train that first, or give a model with --set {one.stage.name}.start=FOLDER"
                )
        if one.before is not None and not finished[one.before]:
            name = one.before.name
            if one.reached is not None:
                raise ConfigError(
                    f"stage {one.stage.name!r} has begun, and {name!r}, which it starts from, is not finished: delete"
                    f" {one.folder} to train it again after {name!r}"
                )
            if one.before not in [other.folder for other in chosen]:
                raise ConfigError(
                    f"stage {one.stage.name!r} starts from {name!r}, which is not finished in {one.before}: train that"
                    f" first, or give a model with --set {one.stage.name}.start=FOLDER"
                )
        if one.finished and (difference := changed_since(one)):
            raise ConfigError(
                f"stage {one.stage.name!r} in {one.folder} was trained with another configuration ({difference}): choose"
                " another folder, or delete the folders of this stage and of those after it"
            )


def changed_since(planned: Planned) -> str:
    """The first difference between the configuration of a run that has a checkpoint and this one; "" for none."""
    kept, done = planned.folder / "config.toml", planned.folder / _FINISHED
    if planned.reached is None or not kept.is_file():
        return ""
    try:
        old = checked(kept.read_text(encoding="utf-8"), type(planned.config), str(kept)).model_dump(mode="json")
    except ConfigError as error:
        return str(error)
    new = planned.config.model_dump(mode="json")
    if planned.before is not None:  # the same weights, however the folder is named
        old["start"] = new["start"]
    if done.is_file():
        ended = json.loads(done.read_text(encoding="utf-8"))
        old |= {"stop_after": ended["stop_after"], "blend": ended.get("blend", {})}
        new |= {"stop_after": planned.stage.stop_after, "blend": planned.stage.blend}
    return next(_differences(old, new), "")


def train(planned: Planned, console: Console | None = None) -> None:
    """Trains a stage to its end, from where it was interrupted if it was. Raises what the trainers raise."""
    from memagent.training import rl, sft
    from memagent.training.checkpoints import Checkpoints
    from memagent.training.export import write_mean
    from memagent.training.run import Launch

    checkpoints, stage, config = Checkpoints(planned.folder), planned.stage, planned.config
    if stage.resume and planned.before and not checkpoints.exist():
        checkpoints.adopt(Checkpoints(planned.before))
    if planned.blend and not checkpoints.exist():
        write_mean(planned.blend, Path(str(config.start)), "float32")
    launch = Launch(planned.folder, True, stage.stop_after, console, planned.text)
    trainer = sft.run(config, launch) if isinstance(config, SftConfig) else rl.run(config, launch)
    with atomic_file(planned.folder / _FINISHED) as file:
        json.dump({"step": trainer.step, "stop_after": stage.stop_after, "blend": stage.blend}, file)


def _check_heads(changes: Sequence[str], names: Sequence[str]) -> None:
    """Raises ConfigError for a change of what is neither a stage, nor a kind, nor a field of a configuration."""
    fields = {field for config in CONFIGS.values() for field in config.model_fields}
    for change in changes:
        head = change.partition("=")[0].strip().partition(".")[0]
        if "." in change.partition("=")[0] and head not in (*names, *CONFIGS, *fields):
            raise ConfigError(
                f"--set {change!r}: {head} is no stage, kind or field of a stage; stages: {', '.join(names)};"
                f" kinds: {', '.join(CONFIGS)}"
            )


def _meant(stage: Stage, names: Sequence[str], changes: Sequence[str]) -> list[str]:
    """The changes that are for a stage, without its name."""
    meant = []
    for change in changes:
        head, _, rest = change.partition(".")
        if head not in (*names, *CONFIGS):
            meant.append(change)
        elif head in (stage.name, stage.kind):
            meant.append(rest)
    return meant


def _differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            yield from _differences(old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, other, f"{place}.{number}")
    elif old != new:
        yield f"{place}: {json.dumps(old)}, now {json.dumps(new)}"
