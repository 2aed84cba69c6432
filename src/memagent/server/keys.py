"""Who may ask: keys, of which only hashes are kept.

A key file has a line for each key: its name, and the SHA-256 of the key in hexadecimal. A name may have two, while one
takes the place of the other. Keys are 32 random bytes, so a
plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from memagent.errors import ConfigError
from memagent.files import atomic_file
from memagent.server import log

_LOG = logging.getLogger("memagent.server")
LOCAL = "local"  # the name of whoever asks where no keys are needed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINE = re.compile(r"(\S+)\s+([0-9a-f]{64})")


class Keys:
    """Names and hashes of keys: those that a file has whenever a key is looked up. Raises ConfigError, at first, for a file
    that cannot be read or has an invalid line."""

    def __init__(self, path: Path) -> None:
        self._path, self._stamp, self._lock = path, _stamp(path), threading.Lock()
        self._hashes = _read(path)
        if not self._hashes:
            raise ConfigError(f"{path} has no keys: add one with memagent serve-key NAME --keys {path}")

    def name_of(self, key: str) -> str | None:
        """The name of a key; None if it is not known. All hashes are compared, in constant time each."""
        self._look_again()
        given = _hash(key)
        found = None
        for name, known in self._hashes:
            if hmac.compare_digest(given, known):
                found = name
        return found

    def _look_again(self) -> None:
        """Takes what has changed in the file. While it cannot be read, the keys stay as they were."""
        with self._lock:
            if (stamp := _stamp(self._path)) == self._stamp:
                return
            self._stamp = stamp
            try:
                before, self._hashes = self.names, _read(self._path)
                new, gone = self.names - before, before - self.names
                names = {"added": ",".join(sorted(new)) or None, "removed": ",".join(sorted(gone)) or None}
                log.told(_LOG, "keys read again", count=len(self._hashes), **names)
            except ConfigError as error:  # its message has a path and the number of a line, and nothing of a key
                _LOG.warning("the file of keys cannot be used, and the keys stay as they were: %s", str(error))

    @property
    def names(self) -> set[str]:
        """Whose keys they are."""
        return {name for name, _ in self._hashes}


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes with a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> list[tuple[str, str]]:
    """Names and hashes. Raises ConfigError."""
    return list(filter(None, _parsed(path, _lines(path))))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the keys in {path}: {error}") from error


def _parsed(path: Path, lines: Sequence[str]) -> list[tuple[str, str] | None]:
    """Name and hash of each line; None for a blank one or a comment. Raises ConfigError."""
    found: list[tuple[str, str] | None] = []
    for number, line in enumerate(lines, 1):
        entry = _LINE.fullmatch(line.strip())
        if not line.strip() or line.startswith("#"):
            found.append(None)
        elif entry is None or not _NAME.fullmatch(entry[1]) or entry[1] == LOCAL:
            raise ConfigError(f"{path}, line {number}: not a name and a SHA-256; add keys with: memagent serve-key NAME")
        else:
            found.append((entry[1], entry[2]))
    return found


def has_key(path: Path, name: str) -> bool:
    """Whether a file has a key of this name. Raises ConfigError for one that cannot be read."""
    return path.exists() and name in {known for known, _ in _read(path)}


def add_key(path: Path, name: str, *, replace: bool = False) -> str:
    """Adds a key of this name to a file, and returns the key, which is kept nowhere. Raises ConfigError for what is no
    name, or for one that has a key, which is not to be replaced."""
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise ConfigError(f"a key cannot be named {name!r}: use up to 64 letters, digits, '.', '_' and '-', not {LOCAL!r}")
    lines = _lines(path) if path.exists() else []
    others = _without(path, lines, name)
    if len(others) < len(lines) and not replace:
        raise ConfigError(f"{path} has a key of {name!r} already: replace it with --replace, or choose another name")
    key = f"mem-{secrets.token_urlsafe(32)}"
    _write(path, [*others, f"{name} {_hash(key)}"])
    return key


def remove_key(path: Path, name: str) -> None:
    """Takes a key out of a file. Raises ConfigError if it has none of this name."""
    lines = _lines(path)
    others = _without(path, lines, name)
    if len(others) == len(lines):
        raise ConfigError(f"{path} has no key of {name!r}: nothing is removed")
    _write(path, others)


def _without(path: Path, lines: Sequence[str], name: str) -> list[str]:
    """The lines that are not that of a name."""
    entries = zip(lines, _parsed(path, lines), strict=True)
    return [line for line, entry in entries if entry is None or entry[0] != name]


def _write(path: Path, lines: Sequence[str]) -> None:
    """Writes the file again, with the mode that it had; a new one can be read by its owner only."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with atomic_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
    path.chmod(mode)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
