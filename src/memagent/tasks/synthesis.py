"""Writes samples of named tasks to a file. The number of processes does not change the file."""

from __future__ import annotations

import hashlib
import itertools
import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from multiprocessing import TimeoutError as MultiprocessingTimeout
from multiprocessing import active_children, get_context
from multiprocessing.pool import IMapIterator
from pathlib import Path
from typing import Any, TypeAlias

from memagent.core.types import Span, Tokenizer
from memagent.errors import TaskError
from memagent.files import atomic_file
from memagent.tasks.catalog import find
from memagent.tasks.files import Shared, check_replaceable, sample_line
from memagent.tasks.haystack import Haystack
from memagent.tasks.question_files import load_questions
from memagent.tasks.questions import QuestionSet, for_evaluation
from memagent.tasks.ruler_wording import load_wording
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.wording import OURS
from memagent.tasks.words import Split, load_words, shipped_words

# Above this many tokens in a file, documents share their text in a file beside it.
SHARED_TOKENS = 4_000_000
# Seconds without a result after which the other processes are checked.
_PATIENCE = 5.0

# A sample's id, its line, and the shared text that the line refers to.
Line: TypeAlias = tuple[str, str, Shared | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipe of a sample file: `samples` samples of every task at every length. It is small and sent to processes.

    `tokenizer` opens the tokenizer that lengths are counted with. `shared`: documents refer to a shared file (True), stand
    in their lines (False), or as suits their size (None).
    """

    tasks: tuple[str, ...]
    tokens: tuple[int, ...]
    samples: int
    tokenizer: Callable[[], Tokenizer]
    seed: int = 0
    first: int = 0
    split: Split = "eval"
    options: Mapping[str, Any] = field(default_factory=dict)
    haystack: tuple[Path, ...] = ()
    words: Path | None = None
    questions: Path | None = None
    passages: Path | None = None
    wording: Path | None = None
    shared: bool | None = None

    def requests(self) -> Iterator[tuple[str, Request]]:
        """Every sample to make, in the order of the file."""
        for task, tokens in itertools.product(self.tasks, self.tokens):
            for index in range(self.first, self.first + self.samples):
                yield task, Request(tokens=tokens, seed=self.seed, index=index)


def gather(recipe: Recipe) -> Materials:
    """Loads the files of the recipe. Raises TaskError or ConfigError that names an invalid file."""
    return Materials(
        tokenizer=recipe.tokenizer(),
        haystack=_haystack(recipe),
        words=load_words(recipe.words, recipe.split) if recipe.words else shipped_words(recipe.split),
        wording=load_wording(recipe.wording) if recipe.wording else OURS,
        questions=_questions(recipe, recipe.questions) if recipe.questions else None,
    )


def _questions(recipe: Recipe, file: Path) -> QuestionSet:
    """The questions of a file; for training, without those that it keeps for evaluation."""
    found = load_questions(file, passages=recipe.passages)
    if recipe.split == "eval":
        return found
    kept = tuple(one for one in found.questions if not for_evaluation(one.meta))
    if not kept:
        raise TaskError(f"{file}: its lines say that all questions are for evaluation: give a file with others")
    left_out = len(found.questions) - len(kept)
    notes = {"questions for evaluation left out": left_out} if left_out else {}
    return replace(found, questions=kept, notes={**found.notes, **notes})


def _haystack(recipe: Recipe) -> Haystack | None:
    if recipe.haystack:
        return Haystack.load(recipe.haystack, recipe.split)
    return Haystack.shipped() if recipe.split == "eval" else None


def make(recipe: Recipe, materials: Materials, name: str, request: Request) -> Sample:
    """One sample of a recipe. Its meta has the requested length, unless the task ignores it."""
    task = find(name)
    sample = task.sample(materials, request, task.options(recipe.options))
    fitted = 0.99 * request.tokens <= sample.tokens <= request.tokens
    target = {"target": request.tokens} if fitted else {}
    return replace(sample, task=variant(recipe, name), meta={**sample.meta, **target, "split": recipe.split})


def variant(recipe: Recipe, name: str) -> str:
    """The task's name with changed options, so that reports separate "multihop hops=1" and "multihop hops=3"."""
    defaults, wanted = find(name).defaults, find(name).options(recipe.options)
    changed = [
        f"{item.name}={getattr(wanted, item.name)}"
        for item in fields(defaults)
        if getattr(wanted, item.name) != getattr(defaults, item.name)
    ]
    given = {"haystack": recipe.haystack, "words": recipe.words, "wording": recipe.wording}
    for what, paths in given.items():
        named = [paths] if isinstance(paths, Path) else paths or ()
        changed += [f"{what}={'+'.join(path.name for path in named)}"] if named else []
    changed += [f"split={recipe.split}"] if recipe.split != "eval" else []
    return " ".join([name, *changed])


def write_samples(
    recipe: Recipe,
    path: Path,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Makes all samples, writes the file and returns their number. A failure leaves no files.

    `progress` is told the number of samples written, and `say` what to know about the questions of a file. Memory holds the
    materials, in every process, and a few samples.
    """
    if recipe.samples < 1 or not recipe.tokens or not recipe.tasks:
        raise TaskError(
            f"nothing to write: {recipe.samples} samples of {len(recipe.tasks)} tasks at {len(recipe.tokens)} lengths"
        )
    for name in recipe.tasks:
        find(name).options(recipe.options)
    check_replaceable(path)
    path = path.resolve()  # the texts are beside the file that a link points to
    maker = _Maker(recipe, path.name)
    asked = _Asked()
    count = 0
    with ExitStack() as stack:
        stream = stack.enter_context(atomic_file(path))
        bases: set[str] = set()
        ids: set[str] = set()
        for count, (id, line, base) in enumerate(_lines(stack, maker, workers), 1):
            if id in ids:
                raise TaskError(f"two samples have the id {id}: this task ignores --tokens, so pass a single value")
            ids.add(id)
            if base is not None and base.file not in bases:
                # Entered after the sample file, so that it appears first: a sample file never lacks its texts.
                stack.enter_context(atomic_file(path.parent / base.file)).write(maker.text(count - 1, base))
                bases.add(base.file)
            stream.write(line + "\n")
            if recipe.questions is not None:
                asked.take(json.loads(line))
            if progress is not None:
                progress(count)
    if say is not None and recipe.questions is not None:
        for notice in asked.notices(recipe):
            say(notice)
    return count


@dataclass(slots=True)
class _Asked:
    """What the samples of a question file ask."""

    samples: int = 0
    questions: set[str] = field(default_factory=set)
    marked: bool = False

    def take(self, sample: Mapping[str, Any]) -> None:
        self.samples += 1
        self.questions.add(sample["question"])
        self.marked |= "question_split" in sample.get("meta", {})

    def notices(self, recipe: Recipe) -> Iterator[str]:
        if repeated := self.samples - len(self.questions):
            yield (
                f"{repeated:,} of {self.samples:,} samples ask one of {len(self.questions):,} questions again, in another"
                " text: they are not independent, so that intervals in reports are too narrow"
            )
        if recipe.split == "train" and not self.marked:
            yield f"{recipe.questions}: no line says which split it is of: check that these questions are for training"


def _lines(stack: ExitStack, maker: _Maker, workers: int) -> Iterable[Line]:
    numbers = range(len(maker.requests))
    if workers <= 1:
        return map(maker.line, numbers)
    pool = stack.enter_context(get_context("spawn").Pool(workers, _enter, (maker,)))
    return _in_order(pool.imap(_line, numbers))


def _in_order(results: IMapIterator[Line]) -> Iterator[Line]:
    """The results of a pool. Raises TaskError if a process died; the pool would wait forever."""
    processes = {child.pid for child in active_children()}
    while True:
        try:
            yield results.next(timeout=_PATIENCE)
        except StopIteration:
            return
        except MultiprocessingTimeout:
            if {child.pid for child in active_children()} != processes:
                raise TaskError("a worker process died, perhaps for lack of memory: use fewer --workers") from None


class _Maker:
    """Makes lines by number. Each process loads the materials separately."""

    def __init__(self, recipe: Recipe, name: str) -> None:
        self.recipe = recipe
        self.name = name
        self.requests = list(recipe.requests())
        self._materials: Materials | None = None
        self._bases: dict[int, tuple[str, Shared]] = {}
        self._large: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_materials": None, "_bases": {}}

    def sample(self, number: int) -> Sample:
        if self._materials is None:
            self._materials = gather(self.recipe)
        return make(self.recipe, self._materials, *self.requests[number])

    def line(self, number: int) -> Line:
        sample = self.sample(number)
        shared = self._shared(sample) if self._is_shared(sample) else None
        return sample.id, sample_line(sample, shared), shared

    def text(self, number: int, shared: Shared) -> str:
        """The base text of a shared file that the line of this number refers to."""
        for base, known in self._bases.values():
            if known == shared:
                return base
        return self.sample(number).document.base

    def _is_shared(self, sample: Sample) -> bool:
        if not any(isinstance(piece, Span) for piece in sample.document.pieces):
            return False
        if self._large is None:
            # Some tasks ignore the requested length. The first sample represents all, in every process.
            first = self.sample(0)
            asked = sum(request.tokens for _, request in self.requests)
            self._large = max(asked, first.tokens * len(self.requests)) > SHARED_TOKENS
        return self._large if self.recipe.shared is None else self.recipe.shared

    def _shared(self, sample: Sample) -> Shared:
        base = sample.document.base
        if id(base) not in self._bases:
            digest = hashlib.sha256(base.encode()).hexdigest()
            self._bases[id(base)] = base, Shared(f"{Path(self.name).stem}.{digest[:12]}.text", digest)
        return self._bases[id(base)][1]


_worker: list[_Maker] = []


def _enter(maker: _Maker) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes the file
    _worker[:] = [maker]


def _line(number: int) -> Line:
    return _worker[0].line(number)
