"""verl's data sets: rows that hold the id of a document and what verl asks of a row, nothing else."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from memagent.cluster.documents import held_out_ids
from memagent.cluster.settings import experiment_of
from memagent.training.validation import open_held_out


class DocumentIds(Dataset[dict[str, Any]]):
    """`data_files` says which: "training" or "validation". What a batch trains on is decided when it is fetched (the ids of
    its rows are put in then), so a training row is only a place."""

    def __init__(self, data_files: str, tokenizer: Any, config: Any, **_: Any) -> None:
        experiment, out = experiment_of(config)
        if data_files == "training":
            self._rows = [("", "training")] * (experiment.rollout.prompts * experiment.steps)
        else:
            files = open_held_out(experiment.validation, out / "validation")
            self._rows = list(held_out_ids(files)) or [("", "none")]  # verl wants one row, and never reads it

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        document, cell = self._rows[index]
        return {
            "document": document,
            "index": index,
            "data_source": cell,
            "raw_prompt": [{"role": "user", "content": document}],
            "reward_model": {"ground_truth": ""},
        }
