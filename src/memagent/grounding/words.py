"""What a status means, in words for someone who has not read the manual."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """`tone` colours it: "good", "fair" or "plain". `brief` is for lists, `sentence` stands beside the answer."""

    tone: str
    brief: str
    sentence: str


_MEANINGS = {
    "supported": Meaning("good", "Supported", "Supported by the document"),
    "partly": Meaning("fair", "Supported in part", "Supported in part"),
    "unsupported": Meaning(
        "fair", "Not supported", "Not supported: no passage was found that says so. Check the answer yourself"
    ),
    "not_found": Meaning("fair", "Not found", "Not found: the model says that what it read does not hold the answer"),
}


def meaning(status: str | None) -> Meaning:
    """What verification said (None: nothing). Another version may have written a status that is not known here."""
    words = f"Verified: {status}" if status else "Not verified"
    return _MEANINGS.get(status or "") or Meaning("plain", words, words)
