"""Writes the samples of a suite's file: record by record, and whole or not at all."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from memagent.errors import ConfigError, TaskError
from memagent.files import atomic_file
from memagent.tasks.files import Shared, check_replaceable, sample_line
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample, generator
from memagent.tasks.suites.importing import Import


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
    every = enumerate(wanted.samples())
    return islice((sample for number, sample in every if chosen is None or number in chosen), wanted.limit)


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
