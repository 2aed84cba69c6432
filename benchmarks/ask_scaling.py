"""Time, speed and peak memory of `memagent ask` on the embedded model, as the document grows.

    python benchmarks/ask_scaling.py [--tokens 10000 100000 1000000] [-o FILE.json]

Each length is one real process, `memagent ask … --json`, on Moby-Dick cut or repeated to that many tokens, with the answer
in the middle; a wrong answer ends the benchmark. Peak memory is the kernel's count for that process. R² is that of a
straight line through time and tokens. What every run pays once (starting Python, opening the weights) is measured on a
document of one chunk and reported apart. Ratios are between runs of the same session: the machine's absolute speed varies.
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
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import correlation
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "src/memagent/tasks/data/moby_dick.txt.gz"
QUESTION = "What is the access code for amber-falcon?"
FACT, ANSWER = "The access code for amber-falcon is 52817.", "52817"


def document(tokens: int) -> str:
    """Moby-Dick, repeated and cut to `tokens` tokens of the embedded tokenizer, within one per cent, and the fact."""
    from memagent.embedded import FOLDER as EMBEDDED
    from memagent.models.tokenizers import FileTokenizer

    tokenizer = FileTokenizer.load(EMBEDDED)
    book = gzip.decompress(BOOK.read_bytes()).decode()
    text = book * (1 + 4 * tokens // len(book))
    ends = tokenizer.ends(text[: 4 * tokens])
    middle = text.index("\n", ends[tokens // 2])
    return f"{text[:middle]}\n{FACT}\n{text[middle : ends[tokens - 1]]}"


def write(path: Path, tokens: int) -> None:
    path.write_text(document(tokens))


def measure(path: Path) -> dict[str, Any]:
    """One run: wall seconds, peak resident memory in MB, and what the command says of itself."""
    command = [sys.executable, "-m", "memagent", "ask", str(path), "-q", QUESTION, "--json"]
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, env={**os.environ, "MEMAGENT_HOME": home})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        if status:
            raise SystemExit(f"memagent ask ended with status {status}")
        out.seek(0)
        values = json.load(out)
    if ANSWER not in values["answer"]:
        raise SystemExit(f"memagent ask answered {values['answer']!r}, not {ANSWER}")
    return {
        "tokens": values["document"]["tokens"],
        "turns": values["turns"],
        "wall_seconds": wall,
        "engine_seconds": values["usage"]["seconds"] + values["verification"]["seconds"],
        "peak_mb": usage.ru_maxrss / 1024,
    }


def table(rows: list[dict[str, Any]], start: float) -> str:
    """Markdown: one line per length, times without the start."""
    lines = [
        "| tokens | turns | seconds | tokens/s | outside the engine | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = row["wall_seconds"] - start
        outside = 1 - row["engine_seconds"] / seconds
        lines.append(
            f"| {row['tokens']:,} | {row['turns']:,} | {seconds:.1f} | {row['tokens'] / seconds:,.0f} |"
            f" {outside:.1%} | {row['peak_mb']:.0f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "book.txt"
        rows = []
        for tokens in (300, *arguments.tokens):
            # In a process of its own: the kernel counts the memory of the parent as a child's at its start.
            process = get_context("spawn").Process(target=write, args=(path, tokens))
            process.start()
            process.join()
            # Short runs are mostly start, which varies by a second here: the best of three.
            tries = [measure(path) for _ in range(3 if tokens < 50_000 else 1)]
            rows.append(min(tries, key=lambda row: row["wall_seconds"]))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    small, *rows = rows
    start = small["wall_seconds"] - small["engine_seconds"]
    print(f"start (Python, libraries, weights): {start:.1f} s, taken off below\n\n{table(rows, start)}")
    for before, after in pairwise(rows):
        ratio = (after["wall_seconds"] - start) / (before["wall_seconds"] - start)
        print(f"\n{after['tokens']:,} over {before['tokens']:,} tokens: time × {ratio:.2f}", end="")
        print(f", memory × {after['peak_mb'] / rows[0]['peak_mb']:.2f} of the shortest")
    if len(rows) > 2:
        line = correlation([row["tokens"] for row in rows], [row["wall_seconds"] for row in rows])
        print(f"\nR² of time against tokens: {line**2:.5f}")
    if arguments.output:
        arguments.output.write_text(json.dumps({"start_seconds": start, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
