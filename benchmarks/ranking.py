"""What it takes to search a document: time and memory of the BM25 index against the document's length.

    python -m benchmarks.ranking [COPIES …]

The document is *War and Peace*, so many times over (1, 15 and 60 unless given), in passages of 15,000 characters. "From
disk" is the time until a query is answered by an index that another process has stored, which takes that much disk.
"""

from __future__ import annotations

import gc
import gzip
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import bm25s.tokenization  # its import is not part of what is measured
import psutil

from memagent import from_text
from memagent.core import Span
from memagent.ranking import index

BOOK = Path(__file__).resolve().parent.parent / "data" / "books" / "war_and_peace.md.gz"
PASSAGE = 15_000
assert bm25s.tokenization


def measure(text: str, copies: int) -> str:
    """A line of the table."""
    document = from_text(text * copies)
    size, process = len(document), psutil.Process()
    spans = [Span(start=start, end=min(start + PASSAGE, size)) for start in range(0, size, PASSAGE)]
    before, most, over = process.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    rank = index(document, spans)
    built = time.perf_counter()
    rank("Where did Pierre meet the officer?")
    asked = time.perf_counter()
    over.set()
    watcher.join()
    gc.collect()
    kept = process.memory_info().rss - before
    words = len(text.split()) * copies / 1e6
    with TemporaryDirectory() as folder:
        stored = Path(folder) / "index"
        index(document, spans, stored)
        disk = sum(path.stat().st_size for path in stored.iterdir())
        again = time.perf_counter()
        index(document, spans, stored)("Where did Pierre meet the officer?")
        loaded = time.perf_counter() - again
    return (
        f"| {size / 1e6:.0f} MB | {words:.1f} M | {built - began:.1f} s | {asked - built:.2f} s | {loaded:.2f} s"
        f" | {most / 1e6:.0f} MB | {max(0, kept) / 1e6:.0f} MB | {disk / 1e6:.0f} MB |"
    )


def main(arguments: list[str]) -> None:
    with gzip.open(BOOK, "rt", encoding="utf-8") as file:
        text = file.read()
    print(
        "| document | words | to build | a query | from disk | memory at most | memory kept | disk |\n" + "|---" * 8 + "|"
    )
    for copies in [int(one) for one in arguments] or [1, 15, 60]:
        print(measure(text, copies), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
