"""E-mail → text: who wrote what to whom, and when; from one message (.eml) or a mailbox (.mbox), a message at a time.

Attachments are named and not read, but for messages that were forwarded whole.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
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
_FOLDED = re.compile(r"\s*[\r\n]\s*")
_QUOTED_BORDER = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_TEXT = ("text", "multipart")  # a leaf of several parts has a border that is not found: its text stands as it is
_MOST_FORWARDED = 8  # messages within one another


def read_eml(source: Source) -> Iterator[str]:
    """The text of one message."""
    if source.size() > MAX_MEMBER:
        raise source.error(f"a message of more than {MAX_MEMBER >> 20} MiB", "Save it without its attachments")
    data = source.head(MAX_MEMBER)
    if not _HEADER.match(data.lstrip(b"\r\n")):
        raise source.error("not an e-mail message, whatever its name says", "Give it the extension .txt if it is text")
    yield _text(source, data.lstrip(b"\r\n"))


def read_mbox(source: Source) -> Iterator[str]:
    """A piece for each message, in the order of the mailbox. A line that begins with "From " begins a message."""
    if not source.head(5).startswith(b"From "):
        raise source.error("not a mailbox (mbox), whatever its name says", "Give it the extension .txt if it is text")
    for data in _messages(source):
        yield _text(source, _QUOTED_BORDER.sub(b"", data)).rstrip("\n") + "\n\n"


def _messages(source: Source) -> Iterator[bytes]:
    """The bytes of each message of a mailbox. Only one is in memory at a time."""
    message, number, border = bytearray(), 0, True
    source.stream.seek(0)
    while line := source.stream.readline(CHUNK):
        if border and line.startswith(b"From "):
            if message:
                yield bytes(message)
            message.clear()
            number += 1
        else:
            message += line
        if len(message) > MAX_MEMBER:
            raise source.error(
                f"message {number:,} has more than {MAX_MEMBER >> 20} MiB", "Save it without its attachments"
            )
        border = not line.strip() and line.endswith(b"\n")
    if message:
        yield bytes(message)


def _text(source: Source, data: bytes) -> str:
    try:
        return "\n".join(_parts(source, BytesParser().parsebytes(data), _MOST_FORWARDED))
    except RecursionError:  # hundreds of parts within one another, as nobody sends: it stands as it is
        return _lossless(data, "utf-8")


def _parts(source: Source, message: Mail, deeper: int) -> Iterator[str]:
    """Headers, a blank line, the body, and the messages that were forwarded in this one, so many within one another."""
    attached, forwarded, bodies = list[str](), list[Mail](), list[str]()
    for part in _leaves(message):
        if part.get_content_type() == "message/rfc822" and part.is_multipart() and deeper:
            forwarded += cast(list[Mail], part.get_payload())
        elif part.get_content_maintype() in _TEXT and part.get_content_disposition() != "attachment":
            bodies.append(_body(source, part).replace("\r\n", "\n").strip("\n"))
        else:
            attached.append(_name(part))
    yield from (f"{name}: {value}" for name in _SHOWN if (value := _header(message, name)))
    if attached:
        yield f"Attachments (not read): {', '.join(attached)}"
    yield ""
    yield from (f"{body}\n" for body in bodies if body.strip())
    for one in forwarded:
        yield from _parts(source, one, deeper - 1)


def _leaves(message: Mail) -> Iterator[Mail]:
    """The parts that are shown: of alternatives the first with plain text, or else the last with text; each forwarded
    message as a whole."""
    if message.get_content_maintype() != "multipart" or not message.is_multipart():
        yield message
        return
    leaves = [list(_leaves(part)) for part in cast(list[Mail], message.get_payload())]
    if message.get_content_subtype() == "alternative" and leaves:
        plain = [found for found in leaves if any(one.get_content_type() == "text/plain" for one in found)]
        text = [found for found in leaves if any(one.get_content_maintype() == "text" for one in found)]
        leaves = (plain or text[-1:] or leaves[-1:])[:1]
    for found in leaves:
        yield from found


def _name(part: Mail) -> str:
    """How an attachment is called; its type if it has no name."""
    try:
        name = part.get_filename()
    except (LookupError, ValueError):  # in an encoding that there is not
        name = None
    return _words(name) if name else part.get_content_type()


def _header(message: Mail, name: str) -> str:
    """A header in one line; "" if there is none."""
    return next((_words(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")


def _words(value: str) -> str:
    """The text of a header: encoded words decoded, and bytes that are not ASCII read as the body's are."""
    value = _lossless(value.encode("utf-8", "surrogateescape"), "utf-8")
    with suppress(HeaderParseError, LookupError, ValueError):  # then it stands as it is
        value = str(make_header(decode_header(value)))
    return _FOLDED.sub(" ", value.encode("utf-8", "replace").decode()).strip()


def _body(source: Source, part: Mail) -> str:
    """The text of a part, in the encoding that it names, or in another if its bytes are not of that."""
    data = cast(bytes | None, part.get_payload(decode=True)) or b""
    told = str(part.get_content_charset("utf-8"))
    if part.get_content_subtype() != "html":
        return _lossless(data, told)
    try:
        return "".join(html_text(source, [_lossless(data, told, markup=True)]))
    except DocumentError:  # markup without any element
        return ""


def _lossless(data: bytes, told: str, *, markup: bool = False) -> str:
    """Text of a mail, whatever its bytes: one bad message is no reason to refuse the others. Latin-1, the last resort,
    gives each byte a character."""
    with suppress(ConfigError, UnicodeDecodeError):
        return data.decode(codec_name(told))
    piece = Source(name="", suffix="", stream=io.BytesIO(data))
    try:
        return "".join(decode(piece, detect(piece, markup=markup)))
    except DocumentError:
        return data.decode("latin-1")
