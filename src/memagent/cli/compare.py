"""`memagent compare`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import interrupts
from memagent.cli.console import MODEL, boundary, note, note_moved, print_json, write, write_models
from memagent.cli.options import AsJson, Chosen, reads_in_ways
from memagent.cli.progress import run_shown
from memagent.core.readers import READERS, option_names
from memagent.core.reading import start
from memagent.errors import ConfigError, MissingExtraError
from memagent.models.concurrency import most_of
from memagent.models.open import OpenModel
from memagent.settings import Settings, make_plan
from memagent.tasks.lazy_text import LazyText

if TYPE_CHECKING:
    from memagent.evaluation.compare import Compared
    from memagent.tasks.files import SampleFile

# Those that are compared if none is named.
_USUAL = ("memory", "gated", "parallel", "search", "retrieve", "direct")
_SAMPLES = 8
# Chunks of a made-up document, if a token of the model were one of the embedded model.
_CHUNKS = 6
# What a folder of a comparison holds.
_QUESTIONS, _RUNS = "questions", "runs"


@reads_in_ways
def compare(
    chosen: Chosen,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Sample files to read instead of made-up questions.")
    ] = None,
    reader: Annotated[
        list[str] | None,
        typer.Option("--reader", "-r", help=f"A reader to compare. Repeat for several (default: {', '.join(_USUAL)})."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help=f"Made-up questions of each of three kinds (default: {_SAMPLES}).")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=256, help="Tokens of a made-up document, as the embedded model counts (default: six chunks)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder that keeps questions and readings. The same command continues them."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Readings at once, for an in-process model.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Ask a model the same questions with several readers, and say which of them suits it.

    Without a FILE, the questions are made up: about one fact of a document, about one that it does not hold, and about one
    that leads to another. An answer is right if it contains an accepted one, or by the scorer that its sample names.
    """
    with boundary() as hints, ExitStack() as stack:
        from memagent.evaluation.compare import made_up, suited

        for given, value in (("--tokens", tokens), ("--samples", samples)):
            if files and value is not None:
                raise ConfigError(f"{given} {value} is for made-up questions: leave it out, or the sample files")
        opened = chosen.opened(stack)
        settings = _settings(chosen, opened, reader)
        out = stack.enter_context(_folder(output))
        if output is not None:
            hints.append(f"to continue the comparison in {output}, repeat the same command")
        if files:
            asked = _opened(files)
        else:
            memory = chosen.settings(opened, reader="memory", reader_options={})
            asked = made_up(out / _QUESTIONS, tokens or _CHUNKS * memory.budgets.chunk, samples or _SAMPLES)
        found: list[Compared] = []
        for one in _read(asked, opened, settings, out / _RUNS, batch=batch, concurrency=most_of(chosen.concurrency)):
            found.append(one)
            if not as_json:
                _show(one)
        best = suited(found)
        if as_json:
            print_json({"readers": [one.to_json() for one in found], "suited": best.reader if best else None})
        else:
            write_models(sum((Counter(one.models) for one in found), Counter()))
            _advise(found, best)
            if output is not None:
                write(f"\nto see every turn: memagent report {output}/{_RUNS}/*/* -o report.html")
        sys.stdout.flush()
        if all(_useless(one) for one in found) and not all(one.whole.too_long for one in found):
            raise typer.Exit(MODEL)


def _read(
    asked: Sequence[SampleFile], opened: OpenModel, settings: Mapping[str, Settings], out: Path, **at_once: int
) -> Iterator[Compared]:
    """Reads with one reader after the other."""
    from memagent.evaluation.compare import begun_at, read_all, warm_up

    if (begun := begun_at(asked, settings, out)) is not None:
        note_moved(next(iter(settings.values())).identity, begun, f"the comparison in {out.parent}")
    if opened.engine.lockstep:
        warm_up(asked[0], opened, next(iter(settings.values())))
    for name, own in settings.items():
        with run_shown(sum(len(one) for one in asked)) as watcher:
            one = read_all(asked, opened, own, out / name, watcher=watcher, **at_once)
        interrupts.check()
        yield one  # when the bar is gone: both may be on one terminal


@contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    """The folder of the comparison; one that passes if none is given. Raises ConfigError if it holds something else."""
    if output is None:
        with TemporaryDirectory(prefix="memagent-compare-") as passing:
            yield Path(passing)
        return
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file: choose a folder for the comparison")
    names = {one.name for one in output.iterdir()} if output.is_dir() else set()
    if names and not names & {_QUESTIONS, _RUNS}:
        raise ConfigError(f"{output} has something else in it, {min(names)}: choose another folder for the comparison")
    yield output


def _settings(chosen: Chosen, opened: OpenModel, named: Sequence[str] | None) -> dict[str, Settings]:
    """The settings by reader. One that was not named is left out, and told, if model, profile or budgets do not suit it."""
    given = dict(chosen.options.get("reader_options") or {})
    settings: dict[str, Settings] = {}
    for name in dict.fromkeys(named or _USUAL):
        if not named and not opened.trained_for(name):
            note(f"{name} is left out: the model was not trained for it")
            continue
        try:
            known = option_names(name) if name in READERS else []
            own = {option: value for option, value in given.items() if option in known}
            made = chosen.settings(opened, reader=name, reader_options=own)
            start(make_plan(LazyText(["A probe."]), "Why?", made, opened))  # where `search` needs its extra
        except (ConfigError, MissingExtraError) as error:
            if named or name == "memory":
                raise
            note(f"{name} is left out: {error}")
            continue
        settings[name] = made
    if not settings:
        trained = ", ".join(opened.defaults.readers or ())
        raise ConfigError(
            f"the model was trained for none of {', '.join(_USUAL)}: name readers with -r; it knows {trained}"
        )
    if unused := sorted(set(given) - {option for name in settings for option in option_names(name)}):
        option = "through-memory/--from-text" if unused[0] == "through_memory" else unused[0].replace("_", "-")
        raise ConfigError(f"--{option} is an option of none of the readers {', '.join(settings)}")
    return settings


def _opened(files: Sequence[Path]) -> list[SampleFile]:
    """The sample files. Raises ConfigError for two with one name or one content: their readings could not be told apart."""
    from memagent.tasks.files import SampleFile

    opened: list[SampleFile] = []
    for path in files:
        new = SampleFile.open(path)
        for other in opened:
            if other.sha256 == new.sha256:
                raise ConfigError(f"{path} has the same samples as {other.path}: leave one of them out")
            if other.path.stem == new.path.stem:
                raise ConfigError(f"{path} and {other.path} have the same name, which names their readings: rename one")
        opened.append(new)
    return opened


def _show(one: Compared) -> None:
    whole = one.whole
    if whole.too_long:
        write((f"{one.reader:<10}", "bold"), "the documents are too long for it")
        return
    low, high = whole.interval.low, whole.interval.high
    found = f"{_amount(whole.right)} of {whole.readings} right (95 %: {100 * low:.0f}–{100 * high:.0f} %)"
    cost = ""
    if whole.seconds is not None:
        tokens = f"{whole.prompt_tokens:,.0f} tokens in, {whole.completion_tokens:,.0f} out"
        cost = f"  {whole.turns:.1f} calls, {tokens}, {whole.seconds:.1f} s"
    write((f"{one.reader:<10}", "bold"), f"{found:<34}{cost}")
    parts = (f"{name} {_amount(cell.right)}/{cell.readings}" for name, cell in one.parts.items())
    write(f"{'':<10}" + " · ".join(parts))
    if whole.failures:
        told = ", ".join(f"{count} ({kind})" for kind, count in sorted(whole.failures.items()))
        write(f"{'':<10}failed readings, counted as wrong: {told}")
    sys.stdout.flush()  # also where it goes to a file: readers can take long


def _amount(score: float) -> str:
    return f"{score:.1f}".removesuffix(".0")


def _useless(one: Compared) -> bool:
    return one.whole.failed == one.whole.readings


def _advise(found: Sequence[Compared], best: Compared | None) -> None:
    from memagent.evaluation.compare import at_one_address

    if all(one.whole.too_long for one in found):
        advice = "every document is too long for these readers: take one that reads chunk by chunk, as memory does"
    elif all(_useless(one) for one in found):
        advice = "no reading ended with an answer: see the failures above"
    elif best is None:
        advice = "no reader gets half of the answers right with this model: take a larger one, or train it"
    else:
        own, most = best.whole.right, max(one.whole.right for one in found)
        few = f"{_amount(own)} right answers, the most are {_amount(most)}"
        more = few if own < most else "none has more right answers"
        advice = f"take --reader {best.reader}: {more}{_speed(found[0], best)}"
        advice += "" if at_one_address(*found) else "; times at different addresses are not compared"
    write()
    write(("→ ", "bold"), advice)


def _speed(first: Compared, best: Compared) -> str:
    """How fast the best is beside the first, if that tells something."""
    from memagent.evaluation.compare import at_one_address

    if not first.whole.seconds or not best.whole.seconds or not at_one_address(first, best):
        return ""
    times = first.whole.seconds / best.whole.seconds
    if times >= 1.2:
        return f", and it is {times:.1f} × as fast as {first.reader}"
    return f"; {first.reader} is {1 / times:.1f} × as fast" if times <= 1 / 1.2 else ""
