"""Names of hosts in requests, as far as they are any: clients may send what is no name."""

from __future__ import annotations

from urllib.parse import urlsplit


def comes_from(origin: str, host: str) -> bool:
    """Whether a page of this host sends a request, going by its `Origin`."""
    try:
        return bool(host) and urlsplit(origin).netloc == host
    except ValueError:  # an unclosed bracket
        return False


def name_of(host: str) -> str | None:
    """The name in a `Host` without its port; None: it has none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
