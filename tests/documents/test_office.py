"""PPTX and ODT: their text, their slides, and the ways in which they can be broken."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from document_samples import ODT_TEXT, SLIDES, refused, rewrite_zip, text_of, write_odt, write_pptx

from memagent.documents import load
from memagent.documents.archive import Archive
from memagent.documents.package import Package
from memagent.documents.source import Source


def test_slides_are_read_in_order_with_their_notes_and_places_name_them(tmp_path: Path) -> None:
    path = write_pptx(tmp_path / "plan.pptx")
    with load([path]) as document:
        read = document.read(0, len(document))
        [file] = document.files
        assert file.kind == "pptx"
        assert [read[slide.start : slide.end] for slide in file.pages] == SLIDES
        place = document.locate(read.index("Ada"))
        assert (place.page, str(place)) == (3, f"{path}, slide 3, offset {read.index('Ada')}")
    path.rename(tmp_path / "download")
    assert text_of(tmp_path / "download") == read


PRESENTATION = "ppt/presentation.xml"
SLIDE = (
    '<p:sld xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>'
)
SHAPE = (
    "<p:sp><p:nvSpPr><p:nvPr>{kind}</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
)


def slides(tmp_path: Path, shapes: str, prolog: str = "") -> Path:
    """A presentation whose first slide has these shapes."""
    changed: dict[str, str | bytes] = {"ppt/slides/slide1.xml": prolog + SLIDE.format(shapes=shapes)}
    return rewrite_zip(write_pptx(tmp_path / "base.pptx"), tmp_path / "made.pptx", changed)


def test_the_order_is_that_of_the_presentation_not_of_file_names(tmp_path: Path) -> None:
    base = write_pptx(tmp_path / "base.pptx")
    with zipfile.ZipFile(base) as archive:
        main = archive.read(PRESENTATION).decode()
    head, _, rest = main.partition("<p:sldIdLst>")
    listed, _, tail = rest.partition("</p:sldIdLst>")
    ids = [f"<p:sldId{one}" for one in listed.split("<p:sldId")[1:]]
    turned = f"{head}<p:sldIdLst>{''.join(reversed(ids))}</p:sldIdLst>{tail}"
    with load([rewrite_zip(base, tmp_path / "turned.pptx", {PRESENTATION: turned})]) as document:
        read = document.read(0, len(document))
        assert [read[slide.start : slide.end] for slide in document.files[0].pages] == SLIDES[::-1]


def test_what_every_slide_repeats_and_what_old_programs_show_is_left_out(tmp_path: Path) -> None:
    repeated = "".join(SHAPE.format(kind=f'<p:ph type="{kind}"/>', text=kind) for kind in ("sldNum", "dt", "ftr"))
    old = SHAPE.format(kind="", text="for old ones")
    old = f"<mc:AlternateContent><mc:Fallback>{old}</mc:Fallback></mc:AlternateContent>"
    frame = '<p:graphicFrame><p:nvPr><p:ph type="dt"/></p:nvPr></p:graphicFrame>'
    kept = frame + SHAPE.format(kind='<p:ph type="body"/>', text="one</a:t></a:r><a:br/><a:r><a:t>two")
    path = slides(tmp_path, repeated + kept + old + SHAPE.format(kind="", text="three"))
    assert text_of(path).startswith("one\ntwo\n\nthree\n\nSay hello.")


def test_an_open_document_is_read_with_its_notes_at_the_end(tmp_path: Path) -> None:
    path = write_odt(tmp_path / "letter.odt")
    assert text_of(path) == ODT_TEXT
    path.rename(tmp_path / "letter")
    with load([tmp_path / "letter"]) as document:
        assert (document.files[0].kind, document.files[0].pages) == ("odt", ())


ODT = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table", "drawing")
)


def odt(tmp_path: Path, body: str, prolog: str = "", **parts: str) -> Path:
    """An OpenDocument text with the given XML body."""
    body = f"<office:body><office:text>{body}</office:text></office:body>"
    content = f"{prolog}<office:document-content{ODT}>{body}</office:document-content>"
    changed: dict[str, str | bytes] = {
        "content.xml": content,
        **{name.replace("__", "/"): xml for name, xml in parts.items()},
    }
    return rewrite_zip(write_odt(tmp_path / "base.odt"), tmp_path / "made.odt", changed)


def test_an_open_document_keeps_frames_and_drops_comments_and_deletions(tmp_path: Path) -> None:
    body = (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>deleted</text:p></text:deletion>"
        "</text:changed-region></text:tracked-changes>"
        "<text:p>kept<office:annotation><text:p>a comment</text:p></office:annotation> and "
        "<text:span>spanned</text:span>\n  words</text:p>"
        "<text:list><text:list-item><text:p>first</text:p></text:list-item><text:list-item><text:p>second</text:p>"
        "</text:list-item></text:list>"
        f'<text:p>wide<text:s text:c="{"9" * 5000}"/>gap<text:s text:c="x"/>.</text:p>'
    )
    read = text_of(odt(tmp_path, body)).splitlines()
    assert read[:3] == ["kept and spanned words", "first", "second"]
    assert read[3] == f"wide{' ' * 20}gap ."


def test_fields_of_an_open_document_are_text_and_pictures_are_not(tmp_path: Path) -> None:
    names = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    image = "<drawing:image><office:binary-data>AAAA</office:binary-data></drawing:image>"
    picture = f"<drawing:frame {names}>{image}<svg:desc>a</svg:desc></drawing:frame>"
    comment = "<office:annotation><text:p>a comment</text:p></office:annotation>"
    cell = f"<table:table-cell><text:p>foo{comment}bar</text:p></table:table-cell>"
    cell = f"<table:table><table:table-row>{cell}</table:table-row></table:table>"
    body = f"<text:p>This is <text:title>The Report</text:title>, by us{picture}.</text:p>{cell}"
    assert text_of(odt(tmp_path, body)) == "This is The Report, by us.\nfoobar"


def test_what_a_presentation_or_a_note_may_hold_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent.documents.pptx.MAX_MEMBER", 10)
    refused(write_pptx(tmp_path / "a.pptx"), "a slide of more than")
    monkeypatch.setattr("memagent.documents.odt.MAX_MEMBER", 3)
    refused(write_odt(tmp_path / "a.odt"), "notes of more than")


def test_a_note_in_a_table_keeps_its_paragraphs(tmp_path: Path) -> None:
    note = "<text:note><text:note-body><text:p>One.</text:p><text:p>Two.</text:p></text:note-body></text:note>"
    cells = "".join(f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in (f"a{note}", "b"))
    table = f"<table:table><table:table-row>{cells}</table:table-row></table:table>"
    assert text_of(odt(tmp_path, table)) == "a\tb\nOne.\nTwo."


def test_entities_of_office_files_are_neither_expanded_nor_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    bomb = f'<!DOCTYPE d [<!ENTITY x SYSTEM "{(tmp_path / "secret.txt").as_uri()}">]>'
    refused(odt(tmp_path, "<text:p>&x;</text:p>", bomb), "declares entities")
    refused(slides(tmp_path, SHAPE.format(kind="", text="&x;"), bomb), "declares entities")
    base = write_pptx(tmp_path / "base.pptx")
    with zipfile.ZipFile(base) as archive:
        main = archive.read(PRESENTATION).decode()
    declared = main.replace("<p:presentation", bomb + "<p:presentation", 1).replace("<p:sldIdLst>", "<p:sldIdLst>&x;", 1)
    made = rewrite_zip(base, tmp_path / "main.pptx", {PRESENTATION: declared})
    with made.open("rb") as stream, Archive(source := Source(name="main.pptx", suffix=".pptx", stream=stream)) as archive:
        assert "SECRET" not in Package(source, archive, "PPTX").tree(PRESENTATION).xpath("string()")
    assert text_of(made) == text_of(base)


def test_broken_office_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for whole in (write_pptx(tmp_path / "whole.pptx"), write_odt(tmp_path / "whole.odt")):
        data = whole.read_bytes()
        for size in (4, 100, len(data) // 2, len(data) - 10):
            cut = tmp_path / f"cut{whole.suffix}"
            cut.write_bytes(data[:size])
            refused(cut, "damaged or truncated (pptx|odt)")
        text = tmp_path / f"text{whole.suffix}"
        text.write_text("just text")
        refused(text, "not an? (PPTX|ODT) file")
    refused(odt(tmp_path, "<text:p>"), "damaged ODT: content.xml")
    refused(odt(tmp_path, "<text:p/>"), "no text in this ODT file")
    refused(slides(tmp_path, "<p:sp>"), "damaged PPTX: ppt/slides/slide1.xml")
    lost = rewrite_zip(
        tmp_path / "whole.pptx", tmp_path / "lost.pptx", {"ppt/_rels/presentation.xml.rels": "<Relationships/>"}
    )
    refused(lost, "damaged PPTX: ppt/presentation.xml names a slide 'rId")
    locked = "<manifest:manifest><manifest:file-entry><manifest:encryption-data/></manifest:file-entry></manifest:manifest>"
    refused(odt(tmp_path, "<text:p>x</text:p>", **{"META-INF__manifest.xml": locked}), "encrypted ODT.*password")
    monkeypatch.setattr("memagent.documents.archive.MAX_UNPACKED", 100)
    refused(tmp_path / "whole.pptx", "decompression bombs")
    refused(tmp_path / "whole.odt", "decompression bombs")


def test_links_out_of_a_presentation_and_to_parts_that_are_gone(tmp_path: Path) -> None:
    base = write_pptx(tmp_path / "base.pptx")
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/notesSlide"
    names = "http://schemas.openxmlformats.org/package/2006/relationships"
    link = f'<Relationship Id="a" Type="{kind}" Target="file:///etc/passwd" TargetMode="External"/>'
    rels = "ppt/slides/_rels/slide1.xml.rels"
    made = rewrite_zip(base, tmp_path / "outside.pptx", {rels: f'<Relationships xmlns="{names}">{link}</Relationships>'})
    assert text_of(made).startswith("The plan\n\nFirst point\nSecond point\n\nFigures")
    gone = (
        f'<Relationships xmlns="{names}"><Relationship Id="a" Type="{kind}" Target="../../../../gone.xml"/></Relationships>'
    )
    refused(rewrite_zip(base, tmp_path / "gone.pptx", {rels: gone}), "gone.xml is missing")
