"""Reading and cutting a large text file: speed, and memory that must not grow with the file.

    python benchmarks/streaming.py [--megabytes 10 100] [--chunk-tokens 640 5000]

Each line is a fresh process that loads a file of that size (Moby-Dick, repeated) and cuts it into chunks with the embedded
model's tokenizer, as `memagent ask` does before its first call. Peak memory is the kernel's count for that process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "src/memagent/tasks/data/moby_dick.txt.gz"


def cut(path: str, limit: int) -> None:
    """The measured process: loads, cuts, prints one JSON line."""
    from memagent.core import Chunks, chunk
    from memagent.documents import load
    from memagent.embedded import FOLDER as EMBEDDED
    from memagent.models.tokenizers import FileTokenizer

    tokenizer = FileTokenizer.load(EMBEDDED)
    began = time.perf_counter()
    document = load([path])
    loaded = time.perf_counter()
    chunks = Chunks(chunk(document, tokenizer, limit))
    done = time.perf_counter()
    print(json.dumps({"chunks": len(chunks), "tokens": chunks.tokens, "load": loaded - began, "cut": done - loaded}))


def measure(path: Path, limit: int) -> dict[str, float]:
    with tempfile.TemporaryFile() as out:
        command = [sys.executable, __file__, "--cut", str(path), "--chunk-tokens", str(limit)]
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"the measured process ended with status {status}")
        out.seek(0)
        return {**json.load(out), "peak": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--chunk-tokens", type=int, nargs="+", default=[640, 5000])
    parser.add_argument("--cut", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cut:
        cut(arguments.cut, arguments.chunk_tokens[0])
        return
    book = gzip.decompress(BOOK.read_bytes())
    print(
        "| file | chunk budget | tokens | chunks | load | cut | tokens/s | peak memory |\n|---|---|---|---|---|---|---|---|"
    )
    for limit in arguments.chunk_tokens:
        for megabytes in arguments.megabytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "large.txt"
                with path.open("wb") as file:
                    for _ in range(megabytes * 1_000_000 // len(book) + 1):
                        file.write(book[: megabytes * 1_000_000 - file.tell()])
                row = measure(path, limit)
            speed = row["tokens"] / (row["load"] + row["cut"])
            print(
                f"| {megabytes} MB | {limit:,} | {row['tokens']:,} | {row['chunks']:,} | {row['load']:.1f} s |"
                f" {row['cut']:.1f} s | {speed:,.0f} | {row['peak']:.0f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
