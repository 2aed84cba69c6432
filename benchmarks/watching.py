"""What a run of a watch costs as its folder grows: a year of daily notes with ten standing questions.

    python -m benchmarks.watching OUT.csv [--days 365] [--tokens 2000] [--questions 10] [--seed N]

Every day has a note of about so many tokens of book text, and some days state a fact that is asked for; the watch runs
every day. OUT.csv has a row for each run: its seconds, how many of them were spent in the model, the turns, the answers
that changed, and the megabytes of journal and copy. The model is the embedded one, opened once. Printed is the median of
the last ten runs over that of the first ten after the first day.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import memagent
from memagent import watching
from memagent.settings import make_settings
from memagent.tasks.haystack import Haystack
from memagent.tasks.keys import distinct_keys
from memagent.tasks.words import shipped_words

COLUMNS = "day seconds model turns changed megabytes".split()


class Timed:
    """An engine that counts the seconds and turns that it was asked for."""

    def __init__(self, engine: Any) -> None:
        self._engine, self.seconds, self.turns = engine, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, turns: Sequence[Any]) -> Any:
        began = time.perf_counter()
        made = self._engine.generate(turns)
        self.seconds, self.turns = self.seconds + time.perf_counter() - began, self.turns + len(turns)
        return made


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.watching")
    parser.add_argument("out", type=Path)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=365)
    given = parser.parse_args(arguments)
    rng, book = random.Random(given.seed), Haystack.shipped().text
    opened = memagent.open_model("embedded")
    engine = Timed(opened.engine)
    opened = replace(opened, engine=engine)
    keys = distinct_keys(rng, given.questions, "pair", shipped_words("eval"))
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["MEMAGENT_HOME"] = home
        notes = Path(home) / "notes"
        notes.mkdir()
        settings = make_settings(opened, model="embedded")
        watching.add("year", [str(notes)], [f"What is the access code for {key}?" for key in keys], settings)

        def write(day: int) -> None:
            start = rng.randrange(len(book) - 5 * given.tokens)
            text = book[start : start + 4 * given.tokens].partition(" ")[2].rpartition(". ")[0] + ". "
            if day % max(1, given.days // given.questions) == 0:
                text += f"The access code for {rng.choice(keys)} is {rng.randrange(10**6, 10**7)}. "
            (notes / f"day-{day:04}.txt").write_text(text, encoding="utf-8")

        rows = csv.DictWriter(stack.enter_context(given.out.open("w", newline="")), COLUMNS, lineterminator="\n")
        rows.writeheader()
        took: list[float] = []
        for day in range(1, given.days + 1):
            write(day)
            engine.seconds, engine.turns = 0.0, 0
            began = time.perf_counter()
            with memagent.Journal.open() as journal:
                update = watching.run("year", opened, journal)
            took.append(time.perf_counter() - began)
            assert all(reading.error is None for reading in update.readings)
            size = sum(path.stat().st_size for path in Path(home).rglob("*") if notes not in path.parents)
            row = (
                day,
                round(took[-1], 3),
                round(engine.seconds, 3),
                engine.turns,
                len(update.changed),
                round(size / 1e6, 1),
            )
            rows.writerow(dict(zip(COLUMNS, row, strict=True)))
            print(row, file=sys.stderr)
    print(f"late / early {median(took[-10:]) / median(took[1:11]):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
