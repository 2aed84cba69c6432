"""Paths, globs, folders and stdin: what is read, in which order, with which borders, and what is refused."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import pytest
from document_samples import write_pdf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.documents import Document, from_text, load, loading, spool
from memagent.errors import BrokenFileError, ConfigError, DocumentError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(document: Document, folder: Path) -> list[str]:
    return [Path(file.name).relative_to(folder).as_posix() for file in document.files]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(st.text("ab é\n", min_size=1, max_size=30).filter(lambda t: t.strip()), min_size=1, max_size=4))
def test_spans_borders_and_locations_are_exact(tmp_path: Path, parts: list[str]) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_text(part)
    with load(paths) as document:
        text = document.read(0, len(document))
        assert [text[file.span.start : file.span.end] for file in document.files] == parts
        for before, after in zip(document.files, document.files[1:], strict=False):
            border = text[before.span.end : after.span.start]
            assert border == "\n" * len(border)
            assert text[: after.span.start].endswith("\n\n")
        for offset in range(len(text) + 1):
            place = document.locate(offset)
            number = paths.index(Path(place.file))
            assert document.files[number].span.start + place.offset == min(offset, document.files[number].span.end)
            assert place.line == parts[number][: place.offset].count("\n") + 1


def test_location_reads_well_and_is_bounded() -> None:
    with from_text("one\ntwo", name="notes") as document:
        assert str(document.locate(5)) == "notes, line 2, offset 5"
        assert repr(document) == "<Document of 1 files, 7 characters>"
        for offset in (-1, 8):
            with pytest.raises(IndexError, match="7 characters"):
                document.locate(offset)


def test_a_folder_is_read_in_natural_order_and_what_is_left_out_is_listed(tmp_path: Path) -> None:
    write(tmp_path, part10_txt="ten", part2_md="two", sub__a_py="x = 1", _hidden="no", sub__empty_txt="")
    (tmp_path / ".git").mkdir()
    (tmp_path / "photo.JPG").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "data.tar.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "queue")
    with load([tmp_path]) as document:
        assert names(document, tmp_path) == ["part2.md", "part10.txt", "sub/a.py"]
        assert [file.kind for file in document.files] == ["markdown", "text", "text"]
        assert {Path(item.path).name: item.reason for item in document.skipped} == {
            ".git": "hidden",
            ".hidden": "hidden",
            "photo.JPG": "an image",
            "data.tar.gz": "an archive",
            "loop": "a link to a folder",
            "queue": "a pipe, socket or device",
            "empty.txt": "empty",
        }


@pytest.mark.parametrize("name", ["cut.pdf", "cut.docx", "cut.epub", "cut.html"])
def test_a_file_of_no_bytes_is_empty_whatever_its_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, a_txt="fine")
    (tmp_path / name).touch()
    with load([tmp_path]) as document:
        assert names(document, tmp_path) == ["a.txt"]
        assert [item.reason for item in document.skipped] == ["empty"]
    with pytest.raises(DocumentError, match=r"the file is empty \(0 bytes\)"):
        load([tmp_path / name])


def test_a_file_in_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, a_txt="fine")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.4 cut")
    with pytest.raises(DocumentError, match=r"b\.pdf: truncated"):
        load([tmp_path])
    write_pdf(tmp_path / "b.pdf", ["", ""])
    with pytest.raises(DocumentError, match=r"b\.pdf: no text in this PDF"):
        load([tmp_path])


def test_globs_go_deep_and_leave_hidden_files_out(tmp_path: Path) -> None:
    write(tmp_path, a_md="a", sub__b_md="b", sub__c_txt="c", _d_md="d")
    with load([tmp_path / "**" / "*.md"]) as document:
        assert names(document, tmp_path) == ["a.md", "sub/b.md"]
    with load([f"{tmp_path}/*"]) as document:
        assert names(document, tmp_path) == ["a.md", "sub/b.md", "sub/c.txt"]
    with load([f"{tmp_path}/**"]) as document:
        assert names(document, tmp_path) == ["a.md", "sub/b.md", "sub/c.txt"]
    with load([f"{tmp_path}/.*.md"]) as document:
        assert names(document, tmp_path) == [".d.md"]


def test_globs_do_not_run_in_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sub__a_md="a")
    for name in ("again", "and-again", "once-more"):
        (tmp_path / "sub" / name).symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with load(["**/*.md"]) as document:
        assert [file.name for file in document.files] == ["sub/a.md"]


def test_arguments_keep_their_order_and_files_come_once(tmp_path: Path) -> None:
    write(tmp_path, a_txt="a", b_txt="b")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    with load([tmp_path / "b.txt", tmp_path, str(tmp_path / "link.txt")]) as document:
        assert names(document, tmp_path) == ["b.txt", "a.txt"]
        assert document.read(0, 9) == "b\n\na"


def test_a_name_with_glob_characters_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("literal")
    (tmp_path / "a1.txt").write_text("matched")
    with load([tmp_path / "a[1].txt"]) as document:
        assert document.read(0, 9) == "literal"


def test_stdin_is_read_once_and_may_stand_between_files(tmp_path: Path) -> None:
    write(tmp_path, a_txt="a\n")
    with load([tmp_path / "a.txt", "-", "-"], stdin=io.BytesIO("größer, weil es schöner ist".encode("cp1252"))) as document:
        assert document.read(0, 9) == "a\n\ngrößer"
        assert (document.files[1].name, document.files[1].encoding) == ("stdin", "cp1252")
    with pytest.raises(DocumentError, match="stdin: there is nothing to read"):
        load(["-"], stdin=io.BytesIO(b""))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.txt", "no such file or folder. Relative paths start at"),
        ("gone/*.txt", "no file matches"),
        ("gone[", "no such file|no file matches"),
        ("bad\0name", "no such file"),
        ("https://example.org/a.txt", "Download it first"),
        ("https://user:pass-word@example.org/a.txt?sig=abc", r"^'https://example.org/a.txt': .*Download it first"),
    ],
)
def test_missing_paths(path: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        load([path])


def test_only_of_relative_paths_it_is_told_where_they_start(tmp_path: Path) -> None:
    for path, said in (("gone.txt", "no such file or folder"), ("*.none", "no file matches this pattern")):
        with pytest.raises(DocumentError, match=f"{said}. Relative paths start at {Path.cwd()}"):
            load(path)
        with pytest.raises(DocumentError, match=f"{said}. Check its name$"):
            load(tmp_path / path)


@pytest.mark.parametrize(
    "text",
    ["Hello world. " * 40_000, "# Title\n\n* item **bold** [a](b)\n", "One line.\r", "x" * 256, "ab/" * 1400, "[" * 300],
)
def test_text_in_place_of_a_path_is_told_and_shown_in_short(text: str) -> None:
    for paths in (text, [text]):
        with pytest.raises(DocumentError, match=r"characters are no path\..* memagent\.from_text\(text\)") as raised:
            load(paths)
        assert len(str(raised.value)) < 400


@pytest.mark.parametrize("paths", [b"book.txt", io.StringIO("a\nb"), io.BytesIO(b"a"), 5, None, [98, 111], ["-", b"x"]])
def test_what_is_no_path_is_refused(paths: Any) -> None:
    with pytest.raises(DocumentError, match=r"named by its path \(str or Path\).*memagent\.from_text") as raised:
        load(paths)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("text", [b"abc", 5, None, io.StringIO("abc"), ["abc"]])
def test_a_text_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(DocumentError, match=f"the text is to be a str, not {type(text).__name__}: decode or read it first"):
        from_text(text)


def test_nothing_given() -> None:
    with pytest.raises(DocumentError, match="no document was given"):
        load([])


def test_folders_without_documents(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no document to read here"):
        load([tmp_path])
    write(tmp_path, a_png="", b_txt="")
    with pytest.raises(DocumentError, match=r"Left out: .*a\.png: an image; .*b\.txt: empty\. Name a file"):
        load([tmp_path])


def test_special_files_and_broken_links(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match=r"pipe: a pipe, socket or device.*stdin"):
        load([tmp_path / "pipe"])
    with pytest.raises(DocumentError, match="/dev/null: a pipe, socket or device"):
        load(["/dev/null"])
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone.txt")
    for path in (tmp_path / "link.txt", tmp_path):
        with pytest.raises(DocumentError, match=r"link\.txt: a link to something that is gone"):
            load([path])
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(DocumentError, match="circle: cannot be read"):
        load([tmp_path / "circle"])


def test_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read anything, so the refusals of the system are played."""
    write(tmp_path, a_txt="a")

    def deny(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(DocumentError, match=r"a\.txt: cannot be read \(Permission denied\)"):
        load([tmp_path / "a.txt"])
    monkeypatch.setattr(Path, "iterdir", deny)
    with pytest.raises(DocumentError, match=r"cannot be read \(Permission denied\)"):
        load([tmp_path])


def test_one_path_may_be_given_without_a_list(tmp_path: Path) -> None:
    write(tmp_path, a_txt="a")
    with load(str(tmp_path / "a.txt")) as document:
        assert document.read(0, 9) == "a"


def test_what_is_broken_in_a_folder_leaves_nothing_behind_where_the_rest_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_bytes(b"zwei " * 9000 + b"\xff\xfe\x00\x00\x01" * 300)
    (tmp_path / "c.pdf").write_bytes(b"%PDF-1.7\nhalf")
    (tmp_path / "d.txt").write_text("three")
    with pytest.raises(DocumentError):
        load(tmp_path)
    with load(tmp_path, skip_broken=True) as document:
        assert document.read(0, len(document)) == "one\n\nthree"
        assert [(Path(one.path).name, one.broken) for one in document.skipped] == [("b.txt", True), ("c.pdf", True)]
    with pytest.raises(DocumentError, match=r"b\.txt"):
        load([tmp_path / "a.txt", tmp_path / "b.txt"], skip_broken=True)
    (tmp_path / "b.txt").write_bytes(b"zwei " * 90_000 + b"\xff")  # whose beginning can be read
    with load(tmp_path, encoding="utf-8", skip_broken=True) as document:
        assert document.read(0, len(document)) == "one\n\nthree"


def test_links_to_nothing_and_closed_folders_are_left_out_where_broken_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a_txt="a", closed__b_txt="b", deep__c_txt="c")
    (tmp_path / "deep" / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    listed = Path.iterdir

    def deny(folder: Path) -> Iterator[Path]:  # root may open any folder
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", deny)
    for place in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(BrokenFileError, match=r"circle: cannot be read"):
            load(place)
        with load(place, skip_broken=True) as document:
            assert document.read(0, 9) == "a\n\nc"
            left_out = [(Path(one.path).name, one.broken) for one in document.skipped]
            assert left_out == [("circle", True), ("closed", True), ("gone.txt", True)]
            assert "(Permission denied)" in document.skipped[1].reason
            assert "a link to something that is gone" in document.skipped[2].reason
    for named in ("closed", "circle", "deep/gone.txt"):
        with pytest.raises(DocumentError, match=named) as raised:
            load([tmp_path / "a.txt", tmp_path / named], skip_broken=True)
        assert type(raised.value) is DocumentError


@pytest.mark.parametrize("pattern", ["**/*.txt", "*/*.txt", "de*/**/c.txt"])
def test_a_pattern_passes_over_no_closed_folder_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    write(tmp_path, deep__c_txt="c")
    for folder in ("deep/closed", "closed", ".hidden/closed"):
        (tmp_path / folder).mkdir(parents=True)
    listed = os.scandir

    def deny(folder: Any = ".") -> Any:  # root may open any folder
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(BrokenFileError, match=r"closed: cannot be read \(Permission denied\)"):
        load(f"{tmp_path}/{pattern}")
    closed = {"**/*.txt": ["closed", "deep/closed"], "*/*.txt": ["closed"], "de*/**/c.txt": ["deep/closed"]}[pattern]
    with load(f"{tmp_path}/{pattern}", skip_broken=True) as document:
        assert document.read(0, 9) == "c"
        assert [one.path for one in document.skipped if one.broken] == [f"{tmp_path}/{name}" for name in closed]
    (tmp_path / "deep" / "c.txt").unlink()
    with pytest.raises(DocumentError, match=r"no document to read here\. Left out: .*closed: cannot be read"):
        load(f"{tmp_path}/{pattern}", skip_broken=True)


def test_what_is_left_out_is_named_once_where_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7\nhalf")
    with pytest.raises(DocumentError, match="there is no document to read here") as raised:
        load(tmp_path, skip_broken=True)
    assert str(raised.value).count("b.pdf") == 1


@pytest.mark.parametrize("value", ["no", 0, 1, None])
def test_whether_to_skip_is_yes_or_no(value: Any, tmp_path: Path) -> None:
    write(tmp_path, a_txt="a")
    with pytest.raises(ConfigError, match=re.escape(f"skip_broken is {value!r}; it must be True or False")):
        load(tmp_path, skip_broken=value)


@contextmanager
def files_to_open(count: int) -> Iterator[None]:
    """For a while, the system lets this process open only so many files more."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("skip_broken", [False, True])
@pytest.mark.parametrize("count", [0, 1])
def test_too_many_open_files_are_no_fault_of_a_file(count: int, skip_broken: bool, tmp_path: Path) -> None:
    """Without any, the folder cannot be opened; with one, what is packed cannot be unpacked to a temporary file."""
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one " * (2 << 20)))
    write(tmp_path, b_txt="two")
    with load(tmp_path) as document:
        assert len(document.files) == 2
    with files_to_open(count), pytest.raises(DocumentError, match=r"^no more files can be opened: .*\(ulimit -n\)$"):
        load(tmp_path, skip_broken=skip_broken)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_what_is_unpacked_is_no_fault_of_a_file(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, *_: Any) -> int:
            raise OSError(code, os.strerror(code))

    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one"))
    monkeypatch.setattr(loading, "scratch", Full)
    with pytest.raises(DocumentError, match=r"^cannot keep a temporary copy"):
        load(tmp_path, skip_broken=True)


def full_disk() -> BinaryIO:
    return os.fdopen(os.open("/dev/full", os.O_RDWR), "w+b", buffering=0)


@pytest.mark.parametrize("skip_broken", [False, True])
@pytest.mark.parametrize("module", [spool, loading])
def test_a_full_disk_is_no_fault_of_a_file(
    module: ModuleType, skip_broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one"))
    monkeypatch.setattr(module, "scratch", full_disk)
    with pytest.raises(DocumentError, match=r"^cannot keep a temporary copy .* TMPDIR$"):
        load(tmp_path, skip_broken=skip_broken)
