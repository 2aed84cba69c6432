"""What a run reads, and what its scores are measured on."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from memagent.training.inputs import changed_files, measured_on


class Part(BaseModel):
    books: list[Path] = []
    inner: dict[str, Path] = {}
    steps: int = 1


def test_only_a_run_that_goes_on_is_told_of_files_that_changed_and_once(tmp_path: Path) -> None:
    book, other = tmp_path / "book.txt", tmp_path / "other.txt"
    book.write_text("one")
    other.write_text("one")
    part = Part(books=[book], inner={"a": other})
    assert changed_files(tmp_path, part, resumed=False) == []
    other.write_text("two")
    assert changed_files(tmp_path, part, resumed=True) == [str(other)]
    assert changed_files(tmp_path, part, resumed=True) == []
    book.write_text("two")
    assert changed_files(tmp_path, part, resumed=False) == []  # another run, which begins in the folder


def test_scores_are_of_the_same_if_values_and_contents_are(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("one")
    first = measured_on([Part(books=[book]), {"a": 1}])
    assert measured_on([Part(books=[book]), {"a": 1}]) == first
    assert measured_on([Part(books=[book], steps=2), {"a": 1}]) != first
    book.write_text("two")
    assert measured_on([Part(books=[book]), {"a": 1}]) != first
