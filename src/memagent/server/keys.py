"""Who may ask: keys, of which only hashes are kept.

A key file has a line for each key: its name, and the SHA-256 of the key in hexadecimal. Keys are 32 random bytes, so a
plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from pathlib import Path

from memagent.errors import ConfigError
from memagent.files import atomic_file

LOCAL = "local"  # the name of whoever asks where no keys are needed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINE = re.compile(r"(\S+)\s+([0-9a-f]{64})")


class Keys:
    """Hashes of keys, by name."""

    def __init__(self, hashes: dict[str, str]) -> None:
        self.hashes = hashes

    @classmethod
    def load(cls, path: Path) -> Keys:
        """The keys of a file. Raises ConfigError that names an invalid line."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the keys in {path}: {error}") from error
        hashes: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line.strip())
            if found is None or not _NAME.fullmatch(found[1]) or found[1] == LOCAL:
                raise ConfigError(
                    f"{path}, line {number}: not a name and a SHA-256; add keys with: memagent serve-key NAME"
                )
            hashes[found[1]] = found[2]
        if not hashes:
            raise ConfigError(f"{path} has no keys: add one with memagent serve-key NAME --keys {path}")
        return cls(hashes)

    def name_of(self, key: str) -> str | None:
        """The name of a key; None if it is not known. All hashes are compared, in constant time each."""
        given = _hash(key)
        found = None
        for name, known in self.hashes.items():
            if hmac.compare_digest(given, known):
                found = name
        return found


def add_key(path: Path, name: str) -> str:
    """Adds a key of this name to a file, in place of one that has it, and returns the key. It is kept nowhere."""
    if not _NAME.fullmatch(name) or name == LOCAL:
        raise ConfigError(f"a key cannot be named {name!r}: use up to 64 letters, digits, '.', '_' and '-', not {LOCAL!r}")
    hashes = Keys.load(path).hashes if path.exists() else {}
    key = f"mem-{secrets.token_urlsafe(32)}"
    with atomic_file(path) as file:
        for known, hashed in {**hashes, name: _hash(key)}.items():
            file.write(f"{known} {hashed}\n")
    path.chmod(0o600)
    return key


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
