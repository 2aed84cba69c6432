"""memagent: read a document of any length with a small window and a memory that is overwritten.

    import memagent

    reading = memagent.read("book.txt", "How can I reach Owen Pell by phone?")
    print(reading.answer, reading.quotes)

After MemAgent (arXiv 2507.02259). Names are imported when they are first used, so that `import memagent` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memagent.api import (
        FollowUpOptions,
        Reading,
        ReadOptions,
        ResumeOptions,
        aextend,
        afollow_up,
        aread,
        aread_many,
        aresume,
        extend,
        follow_up,
        read,
        read_many,
        resume,
        resume_many,
    )
    from memagent.core import Budgets, Completion, Engine, Profile, Sampling, Span, Tokenizer, Turn
    from memagent.core.types import Usage
    from memagent.documents import Document, from_text, load
    from memagent.errors import (
        ConfigError,
        ContextTooLongError,
        DocumentError,
        JournalError,
        MemagentError,
        MissingExtraError,
        ModelError,
        ModelRefusedError,
        ModelReplyError,
        ModelUnavailableError,
        OutputError,
        TaskError,
        TrainingError,
    )
    from memagent.grounding.verdict import Quote
    from memagent.journal import Journal
    from memagent.models.open import OpenModel, open_model
    from memagent.models.scripted import ScriptedModel
    from memagent.models.tokenizers import ByteTokenizer
    from memagent.profiles import load_profile
    from memagent.settings import ReadingOptions
    from memagent.watches import StandingQuestions, awatch, watch

__version__ = "0.1.0"

_HOMES = {
    "memagent.api": (
        "FollowUpOptions",
        "ReadOptions",
        "Reading",
        "ResumeOptions",
        "aextend",
        "afollow_up",
        "aread",
        "aread_many",
        "aresume",
        "extend",
        "follow_up",
        "read",
        "read_many",
        "resume",
        "resume_many",
    ),
    "memagent.core": ("Budgets", "Completion", "Engine", "Profile", "Sampling", "Span", "Tokenizer", "Turn"),
    "memagent.core.types": ("Usage",),
    "memagent.documents": ("Document", "from_text", "load"),
    "memagent.errors": (
        "ConfigError",
        "ContextTooLongError",
        "DocumentError",
        "JournalError",
        "MemagentError",
        "MissingExtraError",
        "ModelError",
        "ModelRefusedError",
        "ModelReplyError",
        "ModelUnavailableError",
        "OutputError",
        "TaskError",
        "TrainingError",
    ),
    "memagent.grounding.verdict": ("Quote",),
    "memagent.journal": ("Journal",),
    "memagent.models.open": ("OpenModel", "open_model"),
    "memagent.models.scripted": ("ScriptedModel",),
    "memagent.models.tokenizers": ("ByteTokenizer",),
    "memagent.profiles": ("load_profile",),
    "memagent.settings": ("ReadingOptions",),
    "memagent.watches": ("StandingQuestions", "awatch", "watch"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Budgets",
    "ByteTokenizer",
    "Completion",
    "ConfigError",
    "ContextTooLongError",
    "Document",
    "DocumentError",
    "Engine",
    "FollowUpOptions",
    "Journal",
    "JournalError",
    "MemagentError",
    "MissingExtraError",
    "ModelError",
    "ModelRefusedError",
    "ModelReplyError",
    "ModelUnavailableError",
    "OpenModel",
    "OutputError",
    "Profile",
    "Quote",
    "ReadOptions",
    "Reading",
    "ReadingOptions",
    "ResumeOptions",
    "Sampling",
    "ScriptedModel",
    "Span",
    "StandingQuestions",
    "TaskError",
    "Tokenizer",
    "TrainingError",
    "Turn",
    "Usage",
    "__version__",
    "aextend",
    "afollow_up",
    "aread",
    "aread_many",
    "aresume",
    "awatch",
    "extend",
    "follow_up",
    "from_text",
    "load",
    "load_profile",
    "open_model",
    "read",
    "read_many",
    "resume",
    "resume_many",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'memagent' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
