"""Compressed containers (zip, gzip), read in memory-sized steps and under a limit. Nothing is extracted to named files."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Self

from memagent.documents.source import CHUNK, Source

MAX_UNPACKED = 1 << 30
"""Bytes (1 GiB) that one compressed file may unpack to. Beyond that it is taken for a decompression bomb."""

MAX_MEMBER = 64 << 20
"""Bytes (64 MiB) that one member may have when it has to be held in memory at once (a chapter of an EPUB)."""

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError)


class Archive:
    """A zip file whose members are read under one shared limit, within a `with`. Raises DocumentError naming the file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = MAX_UNPACKED
        try:
            self._zip = zipfile.ZipFile(source.stream)
        except _BROKEN as error:
            raise self._damaged() from error
        self.names = frozenset(self._zip.namelist())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def chunks(self, member: str) -> Iterator[bytes]:
        """The bytes of a member, a megabyte at a time."""
        if member not in self.names:
            raise self._damaged(f"{member} is missing")
        if self._zip.getinfo(member).flag_bits & 1:
            raise self._source.error(f"encrypted: {member} needs a password", "Save it without a password")
        try:
            with self._zip.open(member) as stream:
                while chunk := stream.read(CHUNK):
                    self._left -= len(chunk)
                    if self._left < 0:
                        raise _too_large(self._source)
                    yield chunk
        except zipfile.BadZipFile as error:
            raise self._damaged(str(error)) from error
        except (zlib.error, EOFError, NotImplementedError) as error:
            raise self._damaged(f"{member}: {error}") from error

    def read(self, member: str) -> bytes:
        """A whole member, which must be no longer than MAX_MEMBER."""
        data = bytearray()
        for chunk in self.chunks(member):
            data += chunk
            if len(data) > MAX_MEMBER:
                raise self._source.error(
                    f"{member} unpacks to more than {MAX_MEMBER >> 20} MiB", "Split it, or save the book as text"
                )
        return bytes(data)

    def _damaged(self, detail: str = "") -> Exception:
        what = f"damaged or truncated {self._source.suffix.lstrip('.') or 'zip'} file"
        return self._source.error(f"{what}: {detail}" if detail else what, "Copy or download it again")


def gunzip(source: Source, content: BinaryIO) -> Source:
    """Unpacks a gzip file into `content`, and gives it as a source of its own. Raises DocumentError."""
    size = 0
    source.stream.seek(0)
    try:
        with gzip.GzipFile(fileobj=source.stream) as stream:
            while chunk := stream.read(CHUNK):
                size += len(chunk)
                if size > MAX_UNPACKED:
                    raise _too_large(source)
                content.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise source.error("damaged or truncated gzip file", "Copy or download it again") from error
    inner = source.name.removesuffix(source.suffix)
    suffix = "." + inner.rpartition(".")[2].lower() if "." in inner else ""
    return Source(name=source.name, suffix=suffix, stream=content, encoding=source.encoding)


def _too_large(source: Source) -> Exception:
    return source.error(
        f"unpacks to more than {MAX_UNPACKED >> 30} GiB, as decompression bombs do",
        "If it is genuine, unpack it yourself and name the result",
    )
