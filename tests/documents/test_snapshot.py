"""The copy of files that grow: what is added is whole, and its places are those in the files."""

from __future__ import annotations

from pathlib import Path

from document_samples import write_pdf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.documents import load
from memagent.documents.snapshot import Snapshot


def update(folder: Path, copy: Path):
    with load([folder]) as document:
        return Snapshot.open(copy).update(document)


def copied(copy: Path) -> str:
    with Snapshot.open(copy).document() as document:
        return document.read(0, len(document))


LINES = st.lists(st.text("abc de.", min_size=1, max_size=12), min_size=1, max_size=8).map("\n".join)


@given(text=LINES, cuts=st.lists(st.floats(0, 1), max_size=4), other=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_that_was_cut_is_there_whole_and_every_place_is_true(tmp_path_factory, text, cuts, other) -> None:
    text, base = f"begin\n{text}\nend", tmp_path_factory.mktemp("snapshot")
    folder, copy = base / "log", base / "copy"
    folder.mkdir()
    for number, cut in enumerate(sorted(int(8 + cut * (len(text) - 8)) for cut in [*cuts, 1.0])):
        (folder / "a.txt").write_text(text[:cut])
        if other:
            (folder / f"b{number}.txt").write_text(f"between {number}")
        update(folder, copy)
    with Snapshot.open(copy).document() as document:
        whole = document.read(0, len(document))
        assert {line for line in text.split("\n") if line.strip()} <= set(whole.split("\n"))
        for file in document.files:
            for place in range(file.span.start, file.span.end):
                if file.name.endswith("a.txt"):
                    where = document.locate(place)
                    assert text[where.offset] == whole[place]
                    assert where.line == text.count("\n", 0, where.offset) + 1


def test_what_is_added_after_a_line_end_is_read_alone(tmp_path) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    update(folder, copy)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    update(folder, copy)
    assert copied(copy) == "one\ntwo\n\nthree\n"


def test_a_long_line_that_goes_on_is_not_read_again(tmp_path) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    folder.mkdir()
    for size in range(10_000, 50_000, 10_000):
        (folder / "a.txt").write_text("begin\n" + "x" * size)
        update(folder, copy)
    assert copied(copy).count("x") == 40_000
    (folder / "a.txt").write_text("begin\n" + "x" * 40_000 + "   ")
    assert update(folder, copy).grown == ()  # nothing but white space


def test_pages_that_are_added_to_a_pdf_keep_their_numbers(tmp_path) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    folder.mkdir()
    pages = ["The first page", "", "The third page", "The fourth page", "", "The sixth page"]
    for count in (3, 4, 6):
        write_pdf(folder / "a.pdf", pages[:count])
        update(folder, copy)
    with Snapshot.open(copy).document() as document:
        whole = document.read(0, len(document))
        for number in (1, 3, 4, 6):
            assert document.locate(whole.index(pages[number - 1])).page == number
