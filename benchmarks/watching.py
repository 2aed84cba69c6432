"""What a run of a watch costs as its folder grows: a year of daily notes with ten standing questions.

    python -m benchmarks.watching [--days 365] [--tokens 2000] [--questions 10] [--runs 3]

Every day has a note of about so many tokens of book text, and some days state a fact that is asked for. The first days
are read one by one, then all but the last at once, then the last one by one. Printed are the seconds of the best of
`--runs` early and late runs, and how many of them were spent in the model, which is the embedded one, opened once.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import memagent
from memagent import watching
from memagent.settings import make_settings
from memagent.tasks.haystack import Haystack
from memagent.tasks.keys import distinct_keys
from memagent.tasks.words import shipped_words


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
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=365)
    given = parser.parse_args(arguments)
    rng, book = random.Random(given.seed), Haystack.shipped().text
    opened = memagent.open_model("embedded")
    engine = Timed(opened.engine)
    opened = replace(opened, engine=engine)
    keys = distinct_keys(rng, given.questions, "pair", shipped_words("eval"))
    with tempfile.TemporaryDirectory() as home:
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

        def run() -> tuple[float, float, int]:
            engine.seconds, engine.turns = 0.0, 0
            began = time.perf_counter()
            with memagent.Journal.open() as journal:
                update = watching.run("year", opened, journal)
            assert all(reading.error is None for reading in update.readings)
            return time.perf_counter() - began, engine.seconds, engine.turns

        early, late = [], []
        write(1)
        run()
        for day in range(2, 2 + given.runs):
            write(day)
            early.append(run())
        for day in range(2 + given.runs, given.days - given.runs + 1):
            write(day)
        print("the days between:", run(), file=sys.stderr)
        for day in range(given.days - given.runs + 1, given.days + 1):
            write(day)
            late.append(run())
        size = sum(path.stat().st_size for path in Path(home).rglob("*.sqlite3*"))
    print("run      seconds  of which the model  turns")
    for what, runs in (("early", early), ("late", late)):
        whole, model, turns = min(runs)
        print(f"{what:<8} {whole:7.2f}  {model:18.2f}  {turns:5}")
    print(f"late / early {min(late)[0] / min(early)[0]:.2f}, journal {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
