"""How to go on with a reading, as a command that can be copied."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.journal.redaction import strip_urls


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What `memagent resume ID` must be told again, because the journal does not know it.

    `paths` are those given on the command line of a resumed reading, or the placeholder where standard input was read.
    """

    paths: Sequence[str] = ()
    tokenizer: str | None = None
    base_url: str | None = None

    def line(self, id: str | None) -> str:
        """The line to print for a reading."""
        if id is None:
            return "nothing was kept (--no-journal)"
        command = ["memagent", "resume", id, *map(shlex.quote, self.paths)]
        if self.tokenizer is not None:
            command += ["--tokenizer", shlex.quote(self.tokenizer)]
        # Credentials are not kept, so they are not repeated here either.
        secret = self.base_url is not None and strip_urls(self.base_url) != self.base_url
        note = " (give --base-url again: its credentials were not kept)" if secret else ""
        return f"resume with: {' '.join(command)}{note}"
