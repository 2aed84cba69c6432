"""Cutting a document with several threads against one, and taking its chunks from the journal.

    python -m benchmarks.cutting [--megabytes 4] [--requests 0.02] [--repeat 5]

The embedded model's tokenizer has a thread for each core. The server is a stand-in with eight: the same tokenizer, each of
whose calls takes `--requests` seconds longer, in which no core is busy. Both arms cut the same text in turns within one
process, and must give the same chunks. The journal has them from an earlier reading, which was cut with several threads.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from memagent import from_text
from memagent.core import Chunks, Tokenizer, chunking
from memagent.cuts import Cuts
from memagent.documents import Document
from memagent.journal import Journal
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import FileTokenizer

BOOK = Path(__file__).resolve().parent.parent / "src/memagent/tasks/data/moby_dick.txt.gz"
_CHUNK = {"embedded": 640, "server": 5000}  # tokens


class Away:
    """A tokenizer behind a network."""

    name, exact, at_once = "away", True, 8

    def __init__(self, tokenizer: Tokenizer, seconds: float) -> None:
        self._tokenizer, self._seconds = tokenizer, seconds

    def count(self, text: str) -> int:
        time.sleep(self._seconds)
        return self._tokenizer.count(text)

    def ends(self, text: str) -> Sequence[int]:
        time.sleep(self._seconds)
        return self._tokenizer.ends(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--requests", type=float, default=0.02, help="seconds that a request to the server takes")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    local = FileTokenizer.load(EMBEDDED)
    book = gzip.decompress(BOOK.read_bytes()).decode()
    size = int(arguments.megabytes * 1e6)
    text = from_text((book * (1 + size // len(book)))[:size])
    print("| tokenizer | chunks | one thread | several | times as fast | from the journal |\n|---|---|---|---|---|---|")
    for name, tokenizer in (("embedded", local), ("server", Away(local, arguments.requests))):
        spent: dict[int, list[float]] = {1: [], 8: []}
        found: set[str] = set()
        count = 0
        for _ in range(arguments.repeat):
            for threads, seconds in spent.items():
                chunking._MOST_THREADS = threads
                began = time.perf_counter()
                chunks = Chunks(chunking.chunk(text, tokenizer, _CHUNK[name]))
                seconds.append(time.perf_counter() - began)
                found.add(chunks.digest())
                count = len(chunks)
        if len(found) > 1:
            raise SystemExit("the arms cut the text into different chunks")
        one, eight, kept = median(spent[1]), median(spent[8]), median(taken(text, tokenizer, name, arguments.repeat))
        print(f"| {name} | {count:,} | {one:.2f} s | {eight:.2f} s | {one / eight:.2f} | {kept:.3f} s |", flush=True)


def taken(text: Document, tokenizer: Tokenizer, name: str, repeat: int) -> list[float]:
    """The seconds in which the chunks of a document come from the journal."""
    seconds = []
    with TemporaryDirectory() as folder, Journal.open(Path(folder) / "journal.sqlite3") as journal:
        first = Cuts(journal, name)
        made = first.cutter(text.digest)(text, tokenizer, _CHUNK[name])
        first.keep(journal.start(question="q", settings={}, document={}, plan_digest=""))
        for _ in range(repeat):
            began = time.perf_counter()
            found = Cuts(journal, name).cutter(text.digest)(text, tokenizer, _CHUNK[name])
            seconds.append(time.perf_counter() - began)
            assert found == made
    return seconds


if __name__ == "__main__":
    main()
