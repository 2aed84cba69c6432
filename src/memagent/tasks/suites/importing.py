"""Writes the sample file of a suite's official file: record by record, and whole or not at all."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent.errors import ConfigError, TaskError
from memagent.files import atomic_file
from memagent.tables import finding
from memagent.tasks.files import Shared, check_replaceable, sample_line
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample, checked, generator
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
        place_of = self._places()
        ids: set[str] = set()
        for number, (where, value) in enumerate(records(self.file), 1):
            try:
                for exercise in self.suite.exercises(self._parsed(value, number), place_of(number)):
                    if self.categories and exercise.category not in self.categories:
                        continue
                    if exercise.id in ids:
                        raise TaskError(f"a second sample with the id {exercise.id!r}")
                    ids.add(exercise.id)
                    yield self._sample(exercise, where)
            except TaskError as error:
                raise TaskError(f"{self.file}, {where}, {error}") from error

    def _places(self) -> Callable[[int], Place]:
        """Checks what is known of the file before its first record."""
        suite = self.suite
        if suite.needs_hay and self.hay is None:
            raise ConfigError(f"{suite.title} needs a text to hide its needles in: pass --haystack")
        if self.hay is not None and not suite.needs_hay:
            raise ConfigError(f"{suite.title} brings its documents: leave --haystack out")
        subset = self._subset() if suite.subsets else ""
        if self.subset and not suite.subsets:
            raise ConfigError(f"{suite.title} has no subsets; --category chooses among its records")
        found = [match.group(1) for part in self._path_parts() for match in _LENGTH.finditer(part)]
        return lambda number: Place(
            number=number, subset=subset, length=found[0] if found else "", seed=self.seed or 0, hay=self.hay
        )

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
            meta={**exercise.meta, **known},
        )
        return checked(sample)


def import_samples(wanted: Import, output: Path, progress: Callable[[int], None] | None = None) -> Counter[str]:
    """Writes the sample file, and the files of shared documents beside it. Returns the number of samples by task.

    A failure leaves no files. Memory holds one record, its samples, and the digests of the documents in files of their own.
    """
    check_replaceable(output)
    output = output.resolve()
    if output == wanted.file.resolve():
        raise ConfigError(f"{output} is the file to import: give another name for the sample file")
    chosen = _chosen(wanted)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        stream = stack.enter_context(atomic_file(output))
        beside = _Beside(output, stack)
        for sample in _taken(wanted, chosen):
            try:
                line = sample_line(sample, beside.shared(sample.document) if _is_shared(wanted) else None)
                line.encode()
            except UnicodeEncodeError as error:
                raise TaskError(f"{wanted.file}, sample {sample.id}: half of a surrogate pair is not text") from error
            stream.write(line + "\n")
            counts[sample.task] += 1
            if progress is not None:
                progress(counts.total())
        if not counts:
            raise _nothing(wanted)
        beside.keep()
    return counts


def _chosen(wanted: Import) -> Collection[int] | None:
    """The numbers of the samples that are drawn at random, if they are. This reads the file once more."""
    if wanted.limit is None or wanted.seed is None:
        return None
    count = sum(1 for _ in wanted.samples())
    rng = generator(wanted.seed, f"import {wanted.suite.name}", 0)
    return frozenset(rng.sample(range(count), min(wanted.limit, count)))


def _taken(wanted: Import, chosen: Collection[int] | None) -> Iterator[Sample]:
    taken = 0
    for number, sample in enumerate(wanted.samples()):
        if wanted.limit is not None and taken >= wanted.limit:
            return
        if chosen is None or number in chosen:
            taken += 1
            yield sample


def _is_shared(wanted: Import) -> bool:
    return wanted.suite.shares if wanted.shared is None else wanted.shared


def _nothing(wanted: Import) -> TaskError:
    if not wanted.categories:
        return TaskError(f"{wanted.file}: the file has no questions")
    every = Import(suite=wanted.suite, file=wanted.file, subset=wanted.subset, hay=wanted.hay)
    found = sorted({str(sample.meta["category"]) for sample in every.samples()})
    return TaskError(
        f"{wanted.file}: no record of the category {', '.join(wanted.categories)}; there are {', '.join(found) or 'none'}"
    )


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


class _Beside:
    """The files of shared documents, named by their digest. Unless they are kept, those that are new go again."""

    def __init__(self, output: Path, stack: ExitStack) -> None:
        self._output = output
        self._known: dict[bytes, Shared] = {}
        self._last: tuple[str, Shared] | None = None
        self._new: list[Path] = []
        stack.callback(self._undo)

    def shared(self, document: LazyText) -> Shared:
        if self._last is None or self._last[0] is not document.base:
            self._last = document.base, self._written(document.base)
        return self._last[1]

    def keep(self) -> None:
        self._new.clear()

    def _written(self, text: str) -> Shared:
        digest = hashlib.sha256(text.encode())
        if digest.digest() not in self._known:
            shared = Shared(f"{self._output.stem}.{digest.hexdigest()[:12]}.text", digest.hexdigest())
            path = self._output.parent / shared.file
            if not path.exists():
                self._new.append(path)
            with atomic_file(path) as stream:
                stream.write(text)
            self._known[digest.digest()] = shared
        return self._known[digest.digest()]

    def _undo(self) -> None:
        for path in self._new:
            path.unlink(missing_ok=True)


def described(suites: Iterable[Suite[Any]] = ()) -> list[dict[str, Any]]:
    """The suites, for a listing."""
    return [
        {
            "format": suite.name,
            "suite": suite.title,
            "file": suite.file,
            "scorer": suite.scorer,
            "official": suite.official,
            "subsets": list(suite.subsets),
        }
        for suite in suites or SUITES.values()
    ]
