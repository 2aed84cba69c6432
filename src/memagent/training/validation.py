"""Validation with the evaluation package: held-out samples, the same readers, scorers and records as `memagent eval`."""

from __future__ import annotations

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from memagent.core import Tokenizer
from memagent.errors import TrainingError
from memagent.evaluation.folder import RunFolder
from memagent.evaluation.records import Record
from memagent.evaluation.runner import Evaluation, evaluate
from memagent.evaluation.runs import Run
from memagent.evaluation.summary import length_class
from memagent.models.open import OpenModel
from memagent.settings import Settings
from memagent.suite_scoring import meant
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample
from memagent.tasks.synthesis import Recipe, write_samples
from memagent.training.config import MEAN
from memagent.training.rl_config import TaskMix, ValidationConfig, ValidationTask

Asked: TypeAlias = tuple[str, frozenset[str]]


def make_held_out(config: ValidationConfig, folder: Path, tokenizer: Tokenizer) -> dict[str, SampleFile]:
    """Writes the samples that are made for validation into `folder`. Returns all samples by the name of their part."""
    for part in config.task:
        if part.task is not None:
            recipe = Recipe(
                tasks=(part.task,),
                tokens=part.tokens,
                samples=part.samples,
                tokenizer=lambda: tokenizer,
                seed=config.seed,
                options=part.options,
            )
            write_samples(recipe, _path(part, folder))
    return open_held_out(config, folder)


def open_held_out(config: ValidationConfig, folder: Path) -> dict[str, SampleFile]:
    """The samples of each part of the validation, by its name, as they were made in `folder`."""
    return {part.name: SampleFile.open(_path(part, folder)) for part in config.task}


def samples_of_files(parts: Sequence[ValidationTask]) -> Iterator[tuple[str, Sample]]:
    """All samples that are not made but read from files, each with the name of its part."""
    for part in parts:
        if part.file is not None:
            for sample in SampleFile.open(part.file):
                yield part.name, sample


def asked_in_both(training: Sequence[TaskMix], validation: Sequence[ValidationTask]) -> list[str]:
    """What to say about files of validation that ask what is trained on, too, and have the same answer. Raises
    TrainingError for a sample of which the text is the same as well."""
    trained: defaultdict[Asked, set[bytes]] = defaultdict(set)
    for part in training:
        for sample in SampleFile.open(part.file) if part.file is not None else ():
            trained[_asked(sample)].add(_text(sample))
    found = []
    for one in validation if trained else ():
        samples = SampleFile.open(one.file) if one.file is not None else None
        shared = 0
        for sample in samples or ():
            if (asked := _asked(sample)) in trained:
                if _text(sample) in trained[asked]:
                    raise TrainingError(f"{one.file}: sample {sample.id} is trained on: validate on other samples")
                shared += 1
        if samples and shared:
            found.append(
                f"{shared:,} of {len(samples.entries):,} samples of {one.file} have a question and an answer that are"
                " trained on: their scores do not say what the model makes of other questions"
            )
    return found


def _asked(sample: Sample) -> Asked:
    """The question, however it is set, and the answers."""
    return " ".join(sample.question.casefold().split()), frozenset(sample.answers)


def _text(sample: Sample) -> bytes:
    return hashlib.sha256(str(sample.document).encode()).digest()


def cell_of(name: str, one: Sample | Record) -> str:
    """What a score is averaged over: "name@tokens", of a sample or of what came of it; see `length_class`."""
    return f"{name}@{length_class(one)}"


def _path(part: ValidationTask, folder: Path) -> Path:
    return part.file or folder / f"{part.name}.jsonl"


class Validation:
    """The held-out samples of a run, in RUN/validation/NAME.jsonl; each validation is an evaluation run beside them."""

    def __init__(self, config: ValidationConfig, folder: Path, tokenizer: Tokenizer) -> None:
        self._config, self._folder = config, folder
        self._files = make_held_out(config, folder, tokenizer)

    def __bool__(self) -> bool:
        return bool(self._files)

    def made(self) -> Iterator[tuple[str, Sample]]:
        """The samples that are made and not read from files, each with the name of its part."""
        for part in self._config.task:
            if part.file is None:
                for sample in self._files[part.name]:
                    yield part.name, sample

    def run(self, step: int, opened: OpenModel, settings: Mapping[str, Settings]) -> dict[str, dict[str, float]]:
        """Reads all samples, with the settings of their part. Per "name@tokens": the mean score, its number of readings,
        and how many failed (they count as 0); and the mean over the parts."""
        cells: defaultdict[str, list[float]] = defaultdict(list)
        failed: defaultdict[str, int] = defaultdict(int)
        for name, samples in self._files.items():
            evaluation = Evaluation(samples=samples, opened=opened, settings=settings[name], batch=self._config.batch)
            folder = self._folder / f"{step:06d}" / name
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed here
            with RunFolder.open(folder, evaluation.config()) as run:
                evaluate(evaluation, run)
            for placed in Run.open(folder).records():
                record = placed.record
                cell = cell_of(name, record)
                cells[cell].append(record.scores[meant(self._config.score, record.scorer)])
                failed[cell] += record.status == "failed"
        result = {
            cell: {"score": sum(found) / len(found), "n": float(len(found)), "failed": float(failed[cell])}
            for cell, found in cells.items()
        }
        return {**result, MEAN: {"score": mean_over_parts(cells), "n": float(sum(map(len, cells.values())))}}


def mean_over_parts(cells: Mapping[str, Sequence[float]]) -> float:
    """The mean over the parts of the mean over their readings, however many of them a length has."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for cell, scores in cells.items():
        parts[cell.rpartition("@")[0]] += scores
    return sum(sum(found) / len(found) for found in parts.values()) / len(parts)


def mean_score(result: Mapping[str, Mapping[str, float]]) -> float:
    """The mean over the parts: what decides which checkpoint is best."""
    return result[MEAN]["score"]
