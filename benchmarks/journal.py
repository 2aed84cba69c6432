"""What keeping a turn costs: milliseconds for a durable append, alone and in lockstep batches, and bytes on disk.

    python benchmarks/journal.py [--turns 300] [--memory 4000]

The ratio to watch is append : bare fsync of as many bytes in the same folder, in the same run; disks here vary tenfold.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from memagent.journal import Journal, TurnEntry
from memagent.journal.values import JSON


def median_ms(work: Callable[[], None], times: int) -> float:
    """Median milliseconds of `times` calls."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent)


def _append(journal: Journal, steps: Iterator[list[tuple[str, TurnEntry]]]) -> None:
    journal.append_many(next(steps))


def entry(number: int, memory: str) -> TurnEntry:
    completion: dict[str, JSON] = {
        "text": memory,
        "finish": "stop",
        "prompt_tokens": 6000,
        "completion_tokens": 900,
        "seconds": 1.0,
    }
    state: dict[str, JSON] = {"turn": number + 1, "chunk": number + 1, "memory": memory, "outcome": "kept", "answer": None}
    return TurnEntry(
        number=number,
        id=f"chunk-{number + 1}",
        kind="update",
        outcome="kept",
        memory=memory,
        completion=completion,
        state=state,
    )


def fsync_ms(folder: Path, size: int, times: int) -> float:
    """Median milliseconds of writing `size` bytes at the end of a file and syncing it."""
    with (folder / "bare").open("ab", buffering=0) as file:

        def write() -> None:
            file.write(b"x" * size)
            os.fdatasync(file.fileno())

        return median_ms(write, times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--memory", type=int, default=4000, help="characters of a memory")
    arguments = parser.parse_args()
    print("| readings in a step | ms a step | bare fsync of as many bytes | ratio | bytes a turn |\n|---|---|---|---|---|")
    for batch in (1, 32):
        with tempfile.TemporaryDirectory() as folder, Journal.open(Path(folder) / "journal.sqlite3") as journal:
            ids = [journal.start(question="?", settings={}, document={}, plan_digest="x") for _ in range(batch)]
            steps = [
                [(id, entry(number, f"{number} ".ljust(arguments.memory))) for id in ids]
                for number in range(arguments.turns)
            ]
            append = median_ms(partial(_append, journal, iter(steps)), arguments.turns)
            bare = fsync_ms(Path(folder), batch * arguments.memory, arguments.turns)
            size = sum(file.stat().st_size for file in Path(folder).glob("journal.sqlite3"))
            turn = size / (batch * arguments.turns)
            print(f"| {batch} | {append:.2f} | {bare:.2f} | {append / bare:.1f} | {turn:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
