"""`memagent import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from memagent.cli.console import boundary, err, print_json, write
from memagent.cli.options import AsJson
from memagent.cli.tasks import SharedText, TokenizerName
from memagent.errors import ConfigError
from memagent.models.open import open_tokenizer

Texts = Annotated[
    list[Path] | None, typer.Option(help="For NoLiMa: UTF-8 text (or .gz) that hides the needles. Repeat for several.")
]

Seed = Annotated[
    int | None, typer.Option(help="Draw the samples of --limit at random with this seed. NoLiMa: also the places.")
]
Subset = Annotated[str | None, typer.Option(help="The part of the suite that the file holds, if its path does not say so.")]


def import_file(
    suite: Annotated[str | None, typer.Argument(metavar="[FORMAT]", help="The format of the file; see --list.")] = None,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The official file of the suite.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The sample file to write (JSONL).")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the formats.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this number of samples, from the beginning.")] = None,
    seed: Seed = None,
    subset: Subset = None,
    category: Annotated[list[str] | None, typer.Option(help="Only samples of this category. Repeat for several.")] = None,
    split: Annotated[str, typer.Option(help="eval, or train for files that `memagent train` may use.")] = "eval",
    shared: SharedText = None,
    haystack: Texts = None,
    tokens: Annotated[int, typer.Option(min=1, help="For NoLiMa: length of the documents.")] = 8192,
    depths: Annotated[int, typer.Option(min=1, help="For NoLiMa: number of places of each needle.")] = 11,
    tokenizer: TokenizerName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Turn the official file of an evaluation suite into a sample file for `memagent eval`."""
    with boundary():
        if listed or suite is None:
            _list(as_json)
            return
        from memagent.tasks.haystack import Haystack, read_text
        from memagent.tasks.suites.catalog import find_suite
        from memagent.tasks.suites.importing import Import
        from memagent.tasks.suites.suite import Hay
        from memagent.tasks.suites.writing import import_samples

        found = find_suite(suite)
        if file is None or output is None:
            raise ConfigError(
                f"give the file of {found.title} and the sample file to write: memagent import {suite} FILE -o OUT"
            )
        if split not in ("eval", "train"):
            raise ConfigError(f"the split is {split!r}; it must be 'eval' or 'train'")
        hay = None
        if haystack:
            texts = tuple((path.name.split(".")[0], Haystack([read_text(path)], lines=True)) for path in haystack)
            hay = Hay(texts=texts, tokenizer=open_tokenizer(tokenizer), tokens=tokens, depths=depths)
        wanted = Import(
            suite=found,
            file=file,
            limit=limit,
            seed=seed,
            categories=tuple(category or ()),
            subset=subset,
            split=split,  # type: ignore[arg-type]  # checked above
            shared=shared,
            hay=hay,
        )
        with Progress(TextColumn("{task.completed:,} samples"), TimeElapsedColumn(), console=err, transient=True) as bar:
            line = bar.add_task("", total=None)
            counts = import_samples(wanted, output, lambda done: bar.update(line, completed=done))
        if as_json:
            print_json({"file": str(output), "samples": counts.total(), "tasks": counts})
            return
        write(f"{counts.total()} samples in {output}")
        for task, count in sorted(counts.items()):
            write(f"  {task}: {count}")


def _list(as_json: bool) -> None:
    from memagent.tasks.suites.catalog import described

    suites = described()
    if as_json:
        print_json(suites)
        return
    width = max(len(one["format"]) for one in suites)
    for one in suites:
        write((one["format"].ljust(width), "bold"), f"  {one['suite']}: {one['file']}")
