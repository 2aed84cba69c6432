"""Reading records: any JSON list or lines, in any blocks, and what is no such file."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.errors import TaskError
from memagent.tasks.suites import records as module
from memagent.tasks.suites.records import records

scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=30)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
objects = st.dictionaries(st.text(max_size=8), values, max_size=4)
anywhere = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@anywhere
@given(
    items=st.lists(values, max_size=6),
    indent=st.sampled_from([None, 0, 2]),
    escaped=st.booleans(),
    block=st.integers(1, 40),
)
def test_a_list_is_read_in_blocks_of_any_size(
    items: list[Any], indent: int | None, escaped: bool, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    file = tmp_path / "list.json"
    file.write_text(
        f" \n{json.dumps(items, indent=indent, ensure_ascii=escaped)}\n ", encoding="utf-8", errors="surrogatepass"
    )
    assert [value for _, value in records(file)] == json.loads(json.dumps(items))


@anywhere
@given(items=st.lists(objects, min_size=1, max_size=6), packed=st.booleans())
def test_lines_are_read_one_by_one(items: list[Any], packed: bool, tmp_path: Path) -> None:
    raw = "".join(json.dumps(item) + "\n\n" for item in items).encode()
    file = tmp_path / "lines.jsonl"
    file.write_bytes(gzip.compress(raw) if packed else raw)
    found = list(records(file))
    assert [value for _, value in found] == items
    assert [where for where, _ in found] == [f"line {2 * number + 1}" for number in range(len(items))]


@anywhere
@given(item=objects.filter(bool))
def test_one_object_over_several_lines(item: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text("\ufeff" + json.dumps(item, indent=1), encoding="utf-8")
    assert list(records(file)) == [("record 1", item)]


def test_a_long_list_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "long.json"
    with file.open("w") as stream:
        stream.write("[" + ", ".join(json.dumps({"text": "x" * 1000}) for _ in range(20_000)) + "]")
    most = 0
    more = module._Window._more

    def watched(self: Any, size: int) -> bool:
        nonlocal most
        found = more(self, size)
        most = max(most, len(self._text))
        return found

    monkeypatch.setattr(module._Window, "_more", watched)
    assert sum(1 for _ in records(file)) == 20_000
    assert most < 4 * module._BLOCK < file.stat().st_size / 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (" \n\t ", "the file is empty"),
        ("question,answer", "not JSON lines, a JSON list, a JSON object or Parquet: it begins with 'q'"),
        ('[{"a": 1}, {"a" 2}]' + " " * 99, "record 2: not JSON: Expecting ':' delimiter"),
        ('[{"a": 1}, {"b": 2}', "record 2: expected a comma or the end of the list, not ''|record 3"),
        ('[{"a": 1} {"b": 2}]', "record 2: expected a comma or the end of the list, not '{'"),
        ("[1,", "record 2: the file ends within the list"),
        ("[1, 2] 3", "there is more behind the end of the list: '3'"),
        ('["' + "x" * 200_000, "record 1: not JSON: Unterminated string"),
        ("[" + "[" * 200_000, "record 1: (lists and objects are nested too deep|not JSON)"),
        ("[" + "9" * 5000 + "]", "record 1: not JSON: Exceeds the limit"),
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', "line 2, column 8: not JSON: Expecting ',' delimiter"),
        ('{"a": 1}\n' + '{"a":' * 100_000, "line 2: lists and objects are nested too deep|line 2, column"),
        ('{"a": tru', "line 1, column 7: not JSON: Expecting value"),
        ('{"a":\n1', "line 2, column 2: not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_such_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(TaskError, match=message) as raised:
        list(records(file))
    assert str(raised.value).startswith(str(file))


def test_a_broken_item_is_found_without_reading_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broken.json"
    file.write_text('[{"a": 1}, {"a" 2}, ' + "1, " * 10**6 + "1]")
    read: list[int] = []
    original = io.TextIOWrapper

    class Watched(original):  # type: ignore[misc,valid-type]
        def read(self, size: int | None = -1) -> str:
            found = super().read(size)
            read.append(len(found))
            return found

    monkeypatch.setattr(module.io, "TextIOWrapper", Watched)
    with pytest.raises(TaskError, match=r"record 2"):
        list(records(file))
    assert sum(read) < 10 * module._BLOCK


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe{", gzip.compress(b'{"a": 1}\n' * 9000, mtime=0)[:60], b"\x1f\x8bno gzip", b'{"a": "\xe9"}\n']
)
def test_what_is_no_text_is_named(raw: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(raw)
    with pytest.raises(TaskError, match=r"bad\.jsonl: cannot be read as UTF-8 text"):
        list(records(file))


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TaskError, match=r"cannot be read as UTF-8 text"):
            list(records(path))
