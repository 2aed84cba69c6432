"""`memagent readings show ID --html FILE`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memagent.journal import Journal
from tests.cli.conftest import FACT

QUESTION = "What is the code for amber-falcon?"


@pytest.fixture
def reading(memagent, book, served):
    return memagent("ask", book, "-q", QUESTION, "--json", *served).json["reading"]


def test_a_page_is_written_and_named(memagent, reading, book, tmp_path):
    page = tmp_path / "page.html"
    result = memagent("readings", "show", reading, "--html", page)
    assert (result.code, result.out) == (0, "")
    assert result.err.replace("\n", "") == f"{page}: the page of reading {reading}"
    text = page.read_text()
    for part in (QUESTION, "4821973", FACT, "Supported by the document", "Line 199 tells of the sea", str(book)):
        assert part in text, part
    assert "http://" not in text.replace("http://127.0.0.1", "")


def test_a_file_has_the_name_that_it_was_read_by(memagent, book, served, tmp_path, monkeypatch):
    monkeypatch.chdir(book.parent)
    reading = memagent("ask", book.name, "-q", QUESTION, "--json", *served).json["reading"]
    monkeypatch.chdir("/")
    assert memagent("readings", "show", reading, "--html", tmp_path / "page.html").code == 0
    text = (tmp_path / "page.html").read_text()
    assert f"<bdi>{book.name}</bdi>" in text
    assert str(book) not in text


def test_a_page_that_is_there_is_replaced_whole_and_another_file_is_not(memagent, reading, tmp_path):
    page, letter, empty = (tmp_path / name for name in ("page.html", "letter.html", "empty.html"))
    empty.touch()
    for path in (page, page, empty):
        assert memagent("readings", "show", reading, "--html", path).code == 0
        assert path.read_text().endswith("</html>")
    letter.write_text("<html><p>Dear Ann</p></html>")
    refused = memagent("readings", "show", reading, "--html", letter)
    said = f"{letter} exists and is not a page of memagent: choose another name, or delete it"
    assert (refused.code, said in refused.err.replace("\n", " ")) == (2, True)
    assert letter.read_text() == "<html><p>Dear Ann</p></html>"
    assert not list(tmp_path.glob("*.partial"))


def test_what_cannot_be_written_is_refused(memagent, reading, book, tmp_path):
    for bad in ("/nonexistent/x.html", tmp_path, book / "x.html"):
        refused = memagent("readings", "show", reading, "--html", bad)
        assert (refused.code, str(bad) in refused.err.replace("\n", "")) == (2, True)
    both = memagent("readings", "show", reading, "--html", tmp_path / "page.html", "--json")
    assert (both.code, "--html writes a page and --json prints JSON: give one of them" in both.err) == (2, True)
    assert memagent("readings", "show", "r-nothing", "--html", tmp_path / "page.html").code == 2
    assert not (tmp_path / "page.html").exists()


def test_neither_the_document_nor_the_journal_is_replaced(memagent, reading, book, home, tmp_path):
    (tmp_path / "link.txt").symlink_to(book)
    journal = home / "journal.sqlite3"
    before = book.read_bytes()
    for bad, said in ((book, "is a file of the document"), (tmp_path / "link.txt", "is a file of the document")):
        refused = memagent("readings", "show", reading, "--html", bad)
        assert (refused.code, said in refused.err.replace("\n", " ")) == (2, True)
    for bad in (journal, f"{journal}-wal"):
        refused = memagent("readings", "show", reading, "--html", bad)
        assert (refused.code, "belongs to the journal" in refused.err.replace("\n", " ")) == (2, True)
    assert book.read_bytes() == before
    assert memagent("readings", "show", reading).code == 0


@pytest.mark.parametrize("given", ["folder", "folder/*/*.txt"])
def test_a_file_of_a_folder_is_not_replaced_and_a_page_beside_it_is(memagent, served, tmp_path, monkeypatch, given):
    folder = tmp_path / "folder"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_text(f"Some text. {FACT} More.")
    monkeypatch.chdir(tmp_path)
    asked = memagent("ask", given, "-q", QUESTION, "--json", *served).json["reading"]
    refused = memagent("readings", "show", asked, "--html", folder / "in" / "a.txt")
    assert (refused.code, "is a file of the document" in refused.err.replace("\n", " ")) == (2, True)
    for _ in range(2):
        assert memagent("readings", "show", asked, "--html", tmp_path / "a.txt").code == 0


def test_a_page_goes_to_standard_output(memagent, reading, book, tmp_path):
    page = tmp_path / "page.html"
    assert memagent("readings", "show", reading, "--html", page).code == 0
    result = memagent("readings", "show", reading, "--html", "-")
    assert (result.code, result.out, result.err) == (0, page.read_text(), "")
    book.unlink()
    assert "could not be loaded again" in memagent("readings", "show", reading, "--html", "-").err


def test_a_page_without_its_document_says_so_on_the_terminal_too(memagent, reading, book, tmp_path):
    book.unlink()
    result = memagent("readings", "show", reading, "--html", tmp_path / "page.html")
    assert result.code == 0
    assert "The document is not shown: it could not be loaded again" in result.err
    assert FACT in (tmp_path / "page.html").read_text()


def test_standard_input_has_a_page(memagent, served, tmp_path):
    asked = memagent("ask", "-", "-q", QUESTION, "--json", *served, input=f"Some text. {FACT} More.")
    result = memagent("readings", "show", asked.json["reading"], "--html", tmp_path / "page.html")
    assert (result.code, "standard input" in result.err) == (0, True)


def test_the_command_line_loads_no_template_engine():
    code = "import sys, memagent, memagent.cli.commands; print('jinja2' in sys.modules, 'memagent.page' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "False False"


def test_a_reading_is_shown_without_a_template_engine(reading):
    command = [sys.executable, "-X", "importtime", "-m", "memagent", "readings", "show", reading]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert "supported by the document:" in done.stdout
    assert "memagent.journal" in done.stderr
    assert "jinja2" not in done.stderr


def test_a_status_of_another_version_is_named(memagent, reading):
    with Journal.open() as journal:
        [verdict] = journal.show(reading).verdicts
        journal.verified(reading, [{**verdict, "status": "doubted"}])
    shown = memagent("readings", "show", reading)
    assert (shown.code, "  verified: doubted\n" in shown.out) == (0, True)
