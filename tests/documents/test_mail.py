"""E-mail: what of a message is read, where it stands in a mailbox, and that no message keeps the others from being read."""

from __future__ import annotations

import mailbox
import sys
from contextlib import suppress
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.documents import load, mail
from memagent.errors import DocumentError, MissingExtraError

BORDER = b"From x@y Mon Nov 23 10:00:00 2026\n"


def message(text: str = "The code is 4821973.\n", **headers: str) -> EmailMessage:
    made = EmailMessage()
    for name, value in {"From": "Zoë Müller <zoe@example.org>", "Subject": "Größe", **headers}.items():
        made[name] = value
    made.set_content(text)
    return made


def read(path: Path, content: bytes | EmailMessage) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.as_bytes())
    with load([path]) as document:
        assert document.files[0].kind == path.suffix[1:]
        return document.read(0, len(document))


def test_a_message_is_its_headers_and_its_text(tmp_path: Path) -> None:
    sent = message(To="a@example.org, " * 30 + "b@example.org", Date="Mon, 23 Nov 2026 10:00:00 +0000", Received="by us")
    sent.add_alternative("<p>The code is <b>in HTML</b>.</p>", subtype="html")
    sent.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Verträge.pdf")
    assert read(tmp_path / "a.eml", sent) == (
        f"From: Zoë Müller <zoe@example.org>\nTo: {'a@example.org, ' * 30}b@example.org\n"
        "Date: Mon, 23 Nov 2026 10:00:00 +0000\nSubject: Größe\nAttachments (not read): Verträge.pdf\n\n"
        "The code is 4821973.\n"
    )


def test_a_message_in_html_alone_is_read_as_html(tmp_path: Path) -> None:
    sent = message()
    sent.set_content("<html><head><style>p {}</style></head><p>One &amp; <b>two</b></p><p>Größe", subtype="html")
    assert read(tmp_path / "a.eml", sent).endswith("\n\nOne & two\n\nGröße\n")


def test_texts_between_attachments_and_forwarded_messages_are_read(tmp_path: Path) -> None:
    sent = message("before")
    sent.add_attachment("a note of its own", disposition="inline")
    sent.add_attachment("not read", filename="notes.txt")
    sent.add_attachment(message("forwarded", Subject="Inner"))
    assert read(tmp_path / "a.eml", sent) == (
        "From: Zoë Müller <zoe@example.org>\nSubject: Größe\nAttachments (not read): notes.txt\n\nbefore\n\n"
        "a note of its own\n\nFrom: Zoë Müller <zoe@example.org>\nSubject: Inner\n\nforwarded\n"
    )


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (
            b"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nU3ViamVjdDogeA==\n",
            "Attachments (not read): message/rfc822\n",
        ),
        (b"From: J\xfcrgen <j@x>\nSubject: x\n\nbody\n", "From: Jürgen <j@x>\nSubject: x\n\nbody\n"),
        ("Subject: größer\n\nbody\n".encode(), "Subject: größer\n\nbody\n"),
        (b"Subject: =?utf-8?q?gr=C3=B6=C3=9Fer?=\n\nbody", "Subject: größer\n\nbody\n"),
        (b"Subject: =?nonsense?q?a?=\n\nbody", "Subject: =?nonsense?q?a?=\n\nbody\n"),
        (b"Subject: one\r\n two\r\n\r\nbody\r\nmore\r\n", "Subject: one two\n\nbody\nmore\n"),
        (b"Content-Type: text/plain; charset=nonsense\n\nGr\xc3\xbc\xc3\x9fe", "\nGrüße\n"),
        (b"Content-Type: text/plain; charset=utf-8\n\nGr\xfc\xdfe aus M\xfcnchen", "\nGrüße aus München\n"),
        (b"Content-Type: text/plain; charset=iso-8859-5\n\n\xbf\xe0\xd8\xd2\xd5\xe2", "\nПривет\n"),
        (b"Content-Type: multipart/mixed; boundary=gone\n\nno border\n", "\nno border\n"),
        (b"Content-Type: multipart/mixed\nSubject: x\n\nno border\n", "Subject: x\n\nno border\n"),
        (b"Content-Transfer-Encoding: base64\nSubject: x\n\nZm9v!\n", "Subject: x\n\nfoo\n"),
        (b"\n\nSubject: x\n\nbody", "Subject: x\n\nbody\n"),
        (b"\xef\xbb\xbfSubject: x\n\nbody", "Subject: x\n\nbody\n"),
        (b">From x@y Mon Nov 23 10:00:00 2026\nSubject: x\n\nbody", "Subject: x\n\nbody\n"),
        (b"Content-Type: text/plain; charset=iso-8859-1\n\n\x93hi\x94 \x805", "\n“hi” €5\n"),
        (b"Content-Type: text/plain; charset=iso-8859-1\n\na\x81b", "\na\x81b\n"),
        (b"Content-Type: text/plain; charset=hex\n\nbody", "\nbody\n"),
        (b"Content-Type: text/plain; charset=undefined\n\nbody", "\nbody\n"),
        (b"Content-Type: text/plain; charset=punycode\n\nHi-there you 123", "\nHi-there you 123\n"),
        (b"Content-Type: text/plain; charset=utf-7\n\n+2AA-", "\n+2AA-\n"),
        (b"Content-Type: image/png; name*=utf-7''a%2B2AA-\n\nx", "Attachments (not read): a?\n"),
    ],
)
def test_messages_that_are_not_as_they_should_be(tmp_path: Path, raw: bytes, shown: str) -> None:
    assert read(tmp_path / "a.eml", raw) == shown


def test_a_mailbox_has_a_place_for_each_message(tmp_path: Path) -> None:
    box = mailbox.mbox(tmp_path / "sent.mbox")
    for number in range(3):
        box.add(message(f"The code is {number}.\n\nFrom here on, it counts.\n", Subject=f"Mail {number}"))
    box.flush()
    with load([tmp_path / "sent.mbox"]) as document:
        text = document.read(0, len(document))
        assert text.count("\nFrom here on, it counts.") == 3
        assert len(document.files[0].pages) == 3
        at = text.index("The code is 1.")
        assert str(document.locate(at)) == f"{tmp_path / 'sent.mbox'}, message 2, offset {at}"
        assert text.count("Subject: Mail") == 3


def test_only_a_line_with_a_date_after_a_blank_one_begins_a_message(tmp_path: Path) -> None:
    body = [
        b"It came\n" + BORDER + b"\nFrom here on, the code is 4821973.\n\n",
        b" " * (1 << 20) + BORDER + b"\n",  # a line that is longer than what is read at once
        b"x" * (1 << 20) + b"\n" + BORDER + b"\n",
    ]
    raw = b"\xef\xbb\xbf\r\n" + BORDER + b"Subject: one\n\n" + b"".join(body) + BORDER + b"Subject: two\n\nlast\n"
    (tmp_path / "a.mbox").write_bytes(raw)
    with load([tmp_path / "a.mbox"]) as document:
        first, second = (document.read(page.start, page.end) for page in document.files[0].pages)
    assert first.startswith("Subject: one\n\nIt came\nFrom x@y")
    assert "\nFrom here on, the code is 4821973.\n" in first
    assert first.count("From x@y") == 3
    assert second == "Subject: two\n\nlast\n\n"


@pytest.mark.parametrize(
    ("name", "begins", "messages"),
    [
        ("Inbox", BORDER + b"Subject: one\n", 2),
        ("Sent", b"From - Mon Nov 23 10:00:00 2026\r\nX-Mozilla-Status: 0001\r\n", 2),
        ("Inbox.txt", BORDER + b"Subject: one\n", 0),
        ("chronicle", b"From here on, at 10:30 on 3 May 2026, nobody spoke.\nNobody moved: all were tired.\n", 0),
        ("chronicle", b"From 1914 on, letters came at 10:30.\nSubject: the war\n", 0),
    ],
)
def test_a_mailbox_without_an_extension_is_known_by_its_first_lines(
    tmp_path: Path, name: str, begins: bytes, messages: int
) -> None:
    (tmp_path / name).write_bytes(begins + b"\nfirst\n\n" + BORDER + b"Subject: two\n\nsecond\n")
    with load([tmp_path / name]) as document:
        assert len(document.files[0].pages) == messages
        assert ("From " in document.read(0, len(document))) is (messages == 0)


@pytest.mark.parametrize(
    "program",
    [b"MAILER-DAEMON Sat Nov 28 14:00:00 2026", b"- Mon Nov 23 10:00:00 2026", b"1@xxx Thu Jan 01 00:00:00 +0000 1970"],
)
def test_borders_of_several_programs_are_known(tmp_path: Path, program: bytes) -> None:
    raw = b"".join(b"From " + program + b"\r\nSubject: %d\r\n\r\nbody\r\n\r\n" % number for number in range(3))
    assert read(tmp_path / "a.mbox", raw) == "".join(f"Subject: {number}\n\nbody\n\n" for number in range(3))


def alternative(*parts: tuple[str, str]) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = "x"
    made.set_content(parts[0][0], subtype=parts[0][1])
    for text, subtype in parts[1:]:
        made.add_alternative(text, subtype=subtype)
    return made


def test_of_alternatives_one_that_says_something_is_read(tmp_path: Path) -> None:
    html = ("<p>Your code is 4821973</p>", "html")
    assert "4821973" in read(tmp_path / "a.eml", alternative((" \n", "plain"), html))
    assert read(tmp_path / "a.eml", alternative(("plain", "plain"), html)) == "Subject: x\n\nplain\n"
    assert "4821973" in read(tmp_path / "a.eml", alternative(html, ("BEGIN:VCALENDAR", "calendar")))
    assert "BEGIN" in read(tmp_path / "a.eml", alternative(("", "plain"), ("BEGIN:VCALENDAR", "calendar")))


def test_attachments_of_the_alternative_that_is_not_read_are_named(tmp_path: Path) -> None:
    sent = alternative(("See attached.", "plain"), ("<p>See attached.</p>", "html"))
    rich = sent.get_payload()[1]
    rich.make_mixed()
    rich.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="report.pdf", disposition="inline")
    rich.add_attachment(b"PNG", maintype="image", subtype="png", filename="logo.png", cid="<logo>")
    assert read(tmp_path / "a.eml", sent) == "Subject: x\nAttachments (not read): report.pdf\n\nSee attached.\n"


def test_headers_are_read_to_a_length_that_nobody_uses_up(tmp_path: Path) -> None:
    """The library's time grows with the square of it."""
    raw = b"Subject: a" + b" " * 40_000 + b'b\nContent-Type: text/plain; x="' + b";\\" * 5000 + b"\n\nThe code.\n"
    parsed = BytesParser(policy=mail._Policy()).parsebytes(raw)
    assert {name: len(value) for name, value in parsed.raw_items()} == {"Subject": 1 << 15, "Content-Type": 1 << 12}
    assert read(tmp_path / "a.eml", raw) == "Subject: a\n\nThe code.\n"


def test_messages_of_millions_of_parts_or_lines_stand_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nThe code.\n" * 30
    assert "--b" not in read(tmp_path / "a.eml", parts)
    monkeypatch.setattr(mail, "_MOST_PARTS", 20)
    assert read(tmp_path / "a.eml", parts) == parts.decode()
    monkeypatch.setattr(mail, "_MOST_LINES", 5)
    lines = b"Subject: x\n\n" + b"y\n" * 5
    assert read(tmp_path / "a.eml", lines) == lines.decode()


def test_one_damaged_message_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    broken = b"From: x\nContent-Type: text/html; charset=utf-8\n\n<!-- nothing -->"
    noise = b"Subject: noise\nContent-Type: text/plain\n\n\x00\xff\xfe" + b"\xc3\xa4" * 70 + b"\xff"
    mails = [message("first").as_bytes(), broken, noise, message("last").as_bytes()]
    text = read(tmp_path / "a.mbox", b"\n".join(BORDER + one + b"\n" for one in mails))
    assert text.index("first") < text.index("Subject: noise") < text.index("last")


def test_what_is_no_mail_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, what in (("a.eml", "not an e-mail message"), ("a.mbox", "not a mailbox")):
        (tmp_path / name).write_text("This is just text.")
        with pytest.raises(DocumentError, match=rf"{name}: {what}.*\.txt"):
            load(tmp_path / name)
    monkeypatch.setattr(mail, "MAX_MEMBER", 1 << 20)
    (tmp_path / "long.eml").write_bytes(message("word " * 300_000).as_bytes())
    (tmp_path / "long.mbox").write_bytes(b"From x\n" + message("word " * 300_000).as_bytes())
    for name in ("long.eml", "long.mbox"):
        with pytest.raises(
            DocumentError, match=rf"{name}: (a )?message .*more than 1 MiB\. Save it without its attachments"
        ):
            load(tmp_path / name)


def test_messages_within_messages_end_somewhere(tmp_path: Path) -> None:
    sent = message("the innermost")
    for number in range(12):
        outer = message(f"level {number}")
        outer.add_attachment(sent)
        sent = outer
    text = read(tmp_path / "a.eml", sent)
    assert text.count("Subject:") == 1 + mail._MOST_FORWARDED
    assert "Attachments (not read): message/rfc822" in text


def test_parts_within_parts_without_end_keep_no_other_message_from_being_read(tmp_path: Path) -> None:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (level, level) for level in range(3000))
    long = b"x" * (3 << 20)  # in one line
    mails = [b"Subject: deep\n" + deep, b"Subject: long\n\n" + long + b"\n\n", message("last").as_bytes()]
    text = read(tmp_path / "a.mbox", b"\n".join(BORDER + one for one in mails))
    assert text.index("Subject: deep") < text.index("xxx") < text.index("last")
    assert text.count("x" * (3 << 20)) == 1


def test_plain_mail_needs_no_library_and_html_names_the_one_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    assert "4821973" in read(tmp_path / "a.eml", message())
    sent = message()
    sent.set_content("<p>x</p>", subtype="html")
    with pytest.raises(MissingExtraError, match=r"memagent\[documents\]"):
        read(tmp_path / "b.eml", sent)


_HEADERS = st.sampled_from(
    ["From", "Subject", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "MIME-Version"]
)
_VALUES = st.sampled_from(
    b"multipart/mixed; boundary=b|multipart/alternative; boundary=b|text/html; charset=x|message/rfc822|base64|\xff\xfe|"
    b"=?utf-8?b?//8=?=|attachment; filename*=x''%ff|quoted-printable|text/plain; charset*=utf-8''%ff|"
    b"text/plain; charset=hex|text/plain; charset=utf-7|text/html; charset=undefined|"
    b"image/png; name*=utf-7''a%2B2AA-".split(b"|")
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    headers=st.lists(st.tuples(_HEADERS, st.one_of(_VALUES, st.binary(max_size=30))), max_size=5),
    body=st.lists(st.one_of(st.just(b"--b\n"), st.just(b"--b--\n"), st.just(b"\n"), st.binary(max_size=40)), max_size=8),
)
def test_any_bytes_are_a_message_or_a_document_error(tmp_path: Path, headers, body) -> None:
    lines = b"".join(name.encode() + b": " + value.replace(b"\n", b"") + b"\n" for name, value in headers)
    raw = b"X: y\n" + lines + b"\n" + b"".join(body)
    (tmp_path / "a.eml").write_bytes(raw)
    (tmp_path / "a.mbox").write_bytes(b"From x\n" + raw)
    for name in ("a.eml", "a.mbox"):
        with suppress(DocumentError):
            load(tmp_path / name).close()
