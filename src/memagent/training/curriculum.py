"""Which documents a batch reads: a weighted mix of tasks made on the fly and of files, a function of (seed, step)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from memagent.core import Tokenizer
from memagent.errors import TrainingError
from memagent.tasks.files import SampleFile
from memagent.tasks.haystack import Haystack, is_of_evaluation
from memagent.tasks.questions import for_evaluation
from memagent.tasks.samples import Sample, generator
from memagent.tasks.task import Materials
from memagent.tasks.words import shipped_words
from memagent.training.fields import weight_at
from memagent.training.readings import draw_sample
from memagent.training.rl_config import TaskMix

_TRIES = 32  # samples that are made for a place of a batch, where questions are too long


class Curriculum:
    """Draws samples. The questions of those that are made have at most `question_tokens` tokens.

    Raises TrainingError or TaskError for a file that cannot be trained on.
    """

    def __init__(
        self,
        mix: Sequence[TaskMix],
        books: Sequence[Path],
        tokenizer: Tokenizer,
        seed: int,
        steps: int,
        *,
        question_tokens: int,
    ) -> None:
        self._mix = list(mix)
        self._seed, self._steps = seed, steps
        self._tokenizer, self._question_tokens = tokenizer, question_tokens
        self._materials: Materials | None = None
        if books:
            self._materials = Materials(
                tokenizer=tokenizer, haystack=Haystack.load(books, "train"), words=shipped_words("train")
            )
        self._files = {part.name: _training_file(part.file) for part in mix if part.file is not None}

    def draw(self, step: int, attempt: int, count: int) -> list[tuple[str, Sample]]:
        """`count` samples for a batch, each with the name of its part of the mix."""
        rng = generator(self._seed, f"rollout/{attempt}", step)
        weights = [weight_at(part.weight, step / self._steps) for part in self._mix]
        if not sum(weights):
            raise TrainingError(f"all [[task]] weights are 0 at step {step}: give one of them a weight there")
        drawn = []
        for number, part in enumerate(rng.choices(self._mix, weights=weights, k=count)):
            if part.name in self._files:
                samples = self._files[part.name]
                sample = samples.load(rng.choice(samples.entries).id)
            else:
                sample = self._made(part, rng)
            drawn.append((part.name, replace(sample, id=f"{part.name}-{step}-{attempt}-{number}")))
        return drawn

    def _made(self, part: TaskMix, rng: random.Random) -> Sample:
        """A sample whose question fits. One that does not is made again: it may be one in a thousand, late in a run."""
        assert part.task is not None
        assert self._materials is not None
        for _ in range(_TRIES):
            sample = draw_sample(rng, part.task, part.options, self._materials, rng.randint(*part.tokens))
            if self._tokenizer.count(sample.question) <= self._question_tokens:
                return sample
        raise TrainingError(
            f"task {part.name!r}: {_TRIES} questions in a row have more than {self._question_tokens} tokens, the question"
            " budget: raise rollout.question_tokens, or choose options that ask for less"
        )

    def from_files(self) -> Iterator[tuple[str, Sample]]:
        """All samples of files, each with the name of its part."""
        for name, samples in self._files.items():
            for sample in samples:
                yield name, sample


def _training_file(path: Path) -> SampleFile:
    samples = SampleFile.open(path)
    for sample in samples:
        if is_of_evaluation(str(sample.document)):
            raise TrainingError(
                f"{path}: the document of sample {sample.id} is of *Moby-Dick*, in which memagent evaluates: make the file"
                " with `memagent synth --split train` and another --haystack"
            )
        if for_evaluation(sample.meta):
            raise TrainingError(
                f"{path}: sample {sample.id} asks a question that its file keeps for evaluation"
                f" ({sample.meta['question_split']}), and must not be trained on: make the file from other questions"
            )
        if sample.meta.get("split") == "eval" and "suite" in sample.meta:
            raise TrainingError(
                f"{path}: sample {sample.id} is of the evaluation suite {sample.meta['suite']}, and must not be trained on:"
                " if this file is meant for training, make it with `memagent import --split train`"
            )
        if sample.meta.get("wordings") == "eval":
            raise TrainingError(
                f"{path}: sample {sample.id} is worded in a way that is kept for evaluation, and must not be trained on:"
                " make the file without --set wordings=eval"
            )
        if sample.meta.get("split") == "eval":
            raise TrainingError(
                f"{path}: sample {sample.id} is made of words that are kept for evaluation, and must not be trained on:"
                " make the file with `memagent synth --split train`"
            )
    return samples
