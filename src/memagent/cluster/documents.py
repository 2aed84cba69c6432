"""Documents by id: what travels between the processes of a run is the id, and each makes or loads its own documents.

train/12/0/3          batch 12, attempt 0, place 3: the document that the small trainer would read there
validation/vt/7       entry 7 of the held-out samples "vt"
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from memagent.models.open import OpenModel
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import curriculum_of
from memagent.training.validation import cell_of, open_held_out


def training_id(step: int, attempt: int, place: int) -> str:
    """The id of a document of batch `step`, from 0."""
    return f"train/{step}/{attempt}/{place}"


def held_out_ids(files: dict[str, SampleFile]) -> Iterator[tuple[str, str]]:
    """(id, cell) of every held-out sample."""
    for name, samples in files.items():
        for row, entry in enumerate(samples.entries):
            yield f"validation/{name}/{row}", cell_of(name, samples.load(entry.id))


class Documents:
    """The samples of a run, to one of its processes."""

    def __init__(self, config: RlConfig, opened: OpenModel, folder: Path) -> None:
        self._prompts = config.rollout.prompts
        self._curriculum = curriculum_of(config, opened)
        self._held_out = open_held_out(config.validation, folder)
        # A batch is one stream of random numbers, so its documents are made together; a process reads several of them.
        self._batch = lru_cache(maxsize=2)(self._make_batch)

    def load(self, name: str) -> tuple[str, Sample]:
        """A sample by its id, with the name of its part of the mix (or of the validation)."""
        kind, *place = name.split("/")
        if kind == "train":
            step, attempt, number = map(int, place)
            return self._batch(step, attempt)[number]
        part, row = place
        samples = self._held_out[part]
        return part, samples.load(samples.entries[int(row)].id)

    def _make_batch(self, step: int, attempt: int) -> list[tuple[str, Sample]]:
        return self._curriculum.draw(step, attempt, self._prompts)
