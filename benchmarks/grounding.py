"""Facts in real documents of every format: are the answers right, the quotes exact, and is what is absent said to be?

    python -m benchmarks.grounding OUT.csv TEXTS [--format NAME …] [--documents N] [--facts N] [--absent N]
        [--model FOLDER] [--seed N]

TEXTS is a JSONL file (or .gz) of objects with a `text`, such as contracts, or with `pages`, such as filings. Each
document is cut to between 20,000 and 60,000 characters, facts are planted between its sentences, and it is written as
txt, md, html, pdf, docx or epub. A question is asked for each fact, and for `--absent` facts that are not there.
OUT.csv has a row for each format: `right` is the share of right answers to what is there; a quote is `exact` if the
document says `cited_text` at its offsets, and `true` if that sentence states the fact; `said_absent` are the questions
whose status is not_found, of which `rightly` are absent. Precision and recall of abstention follow as rightly /
said_absent and rightly / absent.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import json
import random
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import docx
from matplotlib import rc_context
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

import memagent
from memagent.tasks.haystack import sentence_borders
from memagent.tasks.keys import distinct_keys, distinct_values
from memagent.tasks.wording import NOUNS, STATEMENTS, ask, state
from memagent.tasks.words import shipped_words
from tests.documents.document_samples import write_epub

COLUMNS = "format documents questions right quotes exact true wrong_offsets absent said_absent rightly".split()
_LENGTHS = (20_000, 60_000)
_LINES, _COLUMNS = 54, 92  # of a PDF's page


def texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            text = record.get("text") or "\n\n".join(record["pages"])
            if len(text) >= _LENGTHS[0]:
                yield text


def as_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


def as_html(path: Path, text: str) -> None:
    body = "\n".join(f"<p>{html.escape(part)}</p>" for part in text.split("\n") if part.strip())
    path.write_text(f"<!doctype html><meta charset=utf-8><title>x</title><body>{body}</body>", encoding="utf-8")


def as_docx(path: Path, text: str) -> None:
    document = docx.Document()
    for part in text.split("\n"):
        document.add_paragraph("".join(char for char in part if char.isprintable() or char == "\t"))
    document.save(str(path))


def as_epub(path: Path, text: str) -> None:
    size = len(text) // 4 + 1
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    write_epub(path, ["".join(f"<p>{html.escape(line)}</p>" for line in part.split("\n")) for part in parts])


def as_pdf(path: Path, text: str) -> None:
    """Lines as a typesetter breaks them: a sentence runs over line ends, and seldom over the end of a page."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, _COLUMNS) or [""]]
    with rc_context({"pdf.fonttype": 42, "text.parse_math": False}), PdfPages(path) as pages:
        for first in range(0, len(lines), _LINES):
            figure = Figure(figsize=(8.3, 11.7))
            shown = "\n".join(line for line in lines[first : first + _LINES])
            figure.text(0.08, 0.95, shown, va="top", size=8, parse_math=False)
            pages.savefig(figure)


WRITERS: Mapping[str, Callable[[Path, str], None]] = {
    "txt": as_text,
    "md": as_text,
    "html": as_html,
    "pdf": as_pdf,
    "docx": as_docx,
    "epub": as_epub,
}


def planted(rng: random.Random, text: str, facts: Sequence[str]) -> str:
    """The text with the facts at borders of sentences."""
    borders = sorted(rng.sample(sentence_borders(text)[1:-1], len(facts)))
    pieces, last = [], 0
    for border, fact in zip(borders, facts, strict=True):
        pieces += [text[last:border], fact, " "]
        last = border
    return "".join([*pieces, text[last:]])


def read_one(
    rng: random.Random, path: Path, write: Callable[[Path, str], None], text: str, present: int, absent: int, model: object
) -> Counter[str]:
    """Counts of one document."""
    words, noun = shipped_words("eval"), rng.choice(NOUNS["number"])
    keys = distinct_keys(rng, present + absent, "pair", words)
    values = distinct_values(rng, present, "number", words)
    facts = [state(rng.choice(STATEMENTS), noun, key, value) for key, value in zip(keys, values, strict=False)]
    start = rng.randrange(max(1, len(text) - _LENGTHS[1]))
    write(path, planted(rng, text[start : start + _LENGTHS[1]], facts))
    questions = [ask(rng, noun, [key]) for key in keys]
    readings = memagent.read_many(path, questions, model=model)  # type: ignore[arg-type]
    counts: Counter[str] = Counter(documents=1, questions=len(questions), absent=absent)
    with memagent.load([path]) as document:
        for number, reading in enumerate(readings):
            there = number < present
            said = reading.status == "not_found"
            counts["said_absent"] += said
            counts["rightly"] += said and not there
            counts["right"] += there and reading.answer.strip() == values[number]
            for quote in reading.quotes:
                cited = document.read(quote.start_char_index, quote.end_char_index)
                counts["quotes"] += 1
                counts["exact"] += cited == quote.cited_text
                counts["wrong_offsets"] += cited != quote.cited_text
                counts["true"] += there and " ".join(facts[number].split()).rstrip(".") in " ".join(cited.split())
    return counts


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.grounding")
    parser.add_argument("out", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--format", action="append", choices=sorted(WRITERS), help="default: all")
    parser.add_argument("--documents", type=int, default=18, help="of each format")
    parser.add_argument("--facts", type=int, default=10)
    parser.add_argument("--absent", type=int, default=10)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--seed", type=int, default=2701)
    given = parser.parse_args(arguments)
    opened, source = memagent.open_model(given.model), cycle(texts(given.texts))
    with TemporaryDirectory() as folder, given.out.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval=0)
        rows.writeheader()
        for name, write in {name: WRITERS[name] for name in given.format or WRITERS}.items():
            counts: Counter[str] = Counter()
            for number, text in enumerate(islice(source, given.documents)):
                rng, path = random.Random(f"{given.seed}/{name}/{number}"), Path(folder) / f"{number}.{name}"
                counts += read_one(rng, path, write, text, given.facts, given.absent, opened)
            rows.writerow({"format": name, **counts})
            print(name, dict(counts), file=sys.stderr)
    opened.engine.close()


if __name__ == "__main__":
    main(sys.argv[1:])
