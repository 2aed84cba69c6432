"""Short samples of long readings: the chunks at which the memory changed, and those that show a needed fact.

In these readers, a turn sees the question, the memory and its chunk, and nothing else. A turn that leaves the memory as it
was can therefore be left out, and the turns after it see what they saw. What is left of a document of four hundred chunks
is a handful, in which a model that is read greedily goes through the same memories to the same answer. Chunks may end
elsewhere where other text follows them, so that this holds for most readings and not for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from memagent.core.spans import merged
from memagent.core.types import Span, Tokenizer
from memagent.errors import ConfigError, TaskError
from memagent.evaluation.diagnosis import RETRIES
from memagent.evaluation.records import Record, RecordedTurn
from memagent.evaluation.report.findings import score_of
from memagent.evaluation.report.selection import Documents
from memagent.evaluation.runs import Run, check_apart
from memagent.files import atomic_file
from memagent.tasks.files import check_replaceable, sample_line
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Fact, Sample

READERS = ("memory", "gated")  # the memory is all that their turns pass on
_OF_WHOLE = ("target", "depth")  # what a sample says of the length of its document and of places in it


Reason: TypeAlias = Literal["right", "failed", "unplaced", "early", "whole", "long"]

REASONS: Mapping[Reason, str] = {
    "right": "right",
    "failed": "without an answer",
    "unplaced": "of samples that do not say where their facts are",
    "early": "ended before a needed fact",
    "whole": "that would become no shorter",
    "long": "that need more chunks",
}


def write_short(
    runs: Sequence[Path], files: Sequence[Path], output: Path, tokenizer: Tokenizer, *, most: int, right: bool
) -> tuple[int, Counter[Reason]]:
    """Writes a sample file of short samples, of at most `most` chunks each, of the wrong readings of `runs`; with `right`,
    of all their readings. `files` are sample files that have moved. A failure leaves no file.

    Returns how many there are, and why the other readings were left out. Raises ConfigError for a run that is not finished,
    for one whose sample file is not there or is `output`, for a reader whose turns pass on more than the memory, and if
    there is nothing to write.
    """
    check_replaceable(output)
    check_apart(runs)
    written, out = 0, Counter[Reason]()
    documents = Documents(files)
    with atomic_file(output.resolve()) as stream:
        for record, sample in _readings(runs, documents, output):
            short = shorten(record, sample, tokenizer, most=most, right=right)
            if isinstance(short, Sample):
                written += 1
                stream.write(sample_line(replace(short, id=f"{sample.id}-short-{written}"), None) + "\n")
            else:
                out[short] += 1
        documents.check_used()
        if not written:
            raise ConfigError(f"there is nothing to write. Readings left out: {in_words(out)}")
    return written, out


def in_words(out: Counter[Reason]) -> str:
    """Why readings were left out, and how many of them."""
    return ", ".join(f"{out[reason]:,} {words}" for reason, words in REASONS.items() if out[reason]) or "none"


def _readings(runs: Iterable[Path], documents: Documents, output: Path) -> Iterator[tuple[Record, Sample]]:
    for folder in runs:
        run = Run.open(folder)
        if not run.finished:
            raise ConfigError(f"the run in {folder} is not finished: repeat its command to continue it")
        file = documents.of(run)
        if isinstance(file, str):
            raise ConfigError(f"the sample file of the run in {folder} is needed: {file}: name it with --samples")
        if file.path.resolve() == output.resolve():
            raise ConfigError(f"{output} is the sample file of the run in {folder}: choose another name")
        for placed in run.records():
            try:
                yield placed.record, file.load(placed.record.sample)
            except KeyError as error:
                raise TaskError(
                    f"{file.path} has no sample {placed.record.sample!r}, which {folder} has a reading of"
                ) from error


def shorten(record: Record, sample: Sample, tokenizer: Tokenizer, *, most: int, right: bool) -> Sample | Reason:
    """The short sample of a reading, or why there is none.

    Raises ConfigError for a reading with a reader whose turns pass on more than the memory.
    """
    if record.reader not in READERS:
        raise ConfigError(
            f"sample {record.sample} was read with {record.reader!r}: only readings with {' or '.join(READERS)} can be"
            " shortened, where a turn sees nothing of the turns before it but the memory"
        )
    kept = _kept(record)
    facts = tuple(_moved(sample.facts, kept))
    if record.status == "failed":
        return "failed"
    if not right and score_of(record, "own") >= 1:
        return "right"
    if not (sample.scorer == "abstention" or any(fact.needed for fact in sample.facts)):
        return "unplaced"
    if sum(fact.needed for fact in facts) < sum(fact.needed for fact in sample.facts):
        return "early"
    if len(kept) > most:
        return "long"
    if sum(map(len, kept)) >= len(sample.document):
        return "whole"
    document = "".join(sample.document.read(span.start, span.end) for span in kept)
    made_of = {"sample": record.sample, "attempt": record.attempt, "chunks": len(kept), "of": len(_turns(record))}
    return replace(
        sample,
        document=LazyText([document]),
        facts=facts,
        tokens=tokenizer.count(document),
        meta={**{name: value for name, value in sample.meta.items() if name not in _OF_WHOLE}, "shortened": made_of},
    )


def _kept(record: Record) -> list[Span]:
    """The chunks of turns that changed the memory or showed a part of a needed fact, in document order."""
    needed = [fact for fact in record.facts if fact.needed]
    found = {
        span for turn in _turns(record) for span in turn.spans if turn.memory is not None or any(map(turn.shows, needed))
    }
    return sorted(found, key=lambda span: span.start)


def _turns(record: Record) -> list[RecordedTurn]:
    """Those that showed a chunk and counted: the reply to another one was asked for again."""
    return [turn for turn in record.turns if turn.spans and turn.outcome not in RETRIES]


def _moved(facts: Sequence[Fact], kept: Sequence[Span]) -> Iterator[Fact]:
    """The facts that are whole in the short document, at their places there."""
    at = 0
    for span in merged(kept):
        for fact in facts:
            if span.start <= fact.start and fact.end <= span.end:
                start = at + fact.start - span.start
                yield replace(fact, start=start, end=start + fact.end - fact.start)
        at += len(span)
