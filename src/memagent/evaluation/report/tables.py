"""The tables of a report as Markdown, for a page of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from memagent.evaluation.diagnosis import VERDICTS
from memagent.evaluation.report.findings import Findings
from memagent.evaluation.report.numbers import number, percent, percents, r2, signed, signed_interval, tokens
from memagent.evaluation.statistics import Line
from memagent.evaluation.summary import Cell, Summary
from memagent.evaluation.tally import STEPS
from memagent.harmful import clean

MARK = "<!-- memagent report -->"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")


def markdown(findings: Findings, title: str) -> str:
    """A page that begins with `MARK`."""
    parts = (_runs, _accuracy, _differences, _growth, _diagnoses, _wrong)
    lines = [MARK, "", f"# {escaped(title)}", ""]
    for part in parts:
        lines += part(findings)
    return "\n".join(lines).rstrip() + "\n"


def _runs(findings: Findings) -> Iterator[str]:
    heads = ("system", "run", "model", "samples", "attempts", "state")
    rows = []
    for part in findings.parts:
        header = part.run.header
        samples = header.get("samples", {})
        which = f"{samples.get('count')} of sha256 {str(samples.get('sha256'))[:12]}"
        row = (part.system, part.run.folder.name, ", ".join(part.models), which, header.get("attempts"), part.state)
        rows.append([escaped(str(value)) for value in row])
    yield from table_lines(heads, rows)


def _accuracy(findings: Findings) -> Iterator[str]:
    summary = findings.summary
    yield f"Accuracy in per cent, scorer `{findings.scorer}` (95 % Wilson interval; samples). Failed readings count as 0."
    yield ""
    heads = ["task", "system", *_lengths(summary)]
    rows = [
        [escaped(task), escaped(one), *(_cell(summary.cells.get((task, length, one))) for length in summary.lengths)]
        for task in summary.tasks
        for one in summary.systems
    ]
    if len(summary.tasks) > 1:
        for one in summary.systems:
            means = (summary.means.get((length, one)) for length in summary.lengths)
            cells = [f"{percent(mean[0])} ({_tasks(mean[1])})" if mean else "" for mean in means]
            rows.append(["**mean over tasks**", escaped(one), *cells])
    yield from table_lines(heads, rows)
    if len(summary.tasks) > 1 and summary.partly_compared:
        yield "Means are over the tasks that all systems with readings of a length have read. If tasks are missing:"
        yield ""
        for length, tasks in summary.partly_compared.items():
            named = ", ".join(map(escaped, tasks)) if tasks else "none that all have read"
            yield f"- {_length(length, summary)}: {named}"
        yield ""


def _tasks(count: int) -> str:
    return f"{count} task{'s' if count != 1 else ''}"


def _lengths(summary: Summary) -> list[str]:
    return [_length(length, summary) for length in summary.lengths]


def _length(length: int, summary: Summary) -> str:
    return f"{tokens(length, length in summary.ranges)}{' tokens' if length else ''}"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    failed = "; too long" if cell.too_long else f"; {cell.failed} failed" if cell.failed else ""
    return f"{percent(cell.mean)} ({percents(cell.interval)}; {cell.samples:,}{failed})"


def _differences(findings: Findings) -> Iterator[str]:
    summary = findings.summary
    if not summary.differences:
        return
    first = escaped(summary.systems[0])
    yield f"Difference to *{first}* in points, over common samples (95 % bootstrap interval; samples)."
    yield ""
    rows = []
    for task in summary.tasks:
        for one in summary.systems[1:]:
            found = [summary.differences.get((task, length, one)) for length in summary.lengths]
            if any(found):
                cells = [f"{signed(d.mean)} ({signed_interval(d.interval)}; {d.n:,})" if d else "" for d in found]
                rows.append([escaped(task), escaped(one), *cells])
    yield from table_lines(["task", "system", *_lengths(summary)], rows)


def _growth(findings: Findings) -> Iterator[str]:
    yield (
        "Growth with the length of the document (least squares over readings that ended with an answer)."
        " Readings of one batch share its time."
    )
    yield ""
    heads = (
        "system",
        "seconds per million tokens",
        "R²",
        "tokens in and out per document token",
        "R²",
        "readings",
        "distinct times",
    )
    rows = []
    for one in findings.systems:
        growth = findings.summary.growth[one]
        seconds, through = _line(growth.seconds, 1e6), _line(growth.tokens, 1)
        counts = (f"{growth.seconds.n:,}", f"{growth.times:,}") if growth.seconds else ("", "")
        rows.append([escaped(one), *seconds, *through, *counts])
    yield from table_lines(heads, rows)


def _line(line: Line | None, unit: float) -> tuple[str, str]:
    return ("", "") if line is None else (number(line.slope * unit), r2(line.r2))


def _diagnoses(findings: Findings) -> Iterator[str]:
    yield f"Needed facts through the reading. Retention is per memory update; after {STEPS} updates it is extrapolated."
    yield ""
    heads = (
        f"system|facts|shown whole, %|missed|cut|drifted|retention per step, %|of steps|after {STEPS} updates, %"
        "|overflow|memory full|empty|unchanged|filler, %"
    )
    rows = []
    for one in findings.systems:
        tally = findings.tallies[one]
        kept = tally.retention
        step = f"{percent(kept.p, 2)} ({percent(kept.interval.low, 2)}–{percent(kept.interval.high, 2)})" if kept else ""
        rows.append(
            [
                escaped(one),
                *(f"{tally.facts:,}", percent(tally.coverage), str(tally.missed), str(tally.cut), str(tally.drifted)),
                *(step, f"{kept.steps:,}" if kept else ""),
                f"{percent(kept.far)} ({percents(kept.far_interval)})" if kept else "",
                *(str(tally.overflow), str(tally.full), str(tally.empty), str(tally.unchanged)),
                percent(tally.filler),
            ]
        )
    yield from table_lines(heads.split("|"), rows)


def _wrong(findings: Findings) -> Iterator[str]:
    yield "Answers that are not fully right, by the earliest stage that lost a needed fact."
    yield ""
    rows = []
    for one in findings.systems:
        wrong = findings.tallies[one].wrong
        rows.append([escaped(one), *(str(wrong[verdict]) for verdict in VERDICTS), str(wrong.total())])
    yield from table_lines(["system", *VERDICTS.values(), "total"], rows)


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def escaped(text: str) -> str:
    """External text on one line, with Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
