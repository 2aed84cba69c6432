"""Standing questions from Python: `watch`, whose `run` reads what is new, and the same without blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from memagent import watching
from memagent.api import ReadOptions, check_options, opened_engine, opened_journal, settings_of
from memagent.errors import ConfigError
from memagent.settings import Settings
from memagent.threads import in_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingQuestions:
    """A watch: files that grow, and questions that are asked again as they do. `options` are those it was opened with."""

    name: str
    options: ReadOptions = field(repr=False)

    def run(self, *, rebuild: bool = False) -> watching.Update:
        """Reads what is new, and brings the answers up to date.

        `rebuild`: everything is read afresh, and what was edited or deleted is forgotten. A run that was interrupted goes
        on where it was. Raises as `memagent.watching.run`.
        """
        settings = Settings.from_json(self.show().settings)
        with (
            opened_journal(self.options.get("journal")) as journal,
            opened_engine(self.options.get("model"), self.options.get("base_url"), settings) as opened,
        ):
            watcher, verify = self.options.get("watcher"), self.options.get("verify", True)
            return watching.run(
                self.name, opened, journal, rebuild=rebuild, verify=verify, shown=lambda _: nullcontext(watcher)
            )

    async def arun(self, *, rebuild: bool = False) -> watching.Update:
        """As `run`, without blocking the event loop. Once it has begun, a run goes on to its end."""
        return await in_thread(self.run, rebuild=rebuild)

    def show(self) -> watching.Watch:
        """The questions with their last answers. Raises ConfigError if the watch was removed."""
        return watching.show(self.name)

    def remove(self) -> None:
        """Deletes the watch and its copy of the text; its readings stay in the journal."""
        watching.remove(self.name)


def watch(
    name: str,
    paths: str | Path | Sequence[str | Path] = (),
    questions: str | Sequence[str] = (),
    **options: Unpack[ReadOptions],
) -> StandingQuestions:
    """The watch of that name. If `paths` are given, it is added, unless there is the same already; nothing is read yet.

    For `options` see `ReadOptions` and `ReadingOptions`; those of a reading are part of the watch. Raises ConfigError if
    there is another watch of that name, or none and no paths.
    """
    check_options(options, ReadOptions)
    if options.get("together"):
        raise ConfigError("a watch has a reading for each question: leave out together")
    asked, found = [questions] if isinstance(questions, str) else questions, StandingQuestions(name=name, options=options)
    located = [paths] if isinstance(paths, str | Path) else list(paths)
    if not located:
        found.show()
        return found
    encoding = options.get("encoding")
    with opened_engine(options.get("model", "embedded"), options.get("base_url")) as opened:
        settings = settings_of(opened, options)
    if name not in watching.names() or not watching.same(found.show(), located, asked, settings, encoding):
        watching.add(name, [str(path) for path in located], asked, settings, encoding)
    return found


async def awatch(
    name: str,
    paths: str | Path | Sequence[str | Path] = (),
    questions: str | Sequence[str] = (),
    **options: Unpack[ReadOptions],
) -> StandingQuestions:
    """As `watch`, without blocking the event loop."""
    return await asyncio.to_thread(lambda: watch(name, paths, questions, **options))
