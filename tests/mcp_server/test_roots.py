"""Which files may be read: links, patterns and other ways out of the folders are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import ConfigError, DocumentError
from memagent.mcp_server.roots import Roots


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret.txt").write_text("a secret")
    return folder / "secret.txt"


def read(roots: Roots, *given: str) -> list[str]:
    located = [roots.located(path) for path in given]
    roots.check(located)
    return located


def test_files_folders_and_patterns_below_a_root_are_read(root: Path) -> None:
    roots = Roots.of([root])
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("a")
    for given in ("book.txt", "./book.txt", str(root / "book.txt"), "notes", "*.txt", "**/*.txt", "notes/../book.txt", "."):
        assert read(roots, given)[0].startswith(str(root))


@pytest.mark.parametrize(
    "given",
    ["/etc/passwd", "../elsewhere/secret.txt", "..", "/", "../*/secret.txt", "*/../../elsewhere/*", "", "-", "a\0b"],
)
def test_what_leads_outside_is_refused(root: Path, secret: Path, given: str) -> None:
    with pytest.raises(DocumentError):
        read(Roots.of([root]), given)


def test_links_that_lead_outside_are_refused_however_they_are_named(root: Path, secret: Path) -> None:
    roots = Roots.of([root])
    (root / "file.txt").symlink_to(secret)
    (root / "folder").symlink_to(secret.parent)
    for given in ("file.txt", "folder", "folder/secret.txt", "folder/*", "*/secret.txt", "f*.txt", "."):
        with pytest.raises(DocumentError, match="leads outside"):
            read(roots, given)


def test_what_lies_outside_is_refused_alike_whether_it_is_there_or_not(root: Path, secret: Path) -> None:
    roots = Roots.of([root])
    there, missing = str(secret), str(secret.with_name("none.txt"))
    refusals = []
    for given in (there, missing):
        with pytest.raises(DocumentError) as refused:
            read(roots, given)
        refusals.append(str(refused.value).replace(given, "it").replace(repr(given), "it"))
    assert refusals[0] == refusals[1]


def test_links_within_the_root_are_followed(root: Path) -> None:
    (root / "same.txt").symlink_to(root / "book.txt")
    assert read(Roots.of([root]), "same.txt") == [str(root / "book.txt")]


def test_a_root_may_itself_be_a_link_or_have_characters_of_a_pattern(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert read(Roots.of([tmp_path / "link"]), "book.txt")
    odd = tmp_path / "a[b]*"
    odd.mkdir()
    (odd / "book.txt").write_text("text")
    roots = Roots.of([odd])
    for given in ("*.txt", "book.txt", str(odd / "*.txt"), str(odd / "book.txt")):
        assert read(roots, *read(roots, given)) == read(roots, given)


def test_a_path_is_looked_for_below_each_root(tmp_path: Path, root: Path, secret: Path) -> None:
    assert read(Roots.of([root, secret.parent]), "secret.txt", "book.txt") == [str(secret), str(root / "book.txt")]


def test_a_name_that_begins_like_a_root_is_not_below_it(root: Path) -> None:
    beside = root.with_name("root-2")
    beside.mkdir()
    (beside / "a.txt").write_text("a")
    with pytest.raises(DocumentError, match="leads outside"):
        read(Roots.of([root]), str(beside / "a.txt"))


def test_roots_of_a_client_narrow_ours_and_never_widen_them(root: Path, secret: Path) -> None:
    roots = Roots.of([root])
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("a")
    narrowed = roots.narrowed([(root / "notes").as_uri()])
    assert read(narrowed, "a.txt") == read(narrowed, str(root / "notes" / "a.txt"))
    for given, announced in (
        (str(root / "book.txt"), root / "notes"),
        (str(secret), secret.parent),
        (str(secret), Path("/")),
    ):
        with pytest.raises(DocumentError, match="leads outside"):
            read(roots.narrowed([announced.as_uri()]), given)
    assert read(roots.narrowed([Path("/").as_uri()]), "book.txt")


def test_a_client_without_folders_of_its_own(root: Path) -> None:
    roots = Roots.of([root])
    assert read(roots.narrowed([]), "book.txt")
    for uri in ("https://example.org/", "file://elsewhere/root"):
        with pytest.raises(DocumentError, match="leads outside"):
            read(roots.narrowed([uri]), "book.txt")


def test_a_root_that_is_no_folder_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        Roots.of([root / "book.txt"])
