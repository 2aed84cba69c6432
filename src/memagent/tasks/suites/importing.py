"""The samples of a suite's official file, record by record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent.errors import ConfigError, TaskError
from memagent.tables import finding
from memagent.tasks.samples import Sample, checked
from memagent.tasks.suites.catalog import SUITES
from memagent.tasks.suites.records import records
from memagent.tasks.suites.suite import Exercise, Hay, Place, Suite
from memagent.tasks.words import Split

_LENGTH = re.compile(r"(?<![0-9A-Za-z])(\d+[kKM])(?![0-9A-Za-z])")
_FOLDERS = 3  # of a path that may say what a file holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What to import, and how.

    limit       at most so many samples: the first, or with a `seed` that many drawn at random
    seed        also that of places and names that are drawn
    categories  only these, if any are given
    subset      the part of the suite that the file holds, if neither its records nor its path say so
    split       "eval" samples are refused by training
    shared      documents stand in files of their own (True), in their lines (False), or as suits the suite (None)
    """

    suite: Suite[Any]
    file: Path
    limit: int | None = None
    seed: int | None = None
    categories: tuple[str, ...] = ()
    subset: str | None = None
    split: Split = "eval"
    shared: bool | None = None
    hay: Hay | None = None

    def samples(self) -> Iterator[Sample]:
        """The samples, read anew each time. Raises TaskError that names file, place and field."""
        place = self._place()
        ids: set[str] = set()
        for number, (where, value) in enumerate(records(self.file), 1):
            try:
                for exercise in self.suite.exercises(self._parsed(value, number), replace(place, number=number)):
                    if self.categories and exercise.category not in self.categories:
                        continue
                    if exercise.id in ids:
                        raise TaskError(f"a second sample with the id {exercise.id!r}")
                    ids.add(exercise.id)
                    yield self._sample(exercise, where)
            except TaskError as error:
                raise TaskError(f"{self.file}, {where}, {error}") from error

    def _place(self) -> Place:
        """What is known of the file before its first record, after checks."""
        suite = self.suite
        if suite.needs_hay and self.hay is None:
            raise ConfigError(f"{suite.title} needs a text to hide its needles in: pass --haystack")
        if self.hay is not None and not suite.needs_hay:
            raise ConfigError(f"{suite.title} brings its documents: leave --haystack out")
        subset = self._subset() if suite.subsets else ""
        if self.subset and not suite.subsets:
            raise ConfigError(f"{suite.title} has no subsets; --category chooses among its records")
        length = next((found.group(1) for found in map(_LENGTH.search, self._path_parts()) if found), "")
        return Place(number=0, subset=subset, length=length, seed=self.seed or 0, hay=self.hay)

    def _subset(self) -> str:
        """As given, or what the name of the file says, or else the nearest folder that says something."""
        known = self.suite.subsets
        if self.subset is not None:
            if self.subset not in known:
                raise ConfigError(f"{self.suite.title} has no subset {self.subset!r}; there are {', '.join(known)}")
            return self.subset
        for part in self._path_parts():
            said = [name for name in known if re.search(rf"(?<![0-9A-Za-z]){re.escape(name)}(?![0-9A-Za-z])", part)]
            if said:
                return max(said, key=len)
        raise ConfigError(
            f"{self.file}: neither its name nor its folders say which part of {self.suite.title} it holds:"
            f" pass --subset with one of {', '.join(known)}"
        )

    def _path_parts(self) -> list[str]:
        """The name without suffixes, then the folders from the nearest on."""
        path = self.file.absolute()
        return [path.name.split(".")[0], *(folder.name for folder in list(path.parents)[:_FOLDERS])]

    def _parsed(self, value: Any, number: int) -> Any:
        try:
            return self.suite.record.model_validate(value)
        except ValidationError as error:
            field, said = finding(error, branches=("str", "int", "float"))
            hint = _hint(self.suite, value) if number == 1 else ""
            raise TaskError(f"{field or 'the record'}: {said}{hint}") from error

    def _sample(self, exercise: Exercise, where: str) -> Sample:
        if not len(exercise.document):
            raise TaskError("the document is empty")
        name = self.suite.name
        known = {"suite": name, "record": where, "category": exercise.category, "split": self.split}
        sample = Sample(
            id=f"{name}-{exercise.id}",
            task=f"{name} {exercise.category}".strip(),
            question=exercise.question,
            document=exercise.document,
            answers=tuple(exercise.answers),
            mode=exercise.mode,
            facts=tuple(exercise.facts),
            tokens=exercise.tokens,
            seed=exercise.seed if self.seed is None else self.seed,
            scorer=exercise.scorer,
            meta={field: value for field, value in exercise.meta.items() if value not in (None, "")} | known,
        )
        return checked(sample)


def _hint(suite: Suite[Any], value: Any) -> str:
    """What a first record that does not fit may be instead."""
    others = [other.name for other in SUITES.values() if other is not suite and _fits(other, value)]
    if others:
        return f" (this is no file of {suite.title}: it has the form of {' or '.join(others)})"
    names = ", ".join(sorted(map(str, value))[:12]) if isinstance(value, dict) else ""
    return f" (is this a file of {suite.title}? Its first record has the fields {names})" if names else ""


def _fits(suite: Suite[Any], value: Any) -> bool:
    try:
        suite.record.model_validate(value)
    except ValidationError:
        return False
    return True
