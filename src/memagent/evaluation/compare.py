"""Several readers of one model over the same samples: how often each is right, and what its readings cost.

A failed reading is a wrong one. Which reader suits a model is decided by right answers first, and by time among those that
are as good: with few samples, one answer more or less says nothing, and nor does a little time. Times at different
addresses of a served model are not compared: they would tell of the servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memagent.driver import read_batch
from memagent.errors import ConfigError, ModelUnavailableError
from memagent.evaluation.folder import RunFolder
from memagent.evaluation.records import Record
from memagent.evaluation.runner import TRANSIENT, Evaluation, Tally, Watcher, evaluate
from memagent.evaluation.runs import Run, read_header
from memagent.evaluation.summary import Cell, Row, cell_of, row_of
from memagent.models.open import OpenModel, open_tokenizer
from memagent.settings import Settings, make_plan
from memagent.tasks.files import SampleFile
from memagent.tasks.synthesis import Recipe, write_samples

# What made-up questions ask for, by the name of their file: one fact, one that the document does not hold, and one that
# leads to another. Facts are worded as the embedded model has never seen them.
_ASKED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "one-fact": ("facts", {"wordings": "eval"}),
    "not-there": ("facts", {"wordings": "eval", "absent": True}),
    "two-facts": ("multihop", {"hops": 2}),
}
# A reader that is right less often than this does not suit a model.
_LEAST = 0.5
# Answers that a reader may have less than the best and be as good: one, and no more than this share of all.
_NEAR = 0.1
# Readings that failed so are made again.
_AGAIN = (*TRANSIENT, "empty")
# A reader must be so many times as fast to be preferred to one that was named before it.
_FASTER = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What one reader made of all samples (`whole`), and of each part of them: a file, or a task of a file with several.
    `models` are the readings by the identity of their model: several, if its server moved.

    `seconds` of a cell are from the start of a reading to its answer, beside those that run at the same time.
    """

    reader: str
    whole: Cell
    parts: Mapping[str, Cell]
    models: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        parts = {name: {"right": cell.right, "readings": cell.readings} for name, cell in self.parts.items()}
        whole = self.whole
        return {
            "reader": self.reader,
            "right": whole.right,
            "readings": whole.readings,
            **asdict(whole.interval),
            "parts": parts,
            "failures": dict(whole.failures),
            "calls": whole.turns,
            "prompt_tokens": whole.prompt_tokens,
            "completion_tokens": whole.completion_tokens,
            "seconds": whole.seconds,
            "models": dict(self.models),
        }


def made_up(folder: Path, tokens: int, samples: int) -> list[SampleFile]:
    """Files of made-up questions about documents of `tokens` tokens (of the embedded model), `samples` of each kind.

    They are written to `folder`, or found there. Raises ConfigError if others are there.
    """
    files: list[SampleFile] = []
    for name, (task, options) in _ASKED.items():
        recipe = Recipe(
            tasks=(task,),
            tokens=(tokens,),
            samples=samples,
            tokenizer=partial(open_tokenizer, "embedded"),
            options=options,
            shared=False,
        )
        path = folder / f"{name}.jsonl"
        if not path.exists():
            write_samples(recipe, path)
        elif path.read_bytes() != _written(recipe):
            raise ConfigError(
                f"{path} has other questions than {samples} about {tokens:,} tokens: give the numbers that they were made"
                " with (--samples, --tokens), or another folder"
            )
        files.append(SampleFile.open(path))
    return files


def _written(recipe: Recipe) -> bytes:
    with TemporaryDirectory() as passing:
        path = Path(passing) / "samples.jsonl"
        write_samples(recipe, path)
        return path.read_bytes()


def warm_up(samples: SampleFile, opened: OpenModel, settings: Settings) -> None:
    """Reads a sample for nothing: the first reading of a model in this process takes longer than others."""
    first = samples.load(samples.entries[0].id)
    try:
        plan = make_plan(first.document, first.question, settings, opened)
    except ConfigError:
        return  # too long for this reader
    read_batch([plan], opened.engine, keep=False)


def read_all(
    files: Sequence[SampleFile],
    opened: OpenModel,
    settings: Settings,
    out: Path,
    *,
    batch: int,
    concurrency: int,
    watcher: Watcher | None = None,
) -> Compared:
    """Reads all samples with the reader of the settings.

    The runs stay in `out`, in a folder for each file; those that are there are continued, and readings that failed because
    of the server are made again. Raises as `evaluate`, and ModelUnavailableError if all readings failed for that reason.
    """
    parts: dict[str, list[Row]] = {}
    errors: list[Record] = []
    models = Counter[str]()
    before = Tally(total=sum(len(samples) for samples in files))
    for samples in files:
        evaluation = Evaluation(samples=samples, opened=opened, settings=settings, batch=batch, concurrency=concurrency)
        run, file = out / samples.path.stem, samples.path.stem
        with RunFolder.open(run, evaluation.config(), again=_AGAIN) as folder:
            before = before.plus(evaluate(evaluation, folder, _onward(watcher, before)))
        several = len({entry.task for entry in samples.entries}) > 1
        read = Run.open(run)
        for placed in read.records():
            if made_by := read.model_of(placed.record):
                models[made_by] += 1
            part = f"{file}: {placed.record.task}" if several else file
            parts.setdefault(part, []).append(_row(placed.record, settings.reader, part))
            errors += [placed.record] if placed.record.error_kind in ("unavailable", "refused") else []
    rows = [row for part in parts.values() for row in part]
    if rows and len(errors) == len(rows):
        raise ModelUnavailableError(f"every reading failed, the last with: {errors[-1].error}")
    cells = {part: cell_of((part, 0, settings.reader), of_part) for part, of_part in sorted(parts.items())}
    return Compared(reader=settings.reader, whole=cell_of(("", 0, settings.reader), rows), parts=cells, models=models)


def begun_at(files: Sequence[SampleFile], readers: Iterable[str], out: Path) -> str | None:
    """The identity of the model with which the comparison in `out` was begun; None if nothing was begun, or is left."""
    runs = [out / reader / samples.path.stem for reader in readers for samples in files]
    begun = {run: read_header(run) for run in runs if (run / "run.json").exists()}
    left = len(begun) < len(runs) or any(not header.get("finished") or _repeats(run) for run, header in begun.items())
    first = min(begun.values(), key=lambda header: str(header.get("started")), default=None)
    return str(first.get("model")) if first is not None and left else None


def _repeats(run: Path) -> bool:
    return any(placed.record.error_kind in _AGAIN for placed in Run.open(run).records())


def _onward(watcher: Watcher | None, before: Tally) -> Watcher | None:
    """A watcher of one run that tells another of all runs."""
    return None if watcher is None else lambda tally: watcher(before.plus(tally))


def _row(record: Record, reader: str, part: str) -> Row:
    """The row of a record, by its sample's own scorer; otherwise its answer has to contain an accepted one.

    The same sample in two parts is two samples.
    """
    row = row_of(record, reader, record.scores[record.scorer or "contains"])
    return replace(row, sample=f"{part}\0{row.sample}", seconds=record.wall)


def at_one_address(*compared: Compared) -> bool:
    """Whether the model was at one address in all readings, so that their times can be compared."""
    return len({model for one in compared for model in one.models}) <= 1


def suited(found: Sequence[Compared]) -> Compared | None:
    """The first of those that are as right as the best, or one behind it that is clearly faster at the same address.

    None if no reader is right often enough.
    """
    good = [one for one in found if one.whole.seconds is not None and one.whole.mean >= _LEAST]
    most = max((one.whole.mean for one in good), default=0.0)
    chosen: Compared | None = None
    for one in good:
        near = most - one.whole.mean <= min(1 / one.whole.readings, _NEAR) + 1e-9
        if near and (chosen is None or (at_one_address(chosen, one) and _faster(one, chosen))):
            chosen = one
    return chosen


def _faster(one: Compared, other: Compared) -> bool:
    return _FASTER * (one.whole.seconds or 0.0) < (other.whole.seconds or 0.0)
