"""The records of a file, one at a time: JSON lines, a JSON list of any size, one JSON object, or Parquet; gzipped or not.

Of JSON lines and of a list, one record is held in memory; of Parquet, one batch of rows; a single object is read whole.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

from memagent.errors import MissingExtraError, TaskError

# (the place in the file, the record)
Located: TypeAlias = tuple[str, Any]
_BLOCK = 1 << 16
_ROWS = 16  # rows of a Parquet batch: documents may have millions of characters
_LONGEST_TOKEN = 16  # characters at the end of a block that may be part of a longer number, word or escape
_SPACE = " \t\r\n"


def records(path: Path) -> Iterator[Located]:
    """The records with their places. Raises TaskError that names the file and the place for what is not such a file."""
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    with _opened(path) as stream:
        begin = _beginning(stream)
        if begin == "":
            raise TaskError(f"{path}: the file is empty")
        if begin not in "{[":
            raise TaskError(f"{path}: not JSON lines, a JSON list, a JSON object or Parquet: it begins with {begin!r}")
        yield from _items(path, stream) if begin == "[" else _lines(path, stream)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            plain: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            yield io.TextIOWrapper(plain, encoding="utf-8-sig", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text: {error}") from error


def _beginning(stream: IO[str]) -> str:
    """The first character that is not white space; the stream is put back to its beginning."""
    while (one := stream.read(1)) and one in _SPACE:
        pass
    stream.seek(0)
    return one


def _lines(path: Path, stream: IO[str]) -> Iterator[Located]:
    """An object in each line, or one object that takes up the whole file, over several lines."""
    first = True
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.rstrip("\r\n"))
        except (ValueError, RecursionError) as error:
            if first and isinstance(error, json.JSONDecodeError) and error.pos >= len(line.rstrip()):
                yield "record 1", _whole(path, line + stream.read(), number)
                return
            raise _not_json(path, error, number) from error
        first = False
        yield f"line {number}", value


def _whole(path: Path, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(path, error, line) from error


def _not_json(path: Path, error: Exception, line: int) -> TaskError:
    if isinstance(error, json.JSONDecodeError):
        where = f"line {line + error.lineno - 1}, column {error.colno}"
        return TaskError(f"{path}, {where}: not JSON: {error.msg}")
    return TaskError(f"{path}, line {line}: {_said(error)}")


def _said(error: Exception) -> str:
    return "lists and objects are nested too deep" if isinstance(error, RecursionError) else f"not JSON: {error}"


def _items(path: Path, stream: IO[str]) -> Iterator[Located]:
    """The items of a list. The text of one item is read further, twice as far each time, until it is complete."""
    text = _Window(stream)
    text.skip("[")
    number = 0
    while (one := text.peek()) != "]":
        number += 1
        where = f"record {number}"
        if number > 1 and not text.skip(","):
            raise TaskError(f"{path}, {where}: expected a comma or the end of the list, not {one[:1]!r}")
        if not text.peek():
            raise TaskError(f"{path}, {where}: the file ends within the list")
        yield where, text.value(path, where)
    text.skip("]")
    if rest := text.peek():
        raise TaskError(f"{path}: there is more behind the end of the list: {rest!r}")


class _Window:
    """The part of a text that is being parsed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._text = ""
        self._place = 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self._place < len(self._text):
                if (one := self._text[self._place]) not in _SPACE:
                    return one
                self._place += 1
            if not self._more(_BLOCK):
                return ""

    def skip(self, wanted: str) -> bool:
        if found := self.peek() == wanted:
            self._place += 1
        return found

    def value(self, path: Path, where: str) -> Any:
        """The JSON value from here on."""
        size = _BLOCK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except (ValueError, RecursionError) as error:
                if self._broken(error) or not self._more(size):
                    raise TaskError(f"{path}, {where}: {_said(error)}") from error
                size *= 2
                continue
            if end == len(self._text) and self._more(size):
                continue  # a number may go on
            self._place = end
            return value

    def _broken(self, error: Exception) -> bool:
        """Whether more text cannot help."""
        if not isinstance(error, json.JSONDecodeError):
            return True
        return not error.msg.startswith("Unterminated string") and error.pos < len(self._text) - _LONGEST_TOKEN

    def _more(self, size: int) -> bool:
        """Reads on, and drops what is behind. False at the end of the file."""
        added = self._stream.read(size)
        self._text, self._place = self._text[self._place :] + added, 0
        return bool(added)


def _parquet(path: Path) -> Iterator[Located]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtraError(f"{path}: a Parquet file", "parquet") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (OSError, arrow.ArrowException) as error:
        raise TaskError(f"{path}: cannot be read as Parquet: {error}") from error
