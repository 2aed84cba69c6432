"""The command that resumes a reading, for the user to copy."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.journal.redaction import strip_urls


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Arguments that `memagent resume ID` needs because the journal does not contain them.

    `paths` are the paths from the command line of a resumed reading, or a placeholder if it read standard input.
    """

    paths: Sequence[str] = ()
    tokenizer: str | None = None
    base_url: str | None = None

    def line(self, id: str | None) -> str:
        """The line to print for a reading."""
        if id is None:
            return "nothing was saved (--no-journal)"
        command = ["memagent", "resume", id, *map(shlex.quote, self.paths)]
        if self.tokenizer is not None:
            command += ["--tokenizer", shlex.quote(self.tokenizer)]
        # Credentials are not saved, and not printed either.
        secret = self.base_url is not None and strip_urls(self.base_url) != self.base_url
        note = " (pass --base-url again: its credentials were not saved)" if secret else ""
        return f"resume with: {' '.join(command)}{note}"
