"""Keeps keys and passwords out of the journal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus, urlsplit, urlunsplit

from memagent.errors import JournalError
from memagent.journal.values import JSON

# Compared with the name in lower case without punctuation, so apiKey, API-KEY and api_key are one name. `tokens` (a count)
# is not a secret, but `token` is. `api_key_env` names an environment variable and is allowed.
_ANYWHERE = re.compile("apikey|accesskey|privatekey|secret|passw|passphrase|credential|authorization|bearer|cookie")
_AT_END = re.compile("(token|auth|pwd)$")
_IN_QUERY = re.compile("(key|sig|signature|code)$")
_ASKED = re.compile(r"settings\.together\[")  # questions
_SENTENCE = ".,:;!?)]}>'\""  # punctuation around a URL in an error message
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


def redact(values: Mapping[str, JSON], what: str) -> dict[str, Any]:
    """A plain JSON copy of `values`, without credentials in URLs, but for questions: they are asked again as they were.

    Raises JournalError for a name that stands for a secret, at any depth, and for what is not JSON. `what` leads the names
    in messages.
    """
    copy = {}
    for name, value in values.items():
        where = f"{what}.{name}"
        if not isinstance(name, str):
            raise JournalError(f"{what} has the key {name!r}: JSON keys are strings")
        if _is_secret(name):
            raise JournalError(f"{where} looks like a secret and was not written: omit it, and pass keys again on resume")
        copy[name] = _redact_value(value, where)
    return copy


def strip_urls(text: str) -> str:
    """`text` with user:password@ and key-like parameters removed from every URL."""
    return _URL.sub(lambda match: _strip_url(match[0]), text)


def _redact_value(value: JSON, where: str) -> Any:
    if isinstance(value, str):
        return value if _ASKED.match(where) else strip_urls(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return redact(value, where)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_redact_value(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise JournalError(f"{where} is a {type(value).__name__}, which JSON cannot represent: use text or a number")


def _is_secret(name: str, extra: re.Pattern[str] | None = None) -> bool:
    bare = re.sub("[^a-z0-9]", "", name.lower())
    if bare.endswith("env"):
        return False
    return bool(_ANYWHERE.search(bare) or _AT_END.search(bare) or (extra and extra.search(bare)))


def _strip_url(found: str) -> str:
    url = found.rstrip(_SENTENCE)
    tail = found[len(url) :]
    try:
        parts = urlsplit(url)
        _ = parts.port  # a password with a slash looks like an invalid port
    except ValueError:
        return url.partition("://")[0] + "://(withheld)" + tail
    clean = parts._replace(
        netloc=parts.netloc.rpartition("@")[2],
        query=_strip_parameters(parts.query),
        fragment=_strip_parameters(parts.fragment),
    )
    return found if clean == parts else urlunsplit(clean) + tail  # rejoining is not exact, so unchanged URLs are kept


def _strip_parameters(query: str) -> str:
    kept = [item for item in query.split("&") if not _is_secret(unquote_plus(item.partition("=")[0]), _IN_QUERY)]
    return "&".join(kept)
