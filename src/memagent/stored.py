"""Values of the journal, checked before they are shown. Another version, or another program, may have written them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from memagent.core.types import Usage
from memagent.errors import JournalError
from memagent.grounding.verdict import Quote, Verdict
from memagent.journal import ReadingRecord

_KINDS: dict[str, Any] = {"str": str, "int": int, "float": (int, float)}


def number(value: Any) -> int:
    """A number that is not negative; 0 for what is none."""
    return max(0, value) if isinstance(value, int) else 0


def listed(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def verdicts(record: ReadingRecord) -> list[Verdict]:
    """What verification came to. Fields that are not known are left out. Raises JournalError for what is no verdict."""
    return [_verdict(record, one) for one in record.verdicts or ()]


def verification(record: ReadingRecord) -> Usage:
    """What verification cost."""
    return sum((_usage(one.get("usage")) for one in listed(record.verdicts)), Usage())


def _usage(values: Any) -> Usage:
    found = {item.name: values.get(item.name) for item in fields(Usage)} if isinstance(values, Mapping) else {}
    known: dict[str, Any] = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return Usage(**known)


def _verdict(record: ReadingRecord, values: Any) -> Verdict:
    try:
        names = {item.name for item in fields(Quote)}
        quotes = [{name: value for name, value in one.items() if name in names} for one in values["quotes"]]
        verdict = Verdict.from_json({"error": None, "unsupported": (), **values, "quotes": quotes})
        texts = [verdict.status, *verdict.unsupported, *([verdict.error] if verdict.error else [])]
        if all(isinstance(text, str) for text in texts) and all(map(_sound, verdict.quotes)):
            return verdict
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise JournalError(
        f"reading {record.id} has a verification in the journal that this version of memagent cannot read: show it with"
        " the version that wrote it"
    )


def _sound(quote: Quote) -> bool:
    """Whether its values have the types that they should have."""
    kinds = ((item.type, getattr(quote, item.name)) for item in fields(Quote))
    return all(isinstance(value, _KINDS[str(kind)]) for kind, value in kinds if str(kind) in _KINDS)
