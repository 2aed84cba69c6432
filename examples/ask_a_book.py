"""The main job: plants three facts in Moby-Dick and has the embedded model read the whole book for them. Offline.

    python examples/ask_a_book.py        (or: make ask)

One question needs one of the facts, the next one two, and the answer to the last one is not in the book. The embedded model
is small, trained by us from random weights, and answers only questions of such kinds; see its model card.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from memagent.core.types import Span
from memagent.tasks.fitting import Planned, plant
from memagent.tasks.haystack import Haystack

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "build/moby-dick-with-three-facts.txt"
FACTS = (  # relative depth, sentence
    (0.12, "The Winter Orchard was written by Mara Holt."),
    (0.55, "Anyone who wants to reach Owen Pell should dial 0171 555 264."),
    (0.91, "Mara Holt was born in Calderwick."),
)
QUESTIONS = (
    "How can I reach Owen Pell by phone?",
    "What is the birthplace of the author of The Winter Orchard?",
    "What does Owen Pell do for a living?",
)


def main() -> int:
    book = Haystack.shipped()
    whole = [Span(start=0, end=len(book.text))]
    document, facts = plant(book, whole, [Planned(text=text) for _, text in FACTS], [depth for depth, _ in FACTS])
    text = str(document)
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
