"""Short samples of long readings: the chunks at which the memory changed, and those that show a needed fact.

In these readers, a turn sees the question, the memory and its chunk, and nothing else. A turn that leaves the memory as it
was can therefore be left out, and the turns after it see what they saw. What is left of a document of four hundred chunks
is a handful, in which a model that is read greedily goes through the same memories to the same answer. Chunks may end
elsewhere where other text follows them, so that this holds for most readings and not for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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


@dataclass(slots=True)
class Shortened:
    """What became of the readings: each is counted once.

    `written` have a short sample, `right` were not asked for, `failed` have no answer, the samples of `unplaced` do not say
    where the facts are that their answer needs, `early` ended before one of these, `whole` would be no shorter, and `long`
    need more chunks than allowed.
    """

    written: int = 0
    right: int = 0
    failed: int = 0
    unplaced: int = 0
    early: int = 0
    whole: int = 0
    long: int = 0

    def left_out(self) -> str:
        """The readings without a short sample, in words."""
        reasons = {
            "right": self.right,
            "without an answer": self.failed,
            "of samples that do not say where their facts are": self.unplaced,
            "ended before a needed fact": self.early,
            "that would become no shorter": self.whole,
            "that need more chunks": self.long,
        }
        return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count) or "none"


def write_short(
    runs: Sequence[Path], files: Sequence[Path], output: Path, tokenizer: Tokenizer, *, most: int, right: bool
) -> Shortened:
    """Writes a sample file of short samples, of at most `most` chunks each, of the wrong readings of `runs`; with `right`,
    of all their readings. `files` are sample files that have moved. A failure leaves no file.

    Raises ConfigError for a run that is not finished, for one whose sample file is not there or is `output`, for a reader
    whose turns pass on more than the memory, and if there is nothing to write.
    """
    check_replaceable(output)
    check_apart(runs)
    counts = Shortened()
    documents = Documents(files)
    with atomic_file(output.resolve()) as stream:
        for record, sample in _readings(runs, documents, output):
            if (short := shorten(record, sample, counts, tokenizer, most=most, right=right)) is not None:
                stream.write(sample_line(replace(short, id=f"{short.id}-{counts.written}"), None) + "\n")
        documents.check_used()
        if not counts.written:
            raise ConfigError(f"there is nothing to write. Readings left out: {counts.left_out()}")
    return counts


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


def shorten(
    record: Record, sample: Sample, counts: Shortened, tokenizer: Tokenizer, *, most: int, right: bool
) -> Sample | None:
    """The short sample of a reading, or None; what became of it is added to `counts`.

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
        counts.failed += 1
    elif not right and score_of(record, "own") >= 1:
        counts.right += 1
    elif not (sample.scorer == "abstention" or any(fact.needed for fact in sample.facts)):
        counts.unplaced += 1
    elif sum(fact.needed for fact in facts) < sum(fact.needed for fact in sample.facts):
        counts.early += 1
    elif len(kept) > most:
        counts.long += 1
    elif sum(map(len, kept)) >= len(sample.document):
        counts.whole += 1
    else:
        counts.written += 1
        return _short(record, sample, kept, facts, tokenizer)
    return None


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


def _short(record: Record, sample: Sample, kept: Sequence[Span], facts: tuple[Fact, ...], tokenizer: Tokenizer) -> Sample:
    document = "".join(sample.document.read(span.start, span.end) for span in kept)
    made_of = {"sample": record.sample, "attempt": record.attempt, "chunks": len(kept), "of": len(_turns(record))}
    return replace(
        sample,
        id=f"{record.sample}-short",
        document=LazyText([document]),
        facts=facts,
        tokens=tokenizer.count(document),
        meta={**{name: value for name, value in sample.meta.items() if name not in _OF_WHOLE}, "shortened": made_of},
    )


def _moved(facts: Sequence[Fact], kept: Sequence[Span]) -> Iterator[Fact]:
    """The facts that are whole in the short document, at their places there."""
    at = 0
    for span in merged(kept):
        for fact in facts:
            if span.start <= fact.start and fact.end <= span.end:
                start = at + fact.start - span.start
                yield replace(fact, start=start, end=start + fact.end - fact.start)
        at += len(span)
