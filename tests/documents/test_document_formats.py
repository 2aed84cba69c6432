"""HTML, PDF, DOCX and EPUB: their text, their pages, and the ways in which they can be broken."""

from __future__ import annotations

import gzip
import sys
import zipfile
from pathlib import Path

import docx
import pytest
from document_samples import (
    DOCX_TEXT,
    encrypt_pdf,
    refused,
    rewrite_zip,
    text_of,
    write_docx,
    write_epub,
    write_odt,
    write_pdf,
    write_pptx,
)

from memagent.documents import load
from memagent.errors import MissingExtraError

PAGES = ["The first page", "", "The third page (almost the last)".replace("(", "\\(").replace(")", "\\)"), "The end"]


def html(tmp_path: Path, markup: str | bytes, name: str = "page.html") -> str:
    path = tmp_path / name
    path.write_bytes(markup if isinstance(markup, bytes) else markup.encode())
    return text_of(path)


def test_html_blocks_become_lines_and_noise_goes(tmp_path: Path) -> None:
    markup = """<!doctype html><html><head><title>T</title><style>p {}</style></head><body><!-- no -->
      <h1>A   title</h1><script>if (a < b) alert("<p>")</script>
      <p>One <b>bo</b>ld\n word,<br>then&nbsp;a line &amp; &eacute;.<p>Two.
      <ul><li>first</li><li>second</li></ul><div>a div</div> tail
      <pre>  kept   as\n  is</pre>
      <table><tr><th>x</th><th></th><th>y</th></tr><tr><td>1</td><td>2</td><td>3</td></tr></table></body></html>"""
    assert html(tmp_path, markup) == (
        "A title\n\nOne bold word,\nthen\xa0a line & é.\n\nTwo.\n\nfirst\nsecond\na div\ntail\n\n  kept   as\n  is\n\n"
        "x\t\ty\n1\t2\t3"
    )


def test_broken_and_huge_html_is_read(tmp_path: Path) -> None:
    assert html(tmp_path, "<p>a<b>b<p>c</i> &unknown; <3 d") == "ab\n\nc &unknown; <3 d"
    assert html(tmp_path, "<div>" * 5000 + "deep") == "deep"
    words = " ".join(f"word{number}" for number in range(300_000))  # several chunks, some ending inside a word
    assert html(tmp_path, f"<p>{words}</p>") == words


def test_html_encodings(tmp_path: Path) -> None:
    declared = '<html><head><meta charset="windows-1251"></head><p>Привет'
    assert html(tmp_path, declared.encode("cp1251")) == "Привет"
    assert html(tmp_path, '<meta charset="latin-1"><p>größer €'.encode()) == "größer €"  # what the bytes are wins
    assert html(tmp_path, "<html><p>größer".encode("utf-16"), name="no-extension.htm") == "größer"
    with load([tmp_path / "page.html"], encoding="latin-1") as document:
        assert document.read(0, 5) == "grÃ¶Ã"
        assert (document.files[0].kind, document.files[0].encoding) == ("html", "iso8859-1")


def test_html_without_an_extension_is_recognised_and_a_text_file_is_left_alone(tmp_path: Path) -> None:
    assert html(tmp_path, "\n<!DOCTYPE html><p>hello", name="download") == "hello"
    assert html(tmp_path, "<html><p>source", name="template.txt") == "<html><p>source"


def test_html_without_text_is_empty(tmp_path: Path) -> None:
    (tmp_path / "app.html").write_text("<html><head><title>x</title></head><script>run()</script></html>")
    refused(tmp_path / "app.html", "empty")


def test_pdf_pages(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "book.pdf", PAGES)
    with load([path]) as document:
        text = document.read(0, len(document))
        file = document.files[0]
        assert text == "The first page\nThe third page (almost the last)\nThe end\n"
        assert [text[page.start : page.end] for page in file.pages] == [
            "The first page\n", "", "The third page (almost the last)\n", "The end\n",
        ]  # fmt: skip
        place = document.locate(text.index("almost"))
        assert (place.page, place.line, place.offset) == (3, None, text.index("almost"))
        assert str(place) == f"{path}, page 3, offset {text.index('almost')}"
        assert document.locate(len(document)).page == 4


def test_a_word_that_goes_on_in_the_next_line_of_a_pdf_is_joined(tmp_path: Path) -> None:
    line = ") Tj 0 -14 Td ("
    text = f"the code for amber-{line}falcon, 1990-{line}1995, an-{line}other -{line}list, pre-{line}and post-war"
    with load([write_pdf(tmp_path / "a.pdf", [text])]) as document:
        read = document.read(0, len(document))
    assert read == "the code for amber-falcon, 1990-\n1995, an-other -\nlist, pre-\nand post-war\n"


def test_the_lines_of_a_paragraph_of_a_pdf_are_joined(tmp_path: Path) -> None:
    lines = [
        "This agreement is made between Alder and Birch on",
        "the first of March. The fee was changed to EUR",
        "12,500.00 a month, as everybody in the town knew.",
        "the next line follows a full stop and stays here.",
        "Fee   2023   2024   and it is as long as the rest",
        "total   12   13",
        "Alder pays, and this line is full but ends here by",
        "Birch, with a capital letter",
        "short",
        "lines",
    ]
    with load([write_pdf(tmp_path / "a.pdf", [") Tj 0 -14 Td (".join(lines)])]) as document:
        read = document.read(0, len(document)).splitlines()
    assert read == [" ".join(lines[:3]), *lines[3:]]


def test_pdf_by_signature_in_gzip_and_within_a_document(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.txt", ["Only page"])
    (tmp_path / "b.pdf.gz").write_bytes(gzip.compress(path.read_bytes()))
    with load([path, tmp_path / "b.pdf.gz"]) as document:
        assert [file.kind for file in document.files] == ["pdf", "pdf"]
        assert document.read(0, 99) == "Only page\n\nOnly page\n"
        assert document.locate(12).page == 1


def test_broken_pdfs_are_refused(tmp_path: Path) -> None:
    whole = write_pdf(tmp_path / "whole.pdf", PAGES)
    data = whole.read_bytes()
    for size in (20, len(data) // 2, len(data) - 7):
        (tmp_path / "cut.pdf").write_bytes(data[:size])
        refused(tmp_path / "cut.pdf", "truncated PDF")
    (tmp_path / "noise.pdf").write_bytes(b"%PDF-1.4\n" + b"\xff\x01" * 500 + b"%%EOF")
    refused(tmp_path / "noise.pdf", "damaged PDF")
    (tmp_path / "page.pdf").write_text("<html>404</html>")
    refused(tmp_path / "page.pdf", "not a PDF file")
    refused(write_pdf(tmp_path / "scan.pdf", ["", "", ""]), "no text in this PDF.*OCR")


def test_encrypted_pdfs(tmp_path: Path) -> None:
    whole = write_pdf(tmp_path / "whole.pdf", PAGES)
    refused(encrypt_pdf(whole, tmp_path / "locked.pdf", "secret"), "encrypted PDF.*qpdf")
    assert text_of(encrypt_pdf(whole, tmp_path / "no-printing.pdf", "")) == text_of(whole)
    strings = " ".join(
        f"/{key} <{'5A' * size}>" for key, size in {"O": 48, "U": 48, "OE": 32, "UE": 32, "Perms": 16}.items()
    )
    filters = "/CF << /StdCF << /CFM /AESV3 /Length 32 >> >> /StmF /StdCF /StrF /StdCF"
    aes = f"/Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 /P -4 {strings} {filters} >> /Root 1 0 R"
    (tmp_path / "aes.pdf").write_bytes(whole.read_bytes().replace(b"/Root 1 0 R", aes.encode()))
    refused(tmp_path / "aes.pdf", "encrypted PDF.*qpdf")  # whether or not the library for AES is there


def test_docx_paragraphs_and_tables_in_order(tmp_path: Path) -> None:
    path = write_docx(tmp_path / "report.docx")
    assert text_of(path) == DOCX_TEXT
    path.rename(tmp_path / "report")
    with load([tmp_path / "report"]) as document:
        assert (document.files[0].kind, document.files[0].encoding) == ("docx", None)


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word(tmp_path: Path, body: str, prolog: str = "", **parts: str) -> Path:
    """A Word file with the given XML body."""
    changed: dict[str, str | bytes] = {
        "word/document.xml": f"{prolog}<w:document {W}><w:body>{body}</w:body></w:document>",
        **{f"word/{name}.xml": xml for name, xml in parts.items()},
    }
    return rewrite_zip(write_docx(tmp_path / "base.docx"), tmp_path / "made.docx", changed)


def test_docx_keeps_insertions_content_controls_and_notes_and_drops_deletions(tmp_path: Path) -> None:
    body = (
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>kept </w:t></w:r>"
        "<w:ins><w:r><w:t>inserted</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>"
        "<w:sdt><w:sdtContent><w:p><w:r><w:t>controlled</w:t><w:br/><w:t>line</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>two</w:t></w:r></w:p><w:p><w:r><w:t>paragraphs</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    )
    notes = f"<w:footnotes {W}><w:footnote><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    path = word(tmp_path, body, footnotes=notes)
    assert text_of(path) == "kept inserted\ncontrolled\nline\ntwo paragraphs\nA note."


def test_malicious_docx_xml_is_neither_expanded_nor_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE d [<!ENTITY e0 "lol">{levels}<!ENTITY x SYSTEM "{(tmp_path / "secret.txt").as_uri()}">]>'
    refused(word(tmp_path, "<w:p><w:r><w:t>&e9;&x;</w:t></w:r></w:p>", bomb), "declares entities")


def test_broken_docx_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_docx(tmp_path / "whole.docx")
    data = whole.read_bytes()
    for size in (4, 100, len(data) // 2, len(data) - 10):
        (tmp_path / "cut.docx").write_bytes(data[:size])
        refused(tmp_path / "cut.docx", "damaged or truncated docx")
    middle = data.index(b"word/document.xml") + 100
    (tmp_path / "flip.docx").write_bytes(data[:middle] + b"\xff" * 20 + data[middle + 20 :])
    refused(tmp_path / "flip.docx", "damaged")
    refused(word(tmp_path, "<w:p>"), "damaged DOCX")
    refused(word(tmp_path, "<w:p/>"), "no text in this DOCX file")
    locked = bytearray(data)
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(signature, at + 1)) >= 0:
            locked[at + flags] |= 1
    (tmp_path / "zip.docx").write_bytes(locked)
    refused(tmp_path / "zip.docx", "encrypted: .* needs a password")
    (tmp_path / "text.docx").write_text("just text")
    refused(tmp_path / "text.docx", "not a DOCX file")
    office = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
    (tmp_path / "locked.docx").write_bytes(office + "EncryptedPackage".encode("utf-16-le"))
    refused(tmp_path / "locked.docx", "encrypted Office file")
    (tmp_path / "old.doc").write_bytes(office)
    refused(tmp_path / "old.doc", "before 2007.*docx or PDF")
    monkeypatch.setattr("memagent.documents.archive.MAX_UNPACKED", 100)
    refused(whole, "decompression bombs")


def test_archives_are_closed_at_once_whether_they_are_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    build = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda zip, *given, **named: (opened.append(zip), build(zip, *given, **named))[1]
    )
    book = write_epub(tmp_path / "book.epub", ["<p>Text</p>"])
    text_of(book)
    text_of(write_docx(tmp_path / "whole.docx"))
    refused(word(tmp_path, "<w:p>"), "damaged DOCX")
    refused(rewrite_zip(book, tmp_path / "none.epub", {"META-INF/container.xml": "<container/>"}), "names no package")
    assert len(opened) > 8
    assert all(zip.fp is None for zip in opened)


def test_epub_chapters_in_spine_order(tmp_path: Path) -> None:
    chapters = ["<h1>One</h1><p>Größer &nbsp;&amp; more.</p>", '<a id="x"/><div/><p>Two<br/>lines</p><hr/>', "<p>Three</p>"]
    path = write_epub(tmp_path / "book.epub", chapters)
    assert text_of(path) == "One\n\nGrößer \xa0& more.\n\nTwo\nlines\n\nThree"
    with load([path]) as document:
        assert document.files[0].kind == "epub"


ENCRYPTION = """<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="{algorithm}"/>
<CipherData><CipherReference URI="{member}"/></CipherData></EncryptedData></encryption>"""


def test_epub_drm_is_refused_and_obfuscated_fonts_are_not(tmp_path: Path) -> None:
    book = write_epub(tmp_path / "book.epub", ["<p>Text</p>"])
    aes = ENCRYPTION.format(algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc", member="OEBPS/ch%200.xhtml")
    refused(rewrite_zip(book, tmp_path / "drm.epub", {"META-INF/encryption.xml": aes}), "DRM")
    font = ENCRYPTION.format(algorithm="http://www.idpf.org/2008/embedding", member="OEBPS/font.otf")
    assert text_of(rewrite_zip(book, tmp_path / "font.epub", {"META-INF/encryption.xml": font})) == "Text"


def test_broken_epub_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = write_epub(tmp_path / "book.epub", ["<p>Text</p>", "<p>More</p>"])
    (tmp_path / "cut.epub").write_bytes(book.read_bytes()[:-30])
    refused(tmp_path / "cut.epub", "damaged or truncated epub")
    package = '<package><manifest/><spine><itemref idref="gone"/></spine></package>'
    refused(rewrite_zip(book, tmp_path / "gone.epub", {"OEBPS/book.opf": package}), "spine names 'gone'")
    item = '<item id="a" href="no.html" media-type="text/html"/>'
    package = f'<package><manifest>{item}</manifest><spine><itemref idref="a"/></spine></package>'
    refused(rewrite_zip(book, tmp_path / "missing.epub", {"OEBPS/book.opf": package}), "no.html is missing")
    refused(rewrite_zip(book, tmp_path / "none.epub", {"META-INF/container.xml": "<container/>"}), "names no package")
    bomb = '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/hostname">]><container>&x;</container>'
    refused(rewrite_zip(book, tmp_path / "xxe.epub", {"META-INF/container.xml": bomb}), "names no package")
    monkeypatch.setattr("memagent.documents.archive.MAX_MEMBER", 50)
    refused(book, "unpacks to more than")


def test_epub_chapter_that_is_not_utf8_uses_its_declaration(tmp_path: Path) -> None:
    book = write_epub(tmp_path / "book.epub", ["<p>x</p>"])
    chapter = '<?xml version="1.0" encoding="iso-8859-2"?><html><body><p>Łódź</p></body></html>'.encode("iso8859-2")
    assert text_of(rewrite_zip(book, tmp_path / "old.epub", {"OEBPS/ch 0.xhtml": chapter})) == "Łódź"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["[Content_Types].xml", "xl/workbook.xml"], "a spreadsheet"),
        (["mimetype", "content.xml"], "OpenDocument file that is no text"),
        (["notes.txt"], "zip archive.*Unpack"),
    ],
)
def test_other_zip_files_are_named(tmp_path: Path, members: list[str], message: str) -> None:
    with zipfile.ZipFile(tmp_path / "file", "w") as archive:
        for member in members:
            archive.writestr(member, "x")
    refused(tmp_path / "file", message)


def test_rtf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_text("{\\rtf1 hello}")
    refused(tmp_path / "a.rtf", "RTF")


@pytest.mark.parametrize(
    ("name", "library", "feature"),
    [
        ("a.pdf", "pypdf", "PDF"),
        ("a.docx", "lxml.etree", "DOCX"),
        ("a.pptx", "lxml.etree", "PPTX"),
        ("a.odt", "lxml.etree", "ODT"),
        ("a.epub", "lxml.etree", "EPUB"),
        ("a.html", "lxml.etree", "HTML"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, feature: str
) -> None:
    write_pdf(tmp_path / "a.pdf", ["x"])
    write_docx(tmp_path / "a.docx")
    write_pptx(tmp_path / "a.pptx")
    write_odt(tmp_path / "a.odt")
    write_epub(tmp_path / "a.epub", ["x"])
    (tmp_path / "a.html").write_text("<p>x")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"reading {feature} files needs .*memagent\[documents\]"):
        load([tmp_path / name])


def test_a_large_docx_is_streamed(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("word " * 500_000)
    document.save(str(tmp_path / "long.docx"))
    assert text_of(tmp_path / "long.docx") == "word " * 500_000
