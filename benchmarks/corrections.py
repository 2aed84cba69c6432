"""Turn by turn: is a statement noted, also where the memory contradicts it, and does the memory stay where it should?

    memagent synth niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multiquery updates \\
        --tokens 8192 --samples 64 --seed 301403 -o samples.jsonl
    python benchmarks/corrections.py samples.jsonl [-m embedded FOLDER …] [--threads 1] [--seed 0]

Single turns of each sample, read greedily by the protocol; a turn is right if the new memory is so, word for word. They are
about one key of each sample (drawn with --seed), with nothing noted of the others:

    noted      the first chunk that states its value, "not yet" in the memory
    corrected  the same with a false value of the form of the true one in the memory
    waits      chunks that state nothing that is asked, "not yet" in the memory: the others are false finds
    keeps      the same chunks with the true value in the memory: the others lose it

Samples of tasks that collect values, and such that no chunk states in one piece, are left out and counted.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from memagent.core import Completion, Plan, State, advance, pending, turn
from memagent.core.readers.chunkwise import ChunkState
from memagent.errors import MemagentError
from memagent.evaluation.statistics import wilson
from memagent.models.open import OpenModel, open_model
from memagent.settings import make_plan, make_settings
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample
from memagent.tasks.words import Words, shipped_words
from memagent.training.ideal import first_notes, memory_text, visible
from memagent.training.readings import false_notes


@dataclass(frozen=True)
class Case:
    """A turn of a reading, and the memory after it that is right."""

    task: str
    plan: Plan
    state: State
    right: str


def cases(sample: Sample, plan: Plan, rng: random.Random, words: Words) -> Iterator[tuple[str, Case]]:
    """The turns of a sample, each with what it is to show."""
    shown = [visible(sample.facts, str(sample.document), chunk.start, chunk.end) for chunk in plan.chunks]
    empty = first_notes(sample)
    false = false_notes(rng, sample, words)
    keys = {key for key, values in false.lines if (key, values) not in empty.lines}
    stated = [place for place, facts in enumerate(shown) if any(fact.key in keys for fact in facts)]
    if not stated:
        return
    true = empty.after([fact for fact in shown[stated[0]] if fact.key in keys])
    quiet = [place for place, facts in enumerate(shown) if empty.after(facts) == empty]
    for what, notes, places in (
        ("noted", empty, stated[:1]),
        ("corrected", false, stated[:1]),
        ("waits", empty, quiet),
        ("keeps", true, quiet),
    ):
        for place in places:
            state = ChunkState(part=place, turns=place, memory=memory_text(notes))
            yield what, Case(sample.task, plan, state, memory_text(notes.after(shown[place])))


def right(opened: OpenModel, asked: list[Case]) -> list[tuple[str, bool]]:
    """Of each turn its task, and whether the memory comes out right."""
    turns = [turn(case.plan, case.state, id) for case in asked for id in pending(case.plan, case.state)]
    replies = zip(asked, turns, opened.engine.generate(turns), strict=True)
    return [
        (case.task, isinstance(reply, Completion) and advance(case.plan, case.state, one.id, reply).memory == case.right)
        for case, one, reply in replies
    ]


def cell(values: list[bool]) -> str:
    interval = wilson(sum(values), len(values))
    return f"{sum(values) / len(values):.2%} ({interval.low:.1%}–{interval.high:.1%}; {len(values)})" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples")
    parser.add_argument("-m", "--model", nargs="+", default=["embedded"])
    for name, value in (("threads", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads {options.threads}: at least 1")
    import torch

    torch.set_num_threads(options.threads)
    try:
        file = SampleFile.open(options.samples)
        samples = [file.load(entry.id) for entry in file.entries]
        for model in options.model:
            opened = open_model(model)
            settings, words = make_settings(opened, model="benchmark"), shipped_words("eval")
            asked: dict[str, list[Case]] = defaultdict(list)
            for number, sample in enumerate(samples):
                plan = make_plan(sample.document, sample.question, settings, opened)
                for what, case in cases(sample, plan, random.Random(f"{options.seed}/{number}"), words):
                    asked[what].append(case)
            if not asked["noted"]:
                parser.error(f"{options.samples}: none of its {len(samples)} samples asks for one value of a key")
            columns = {what: right(opened, asked[what]) for what in ("noted", "corrected", "waits", "keeps")}
            print(f"\n{model}: {len(asked['noted'])} of {len(samples)} samples\n\n| task | {' | '.join(columns)} |")
            print("|---|---|---|---|---|")
            for task in [*dict.fromkeys(case.task for case in asked["noted"]), ""]:
                cells = [cell([good for name, good in found if task in ("", name)]) for found in columns.values()]
                print(f"| {task or '**all**'} | {' | '.join(cells)} |", flush=True)
    except MemagentError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
