"""Cutting a document: against tokenizing it twice, with several threads against one, and taking chunks from the journal.

    python -m benchmarks.cutting [--megabytes 4] [--requests 0.02] [--repeat 5]

The embedded model's tokenizer has a thread for each core. `twice` has one, counts every chunk whole, and asks the library
for the places of all tokens. The server is a stand-in with eight threads: the same tokenizer, each of whose calls takes
`--requests` seconds longer, in which no core is busy. All arms cut the same text in turns within one process, and must give
the same chunks; in brackets stand their seconds over those of one thread. The journal has the chunks from an earlier
reading, which was cut with several threads.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer as RawTokenizer

from memagent import from_text
from memagent.core import Chunks, Tokenizer, chunking
from memagent.cuts import Cuts
from memagent.documents import Document
from memagent.embedded import FOLDER as EMBEDDED
from memagent.journal import Journal
from memagent.models.tokenizers import FileTokenizer

BOOK = Path(__file__).resolve().parent.parent / "src/memagent/tasks/data/moby_dick.txt.gz"
_CHUNK = {"embedded": 640, "server": 5000}  # tokens


class Twice:
    """A tokenizer that is only asked for what every tokenizer can say."""

    name, exact = "twice", True

    def __init__(self, tokenizer: FileTokenizer) -> None:
        self.count = tokenizer.count
        self._raw = RawTokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
        self._raw.encode_special_tokens = True

    def ends(self, text: str) -> Sequence[int]:
        [encoding] = self._raw.encode_batch([text], add_special_tokens=False)
        return [end for _, end in encoding.offsets]


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
    if arguments.repeat < 1 or arguments.megabytes <= 0:
        parser.error("--repeat and --megabytes must be above 0")
    local = FileTokenizer.load(EMBEDDED)
    book = gzip.decompress(BOOK.read_bytes()).decode()
    size = int(arguments.megabytes * 1e6)
    text = from_text((book * (1 + size // len(book)))[:size])
    print("| tokenizer | chunks | twice | one thread | several | from the journal |\n|---|---|---|---|---|---|")
    away = Away(local, arguments.requests)
    stands: dict[str, dict[str, tuple[Tokenizer, int]]] = {
        "embedded": {"twice": (Twice(local), 1), "one": (local, 1), "several": (local, 8)},
        "server": {"one": (away, 1), "several": (away, 8)},
    }
    for name, arms in stands.items():
        spent: dict[str, list[float]] = {arm: [] for arm in arms}
        found: dict[str, Chunks] = {}
        for _ in range(arguments.repeat):
            for arm, (tokenizer, threads) in arms.items():
                chunking._MOST_THREADS = threads
                began = time.perf_counter()
                found[arm] = Chunks(chunking.chunk(text, tokenizer, _CHUNK[name]))
                spent[arm].append(time.perf_counter() - began)
        if any(chunks != found["one"] for chunks in found.values()):
            raise SystemExit("the arms cut the text into different chunks")
        one = median(spent["one"])
        others = {arm: f"{median(spent[arm]):.2f} s ({median(spent[arm]) / one:.2f})" for arm in spent if arm != "one"}
        kept = median(taken(text, arms["several"][0], name, arguments.repeat))
        print(
            f"| {name} | {len(found['one']):,} | {others.get('twice', '')} | {one:.2f} s | {others['several']} |"
            f" {kept:.3f} s |",
            flush=True,
        )


def taken(text: Document, tokenizer: Tokenizer, name: str, repeat: int) -> list[float]:
    """The seconds in which the chunks of a document come from the journal."""
    seconds = []
    with TemporaryDirectory() as folder, Journal.open(Path(folder) / "journal.sqlite3") as journal:
        first = Cuts(journal, name)
        made = first.cutter(text.digest)(text, tokenizer, _CHUNK[name])
        with first.kept(text.digest) as cuts:
            journal.start(question="q", settings={}, document={}, plan_digest="", cuts=cuts)
        for _ in range(repeat):
            began = time.perf_counter()
            found = Cuts(journal, name).cutter(text.digest)(text, tokenizer, _CHUNK[name])
            seconds.append(time.perf_counter() - began)
            assert found == made
    return seconds


if __name__ == "__main__":
    main()
