"""`memagent compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import interrupts
from memagent.cli.console import MODEL, boundary, note, print_json, write
from memagent.cli.eval import shown
from memagent.cli.options import AsJson, Chosen, reads_in_ways
from memagent.core.readers import option_names
from memagent.errors import ConfigError
from memagent.models.concurrency import most_of
from memagent.models.open import OpenModel
from memagent.settings import Settings, make_plan
from memagent.tasks.lazy_text import LazyText

if TYPE_CHECKING:
    from memagent.evaluation.compare import Compared
    from memagent.tasks.files import SampleFile

# Those that are compared if none is named.
_USUAL = ("memory", "gated", "parallel", "search", "retrieve", "direct")
# Chunks of a made-up document.
_CHUNKS = 6


@reads_in_ways
def compare(
    chosen: Chosen,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="Sample files to read instead of made-up questions.")
    ] = None,
    reader: Annotated[
        list[str] | None, typer.Option("--reader", "-r", help="A reader to compare. Repeat for several. [default: six]")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Made-up questions of each of three kinds.")] = 8,
    tokens: Annotated[
        int | None, typer.Option(min=256, help="Length of made-up documents, in tokens. [default: six chunks]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep questions and readings here, and go on with those there.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Readings at once, for an in-process model.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Ask a model the same questions with several readers, and say which of them suits it.

    Without a FILE, the questions are made up: about one fact of a document, about one that it does not hold, and about one
    that leads to another.
    """
    with boundary() as hints, ExitStack() as stack:
        from memagent.evaluation.compare import compare as compared
        from memagent.evaluation.compare import made_up, suited

        if files and tokens is not None:
            raise ConfigError(f"--tokens {tokens} is the length of made-up documents: leave it out, or the sample files")
        opened = chosen.opened(stack)
        settings = _settings(chosen, opened, reader)
        with _folder(output) as out:
            if output is not None:
                hints.append(f"to continue the runs in {output}, repeat the same command")
            length = tokens or _CHUNKS * next(iter(settings.values())).budgets.chunk
            asked = _opened(files) if files else made_up(out / "questions", length, samples)
            found: list[Compared] = []
            with shown(len(settings) * sum(len(one) for one in asked)) as watcher:
                for one in compared(
                    asked,
                    opened,
                    settings,
                    out,
                    batch=batch,
                    concurrency=most_of(chosen.concurrency),
                    watcher=watcher,
                ):
                    interrupts.check()
                    found.append(one)
                    if not as_json:
                        _show(one)
        best = suited(found)
        if as_json:
            print_json({"readers": [one.to_json() for one in found], "suited": best.reader if best else None})
        else:
            _advise(found, best)
        if all(sum(one.failures.values()) == one.readings for one in found):
            raise typer.Exit(MODEL)


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output
        return
    with TemporaryDirectory(prefix="memagent-compare-") as passing:
        yield Path(passing)


def _settings(chosen: Chosen, opened: OpenModel, named: Sequence[str] | None) -> dict[str, Settings]:
    """The settings by reader. One that was not named is left out, and told, if model, profile or budgets do not suit it."""
    given = dict(chosen.options.get("reader_options") or {})
    names = list(dict.fromkeys(named or _USUAL))
    settings: dict[str, Settings] = {}
    for name in names:
        if not named and not opened.trained_for(name):
            note(f"{name} is left out: the model was not trained for it")
            continue
        try:
            own = {option: value for option, value in given.items() if option in option_names(name)}
            made = chosen.settings(opened, reader=name, reader_options=own)
            make_plan(LazyText(["A probe."]), "Why?", made, opened)
        except ConfigError as error:
            if named or name == "memory":
                raise
            note(f"{name} is left out: {error}")
            continue
        settings[name] = made
    if unused := sorted(set(given) - {option for name in settings for option in option_names(name)}):
        raise ConfigError(f"--{unused[0].replace('_', '-')} is an option of none of the readers {', '.join(settings)}")
    return settings


def _opened(files: Sequence[Path]) -> list[SampleFile]:
    from memagent.tasks.files import SampleFile

    stems: dict[str, Path] = {}
    for path in files:
        if (other := stems.setdefault(path.stem, path)) is not path:
            raise ConfigError(f"{other} and {path} have the same name, by which their readings are kept: rename one")
    return [SampleFile.open(path) for path in files]


def _show(one: Compared) -> None:
    if one.failures.get("too_long") == one.readings:
        write((f"{one.reader:<10}", "bold"), "the documents are too long for it")
        return
    low, high = one.interval.low, one.interval.high
    right = f"{one.right:g} of {one.readings} right ({100 * low:.0f}–{100 * high:.0f} %)"
    tokens = f"{one.prompt_tokens:,.0f} tokens in, {one.completion_tokens:,.0f} out"
    write((f"{one.reader:<10}", "bold"), f"{right:<28}{one.calls:.1f} calls, {tokens}, {one.seconds:.1f} s")
    write(f"{'':<10}" + " · ".join(f"{name} {score:g}/{count}" for name, (score, count) in one.parts.items()))
    if one.failures:
        told = ", ".join(f"{count} ({kind})" for kind, count in sorted(one.failures.items()))
        write(f"{'':<10}failed readings, counted as wrong: {told}")


def _advise(found: Sequence[Compared], best: Compared | None) -> None:
    write()
    if best is None:
        write(("→ ", "bold"), "no reader gets half of the answers right with this model: take a larger one, or train it")
        return
    first, most = found[0], max(one.right for one in found)
    right = "none has more right answers" if best.right == most else f"{best.right:g} right answers, the most are {most:g}"
    faster = f", and it is {first.seconds / best.seconds:.1f} × as fast as {first.reader}" if best is not first else ""
    write(("→ ", "bold"), f"take --reader {best.reader}: {right}{faster}")
