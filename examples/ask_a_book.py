"""The main job: plants three facts in Moby-Dick and has the embedded model read the whole book for them. Offline.

    python examples/ask_a_book.py        (or: make ask)

The embedded model is small, trained by us from random weights, and answers only questions of this kind; see its model card.
"""

from __future__ import annotations

import gzip
import shlex
import subprocess
import sys
from pathlib import Path

from memagent.tasks.needle import plant

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "data/books/moby_dick.txt.gz"
PLANTED = ROOT / "build/moby-dick-with-three-facts.txt"
FACTS = (  # relative depth, key, value, sentence
    (0.12, "amber-falcon", "4821973", "The access code for amber-falcon is 4821973."),
    (0.55, "quiet-harbor", "7305418", "One of the special magic numbers for quiet-harbor is: 7305418."),
    (0.91, "velvet-compass", "2690147", "The serial number of velvet-compass is 2690147."),
)
QUESTIONS = (
    "What is the access code for amber-falcon?",
    "What is the special magic number for quiet-harbor?",
    "What is the serial number of velvet-compass?",
)


def main() -> int:
    book = gzip.decompress(BOOK.read_bytes()).decode("utf-8")
    text, facts = plant(book, [(sentence, key, value) for _, key, value, sentence in FACTS], [fact[0] for fact in FACTS])
    PLANTED.parent.mkdir(exist_ok=True)
    PLANTED.write_text(text, encoding="utf-8", newline="")
    print(f"Moby-Dick, {len(text):,} characters, with three facts planted by this script:")
    for fact in facts:
        line = text.count("\n", 0, fact.start) + 1
        print(f"  line {line:,}, offset {fact.start:,} ({fact.start / len(text):.0%}): {fact.text}")
    asked = [part for question in QUESTIONS for part in ("-q", question)]
    command = ["memagent", "ask", str(PLANTED.relative_to(ROOT)), *asked]
    print(f"\n$ {shlex.join(command)}\n", flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
