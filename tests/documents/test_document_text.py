"""Text files: what is read is what was written, wherever it is read, however large it is."""

from __future__ import annotations

import codecs
import gc
import gzip
import hashlib
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.documents import from_text, load
from memagent.documents.source import IN_MEMORY
from memagent.documents.spool import BLOCK
from memagent.errors import ConfigError, DocumentError

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(lambda text: text.strip())
offsets = st.integers(-50, 200)
per_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@per_file
@given(text=texts, start=offsets, end=offsets)
def test_utf8_and_utf16_files_give_back_their_text(tmp_path: Path, text: str, start: int, end: int) -> None:
    marked = {
        "utf-8": text.encode().removeprefix(codecs.BOM_UTF8),
        "utf-8-sig": text.encode("utf-8-sig"),
        "utf-16-le": codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        "utf-16-be": codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    }
    for name, data in marked.items():
        expected = text.removeprefix("\ufeff") if name == "utf-8" else text
        if not expected.strip():
            continue
        path = tmp_path / "any.txt"
        path.write_bytes(data)
        with load([path]) as document:
            assert document.read(0, len(document)) == expected
            assert document.read(start, end) == expected[start:end]
            assert document.files[0].bytes == len(data)
            assert document.digest == hashlib.sha256(expected.encode()).hexdigest()


@given(text=st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text.strip()), start=offsets, end=offsets)
def test_any_string_reads_like_a_slice(text: str, start: int, end: int) -> None:
    with from_text(text) as document:
        assert len(document) == len(text)
        assert document.read(start, end) == text[start:end]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_reads_across_index_blocks(data: st.DataObject) -> None:
    text = "aé€😀\n" * (BLOCK // 2)
    with from_text(text) as document:
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 3 * BLOCK, len(text))))
        assert document.read(start, end) == text[start:end]
        line = document.locate(start).line
        assert line == text[:start].count("\n") + 1


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_the_end_of_a_text_of_whole_blocks(length: int) -> None:
    with from_text("é" * length) as document:
        assert document.read(length - 1, length + 5) == "é"
        assert document.read(length, length + 1) == ""
        assert document.locate(length).offset == length


def test_line_ends_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mixed.txt").write_bytes(b"a\r\nb\rc\n\n d ")
    with load([tmp_path / "mixed.txt"]) as document:
        assert document.read(0, 99) == "a\r\nb\rc\n\n d "


def test_threads_may_read_at_the_same_time(tmp_path: Path) -> None:
    text = "".join(f"line {number} é\n" for number in range(600_000))
    (tmp_path / "big.txt").write_text(text, newline="")
    with load([tmp_path / "big.txt"]) as document, ThreadPoolExecutor(8) as pool:
        starts = range(0, len(text), 9973)
        pieces = list(pool.map(lambda start: document.read(start, start + 9973), starts))
    assert "".join(pieces) == text


def test_it_is_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("before")
    with load([path]) as document:
        path.write_text("after")
        path.unlink()
        assert document.read(0, 10) == "before"
    with pytest.raises(ValueError, match="closed"):
        document.read(0, 1)


def test_a_document_that_is_dropped_frees_its_file() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        document = from_text("a" * (IN_MEMORY + 1))
        file = document._spool._file
        del document
        gc.collect()
    assert file.closed
    assert not told


@pytest.mark.parametrize(
    ("text", "codec", "detected"),
    [
        ("Le café était fermé à Noël, où l'été naïf s'achève près de la forêt.\n", "cp1252", "cp1252"),
        ("Größere Straßen führen über die Brücke, während es draußen kühl ist.\n", "latin-1", "cp1252"),
        ("Zażółć gęślą jaźń. Książka była długa i ciężka, więc leży na stole.\n", "cp1250", "cp1250"),
        ("Все счастливые семьи похожи друг на друга, каждая несчастлива по-своему.\n", "koi8-r", "koi8-r"),
    ],
)
def test_legacy_encodings_are_guessed_and_stated(tmp_path: Path, text: str, codec: str, detected: str) -> None:
    plain = "Plain words first.\n" * 100_000  # the part that is not ASCII starts in the second megabyte
    rare = (text + plain[:1900]) * 3  # and is rare
    (tmp_path / "old.txt").write_bytes((plain + rare).encode(codec))
    with load([tmp_path / "old.txt"]) as document:
        assert document.read(len(plain), len(document)) == rare
        assert document.files[0].encoding == detected


@pytest.mark.parametrize(
    "line",
    [
        "Miete;1.200,00 €",
        "1.200\xa0€",
        "£13.00",
        "2.5 °C",
        "Acme®",
        "see § 12: ±5 µm, 3 m², ½ × ¾",
        "• “It’s ready,” she said — and left…",
        "Le café à côté. Où est l'été?",
        "La città è già così bella, perché c'è più luce.",
        "Alle mennesker er født frie og lige i værdighed.",
        "Ångström; Señor Núñez; Müller; François",
        "CAFÉ À CÔTÉ",
        "1.\xa0First\xa0chapter, a\xa0matrix of M×N",
        "either of '$€£' or ¹²³",
        "Kõik inimesed sünnivad vabadena, näiteks Ruusamäe, šokk ja žanr",
        "été",
    ],
)
@pytest.mark.parametrize("times", [1, 39])
def test_a_few_western_characters_are_not_another_script(tmp_path: Path, line: str, times: int) -> None:
    text = f"{line}\n" * times
    (tmp_path / "old.csv").write_bytes(text.encode("cp1252"))
    with load([tmp_path / "old.csv"]) as document:
        assert document.read(0, len(document)) == text
        assert (document.files[0].encoding, document.files[0].guessed) == ("cp1252", True)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.", "cp1250"),
        ("Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.", "iso8859-2"),
        ("Minden emberi lény szabadon születik, és egyenlő méltósága van. Az idő és a tűz.", "cp1250"),
        ("Već će čovjek rađati ljude jednake u dostojanstvu, a sviješću još živjeti.", "cp1250"),
        ("Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.", "cp1254"),
        ("Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis.", "cp1257"),
        ("Größere Straßen führen über die Brücke, während es draußen kühl ist.", "cp850"),
        ("Tous les êtres humains naissent libres et égaux en dignité. Où est l'été?", "mac-roman"),
        ("Все люди рождаются свободными и равными в своем достоинстве и правах.", "cp1251"),
        ("Все люди рождаются свободными и равными в своем достоинстве и правах.", "cp866"),
        ("The Moscow office (Москва, ул. Ленина) reported 5 items", "cp1251"),
        ("Аренда;1200,00", "cp1251"),
        ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.", "cp1253"),
        ("כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.", "cp1255"),
        ("يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.", "cp1256"),
        ("すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。", "cp932"),
        ("テスト: データ ファイル サーバー", "cp932"),
        ("人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。", "gb18030"),
        ("人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心。", "big5"),
        ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.", "cp949"),
    ],
)
@pytest.mark.parametrize("times", [1, 20])
def test_other_scripts_and_languages_are_recognised(tmp_path: Path, text: str, codec: str, times: int) -> None:
    (tmp_path / "old.txt").write_bytes(f"{text}\n".encode(codec) * times)
    with load([tmp_path / "old.txt"]) as document:
        assert document.read(0, len(text)) == text
        assert document.files[0].guessed


def test_an_explicit_encoding_wins(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Łódź".encode("iso8859-2"))
    with load([tmp_path / "a.txt"], encoding="latin2") as document:
        assert document.read(0, 9) == "Łódź"
        assert not document.files[0].guessed
    (tmp_path / "wide.txt").write_bytes("no mark".encode("utf-16-le"))
    with load([tmp_path / "wide.txt"], encoding="UTF-16LE") as document:
        assert document.read(0, 9) == "no mark"
    (tmp_path / "nul.log").write_bytes(b"crash\0\0\n")
    with load([tmp_path / "nul.log"], encoding="utf8") as document:
        assert document.read(0, 9) == "crash\0\0\n"
    with pytest.raises(ConfigError, match="utf-9"):
        load([tmp_path / "a.txt"], encoding="utf-9")
    with pytest.raises(DocumentError, match=r"a\.txt: not valid ascii at byte 0"):
        load([tmp_path / "a.txt"], encoding="ascii")
    (tmp_path / "seven.txt").write_bytes(b"ab +2AA-")
    with pytest.raises(DocumentError, match=r"seven\.txt.*surrogate"):
        load([tmp_path / "seven.txt"], encoding="utf-7")


def test_late_damage_in_utf8_is_an_error_that_says_where(tmp_path: Path) -> None:
    good = "größer ".encode() * 300_000
    (tmp_path / "late.txt").write_bytes(good + b"\xff" + b" tail")
    with pytest.raises(DocumentError, match=f"late.txt: UTF-8 up to byte {len(good)}, .*encoding"):
        load([tmp_path / "late.txt"])
    (tmp_path / "cut.txt").write_bytes(good + "€".encode()[:2])
    with pytest.raises(DocumentError, match=f"up to byte {len(good)}"):
        load([tmp_path / "cut.txt"])


def test_a_character_may_lie_across_two_chunks(tmp_path: Path) -> None:
    text = "x" * ((1 << 20) - 1) + "€ and on"
    (tmp_path / "edge.txt").write_text(text)
    with load([tmp_path / "edge.txt"]) as document:
        assert document.read(len(text) - 8, len(text)) == "€ and on"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03",
        b"text\x00more",
        bytes(range(256)) * 8,
        b"\x89PNG\r\n\x1a\n\0",
        b"\x7fELF\x02",
        b"\x01\x02\xff" * 99,
    ],
)
def test_binary_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "thing").write_bytes(data)
    with pytest.raises(DocumentError, match=r"thing: (not text|a PNG image|a program).* Convert it"):
        load([tmp_path / "thing"])


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", codecs.BOM_UTF8, b"\xc2\xa0\n"])
def test_empty_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "void.txt").write_bytes(data)
    with pytest.raises(DocumentError, match=r"void\.txt: there is nothing to read.*empty"):
        load([tmp_path / "void.txt"])


def test_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress("größer\n".encode() * 1000)
    path = tmp_path / "log.txt.gz"
    path.write_bytes(packed)
    with load([path]) as document:
        assert document.read(0, 14) == "größer\ngrößer\n"
        assert document.files[0].bytes == len(packed)
    path.write_bytes(packed[:-20])
    with pytest.raises(DocumentError, match=r"log\.txt\.gz: damaged or truncated gzip"):
        load([path])
    monkeypatch.setattr("memagent.documents.archive.MAX_UNPACKED", 5000)
    path.write_bytes(packed)
    with pytest.raises(DocumentError, match="decompression bombs"):
        load([path])


def test_from_text_refuses_what_is_no_text() -> None:
    with pytest.raises(DocumentError, match="lone surrogate at character 2"):
        from_text("ab\ud800")
    with pytest.raises(DocumentError, match="chat: there is nothing to read"):
        from_text(" \n", name="chat")


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr("memagent.documents.spool.scratch", Full)
    with pytest.raises(DocumentError, match=r"No space left on device.*TMPDIR"):
        from_text("some text")


MEMORY = """
import resource, sys
from memagent.documents import load
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
load([sys.argv[1]]).close()
before = peak()
with load([sys.argv[2]]) as document:
    size = len(document)
    total = sum(len(document.read(start, start + 65536)) for start in range(0, size, 65536))
    assert total == size
    print(size, document.read(size - 12, size).encode().hex(), document.locate(size - 3).line, peak() - before)
"""


def test_memory_stays_flat_for_a_large_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("größer\n")
    line = "größer und größer, line after line\n"
    count = (40 << 20) // len(line.encode()) + 1
    large.write_bytes(line.encode() * count)
    command = [sys.executable, "-c", MEMORY, str(small), str(large)]
    size, tail, number, growth = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(size) == len(line) * count
    assert bytes.fromhex(tail).decode() == line[-12:]
    assert int(number) == count
    assert float(growth) < 25


@pytest.mark.parametrize("codec", ["base64", "hex", "rot13", "zlib", "undefined"])
def test_a_codec_that_is_no_text_encoding_is_refused_and_not_believed(tmp_path: Path, codec: str) -> None:
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(ConfigError, match=f"encoding '{codec}' is not one Python knows"):
        load([tmp_path / "a.txt"], encoding=codec)
    (tmp_path / "a.html").write_bytes(b'<meta charset="%s"><p>caf\xe9 au lait</p>' % codec.encode())
    with load([tmp_path / "a.html"]) as document:
        assert "caf\u00e9 au lait" in document.read(0, len(document))
