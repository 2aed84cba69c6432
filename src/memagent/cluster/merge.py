"""A checkpoint of verl, its shards merged into a model folder that everything else opens."""

from __future__ import annotations

import shutil
from pathlib import Path

from memagent.errors import TrainingError
from memagent.models.open import model_folder
from memagent.training.checkpoints import verl_tracker
from memagent.training.config import load_config
from memagent.training.export import check_target, export_folder
from memagent.training.rl_config import RlConfig

# How to read with the model, and the tokenizer's files as they were: not every version of transformers reads every other's.
_KEPT = ("memagent.toml", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def merge(run: Path, folder: Path, dtype: str) -> None:
    """Writes the last checkpoint of a run as the model folder `folder`, with the tokenizer and the memagent.toml of the
    model that it began from. Raises TrainingError for a checkpoint that is not whole, ConfigError or OutputError as
    `export_checkpoint` does."""
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    check_target(folder, dtype)
    start = model_folder(load_config(run / "config.toml", RlConfig).start)
    step = verl_tracker(run).read_text().strip()
    shards = run / "checkpoints" / f"global_step_{step}" / "actor"
    merged = run / "checkpoints" / "merged.tmp"
    shutil.rmtree(merged, ignore_errors=True)
    try:
        asked = ModelMergerConfig(
            operation="merge",
            backend="fsdp",
            local_dir=str(shards),
            hf_model_config_path=str(shards / "huggingface"),
            target_dir=str(merged),
        )
        merger = FSDPModelMerger(asked)
        merger.merge_and_save()
        merger.cleanup()
    except (OSError, ValueError, RuntimeError, KeyError, AssertionError) as error:
        shutil.rmtree(merged, ignore_errors=True)
        raise TrainingError(f"the checkpoint in {shards} cannot be merged: {error}") from error
    for name in _KEPT:
        if (start / name).is_file():
            shutil.copyfile(start / name, merged / name)
    try:
        export_folder(merged, folder, dtype)
    finally:
        shutil.rmtree(merged, ignore_errors=True)
