"""Reading with drafts, which check a turn that leaves the memory as it is in one pass, against reading without.

    memagent synth niah_multikey_1 niah_multiquery vt --tokens 16384 --samples 16 --seed 4711 -o samples.jsonl
    python benchmarks/drafts.py samples.jsonl [--model embedded] [--readings 1 8 48] [--repeat 2] [--threads 1] \
        [--temperature 0]

Readings of the file's samples (spread over it), in lockstep, in this process; the two ways take turns and the fastest of
each is taken, since other work on the machine only ever slows a run. "Unchanged" is the share of updates that left the
memory as it was; "equal" the share of readings with the same memory after every turn, and the same answer, both ways.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from typing import Any

from memagent.driver import Transcript, read_batch
from memagent.models.open import model_folder, narrowed, read_defaults
from memagent.settings import make_plan, make_settings
from memagent.tasks.files import SampleFile


def engine(model: str, drafts: bool) -> Any:
    from memagent.models.local import LocalEngine

    folder = model_folder(model)
    return narrowed(LocalEngine(folder, speculate=drafts), read_defaults(folder))


def read(opened: Any, samples: list[Any], temperature: float) -> tuple[float, list[list[str]]]:
    """Seconds, and for every reading the memory after every turn, and the answer."""
    settings = make_settings(opened, model="benchmark", temperature=temperature)
    plans = [make_plan(sample.document, sample.question, settings, opened) for sample in samples]
    began = time.perf_counter()
    done = read_batch(plans, opened.engine)
    seconds = time.perf_counter() - began
    whole = [one for one in done if isinstance(one, Transcript)]
    if len(whole) < len(done):
        raise SystemExit(f"{len(done) - len(whole)} of {len(done)} readings failed")
    return seconds, [[*(record.memory for record in one.records[:-1]), one.answer] for one in whole]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--readings", type=int, nargs="+", default=[1, 8, 48])
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    if min(arguments.readings) < 1:
        parser.error(f"--readings {min(arguments.readings)}: at least 1")
    import torch

    torch.set_num_threads(arguments.threads)
    file = SampleFile.open(arguments.samples)
    ways = {drafts: engine(arguments.model, drafts) for drafts in (False, True)}
    print("| readings at once | turns | unchanged | without drafts | with drafts | ratio | equal |")
    print("|---|---|---|---|---|---|---|")
    for count in arguments.readings:
        step = max(1, len(file) // count)
        samples = [file.load(entry.id) for entry in file.entries[::step][:count]]
        found: dict[bool, list[tuple[float, list[list[str]]]]] = {False: [], True: []}
        for _ in range(arguments.repeat):
            for drafts, opened in ways.items():
                found[drafts].append(read(opened, samples, arguments.temperature))
        (plain, without), (drafted, readings) = min(found[False]), min(found[True])
        steps = [one == other for memories in readings for one, other in pairwise(["", *memories[:-1]])]
        equal = sum(one == other for one, other in zip(without, readings, strict=True)) / len(readings)
        print(
            f"| {len(samples)} | {sum(map(len, readings))} | {sum(steps) / len(steps):.1%} | {plain:.1f} s |"
            f" {drafted:.1f} s | {plain / drafted:.2f} | {equal:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
