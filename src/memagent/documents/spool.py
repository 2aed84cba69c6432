"""Text kept outside memory: UTF-8 in an anonymous temporary file, readable by character offsets.

A character offset says nothing about where its bytes are, so the spool notes the byte offset of every BLOCK-th character
(8 bytes of index for 16 384 characters). A read then fetches whole blocks and cuts: its cost depends on what is read, not
on where. The count of line ends rides along in the same table, so a line number costs one block as well.
"""

from __future__ import annotations

import hashlib
import weakref
import zlib
from array import array
from threading import Lock

from memagent.documents.source import MachineError, scratch

BLOCK = 16_384
"""Characters between two entries of the index."""
CHECKED = 4 * BLOCK
"""Characters between two checksums."""


class Spool:
    """Append first, read afterwards. Appending is for one thread; reading is safe from several."""

    def __init__(self) -> None:
        self._file = scratch()
        self._close = weakref.finalize(self, self._file.close)  # of a spool that is dropped, too
        self._lock = Lock()
        self._hash = hashlib.sha256()
        self._bytes_at = array("Q", [0])
        self._lines_at = array("Q", [0])
        self._checks = array("I")
        self._check = 0
        self._length = 0
        self._bytes = 0
        self._lines = 0
        self.tail = ""
        """The last two characters."""

    def __len__(self) -> int:
        return self._length

    @property
    def digest(self) -> str:
        """SHA-256 of the text in UTF-8, in hexadecimal."""
        return self._hash.hexdigest()

    @property
    def checks(self) -> tuple[int, ...]:
        """CRC-32 of the first CHECKED characters, of the first 2 × CHECKED, and so on: the first that differs from another
        text's says about where the two part."""
        return tuple(self._checks)

    def append(self, text: str) -> None:
        """Adds text at the end. Raises UnicodeEncodeError on a lone surrogate, MachineError when the disk is full."""
        position = 0
        while position < len(text):
            piece = text[position : position + BLOCK - self._length % BLOCK]
            self._append_piece(piece)
            position += len(piece)
        self.tail = (self.tail + text[-2:])[-2:]

    def _append_piece(self, piece: str) -> None:
        """Adds text that does not cross a border between blocks."""
        data = piece.encode()
        try:
            self._file.write(data)
        except OSError as error:
            raise MachineError.of(error) from error
        self._hash.update(data)
        self._check = zlib.crc32(data, self._check)
        self._length += len(piece)
        self._bytes += len(data)
        self._lines += piece.count("\n")
        if self._length % BLOCK == 0:
            self._bytes_at.append(self._bytes)
            self._lines_at.append(self._lines)
        if self._length % CHECKED == 0:
            self._checks.append(self._check)

    def read(self, start: int, end: int) -> str:
        """Characters [start, end), with the rules of slicing: `text[start:end]`."""
        start, end, _ = slice(start, end).indices(self._length)
        if start >= end:
            return ""
        first, last = start // BLOCK, -(-end // BLOCK)
        begin = self._bytes_at[first]
        stop = self._bytes_at[last] if last < len(self._bytes_at) else self._bytes
        with self._lock:
            self._file.seek(begin)
            data = self._file.read(stop - begin)
        return data.decode()[start - first * BLOCK : end - first * BLOCK]

    def lines_before(self, offset: int) -> int:
        """How many line ends (``\\n``) there are in the characters [0, offset)."""
        block = offset // BLOCK
        return self._lines_at[block] + self.read(block * BLOCK, offset).count("\n")

    def close(self) -> None:
        """Deletes the text. Reading afterwards raises ValueError."""
        self._close()
