"""One root error, one subclass per boundary.

Every message names the value that was wrong, the limit it broke and the way out. Each class also inherits the standard
class a caller would expect, so `except ValueError` keeps working for code that does not know memagent.
"""

from __future__ import annotations

from typing import Any


class MemagentError(Exception):
    """Root of every error memagent raises on purpose.

    `reading` is the id of the reading in the journal that the error ended; None if none was entered.

    Every one can be pickled, and so comes back from another process: exceptions are remade from their message, which would
    not do for a class whose `__init__` takes something else.
    """

    reading: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args), self.__dict__


class ConfigError(MemagentError, ValueError):
    """An option, profile, budget or configuration file is not usable as given."""


class TooLongError(ConfigError):
    """A document is longer than what is to be shown at once."""


class MissingExtraError(MemagentError, ImportError):
    """An optional dependency is not installed. The message holds the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra that is not installed: pip install 'memagent[{extra}]'")
        self.extra = extra


class OutputError(MemagentError, RuntimeError):
    """A file cannot be written where it was asked for."""


class DocumentError(MemagentError, ValueError):
    """A document cannot be read: missing, empty, binary, encrypted, truncated or undecodable. Names the file."""


class BrokenFileError(DocumentError):
    """A file of a folder or glob cannot be read. `skip_broken` leaves such files out."""


class ModelError(MemagentError, RuntimeError):
    """A model could not be opened or did not answer."""


class ModelUnavailableError(ModelError):
    """The server could not be reached, or kept failing after every retry."""


class ModelRefusedError(ModelError):
    """The server answered and will not serve this request: bad key, unknown model, invalid field. Not retried."""


class ModelReplyError(ModelError):
    """The server answered with something that is not a completion."""


class ContextTooLongError(ModelError):
    """The request did not fit the model's window. The reading splits the chunk and goes on."""


class JournalError(MemagentError, RuntimeError):
    """The journal cannot be opened, or a reading cannot be found, resumed or changed."""


class JournalFileError(JournalError):
    """The file of the journal cannot be opened, read or written: a full disk, a lock, damage."""


class TaskError(MemagentError, ValueError):
    """A task cannot be generated as asked, or a task file is malformed."""


class TrainingError(MemagentError, RuntimeError):
    """Training cannot start, resume or go on."""


def _remade(cls: type[MemagentError], args: tuple[Any, ...]) -> MemagentError:
    """An error with these `args`, without its own `__init__`."""
    error = cls.__new__(cls, *args)
    if isinstance(error, ImportError):  # which keeps its message once more
        ImportError.__init__(error, *args)
    return error


# The first class that an error is of counts.
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (TooLongError, "too_long"),
    (ContextTooLongError, "too_long"),
    (DocumentError, "document"),
    (ConfigError, "config"),
    (ModelUnavailableError, "unavailable"),
    (ModelRefusedError, "refused"),
    (ModelReplyError, "reply"),
    (ModelError, "model"),
)


def failure_kind(error: BaseException | None) -> str | None:
    """The word by which records name the kind of a failure; None for other errors."""
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), None)
