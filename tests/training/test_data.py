"""Batches of a step: which turns of perfect readings they are made of."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from memagent.models.open import EMBEDDED
from memagent.profiles import load_profile
from memagent.tasks.samples import generator
from memagent.training.data import Source, mixture_batch, open_source
from memagent.training.readings import TaskRecipe


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    book = tmp_path_factory.mktemp("book") / "book.txt"
    book.write_text("He came home late that evening. She had gone out, and nobody said a word.\n\n" * 60, encoding="utf-8")
    return open_source(AutoTokenizer.from_pretrained(EMBEDDED), [book], load_profile("compact"), "train")


def replies(source: Source, **changes: float) -> list[tuple[str, str]]:
    """The prompts and replies of a batch of updates."""
    recipe = TaskRecipe(task="niah_single_2", tokens=(700, 800), chunk=(100, 120), **{"answer": 0.0, **changes})
    batch = mixture_batch(source, generator(1, "test", 0), recipe, 12_000)
    rows = []
    for ids, at, kind in zip(batch.ids, batch.at, batch.kind, strict=True):
        reply = sum(each >= 0 for each in kind)
        rows.append(tuple(source.tokenizer.decode(part) for part in (ids[: at[0] + 1], ids[at[0] + 1 : at[0] + reply])))
    return rows


def test_quiet_is_the_share_of_turns_without_change_that_are_trained_on(source: Source) -> None:
    def changing(rows: list[tuple[str, str]]) -> float:
        return sum(
            "not yet" not in reply and reply.rpartition(":")[2] + "\n" not in prompt for prompt, reply in rows
        ) / len(rows)

    assert changing(replies(source, quiet=0.0)) == 1
    assert changing(replies(source, quiet=1.0)) < 0.3
    assert changing(replies(source, quiet=1.0)) < changing(replies(source, quiet=0.3)) < 1


def test_a_batch_holds_updates_or_answers(source: Source) -> None:
    assert all("- " in reply for _, reply in replies(source))
    assert all("- " not in reply for _, reply in replies(source, answer=1.0))
