"""What it is worth to keep freed memory: readings at once by the embedded model, with what `memagent.models.native` sets of
glibc's malloc, and without.

    python -m benchmarks.freed_memory OUT.csv [--readings 8 32] [--tokens 4096] [--repeat 5] [--threads 1]

Each run is a fresh process, and the two take turns. Seconds are those of the readings alone; faults are the pages that the
process had to ask the kernel for meanwhile, and peak memory is the kernel's count. Without: a tunable in the environment,
which changes nothing here, says that the user decides.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.readers import write

_MEASURED = ("seconds", "faults", "mb")
COLUMNS = ["readings", "tokens", "threads", "repeats", "times_as_fast"]
COLUMNS += [f"{name}_{arm}" for name in _MEASURED for arm in ("kept", "freed")]
USERS_OWN = {"GLIBC_TUNABLES": "glibc.malloc.arena_test=2"}


def read(readings: int, tokens: int, threads: int) -> dict[str, float]:
    """Reads in this process."""
    import torch

    from memagent.driver import read_batch
    from memagent.models.open import open_model, open_tokenizer
    from memagent.settings import make_plan, make_settings
    from memagent.tasks.files import SampleFile
    from memagent.tasks.synthesis import Recipe, write_samples

    torch.set_num_threads(threads)
    opened = open_model("embedded")
    settings = make_settings(opened, model="embedded")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.jsonl"
        counted = partial(open_tokenizer, "embedded")
        recipe = Recipe(tasks=("niah_single_2",), tokens=(tokens,), samples=readings, seed=5, tokenizer=counted)
        write_samples(recipe, file)
        plans = [make_plan(one.document, one.question, settings, opened) for one in SampleFile.open(file)]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    read_batch(plans, opened.engine, keep=False)
    seconds, usage = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": seconds, "faults": usage.ru_minflt - before, "mb": usage.ru_maxrss / 1024}


def run(readings: int, tokens: int, threads: int, kept: bool) -> dict[str, float]:
    """Reads in a process of its own."""
    numbers = [str(number) for number in (readings, tokens, threads)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    environment |= {} if kept else USERS_OWN
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--read", *numbers], env=environment, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--read"]:
        print(json.dumps(read(*map(int, arguments[1:]))))
        return
    parser = argparse.ArgumentParser(prog="benchmarks.freed_memory")
    parser.add_argument("out", type=Path)
    parser.add_argument("--readings", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    rows = []
    for readings in given.readings:
        runs: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for _ in range(given.repeat):
            for kept in runs:
                runs[kept].append(run(readings, given.tokens, given.threads, kept))
        row = {
            f"{name}_{'kept' if kept else 'freed'}": round(median(one[name] for one in runs[kept]), 3)
            for name in _MEASURED
            for kept in runs
        }
        rows.append(
            {
                "readings": readings,
                "tokens": given.tokens,
                "threads": given.threads,
                "repeats": given.repeat,
                "times_as_fast": round(row["seconds_freed"] / row["seconds_kept"], 3),
                **row,
            }
        )
        print(rows[-1], file=sys.stderr)
        write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
