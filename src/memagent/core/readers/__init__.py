"""The readers: ways from a document and a question to an answer, within one window.

    memory     chunk by chunk; each reply replaces the memory (arXiv 2507.02259)
    gated      as memory, but the model may leave the memory as it is with a short reply, or end the reading
    parallel   all chunks at once; the notes are merged into the memory; in several rounds
    search     the chunks that match the question, then those that match the model's queries or its memory (BM25)
    reread     as memory, and then again for what is missing
    recall     as memory, but a reply may ask for an earlier memory
    append     chunk by chunk; each reply is added to the memory, and the oldest lines go when it is full
    direct     the whole document in one prompt; it must fit
    truncate   the beginning and the end of the document in one prompt
    retrieve   the passages that match the question best (BM25) in one prompt

Each is one small module; `register` adds one of your own. Nothing outside this package knows which reader it drives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from memagent.core.readers.append import AppendReader
from memagent.core.readers.direct import DirectReader
from memagent.core.readers.gated import GatedReader
from memagent.core.readers.kept import KeptReader
from memagent.core.readers.memory import MemoryReader
from memagent.core.readers.parallel import ParallelReader
from memagent.core.readers.recall import RecallReader
from memagent.core.readers.reread import RereadReader
from memagent.core.readers.retrieve import RetrieveReader
from memagent.core.readers.search import SearchReader
from memagent.core.readers.truncate import TruncateReader
from memagent.core.reading import Reader
from memagent.errors import ConfigError

READERS: dict[str, type[Reader]] = {}
# Readers that go on from another reading: nobody chooses them by name.
_CONTINUING: Mapping[str, type[Reader]] = {KeptReader.name: KeptReader}
# What readers were called before.
RENAMED = {"whole": "direct", "refine": "append"}


def register(reader: type[Reader]) -> type[Reader]:
    """Makes a reader known by its name. May be used as a class decorator. Raises ConfigError if the name is taken."""
    if READERS.get(reader.name, reader) is not reader:
        raise ConfigError(f"there is a reader {reader.name!r} already: give this one another name")
    READERS[reader.name] = reader
    return reader


for _reader in (
    MemoryReader,
    GatedReader,
    ParallelReader,
    SearchReader,
    RereadReader,
    RecallReader,
    AppendReader,
    DirectReader,
    TruncateReader,
    RetrieveReader,
):
    register(_reader)


def make_reader(name: str = "memory", options: Mapping[str, Any] | None = None) -> Reader:
    """The reader of that name. Raises ConfigError for an unknown name or option, naming those there are."""
    if name in RENAMED:
        raise ConfigError(f"the reader {name!r} is called {RENAMED[name]!r} now")
    if name in _CONTINUING:
        return _CONTINUING[name](**(options or {}))
    if name not in READERS:
        if name == "auto":
            raise ConfigError("the reader 'auto' chooses for one document and question: it cannot be evaluated or trained")
        raise ConfigError(f"there is no reader {name!r}: use one of {', '.join(READERS)}, or auto to read one document")
    known, given = option_names(name), dict(options or {})
    if unknown := sorted(set(given) - set(known), key=str):
        raise ConfigError(
            f"the reader {name!r} has no option {unknown[0]!r}; it has {', '.join(known) if known else 'no options'}"
        )
    for option in fields(READERS[name]):  # type: ignore[arg-type]  # readers are dataclasses
        if option.name in given:
            _check_kind(f"the option {option.name!r} of the reader {name!r}", given[option.name], type(option.default))
    return READERS[name](**given)


def _check_kind(what: str, value: object, kind: type) -> None:
    """Raises ConfigError for a number, text, true or false in place of another of these; other options check themselves."""
    wanted = (float, int) if kind is float else kind
    if kind in (bool, int, float, str) and (not isinstance(value, wanted) or isinstance(value, bool) is not (kind is bool)):
        raise ConfigError(f"{what} is {value!r}; it must be of the type {kind.__name__}")


def option_names(name: str) -> list[str]:
    """The options of a registered reader."""
    return [field.name for field in fields(READERS[name])]  # type: ignore[arg-type]  # readers are dataclasses


__all__ = [
    "READERS",
    "RENAMED",
    "AppendReader",
    "DirectReader",
    "GatedReader",
    "MemoryReader",
    "ParallelReader",
    "RecallReader",
    "RereadReader",
    "RetrieveReader",
    "SearchReader",
    "TruncateReader",
    "make_reader",
    "option_names",
    "register",
]
