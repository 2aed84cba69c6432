"""What a run reads, and what its scores are measured on."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from memagent.tasks.files import SampleFile
from memagent.training.inputs import Inputs, digests, measured_on


class Part(BaseModel):
    books: list[Path] = []
    inner: dict[str, Path] = {}
    steps: int = 1
    file: Path | None = None


def changed_files(run: Path, part: Part, *, resumed: bool) -> list[str]:
    inputs = Inputs.of(run, part, resumed=resumed)
    inputs.write(run)
    return inputs.changed


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


def test_a_sample_file_counts_with_the_texts_beside_it(tmp_path: Path) -> None:
    book, samples = tmp_path / "book.txt", tmp_path / "samples.jsonl"
    book.write_text("The code is 7.")
    samples.write_text(
        '{"id": "a", "task": "own", "question": "Which code?", "answers": ["7"], "document": {"file": "book.txt"}}\n'
    )
    part = Part(file=samples)
    first, scored = digests(part), measured_on(part)
    assert first == {str(samples): SampleFile.open(samples).sha256}
    assert changed_files(tmp_path, part, resumed=False) == []
    book.write_text("The code is 8.")
    assert digests(part) != first
    assert measured_on(part) != scored
    assert changed_files(tmp_path, part, resumed=True) == [str(samples)]
