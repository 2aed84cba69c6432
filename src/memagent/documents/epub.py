"""EPUB → text: the chapters in the order of the spine, each read as HTML."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from memagent.documents.archive import Archive
from memagent.documents.decoding import decode, detect
from memagent.documents.html import html_text
from memagent.documents.source import Source, optional

_FEATURE = "reading EPUB files"
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_CHAPTERS = ("application/xhtml+xml", "text/html")
_FONT_OBFUSCATION = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_RESAVE = "Convert it again from its source, for example with Calibre"

# XHTML closes empty elements with "/>", which HTML ignores: <title/> would swallow the chapter as its title.
_SELF_CLOSED = re.compile(r"<([A-Za-z][\w:-]*)((?:\s[^<>]*)?)/>")
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})


def read_epub(source: Source) -> Iterator[str]:
    """The text of each chapter, with a blank line between chapters."""
    etree = optional("lxml.etree", _FEATURE)
    with Archive(source) as archive:
        chapters = _spine(etree, archive, source)
        _refuse_drm(etree, archive, source, chapters)
        border = ""
        for member in chapters:
            chapter = Source(
                name=f"{source.name} ({member})", suffix=".xhtml", stream=io.BytesIO(archive.read(member)), encoding=None
            )
            markup = "".join(decode(chapter, detect(chapter, markup=True)))
            text = "".join(html_text(chapter, [_SELF_CLOSED.sub(_open_and_close, markup)], _FEATURE))
            if text:
                yield border + text
                border = "\n\n"


def _open_and_close(match: re.Match[str]) -> str:
    name, attributes = match.groups()
    return match[0] if name.lower() in _VOID else f"<{name}{attributes}></{name}>"


def _spine(etree: Any, archive: Archive, source: Source) -> list[str]:
    """The members that hold the chapters, in reading order."""
    container = _xml(etree, archive, source, _CONTAINER)
    paths = container.xpath("//*[local-name()='rootfile']/@full-path")
    if not paths:
        raise source.error(f"damaged EPUB: {_CONTAINER} names no package", _RESAVE)
    package = _xml(etree, archive, source, str(paths[0]))
    folder = posixpath.dirname(str(paths[0]))
    items = {item.get("id"): item for item in package.xpath("//*[local-name()='manifest']/*[local-name()='item']")}
    members = []
    for identifier in package.xpath("//*[local-name()='spine']/*[local-name()='itemref']/@idref"):
        item = items.get(identifier)
        if item is None:
            raise source.error(f"damaged EPUB: its spine names {identifier!r}, which it does not hold", _RESAVE)
        if item.get("media-type") in _CHAPTERS:
            members.append(posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "")))))
    return members


def _refuse_drm(etree: Any, archive: Archive, source: Source, chapters: list[str]) -> None:
    """Raises when a chapter is encrypted. Obfuscated fonts are listed in the same place and do no harm."""
    if _ENCRYPTION not in archive.names:
        return
    for data in _xml(etree, archive, source, _ENCRYPTION).xpath("//*[local-name()='EncryptedData']"):
        methods = data.xpath("./*[local-name()='EncryptionMethod']/@Algorithm")
        members = [unquote(str(uri)) for uri in data.xpath(".//*[local-name()='CipherReference']/@URI")]
        if not set(methods) & set(_FONT_OBFUSCATION) and set(members) & set(chapters):
            raise source.error("encrypted EPUB (DRM)", "Use a copy without DRM")


def _xml(etree: Any, archive: Archive, source: Source, member: str) -> Any:
    """The root of a small XML member. Entities are neither expanded nor fetched."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(archive.read(member), parser)
    except etree.XMLSyntaxError as error:
        raise source.error(f"damaged EPUB: {member}: {error}", _RESAVE) from error
