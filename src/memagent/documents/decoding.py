"""Bytes → text, a megabyte at a time, without ever replacing a character.

Which encoding: the one the caller names; else a byte order mark; else UTF-8 if the whole file is valid UTF-8; else what an
HTML file declares; else a guess: the code page in which the text reads as one language (`alphabets`), or what
charset-normalizer says of other texts. The file is read twice, because only its last byte proves UTF-8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from charset_normalizer import from_bytes

from memagent.documents.alphabets import code_page
from memagent.documents.source import Source
from memagent.errors import ConfigError, DocumentError

_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))

SURELY_UTF8 = 64
"""Bytes of valid multi-byte UTF-8 after which a later invalid byte means damage, not another encoding.

Text in a legacy encoding passes as UTF-8 by accident for a character or two, not for dozens."""

_WINDOW = 1 << 20
_SAMPLE = 64 << 10

_NAME_IT = "Name the right encoding (--encoding, `encoding` in Python), or convert the file to UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How to decode a source: the codec, the bytes of byte order mark to skip, and whether we were told or guessed it;
    valid UTF-8 is neither."""

    codec: str
    mark: int = 0
    told: bool = False
    guessed: bool = False

    @property
    def name(self) -> str:
        """The codec as Python calls it; UTF-8 with a byte order mark is `utf-8-sig`."""
        return "utf-8-sig" if self.mark and self.codec == "utf-8" else self.codec


def codec_name(encoding: str) -> str:
    """Python's own name of a text encoding. Raises ConfigError when there is none."""
    try:
        " ".encode(encoding)  # refuses codecs such as base64, which are for bytes
        return codecs.lookup(encoding).name
    except (LookupError, UnicodeError, ValueError) as error:
        raise ConfigError(f"encoding {encoding!r} is not one Python knows: try 'utf-8', 'cp1252' or 'utf-16'") from error


def detect(source: Source, *, markup: bool = False) -> Encoding:
    """The encoding of a whole source. `markup`: believe a charset declared inside (HTML). Raises DocumentError."""
    head = source.head(2048)
    wanted = source.encoding
    for mark, codec in _MARKS:
        if head.startswith(mark) and (wanted is None or codec.startswith(wanted.removesuffix("-sig"))):
            return Encoding(codec=codec, mark=len(mark), told=True)
    if wanted is not None:
        return Encoding(codec=wanted, told=True)
    invalid = _first_invalid(source)
    if invalid is None:
        return Encoding(codec="utf-8")
    if markup and (declared := _declared(head)):
        return Encoding(codec=declared, told=True)
    offset, multibyte = invalid
    if multibyte >= SURELY_UTF8:
        raise source.error(f"UTF-8 up to byte {offset}, where it breaks: the file is damaged or mixed", _NAME_IT)
    return Encoding(codec=_guess(source, offset), guessed=True)


def decode(source: Source, encoding: Encoding) -> Iterator[str]:
    """The text of a source, piece by piece. Raises DocumentError at the first byte that does not fit."""
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    position = encoding.mark
    for chunk in _with_end(source.chunks(encoding.mark)):
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            at = position - pending + getattr(error, "start", 0)
            raise source.error(f"not valid {encoding.name} at byte {at}", _NAME_IT) from error
        if not encoding.told and "\0" in text:
            raise _binary(source)
        position += len(chunk)
        if text:
            yield text


def _with_end(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks, then an empty one: the sign for a decoder that nothing follows."""
    yield from chunks
    yield b""


def _first_invalid(source: Source) -> tuple[int, int] | None:
    """Where UTF-8 breaks, and how many bytes beyond one a character were seen before. None: it never breaks."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    position = characters = 0
    for chunk in _with_end(source.chunks()):
        pending = decoder.getstate()[0]
        try:
            characters += len(decoder.decode(chunk, final=not chunk))
        except UnicodeDecodeError as error:
            offset = position - len(pending) + error.start
            characters += len((pending + chunk)[: error.start].decode())
            return offset, offset - characters
        position += len(chunk)
    return None


def _declared(head: bytes) -> str | None:
    """The encoding an HTML or XML head declares, if Python knows it. Browsers read latin-1 as cp1252, and so do we."""
    match = _DECLARED.search(head)
    if match is None:
        return None
    try:
        codec = codec_name(match[1].decode("ascii"))
    except ConfigError:
        return None
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec


def _guess(source: Source, offset: int) -> str:
    """The likeliest encoding, from the lines that are not ASCII after the first byte that is not UTF-8."""
    before = _slice(source, max(0, offset - 4096), offset)
    start = offset - len(before) + (before.rfind(b"\n") + 1)
    lines = _slice(source, start, start + _WINDOW).splitlines(keepends=True)
    sample = b"".join(line for line in lines if not line.isascii())[:_SAMPLE]  # ASCII lines say nothing
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if b"\0" in sample or controls > len(sample) // 50:
        raise _binary(source)
    page = code_page(sample)
    if page is not None:
        return page
    best = from_bytes(sample).best()
    if best is None:
        raise _binary(source)
    return codec_name(best.encoding)


def _slice(source: Source, start: int, end: int) -> bytes:
    source.stream.seek(start)
    return source.stream.read(end - start)


def _binary(source: Source) -> DocumentError:
    return source.error(
        "not text (it holds NUL or control bytes, or fits no encoding)",
        "Convert it to text, PDF, DOCX, ODT, EPUB or HTML; if it is text after all, name its encoding (--encoding,"
        " `encoding` in Python; UTF-16 without a byte order mark: 'utf-16-le')",
    )
