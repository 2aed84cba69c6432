"""`memagent tasks`, `memagent synth` and `memagent validate`."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memagent.cli.console import boundary, err, plain, print_json, write
from memagent.cli.options import AsJson
from memagent.errors import ConfigError, TaskError
from memagent.models.open import open_tokenizer

Paths = list[Path] | None


def tasks(
    name: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Show the options of one task.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks for `memagent synth` and their options."""
    with boundary():
        from memagent.tasks.catalog import CATALOG, find

        chosen = [find(name)] if name else list(CATALOG.values())
        if as_json:
            print_json([_described(task) for task in chosen])
            return
        width = max(len(task.name) for task in chosen)
        for task in chosen:
            needs = " (needs --questions)" if task.questions else ""
            write((task.name.ljust(width), "bold"), f"  {task.summary}{needs}")
            if name:
                for option, value in _options(task).items():
                    write(f"  --set {option}={value}")
                if task.defaults.__doc__:
                    write("\n" + "\n".join(line.strip() for line in task.defaults.__doc__.strip().splitlines()))


TokenizerName = Annotated[
    str,
    typer.Option(help="The tokenizer that counts tokens: embedded, estimate, bytes, or a tokenizer.json or its folder."),
]
SharedText = Annotated[
    bool | None,
    typer.Option("--shared/--inline", help="Whether documents refer to a shared text file, or are part of their lines."),
]


def synth(
    task: Annotated[list[str], typer.Argument(metavar="TASK...", help="Names of tasks; see `memagent tasks`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The sample file to write (JSONL).")],
    tokens: Annotated[
        list[int] | None, typer.Option("--tokens", min=1, help="Length of the documents. Repeat for several lengths.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples of each task at each length.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed. Equal seeds give equal samples.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Number of the first sample.")] = 0,
    split: Annotated[str, typer.Option(help="The split of the words: eval or train.")] = "eval",
    tokenizer: TokenizerName = "embedded",
    haystack: Annotated[Paths, typer.Option(help="UTF-8 text (or .gz) that hides the facts. Repeat for several.")] = None,
    words: Annotated[Path | None, typer.Option(help="Words for keys and values, one per line.")] = None,
    questions: Annotated[Path | None, typer.Option(help="Question file: SQuAD, HotpotQA, MuSiQue, CUAD, …")] = None,
    passages: Annotated[
        Path | None, typer.Option(help="Additional distractor passages, or the documents of the questions.")
    ] = None,
    wording: Annotated[Path | None, typer.Option(help="A checkout of RULER, to use its wording.")] = None,
    option: Annotated[list[str] | None, typer.Option("--set", help="An option of the task, as name=value.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes. It does not change the samples.")] = 1,
    shared: SharedText = None,
) -> None:
    """Write samples of long-context tasks to a file."""
    with boundary():
        from memagent.tasks.synthesis import Recipe, write_samples

        if split not in ("eval", "train"):
            raise ConfigError(f"the split is {split!r}; it must be 'eval' or 'train'")
        recipe = Recipe(
            tasks=tuple(task),
            tokens=tuple(dict.fromkeys(tokens or [8192])),
            samples=samples,
            tokenizer=partial(open_tokenizer, tokenizer),
            seed=seed,
            first=first,
            split=split,  # type: ignore[arg-type]  # checked above
            options=_assignments(option or []),
            haystack=tuple(haystack or ()),
            words=words,
            questions=questions,
            passages=passages,
            wording=wording,
            shared=shared,
        )
        total, notices = samples * len(recipe.tasks) * len(recipe.tokens), list[str]()
        with Progress(
            TextColumn("samples"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=err, transient=True
        ) as bar:
            line = bar.add_task("", total=total)
            count = write_samples(
                recipe, output, workers=workers, progress=lambda done: bar.update(line, completed=done), say=notices.append
            )
        write(f"{count} samples in {output}")
        for notice in notices:
            err.print(plain(notice), soft_wrap=True)


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sample file.")],
    as_json: AsJson = False,
) -> None:
    """Check a sample file and report the first invalid line and field."""
    with boundary():
        from memagent.tasks.files import SampleFile

        samples = SampleFile.open(file)
        counts: dict[str, dict[str, Any]] = {}
        for entry in samples.entries:
            known = counts.setdefault(entry.task, {"samples": 0, "fewest_tokens": entry.tokens, "most_tokens": 0})
            known["samples"] += 1
            known["fewest_tokens"] = min(known["fewest_tokens"], entry.tokens)
            known["most_tokens"] = max(known["most_tokens"], entry.tokens)
        if as_json:
            print_json({"file": str(file), "samples": len(samples), "sha256": samples.sha256, "tasks": counts})
            return
        write(f"{file}: {len(samples)} samples, all valid")
        for name, known in counts.items():
            length = "tokens not counted"
            if known["most_tokens"]:
                length = f"{known['fewest_tokens']:,} to {known['most_tokens']:,} tokens"
            write(f"  {name}: {known['samples']} samples, {length}")


def _described(task: Any) -> dict[str, Any]:
    return {"name": task.name, "summary": task.summary, "questions": task.questions, "options": _options(task)}


def _options(task: Any) -> dict[str, Any]:
    return {item.name: getattr(task.defaults, item.name) for item in fields(task.defaults)}


def _assignments(given: list[str]) -> dict[str, str]:
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise TaskError(f"--set {text!r} does not have the form name=value")
        options[name] = value
    return options
