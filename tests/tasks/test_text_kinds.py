"""Generated text: of every kind, always the same, and a haystack like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.tasks.haystack import Haystack
from memagent.tasks.needle import TASKS
from memagent.tasks.task import Materials, Request
from memagent.tasks.text_kinds import TEXT_KINDS, text_of
from memagent.tasks.words import shipped_words
from tests.helpers import WordTokenizer


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_a_text_is_as_long_as_asked_and_always_the_same(kind: str) -> None:
    text = text_of(kind, 20_000, "train")  # type: ignore[arg-type]
    assert 20_000 <= len(text) < 30_000
    assert text == text_of(kind, 20_000, "train")  # type: ignore[arg-type]
    assert text != text_of(kind, 20_000, "eval")  # type: ignore[arg-type]
    assert not any(field in text for field in ("{noun}", "{number}", "{person}", "{who}"))
    pieces = text.split("\n\n")
    assert len(set(pieces)) > 0.8 * len(pieces)


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_facts_stand_at_lines_of_generated_text(kind: str) -> None:
    haystack = Haystack.load([f"generated:{kind}"])
    assert all(haystack.text[border - 1] == "\n" for border in haystack.borders[1:])
    assert len(haystack.borders) > 500
    [task] = [task for task in TASKS if task.name == "niah_multikey_1"]
    materials = Materials(tokenizer=WordTokenizer(), haystack=haystack, words=shipped_words("eval"))
    sample = task.sample(materials, Request(tokens=900, seed=1, index=0))
    for fact in sample.facts:
        before = sample.document.read(max(0, fact.start - 2), fact.start)
        assert not before or before[-1] in "\n "


def test_generated_text_follows_books_whose_borders_stay() -> None:
    book = "One came. Two left. " * 5000
    alone, both = Haystack([book]), Haystack([book], lined=["a line\nanother line\n"])
    assert both.text.startswith(alone.text)
    assert list(both.borders[: len(alone.borders)]) == list(alone.borders)
    assert [both.text[border : border + 7] for border in both.borders[-3:]] == ["a line\n", "another", "\n"]


def test_an_unknown_kind_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no text of the kind 'poems' can be generated; there are contract, code"):
        Haystack.load([Path("generated:poems")])
    with pytest.raises(TaskError, match="no text of the kind ''"):
        Haystack.load(["generated:"])
