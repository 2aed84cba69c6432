"""`memagent batch`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memagent.cli import interrupts
from memagent.cli.console import MODEL, boundary, note_moved, print_json, warn, write, write_models
from memagent.cli.options import AsJson, Chosen, NoVerify, reads, usage_of
from memagent.cli.progress import counted
from memagent.errors import ConfigError
from memagent.models.concurrency import most_of
from memagent.models.open import OpenModel
from memagent.settings import Settings

if TYPE_CHECKING:
    from memagent.batch.folder import BatchFolder
    from memagent.batch.jobs import Form, JobFile
    from memagent.batch.local import Tally, Watcher
    from memagent.batch.records import Summary

_USUAL = 16  # documents at the same time in process
_MISSING_SHOWN = 3
Jobs = Annotated[
    Path, typer.Argument(metavar="JOBS", help="A file with one job per line: a JSON object with document and question.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The folder of the results (required, except with --dry-run)."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(min=1, help=f"Documents at the same time. The default is --concurrency, or {_USUAL} in process."),
]
Parquet = Annotated[bool, typer.Option("--parquet", help="Also write the table as results.parquet.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Try questions that failed again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Estimate calls and tokens without calling the model.")]
Ray = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Read on the Ray cluster at this address; 'local' starts one here.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="With --ray: number of processes that read (default: one per GPU, or per CPU).")
]


@reads
def batch(
    jobs: Jobs,
    chosen: Chosen,
    output: Output = None,
    at_once: AtOnce = None,
    retry_failed: RetryFailed = False,
    parquet: Parquet = False,
    ray: Ray = None,
    workers: Workers = None,
    no_verify: NoVerify = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Answer the questions of many documents, each question to one record. Repeat the command to continue it."""
    with boundary() as hints, ExitStack() as stack:
        from memagent.batch.jobs import JobFile
        from memagent.batch.local import settings_of
        from memagent.batch.records import check_parquet

        _check(output, ray, workers, dry_run)
        if parquet:
            check_parquet()
        if ray is not None:
            _check_ray()
        file = JobFile.open(jobs)
        _warn_missing(file)
        opened = chosen.opened(stack)
        settings = settings_of(file, opened, lambda form: _settings(chosen, opened, form))
        if dry_run:
            from memagent.cli.batch_estimate import print_estimate

            print_estimate(file, opened, settings, verified=not no_verify, as_json=as_json)
            return
        assert output is not None
        began, many = time.monotonic(), at_once or (_USUAL if opened.engine.lockstep else most_of(chosen.concurrency))
        with _opened(file, output, settings, retry_failed, not no_verify) as folder:
            hints.append(f"to continue the batch in {output}, repeat the same command")
            if folder.done < file.questions:
                note_moved(settings[0].identity, folder.identity, f"the batch in {output}")
            with _shown(folder) as watcher:
                if ray is None:
                    _run_here(folder, opened, settings, many, not no_verify, watcher)
                else:
                    _run_on_ray(folder, chosen, opened, settings, many, not no_verify, watcher, ray, workers)
            interrupts.check()
            folder.finish(parquet)
            summary = _summary(folder)
        _report(output, file, summary, time.monotonic() - began, as_json)


def _check(output: Path | None, ray: str | None, workers: int | None, dry_run: bool) -> None:
    """Raises ConfigError for options that do not go together."""
    if output is None and not dry_run:
        raise ConfigError("no folder given for the results: name one with -o")
    if workers is not None and ray is None:
        raise ConfigError("--workers goes with --ray; without it, --at-once says how many documents are read at a time")


def _check_ray() -> None:
    from memagent.batch.on_ray import check_installed

    check_installed()


def _warn_missing(file: JobFile) -> None:
    """Names documents that do not exist. Raises ConfigError if none does: the folder is probably wrong."""
    if not file.missing:
        return
    lines = {line for line, _ in file.missing}
    named = "; ".join(f"line {line}: {path}" for line, path in file.missing[:_MISSING_SHOWN])
    more = f"; and {len(file.missing) - _MISSING_SHOWN:,} more" if len(file.missing) > _MISSING_SHOWN else ""
    said = f"{len(lines):,} of {len(file):,} jobs name documents that do not exist: {named}{more}"
    if len(lines) == len(file):
        raise ConfigError(f"{said}. Relative paths start at the folder of {file.path}")
    warn(f"{said}. These jobs will fail; the others are read")


def _settings(chosen: Chosen, opened: OpenModel, form: Form) -> Settings:
    """The settings of a form. Options of the reader on the command line are not for the reader of a job."""
    own: dict[str, Any] = {"schema": None}
    if form.schema:
        own["schema"] = json.loads(form.schema)
    if form.reader is not None and form.reader != chosen.options["reader"]:
        own |= {"reader": form.reader, "reader_options": {}}
    return chosen.settings(opened, **own)


def _named(form: Form) -> str:
    """The name of a form in the header."""
    schema = f" {hashlib.sha256(form.schema.encode()).hexdigest()[:8]}" if form.schema else ""
    return f"{form.reader or 'usual'}{schema}"


def _opened(file: JobFile, output: Path, settings: list[Settings], retry_failed: bool, verified: bool) -> BatchFolder:
    from memagent.batch.folder import BatchFolder
    from memagent.folders import describe_machine

    config = {
        "jobs": {"path": str(file.path.absolute()), "sha256": file.sha256, "count": len(file)},
        "settings": {_named(form): one.to_json() for form, one in zip(file.forms, settings, strict=True)},
        "verify": verified,
        **describe_machine(),
    }
    return BatchFolder.open(output, file, config, retry_failed=retry_failed)


def _run_here(
    folder: BatchFolder, opened: OpenModel, settings: list[Settings], at_once: int, verified: bool, watcher: Watcher
) -> None:
    from memagent.batch.local import run

    run(folder, opened, settings, at_once=at_once, verified=verified, watcher=watcher)


def _run_on_ray(
    folder: BatchFolder,
    chosen: Chosen,
    opened: OpenModel,
    settings: list[Settings],
    at_once: int,
    verified: bool,
    watcher: Watcher,
    address: str,
    workers: int | None,
) -> None:
    from memagent import __version__
    from memagent.batch.on_ray import run
    from memagent.batch.worker import Setup
    from memagent.models.endpoint import from_environment

    setup = Setup(
        batch=folder.id,
        version=__version__,
        model=chosen.model,
        options={
            "base_url": chosen.base_url,
            "timeout": chosen.timeout,
            "window": chosen.window,
            "tokenizer": settings[0].tokenizer,
            "usage": usage_of(chosen.trust_usage),
            "predict": chosen.predict,
        },
        settings=[one.to_json() for one in settings],
        verified=verified,
        api_key=from_environment("API_KEY") if chosen.base_url else None,
    )
    served = not opened.engine.lockstep
    if not served:
        opened.engine.close()  # the memory is for the workers
    run(folder, setup, address=address, served=served, at_once=at_once, workers=workers, watcher=watcher)


@contextlib.contextmanager
def _shown(folder: BatchFolder) -> Iterator[Watcher]:
    """A progress bar with what is left, if standard error is a terminal."""
    began = time.monotonic()
    with counted("questions", folder.jobs.questions, folder.done) as update:
        yield lambda tally: update(tally.done, _progress(tally, time.monotonic() - began))


def _progress(tally: Tally, seconds: float) -> str:
    """What stands behind the bar: failures, speed, and the time that is left if what is left is like what was read."""
    read = tally.done - tally.began
    parts = [f"{tally.failed:,} failed"] if tally.failed else []
    parts += [f"{tally.workers} workers"] if tally.workers else []
    parts += [f"{tally.tokens / max(1e-9, seconds):,.0f} tokens/s"]
    if read:
        left = round(seconds / read * (tally.total - tally.done))
        parts.append(f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left")
    return " · ".join(parts)


def _summary(folder: BatchFolder) -> Summary:
    from memagent.batch.records import Summary

    return Summary.of(folder.results)


def _report(output: Path, file: JobFile, summary: Summary, seconds: float, as_json: bool) -> None:
    """Prints what came of it. Ends with exit code 4 if anything failed."""
    if as_json:
        counts = {name: value for name, value in asdict(summary).items() if name != "seconds"}
        times = {"seconds": round(seconds, 3), "reading_seconds": round(summary.seconds, 3)}
        print_json({"results": str(output), "jobs": len(file), "questions": file.questions, **counts, **times})
    else:
        plural = "s"[: len(file) != 1]
        write((f"{summary.answered:,} of {file.questions:,} questions answered", "bold"), f", {len(file):,} job{plural}")
        if summary.not_found:
            write(f"not in the document: {summary.not_found:,}")
        for kind, count in sorted(summary.failures.items()):
            write((f"failed: {count:,} ({kind})", "yellow"))
        used = f"{summary.prompt_tokens:,} in, {summary.completion_tokens:,} out"
        write(f"{summary.tokens:,} tokens of documents; the model: {used}; {seconds:,.1f} s")
        write_models(summary.models)
        write(f"results: {output / 'results.csv'}, with everything: {output / 'results.jsonl'}")
        if summary.failed:
            write("to try what failed again: the same command with --retry-failed")
    sys.stdout.flush()
    if summary.failed:
        raise typer.Exit(MODEL)
