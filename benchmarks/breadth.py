"""How far a model's reading goes beyond what it was trained on: other text, other words, other wordings, absent answers.

    python -m benchmarks.breadth OUT.csv [--model FOLDER …] [--reader NAME …] [--haystack FILE …] [--words FILE]
        [--task NAME …] [--forms plain|many …] [--tokens N …] [--samples N] [--seed N] [--keep FOLDER]

Facts are hidden in *Moby-Dick*, and in each FILE of text; keys and names are made of the package's words for evaluation, or
of --words. Every model and reader gets the same samples. OUT.csv has a row for each, text, task and length: strict accuracy
with its Wilson interval; readings that failed count as wrong. `facts` is measured with the wordings of training, with those
held out for evaluation, and with documents that do not hold the answer, each with names in all --forms. With `--keep`, the
same command goes on after an interrupt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.readers import measured, recipe_of, write
from memagent.models.open import open_model
from memagent.settings import make_settings
from memagent.tasks.synthesis import Recipe, write_samples

COLUMNS = "model reader text task wordings forms tokens n accuracy low high".split()
_NEEDLES = "single_1 single_2 single_3 multikey_1 multikey_2 multikey_3 multivalue multiquery".split()
TASKS = (*(f"niah_{name}" for name in _NEEDLES), "vt", "facts")
FACTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("trained", {"wordings": "train"}),
    ("held out", {"wordings": "eval"}),
    ("absent", {"wordings": "train", "absent": "true"}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--haystack", type=Path, action="append", default=[])
    parser.add_argument("--words", type=Path)
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--forms", choices=("plain", "many"), action="append", default=[])
    parser.add_argument("--tokens", type=int, action="append", default=[])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=260301)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the readings here, and go on with those it has")
    given = parser.parse_args()
    with TemporaryDirectory() as passing:
        rows: list[dict[str, Any]] = []
        for file, about, recipe in _files(given, given.keep or Path(passing)):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_samples(recipe, file)
            for number, model in enumerate(given.model or ["embedded"]):
                with closing((opened := open_model(model)).engine):
                    for reader in given.reader or ["memory"]:
                        settings = make_settings(opened, model=model, reader=reader)
                        [row] = measured(opened, settings, file, given.batch, f"{number}-{reader}")
                        rows.append({"model": model, **row, **about})
                        print({name: rows[-1][name] for name in COLUMNS}, file=sys.stderr)
            write(given.out, COLUMNS, [{name: row[name] for name in COLUMNS} for row in rows])


def _files(given: argparse.Namespace, folder: Path) -> Iterator[tuple[Path, dict[str, str], Recipe]]:
    """Each sample file to make, what is said of it in the table, and its recipe."""
    for text in [None, *given.haystack]:
        name = text.stem if text else "Moby-Dick"
        for tokens in given.tokens or [4096]:
            for task in given.task or TASKS:
                for wordings, forms, options in _kinds(given, task):
                    file = folder / "-".join(
                        filter(None, (name, task, wordings.replace(" ", "-"), forms, f"{tokens}.jsonl"))
                    )
                    materials = {"haystack": (text,) if text else (), "words": given.words, "options": options}
                    recipe = recipe_of(given, task, tokens, **materials)
                    yield file, {"text": name, "task": task, "wordings": wordings, "forms": forms}, recipe


def _kinds(given: argparse.Namespace, task: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Wordings and forms of names to measure a task with, and its options for them."""
    if task != "facts":
        yield "", "", {}
        return
    for forms in given.forms or ["plain"]:
        for wordings, options in FACTS:
            yield wordings, forms, {**options, "forms": forms}


if __name__ == "__main__":
    main()
