"""Batches of a step: which turns of perfect readings they are made of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from memagent.models.open import EMBEDDED
from memagent.profiles import load_profile
from memagent.tasks.samples import generator
from memagent.tasks.words import shipped_words
from memagent.training.data import Source, exercise_row, mixture_batch, open_source
from memagent.training.readings import TaskRecipe
from memagent.training.updates import Recipe


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    book = tmp_path_factory.mktemp("book") / "book.txt"
    book.write_text("He came home late that evening. She had gone out, and nobody said a word.\n\n" * 60, encoding="utf-8")
    return open_source(AutoTokenizer.from_pretrained(EMBEDDED), [book], load_profile("compact"), "train")


def replies(source: Source, **changes: Any) -> list[tuple[str, str]]:
    """The prompts and replies of a batch of updates."""
    recipe = TaskRecipe(task="niah_single_2", tokens=(700, 800), chunk=(100, 120), **{"answer": 0.0, **changes})
    batch = mixture_batch(source, generator(1, "test", 0), recipe, 12_000)
    rows = []
    for ids, at, kind in zip(batch.ids, batch.at, batch.kind, strict=True):
        reply = sum(each >= 0 for each in kind)
        rows.append(tuple(source.tokenizer.decode(part) for part in (ids[: at[0] + 1], ids[at[0] + 1 : at[0] + reply])))
    return rows


def test_rows_that_need_more_than_their_length_do_not_fill_a_batch_many_times_over(source: Source) -> None:
    recipe = Recipe(tokens=(1, 1), stated=1.0)
    batch = mixture_batch(source, generator(1, "test", 0), recipe, 2_000)
    assert 2_000 <= sum(max(at) + 2 for at in batch.at) < 2_500


@pytest.mark.parametrize("profile", ["compact", "default"])
@pytest.mark.parametrize("answer", [0.0, 1.0], ids=["updates", "answers"])
def test_turns_of_readings_fill_a_batch_and_hardly_more_whatever_the_profile_says(
    source: Source, profile: str, answer: float
) -> None:
    recipe = TaskRecipe(task="niah_single_2", tokens=(700, 800), chunk=(300, 320), answer=answer)
    batch = mixture_batch(replace(source, profile=load_profile(profile)), generator(1, "test", 0), recipe, 8_000)
    assert 3_000 < sum(max(at) + 2 for at in batch.at) < 9_000


def test_quiet_is_the_share_of_turns_without_change_that_are_trained_on(source: Source) -> None:
    def changing(rows: list[tuple[str, str]]) -> float:
        return sum(
            "not yet" not in reply and reply.rpartition(":")[2] + "\n" not in prompt for prompt, reply in rows
        ) / len(rows)

    assert changing(replies(source, quiet=0.0)) == 1
    assert changing(replies(source, quiet=1.0)) < 0.3
    assert changing(replies(source, quiet=1.0)) < changing(replies(source, quiet=0.3)) < 1


def test_false_values_is_the_share_of_readings_that_begin_with_a_false_value(source: Source) -> None:
    def empty(rows: list[tuple[str, str]]) -> float:
        return sum("not yet" in reply for _, reply in rows) / len(rows)

    assert empty(replies(source, false_values=1.0)) == 0
    assert 0 < empty(replies(source, false_values=0.5)) < empty(replies(source))
    corrected = [prompt for prompt, reply in replies(source, false_values=1.0, quiet=0.0)]
    assert corrected
    assert not any("Memory: nothing yet" in prompt or "not yet" in prompt for prompt in corrected)


def test_empty_notes_are_lines_without_a_value_in_the_notes_that_a_merge_is_shown(source: Source) -> None:
    def empty(count: int) -> list[int]:
        rows = replies(source, reader="parallel", empty_notes=(count, count), quiet=0.0)
        return [prompt.rpartition("Notes:")[2].count("not yet") for prompt, _ in rows if "New memory:" in prompt]

    assert max(empty(0), default=0) == 0
    assert max(empty(24)) >= 24


def test_a_batch_holds_updates_or_answers(source: Source) -> None:
    assert all("- " in reply for _, reply in replies(source))
    assert all("- " not in reply for _, reply in replies(source, answer=1.0))


def test_a_chunk_is_taken_from_around_a_word_of_an_asked_key(tmp_path: Path) -> None:
    adjectives = shipped_words("train").adjectives
    book = tmp_path / "book.txt"
    book.write_text("".join(f"Somebody spoke of what is {word} again, and went away. " for word in adjectives))
    source = open_source(AutoTokenizer.from_pretrained(EMBEDDED), [book], load_profile("compact"), "train")

    def share(matches: float) -> float:
        recipe = Recipe(tokens=(500, 500), partial_matches=matches, stated=0.0, distractors=(0, 0), answer=0.0)
        found = 0
        for number in range(60):
            row = exercise_row(source, generator(1, "near", number), recipe, 500)
            prompt = source.tokenizer.decode(list(row.ids[: row.start]))
            question, chunk = prompt.split("Text:", 1)
            asked = set(re.findall("[a-z]+", question.lower()))
            found += bool(asked & set(re.findall("what is ([a-z]+) again", chunk.replace(chr(10), " "))))
        return found / 60

    assert share(1.0) > share(0.0) + 0.2


@pytest.mark.parametrize(
    ("reader", "template"), [("gated", "New memory, or nothing new:"), ("parallel", "Notes, or nothing new:")]
)
def test_a_single_turn_is_one_of_the_reader_that_the_recipe_names(source: Source, reader: str, template: str) -> None:
    def rows(stated: float) -> list[tuple[str, str]]:
        recipe = Recipe(tokens=(200, 200), asked=(1, 2), stated=stated, quiet=0.0, fresh=0.5, kept=0.5, reader=reader)
        made = [exercise_row(source, generator(1, "reader", number), recipe, 200) for number in range(20)]
        decode = source.tokenizer.decode
        return [(decode(list(row.ids[: row.start + 1])), decode(list(row.targets))) for row in made]

    assert all(prompt.endswith(template) for prompt, _ in rows(1.0))
    assert {reply for _, reply in rows(0.0)} == {" nothing new"}
    stated = [reply for _, reply in rows(1.0)]
    assert sum(reply.startswith("- ") for reply in stated) > 10
    assert not any("not yet" in reply for reply in stated if reader == "parallel")


@pytest.mark.parametrize("reader", ["memory", "gated", "parallel"])
def test_a_single_turn_is_never_longer_than_its_recipe_says(source: Source, reader: str) -> None:
    recipe = Recipe(tokens=(300, 300), asked=(4, 4), kept=1.0, fresh=0.0, stated=0.0, distractors=(0, 0), reader=reader)
    sizes = [len(exercise_row(source, generator(1, "size", number), recipe, 300).ids) for number in range(30)]
    assert max(sizes) <= 300
    assert min(sizes) > 150
