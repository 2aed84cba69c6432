"""A recipe: one file with the stages that make a model, each trained from the weights of the one before it.

    [sft], [rl]                    what the stages of a kind share: fields of `memagent train sft` and `memagent train rl`
    [mixture], [reading], [task]   what there is to train on, by name; the first two are for `sft`, the last one for `rl`
    [defaults]                     fields of everything in one of these three: `reading = {chunk = [480, 640]}`
    [weights]                      `stages` names columns; every other row is the name of a part and its weights
    [[stage]]                      `name`, `kind`, `about`, and the fields that this stage has of its own

A weight may be a table, `{memory = 0.5, gated = 0.7}`: the part is then there once for each reader, as NAME_READER.

The configuration of a stage is what its kind shares, with every part that has a weight in this stage, and with its own
fields over them; `reading.vt.quiet = 0.3` in a stage changes that part there. `stop_after` ends a stage before its schedule
does. A stage with `resume = true` continues the run of the stage before it, optimizer and step included. `blend` names
earlier stages and their shares in the weights that a stage starts from; the rest is the stage before it. `like` names an
earlier stage whose own fields this one has as well, under its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

import tomlkit
from pydantic import ConfigDict, Field, ValidationError, model_validator

from memagent.errors import ConfigError
from memagent.tables import problem
from memagent.training.config import Config, SftConfig, changed, checked, find_config, read_config
from memagent.training.fields import Part, Positive, Says, Share, one_of
from memagent.training.rl_config import RlConfig

Table: TypeAlias = dict[str, Any]
PartKind: TypeAlias = Literal["mixture", "reading", "task"]

CONFIGS: Mapping[str, type[SftConfig] | type[RlConfig]] = {"sft": SftConfig, "rl": RlConfig}
_PARTS: Mapping[str, tuple[PartKind, ...]] = {"sft": ("mixture", "reading"), "rl": ("task",)}
_RESERVED = {*CONFIGS, *SftConfig.model_fields, *RlConfig.model_fields}


class Stage(Part):
    """One run of training. Fields that are not named here are those of its configuration."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9-]*$"),
        Says("small letters, digits and `-`, the first a letter or digit; not the name of a field"),
    ]
    """The name of the stage, and of the folder of its run."""
    kind: Literal["sft", "rl"]
    """The command that trains it."""
    about: str = ""
    """What `--dry-run` says about the stage."""
    resume: bool = False
    """Continues the run of the stage before it, optimizer and step included, in place of starting from its weights."""
    stop_after: Positive | None = None
    """The step after which the stage ends, before its schedule does."""
    blend: Annotated[dict[str, Share], Says("names of stages: 0 to 1, below 1 together")] = Field(default={})
    """Earlier stages and their shares in the weights that the stage starts from; the rest is the stage before it."""
    like: str | None = None
    """An earlier stage of the same kind whose own fields this one has too, under its own."""

    @property
    def own(self) -> Table:
        return dict(self.model_extra or {})


class Recipe(Part):
    """The file that `memagent train recipe` reads."""

    sft: Table = Field(default={})
    """Fields that all supervised stages share: those of `memagent train sft`."""
    rl: Table = Field(default={})
    """Fields that all stages of reinforcement learning share: those of `memagent train rl`."""
    mixture: dict[str, Table] = Field(default={})
    """Single turns for `sft`, by name: the fields of a `[[mixture]]`."""
    reading: dict[str, Table] = Field(default={})
    """Perfect readings for `sft`, by name: the fields of a `[[reading]]`."""
    task: dict[str, Table] = Field(default={})
    """Documents for `rl`, by name: the fields of a `[[task]]`."""
    defaults: Annotated[dict[PartKind, Table], one_of(get_args(PartKind))] = Field(default={})
    """Fields of everything in one of these three tables."""
    weights: dict[str, list[Any]] = Field(default={})
    """The weights of parts in each stage: `stages` names the columns, and every other row is the name of a part."""
    stage: list[Stage] = Field(min_length=1)
    """The stages, in their order."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [stage.name for stage in self.stage]
        for place, stage in enumerate(self.stage):
            if stage.name in _RESERVED or stage.name in names[:place]:
                raise ValueError(f"two stages, or a stage and a field, are named {stage.name!r}: give it another name")
            if stage.resume and (place == 0 or self.stage[place - 1].kind != stage.kind):
                raise ValueError(f"stage {stage.name!r} cannot resume: no stage of the same kind comes before it")
            _check_blend(stage, names[: max(0, place - 1)])
            if stage.like and stage.like not in [one.name for one in self.stage[:place] if one.kind == stage.kind]:
                raise ValueError(f"stage {stage.name!r} is like {stage.like!r}, which is no stage of its kind before it")
        if twice := self.mixture.keys() & self.reading.keys():
            raise ValueError(f"mixture and reading both have {min(twice)!r}: give one of them another name")
        self._check_weights({stage.name: stage.kind for stage in self.stage})
        return self

    def _check_weights(self, kinds: Mapping[str, str]) -> None:
        columns = self.weights.get("stages", [])
        if unknown := [name for name in columns if name not in kinds]:
            raise ValueError(f"weights.stages: there is no stage {unknown[0]!r}; there are {', '.join(kinds)}")
        parts = {kind: {name for table in tables for name in getattr(self, table)} for kind, tables in _PARTS.items()}
        for name, row in self.weights.items():
            if len(row) != len(columns):
                raise ValueError(f"weights.{name} has {len(row)} weights for {len(columns)} stages")
            for stage, weight in zip(columns, row, strict=True):
                if name != "stages" and weight and name not in parts[kinds[stage]]:
                    raise ValueError(
                        f"weights.{name}: stage {stage!r} is of kind {kinds[stage]}, and no part for that has this name"
                    )

    def origin(self, place: int) -> Stage | None:
        """The stage from whose weights the one at a place starts; None: from what its kind shares."""
        while self.stage[place].resume:
            place -= 1
        return self.stage[place - 1] if place else None

    def weight(self, part: str, stage: str) -> Any:
        """The weight of a part in a stage by the table of weights, or None."""
        columns = self.weights.get("stages", [])
        return self.weights[part][columns.index(stage)] if part in self.weights and stage in columns else None

    def own(self, stage: Stage) -> Table:
        """The fields of a stage, over those of the one that it is like."""
        model = next((one for one in self.stage if one.name == stage.like), None)
        return _merged(self.own(model), stage.own) if model else stage.own

    def configuration(self, stage: Stage) -> Table:
        """The fields of a stage's run. `start` is that of the first stage, if the stage has none of its own."""
        fields = _merged(getattr(self, stage.kind), self.own(stage))
        for kind in _PARTS[stage.kind]:
            known, own = getattr(self, kind), fields.pop(kind, {})
            if not isinstance(own, dict) or not own.keys() <= known.keys():
                raise ConfigError(f"{kind}: a stage changes parts by their names, which are {', '.join(known) or 'none'}")
            parts = []
            for name, settings in known.items():
                weight = self.weight(name, stage.name)
                part = {"name": name, **self.defaults.get(kind, {}), **settings}
                part = _merged(part if weight is None else {**part, "weight": weight}, own.get(name, {}))
                parts += [one for one in _by_reader(part) if one.get("weight")]
            fields |= {kind: parts} if parts else {}
        return fields


def _check_blend(stage: Stage, earlier: Sequence[str]) -> None:
    if not stage.blend:
        return
    if unknown := [name for name in stage.blend if name not in earlier]:
        known = f"there are {', '.join(earlier)}" if earlier else "there is none"
        raise ValueError(f"stage {stage.name!r} blends {unknown[0]!r}, which is no stage before the last one: {known}")
    if stage.resume or "start" in stage.own:
        raise ValueError(f"stage {stage.name!r} has `blend` and {'`resume`' if stage.resume else '`start`'}: leave out one")
    if (total := sum(stage.blend.values())) >= 1:
        raise ValueError(f"stage {stage.name!r} blends shares of {total:g} in all: leave some to the stage before it")


def find_recipe(source: str | Path) -> Path:
    """The file of a recipe, or of a recipe of this package by its name. Raises ConfigError."""
    shipped = {path.parent.name: path for path in Path(__file__).parents[1].glob("*/recipe.toml")}
    path = Path(source)
    if path.is_file():
        return path
    if str(source) in shipped:
        return shipped[str(source)]
    raise ConfigError(f"no recipe {str(source)!r}: give a TOML file, or the name of a recipe: {', '.join(sorted(shipped))}")


def load_recipe(source: str | Path) -> Recipe:
    """Reads and checks a recipe, apart from the configurations of its stages. Raises ConfigError that names the field."""
    path = find_recipe(source)
    try:
        return Recipe.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {problem(error, Recipe)}") from error


def read_run(source: str | Path, kind: type[Config], changes: Sequence[str] = ()) -> tuple[Config, str]:
    """As `read_config`; a configuration for the other command is refused as one. Raises ConfigError."""
    try:
        return read_config(source, kind, changes)
    except ConfigError:
        for name in CONFIGS:
            if CONFIGS[name] is not kind and _fits(source, CONFIGS[name]):
                raise ConfigError(f"{find_config(source)} configures `memagent train {name}`: use that command") from None
        raise


def _fits(source: str | Path, kind: type[Config]) -> bool:
    try:
        return read_config(source, kind) is not None
    except ConfigError:
        return False


def read_stage(source: str, kind: type[Config], changes: Sequence[str] = ()) -> tuple[Config, str]:
    """The configuration of RECIPE:STAGE as one for a run of its own, and its TOML. Raises ConfigError."""
    name, _, wanted = source.rpartition(":")
    recipe = load_recipe(name)
    place = position([stage.name for stage in recipe.stage], wanted)
    stage, origin = recipe.stage[place], recipe.origin(place)
    if CONFIGS[stage.kind] is not kind:
        raise ConfigError(f"{source} is a stage of another kind: memagent train {stage.kind} {source}")
    if origin and "start" not in stage.own and not any(change.partition("=")[0].strip() == "start" for change in changes):
        raise ConfigError(f"{source} starts from {origin.name!r}: say where its weights are, with --set start=FOLDER")
    return configured(recipe, name, stage, origin.name if origin else None, changes, kind)


def position(names: Sequence[str], name: str) -> int:
    """The place of a stage. Raises ConfigError that lists the stages."""
    if name not in names:
        raise ConfigError(f"there is no stage {name!r}; there are {', '.join(names)}")
    return names.index(name)


def configured(
    recipe: Recipe, source: str | Path, stage: Stage, start: str | None, changes: Sequence[str], kind: type[Config]
) -> tuple[Config, str]:
    """The checked configuration of a stage and its TOML. `start`: where it starts if it has no `start` of its own; None
    where that is what its kind shares."""
    where = f"{find_recipe(source)}: stage {stage.name!r}"
    try:
        fields = recipe.configuration(stage)
        if start is not None and "start" not in stage.own:
            kept = {name: value for name, value in fields.items() if name not in ("start", "model", "tokenizer")}
            fields = {"start": start, **kept}
        text = changed(tomlkit.dumps(fields), changes)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return checked(text, kind, where), text


def _by_reader(part: Table) -> list[Table]:
    """A part, or one for each reader that its weight names."""
    name, weight = part["name"], part.get("weight")
    if not isinstance(weight, dict):
        return [part]
    return [{**part, "name": f"{name}_{reader}", "reader": reader, "weight": one} for reader, one in weight.items()]


def _merged(base: Table, over: Mapping[str, Any]) -> Table:
    """`base` with the values of `over`; tables are merged, field by field."""
    both = {name: (base[name], over[name]) for name in base.keys() & over.keys()}
    tables = {name: _merged(*pair) for name, pair in both.items() if all(isinstance(one, dict) for one in pair)}
    return {**base, **over, **tables}
