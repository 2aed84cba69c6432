"""The reference of configurations: every field of every table, with what the model says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from memagent.training.config import SftConfig
from memagent.training.fields import Part
from memagent.training.recipe import Recipe
from memagent.training.reference import Row, chapter, tables
from memagent.training.rl_config import RlConfig

FILES = {"sft": SftConfig, "rl": RlConfig, "recipe": Recipe}


def models(kind: Any) -> Iterator[type[Part]]:
    """The models of a file, each as often as it is used."""
    if isinstance(kind, type) and issubclass(kind, Part):
        yield kind
        for field in kind.model_fields.values():
            yield from models(field.annotation)
    for argument in get_args(kind):
        yield from models(argument)


def rows(what: str) -> dict[str, Row]:
    return {f"{table.place}.{row.name}".strip("."): row for table in tables(what) for row in table.rows}


@pytest.mark.parametrize("what", FILES)
def test_every_field_of_every_table_is_listed_with_what_it_does(what: str) -> None:
    expected = [name for model in models(FILES[what]) for name in model.model_fields]
    listed = [row for table in tables(what) for row in table.rows]
    assert sorted(row.name for row in listed) == sorted(expected)
    assert [row.name for row in listed if not row.does.endswith(".")] == [], "a text below each field says what it does"
    assert all(table.says.endswith((".", '"')) for table in tables(what))


def test_chapters_have_each_field_once() -> None:
    alike = [(table.place, row) for table in chapter("both") for row in table.rows]
    for what in ("sft", "rl"):
        found = alike + [(table.place, row) for table in chapter(what) for row in table.rows]
        assert len(found) == len(set(found)) == sum(len(table.rows) for table in tables(what))


@pytest.mark.parametrize(
    ("what", "name", "kind", "default", "allowed"),
    [
        ("sft", "seed", "whole number", "0", "at least 0, below 2^63"),
        ("sft", "processes", "whole number", "1", "1 to 256"),
        ("sft", "start", "text", "", ""),
        ("sft", "books", "list of paths", "required", "at least one"),
        ("sft", "schedule", "table", "required", ""),
        ("sft", "schedule.betas", "two numbers", "[0.9, 0.98]", "each at least 0, below 1"),
        ("sft", "model.layers", "list of texts", "required", "at most 256 of them, each `conv` or `full_attention`"),
        ("sft", "mixture", "list of tables", "[]", ""),
        ("sft", "mixture.N.asked", "`[lowest, highest]`", "[1, 8]", "each 1 to 1000"),
        ("sft", "reading.N.reader", "text", '"memory"', "`memory`, `gated` or `parallel`"),
        ("rl", "save_every", "whole number", "10", "at least 1"),
        ("rl", "rollout.top_p", "number", "1.0", "above 0, at most 1"),
        ("rl", "rollout.chunk_tokens", "whole number", "", "at least 16"),
        ("rl", "algorithm.dual_clip", "number", "0.0", "0, or above 1"),
        ("rl", "task.N.tokens", "`[lowest, highest]`", "[]", "each at least 1"),
        ("rl", "validation.task.N.tokens", "list of whole numbers", "[]", "each at least 1"),
        ("rl", "cluster.offload", "true or false", "false", ""),
        ("recipe", "stage.N.kind", "text", "required", "`sft` or `rl`"),
    ],
)
def test_a_row_says_type_default_and_bounds(what: str, name: str, kind: str, default: str, allowed: str) -> None:
    row = rows(what)[name]
    assert (row.kind, row.default, row.allowed) == (kind, default, allowed)
