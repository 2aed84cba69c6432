"""Real files, written by the libraries people use or byte by byte, for the tests of documents, and how they are read."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import docx
import pptx
import pypdf
import pytest
from odf import opendocument, table
from odf import text as odf
from pptx.util import Inches

from memagent.documents import load
from memagent.errors import DocumentError


def text_of(path: Path) -> str:
    """All of the text that is read of a file."""
    with load([path]) as document:
        return document.read(0, len(document))


def refused(path: Path, message: str) -> None:
    """Asserts that a file is refused with a message that names it."""
    with pytest.raises(DocumentError, match=message) as caught:
        load([path])
    assert path.name in str(caught.value)


def write_pdf(path: Path, pages: Sequence[str]) -> Path:
    """A PDF with one line of Latin text on each page; "" gives a page without text."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    data, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    path.write_bytes(data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode())
    return path


def encrypt_pdf(source: Path, target: Path, password: str) -> Path:
    """The same PDF, opened with a password ("" for one that only restricts printing)."""
    writer = pypdf.PdfWriter(clone_from=source)
    writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    with target.open("wb") as stream:
        writer.write(stream)
    return target


def write_docx(path: Path) -> Path:
    """A Word file with a heading, a table between two paragraphs, a tab and an empty paragraph."""
    document = docx.Document()
    document.add_heading("The title", level=1)
    document.add_paragraph("Before the table.")
    table = document.add_table(rows=2, cols=3)
    for row, cells in enumerate((("name", "", "age"), ("Ada", "née Byron", "36"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    document.add_paragraph("After\tthe table.")
    document.add_paragraph("")
    document.add_paragraph("The end, größer.")
    document.save(str(path))
    return path


DOCX_TEXT = "The title\nBefore the table.\nname\t\tage\nAda\tnée Byron\t36\nAfter\tthe table.\n\nThe end, größer."


SLIDES = [
    "The plan\n\nFirst point\nSecond point\n\nSay hello.\nThen wait.\n\n",
    "",
    "Figures\n\nname\t\tage\nAda\tnée Byron\t36\n\nIn a group\n\n",
]


def write_pptx(path: Path) -> Path:
    """A presentation of SLIDES: points with speaker notes, nothing, and a table with a group of shapes."""
    made = pptx.Presentation()
    points = made.slides.add_slide(made.slide_layouts[1])
    points.shapes.title.text = "The plan"
    points.placeholders[1].text = "First point\nSecond point"
    points.notes_slide.notes_text_frame.text = "Say hello.\nThen wait."
    made.slides.add_slide(made.slide_layouts[6])
    figures = made.slides.add_slide(made.slide_layouts[5])
    figures.shapes.title.text = "Figures"
    where = Inches(1), Inches(1), Inches(5), Inches(1)
    cells = figures.shapes.add_table(2, 3, *where).table
    for row, values in enumerate((("name", "", "age"), ("Ada", "née Byron", "36"))):
        for column, value in enumerate(values):
            cells.cell(row, column).text = value
    figures.shapes.add_group_shape().shapes.add_textbox(*where).text_frame.text = "In a group"
    made.save(str(path))
    return path


ODT_TEXT = (
    "The title\nBefore\tthe   table and more.\nname\t\tage\nAda\tnée Byron\t36\n"
    "After the\ntable.\n\nThe end, größer.\nA note."
)


def write_odt(path: Path) -> Path:
    """An OpenDocument text with a heading, a footnote, a table, a broken line and an empty paragraph."""
    made = opendocument.OpenDocumentText()
    made.text.addElement(odf.H(outlinelevel=1, text="The title"))
    first = odf.P(text="Before")
    first.addElement(odf.Tab())
    first.addText("the")
    first.addElement(odf.S(c=3))
    first.addText("table")
    note, body = odf.Note(noteclass="footnote"), odf.NoteBody()
    note.addElement(odf.NoteCitation(text="1"))
    body.addElement(odf.P(text="A note."))
    note.addElement(body)
    first.addElement(note)
    first.addText(" and\n  more.")
    made.text.addElement(first)
    cells = table.Table()
    for values in (("name", "", "age"), ("Ada", "née Byron", "36")):
        row = table.TableRow()
        for value in values:
            cell = table.TableCell()
            cell.addElement(odf.P(text=value))
            row.addElement(cell)
        cells.addElement(row)
    made.text.addElement(cells)
    broken = odf.P(text="After the")
    broken.addElement(odf.LineBreak())
    broken.addText("table.")
    for last in (broken, odf.P(), odf.P(text="The end, größer.")):
        made.text.addElement(last)
    made.save(str(path))
    return path


def rewrite_zip(source: Path, target: Path, changed: dict[str, str | bytes]) -> Path:
    """A copy of a zip file with some members replaced or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name not in changed:
                new.writestr(name, old.read(name))
        for name, data in changed.items():
            new.writestr(name, data)
    return target


CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""


def write_epub(path: Path, chapters: Sequence[str]) -> Path:
    """An EPUB whose chapters (XHTML bodies) are stored in reverse order: only the spine knows the right one."""
    items = "".join(
        f'<item id="c{number}" href="ch%20{number}.xhtml" media-type="application/xhtml+xml"/>'
        for number in range(len(chapters))
    )
    order = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/>'
        f'<manifest>{items}<item id="css" href="style.css" media-type="text/css"/></manifest>'
        f"<spine>{order}</spine></package>"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")
        book.writestr("META-INF/container.xml", CONTAINER)
        for number, body in reversed(list(enumerate(chapters))):
            head = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
            book.writestr(f"OEBPS/ch {number}.xhtml", f"{head}<body>{body}</body></html>")
        book.writestr("OEBPS/book.opf", package)
    return path
