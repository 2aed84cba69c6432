"""E-mail → text: who wrote what to whom, and when; from one message (.eml) or a mailbox (.mbox), a message at a time.

Attachments are named and not read, but for messages that were forwarded whole.
"""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from email.policy import Compat32
from typing import TypeAlias, cast

from memagent.documents.archive import MAX_MEMBER
from memagent.documents.decoding import codec_name, decode, detect
from memagent.documents.html import html_text
from memagent.documents.source import CHUNK, Source
from memagent.errors import ConfigError, DocumentError

# Of the lenient kind (the parser's policy `compat32`): that of `policy.default` raises for headers that real mail has.
Mail: TypeAlias = "Message[str, str]"

_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_HEADER = re.compile(rb"[!-9;-~]+:")  # RFC 5322, section 3.6.8
_ENVELOPE = re.compile(rb"\A>?From [^\n]*\n")  # what some programs leave before a message
_BORDER = re.compile(rb"From .*\d:\d\d.*\d{4}")  # with a date, unlike a line of text that begins so
_QUOTED_BORDER = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_TEXT = ("text", "multipart")  # a leaf of several parts has a border that is not found: its text stands as it is
_MOST_FORWARDED = 8  # messages within one another
# What real mail stays below. Beyond, the parser takes gigabytes, or time that grows with the square.
_MOST_LINES, _MOST_PARTS = 2_000_000, 10_000
_LONGEST_HEADER, _LONGEST_FIELD = 1 << 15, 1 << 12


class _Policy(Compat32):
    """Headers are read to a length that nobody uses up: the library's time grows with the square of it."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: _LONGEST_FIELD if name.lower().startswith("content-") else _LONGEST_HEADER]


def read_eml(source: Source) -> Iterator[str]:
    """The text of one message."""
    if source.size() > MAX_MEMBER:
        raise source.error(f"a message of more than {MAX_MEMBER >> 20} MiB", "Save it without its attachments")
    data = _ENVELOPE.sub(b"", source.head(MAX_MEMBER).removeprefix(BOM_UTF8).lstrip(b"\r\n"))
    if not _HEADER.match(data):
        raise source.error("not an e-mail message, whatever its name says", "Give it the extension .txt if it is text")
    yield _text(source, data)


def begins_mailbox(head: bytes) -> bool:
    """Whether these are the first bytes of a mailbox, to which mail programs give no extension: a border and a header."""
    border, _, rest = head.partition(b"\n")
    return bool(_BORDER.match(border) and _HEADER.match(rest))


def read_mbox(source: Source) -> Iterator[str]:
    """A piece for each message, in the order of the mailbox. A line "From …" with a date, after a blank one, begins a
    message."""
    if not source.head(1 << 12).removeprefix(BOM_UTF8).lstrip().startswith(b"From "):
        raise source.error("not a mailbox (mbox), whatever its name says", "Give it the extension .txt if it is text")
    for data in _messages(source):
        yield _text(source, _QUOTED_BORDER.sub(b"", data)).rstrip("\n") + "\n\n"


def _messages(source: Source) -> Iterator[bytes]:
    """The bytes of each message of a mailbox. Only one is in memory at a time."""
    message, number = bytearray(), 0
    begins = blank = True  # of the line to be read: whether it is a new one, and whether that before it is blank
    source.stream.seek(0)
    while line := source.stream.readline(CHUNK):
        line = line if number else line.removeprefix(BOM_UTF8)
        first = not number and line.startswith(b"From ")
        if begins and (first or (number and blank and _BORDER.match(line[:300]))):
            if number:
                yield bytes(message)
            message.clear()
            number += 1
        elif number:
            message += line
        if len(message) > MAX_MEMBER:
            raise source.error(
                f"message {number:,} has more than {MAX_MEMBER >> 20} MiB", "Save it without its attachments"
            )
        blank = begins and not line.strip()
        begins = line.endswith(b"\n")
    yield bytes(message)


def _text(source: Source, data: bytes) -> str:
    """A message as text; one that was made to keep a parser busy as it stands."""
    if data.count(b"\n") > _MOST_LINES or data.count(b"\n--") > _MOST_PARTS:
        return _lossless(data, "utf-8")
    try:
        return "\n".join(_parts(source, BytesParser(policy=_Policy()).parsebytes(data), _MOST_FORWARDED))
    except RecursionError:  # hundreds of parts within one another
        return _lossless(data, "utf-8")


def _parts(source: Source, message: Mail, deeper: int) -> Iterator[str]:
    """Headers, a blank line, the body, and the messages that were forwarded in this one, so many within one another."""
    attached, forwarded, bodies = list[str](), list[Mail](), list[str]()
    for part in _leaves(message):
        if part.get_content_type() == "message/rfc822" and part.is_multipart() and not _is_base64(part) and deeper:
            forwarded += cast(list[Mail], part.get_payload())
        elif (
            part.get_content_maintype() in _TEXT and part.get_content_disposition() != "attachment" and not _filename(part)
        ):
            bodies.append(_body(source, part).replace("\r\n", "\n").strip("\n"))
        else:
            attached.append(_filename(part) or part.get_content_type())
    yield from (f"{name}: {value}" for name in _SHOWN if (value := _header(message, name)))
    if attached:
        yield f"Attachments (not read): {', '.join(attached)}"
    yield ""
    yield from (f"{body}\n" for body in bodies if body.strip())
    for one in forwarded:
        yield from _parts(source, one, deeper - 1)


def _leaves(message: Mail) -> Iterator[Mail]:
    """The parts that are shown, each forwarded message as a whole. Of alternatives, the one in plain text if it has any, or
    that in HTML, or else the last; and the attachments of the others."""
    if message.get_content_maintype() != "multipart" or not message.is_multipart():
        yield message
        return
    leaves = [list(_leaves(part)) for part in cast(list[Mail], message.get_payload())]
    if message.get_content_subtype() == "alternative" and leaves:
        chosen = _chosen(leaves)
        others = [one for found in leaves if found is not chosen for one in found]
        leaves = [chosen, [one for one in others if _filename(one) and "Content-ID" not in one]]
    for found in leaves:
        yield from found


def _chosen(alternatives: list[list[Mail]]) -> list[Mail]:
    """The alternative to show; see `_leaves`."""
    for kind in ("text/plain", "text/html"):
        for found in alternatives:
            if any(one.get_content_type() == kind and _bytes(one).strip() for one in found):
                return found
    return alternatives[-1]


def _bytes(part: Mail) -> bytes:
    """The content of a part; none of what has parts itself."""
    return cast(bytes | None, part.get_payload(decode=True)) or b""


def _is_base64(part: Mail) -> bool:
    """Of a forwarded message, that is no message yet."""
    return str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64"


def _filename(part: Mail) -> str:
    """What a part is called as a file; "" if it has no name."""
    try:
        return _words(part.get_filename() or "")
    except (LookupError, ValueError):  # in an encoding that there is not
        return ""


def _header(message: Mail, name: str) -> str:
    """A header in one line; "" if there is none."""
    return next((_words(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")


def _words(value: str) -> str:
    """The text of a header: encoded words decoded, and bytes that are not ASCII read as the body's are."""
    with suppress(UnicodeEncodeError):
        value = _lossless(value.encode("utf-8", "surrogateescape"), "utf-8")
    with suppress(HeaderParseError, LookupError, ValueError):  # then it stands as it is
        value = str(make_header(decode_header(value)))
    return " ".join(line.strip() for line in value.encode("utf-8", "replace").decode().splitlines()).strip()


def _body(source: Source, part: Mail) -> str:
    """The text of a part, in the encoding that it names, or in another if its bytes are not of that."""
    data = _bytes(part)
    told = str(part.get_content_charset("utf-8"))
    if part.get_content_subtype() != "html":
        return _lossless(data, told)
    try:
        return "".join(html_text(source, [_lossless(data, told, markup=True)]))
    except DocumentError:  # markup without any element
        return ""


def _lossless(data: bytes, told: str, *, markup: bool = False) -> str:
    """Text of a mail, whatever its bytes: one bad message is no reason to refuse the others. Latin-1, the last resort,
    gives each byte a character. What says that it is Latin-1 is mostly cp1252, as browsers take it, too."""
    with suppress(ConfigError, LookupError, ValueError):
        codec = codec_name(told)
        if codec == "iso8859-1":
            with suppress(UnicodeDecodeError):
                return data.decode("cp1252")
        text = data.decode(codec)
        text.encode()  # some encodings can name half of a character
        return text
    with suppress(DocumentError, ValueError):
        piece = Source(name="", suffix="", stream=io.BytesIO(data))
        text = "".join(decode(piece, detect(piece, markup=markup)))
        text.encode()
        return text
    return data.decode("latin-1")
