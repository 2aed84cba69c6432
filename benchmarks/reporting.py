"""Time of scoring and reporting 10,000 readings of 30 turns, part by part, against reading the same file as plain JSON.

    python benchmarks/reporting.py [--records 10000] [--turns 30]

The records are made up: two readers, ten tasks, five lengths, a memory of some 600 characters that changes in every turn.
The last line is the real command in a process of its own. Ratios are to json.loads of the same lines in the same run: the
machine's absolute speed varies.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent.core import Span
from memagent.evaluation.diagnosis import diagnose
from memagent.evaluation.records import Record, RecordedTurn
from memagent.evaluation.report import gather, html_page, markdown
from memagent.evaluation.report.charts import accuracy_charts, cost_charts
from memagent.evaluation.report.write import views
from memagent.evaluation.runs import Run
from memagent.evaluation.summary import row_of, summarize
from memagent.evaluation.tally import Tally
from memagent.scoring import scores
from memagent.tasks.samples import Fact

READERS = ("memory", "append")
TASKS = tuple(f"task_{number}" for number in range(10))
LENGTHS = (1024, 4096, 16384, 65536, 131072)
WORDS = "the sea was grey and the ship went on under a low sky while old men told stories of whales nobody had seen".split()


def made_up(reader: str, index: int, turns: int) -> Record:
    """A reading of a document with two needed facts; about four of five keep them to the end."""
    rng = random.Random(f"{reader}/{index}")
    tokens = LENGTHS[index // len(TASKS) % len(LENGTHS)]
    size = 4 * tokens
    facts = []
    for place in sorted(rng.sample(range(size - 60), 2)):
        value = str(rng.randrange(10**6, 10**7))
        facts.append(Fact(text=f"The code for amber-{place} is {value}.", start=place, end=place + 40, value=value))
    borders = [size * number // turns for number in range(turns + 1)]
    dropped = rng.randrange(turns) if rng.random() < 0.2 else turns
    made = []
    for number in range(turns):
        kept = [fact.text for fact in facts if fact.start < borders[number + 1] and number < dropped]
        notes = "\n".join(" ".join(rng.choices(WORDS, k=11)) + "." for _ in range(9))
        made.append(
            RecordedTurn(
                number=number,
                kind="update",
                spans=(Span(start=borders[number], end=borders[number + 1]),),
                outcome="kept",
                memory="\n".join([*kept, notes]),
                prompt_tokens=900,
                completion_tokens=160,
                seconds=0.02,
            )
        )
    made.append(RecordedTurn(number=turns, kind="answer", spans=(), outcome="answered", memory=None, seconds=0.01))
    accepted = tuple(fact.value for fact in facts)
    answer = ", ".join(accepted) if dropped == turns else "1234567"
    return Record(
        sample=f"s-{index}",
        attempt=0,
        task=TASKS[index % len(TASKS)],
        reader=reader,
        question="What are the codes?",
        answers=accepted,
        mode="all",
        tokens=tokens - 3,
        characters=size,
        facts=tuple(facts),
        meta={"target": tokens, "depth": facts[0].start / size},
        status="answered",
        answer=answer,
        scores=scores(answer, accepted, "all"),
        turns=tuple(made),
        seconds=0.02 * turns,
    )


def write_runs(root: Path, records: int, turns: int) -> list[Path]:
    folders = []
    for reader in READERS:
        folder = root / reader
        folder.mkdir()
        count = records // len(READERS)
        header = {"schema": "memagent.run", "version": 1, "reader": reader, "model": "made up", "attempts": 1}
        header |= {"samples": {"path": "none", "sha256": "none", "count": count}, "finished": "now"}
        (folder / "run.json").write_text(json.dumps(header))
        with (folder / "records.jsonl").open("w") as file:
            file.writelines(json.dumps(made_up(reader, index, turns).to_json()) + "\n" for index in range(count))
        folders.append(folder)
    return folders


def measure(folders: list[Path]) -> Iterator[tuple[str, float]]:
    """(part, seconds). Parts that the report does in one pass are done one after the other here, to tell them apart."""
    began = time.perf_counter()

    def lap() -> float:
        nonlocal began
        now = time.perf_counter()
        taken, began = now - began, now
        return taken

    for folder in folders:
        with (folder / "records.jsonl").open("rb") as lines:
            for line in lines:
                json.loads(line)
    yield "plain json.loads of every line", lap()
    for folder in folders:
        for _ in Run.open(folder).records():
            pass
    yield "loading records", lap()
    kept: list[tuple[Record, str]] = [(one.record, folder.name) for folder in folders for one in Run.open(folder).records()]
    lap()
    for record, _ in kept:
        scores(record.answer, record.answers, record.mode)
    yield "scoring with all six scorers", lap()
    tally = Tally()
    for record, _ in kept:
        tally.add(diagnose(record), record.scores["strict"])
    yield "diagnosis", lap()
    rows = [row_of(record, name, record.scores["strict"]) for record, name in kept]
    del kept
    summary = summarize(rows, READERS)
    yield "summary, with 50 paired bootstraps", lap()
    accuracy_charts(summary)
    cost_charts(summary)
    yield "charts", lap()
    findings = gather(folders)
    yield "loading, diagnosis and summary in one pass, as the report does", lap()
    shown = views(findings, 10, (), ())
    yield "ten single readings", lap()
    html_page(findings, "Benchmark", shown)
    markdown(findings, "Benchmark")
    yield "HTML with charts, and Markdown", lap()


def command(folders: list[Path], root: Path) -> dict[str, Any]:
    """`memagent report` from start to end: wall seconds and peak memory."""
    line = [sys.executable, "-m", "memagent", "report", *map(str, folders), "-o", str(root / "report.html")]
    began = time.perf_counter()
    process = subprocess.Popen([*line, "--markdown", str(root / "report.md")], stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"memagent report ended with status {status}")
    size = (root / "report.html").stat().st_size
    return {"seconds": time.perf_counter() - began, "peak_mb": usage.ru_maxrss / 1024, "html_kb": size / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = write_runs(root, options.records, options.turns)
        size = sum((one / "records.jsonl").stat().st_size for one in folders) / 1e6
        print(f"{options.records:,} readings of {options.turns} turns, {size:,.0f} MB of records\n")
        print("| part | seconds | × json.loads |\n|---|---|---|")
        done = command(folders, root)  # first: its peak memory would begin at ours
        plain = 0.0
        for part, seconds in measure(folders):
            plain = plain or seconds
            print(f"| {part} | {seconds:.2f} | {seconds / plain:.1f} |", flush=True)
        print(f"| **the command, from start to end** | **{done['seconds']:.2f}** | {done['seconds'] / plain:.1f} |")
        print(f"\npeak memory of the command {done['peak_mb']:.0f} MB; report.html {done['html_kb']:.0f} KB")


if __name__ == "__main__":
    main()
