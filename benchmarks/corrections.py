"""Whether a statement is noted that the memory contradicts: a false find corrects itself only if it is.

    memagent synth niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multiquery updates \
        --tokens 2048 --samples 64 --seed 301401 -o samples.jsonl
    python benchmarks/corrections.py samples.jsonl [-m embedded FOLDER …] [--batch 32] [--threads 1] [--seed 0]

One turn of each sample, read greedily by the protocol: the first chunk that states the value of a key (drawn with --seed),
with "not yet" in the memory, with a false value of the form of the true one for that key, and with that again and drafts as
the model's folder has them (lenience, decision 0017). A turn is right if the new memory is so, word for word.
Samples of tasks that collect values, and such that no chunk states in one piece, are left out and counted.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict

from memagent.core import Completion, Plan, State, Turn, advance, next_turn
from memagent.errors import MemagentError
from memagent.evaluation.statistics import wilson
from memagent.models.open import OpenModel, model_folder, narrowed, read_defaults
from memagent.settings import make_plan, make_settings
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample
from memagent.tasks.words import shipped_words
from memagent.training.ideal import Notes, first_notes, memory_text, visible
from memagent.training.readings import mistaken_notes

WAYS = ("not yet", "false value", "false value, drafts")
Case = tuple[str, Plan, State, str]  # task, reading, where it stands, the right memory


def cases(samples: list[Sample], opened: OpenModel, seed: int) -> dict[str, list[Case]]:
    """For each of the first two ways, the turn of each sample."""
    settings, words = make_settings(opened, model="benchmark"), shipped_words("eval")
    found: dict[str, list[Case]] = {way: [] for way in WAYS[:2]}
    for number, sample in enumerate(samples):
        empty = first_notes(sample)
        false = mistaken_notes(random.Random(f"{seed}/{number}"), sample, words)
        plan = make_plan(sample.document, sample.question, settings, opened)
        wrong = [line for line in false.lines if line not in empty.lines]
        places = range(len(plan.chunks))
        place = next((place for place in places if not set(wrong) <= set(noted(false, sample, plan, place).lines)), None)
        if place is None:
            continue
        for way, notes in zip(found, (empty, false), strict=True):
            right = memory_text(noted(notes, sample, plan, place))
            found[way].append((sample.task, plan, State(chunk=place, turn=place, memory=memory_text(notes)), right))
    return found


def noted(notes: Notes, sample: Sample, plan: Plan, place: int) -> Notes:
    chunk = plan.chunks[place]
    return notes.after(visible(sample.facts, str(sample.document), chunk.start, chunk.end))


def right(opened: OpenModel, asked: list[Case], batch: int) -> dict[str, list[bool]]:
    """Per task, whether each memory came out right."""
    found: dict[str, list[bool]] = defaultdict(list)
    for first in range(0, len(asked), batch):
        some = asked[first : first + batch]
        turns: list[Turn] = [turn for _, plan, state, _ in some if (turn := next_turn(plan, state))]
        for (task, plan, state, memory), reply in zip(some, opened.engine.generate(turns), strict=True):
            found[task].append(isinstance(reply, Completion) and advance(plan, state, reply).memory == memory)
    return found


def cell(values: list[bool]) -> str:
    interval = wilson(sum(values), len(values))
    return f"{sum(values) / len(values):.1%} ({interval.low:.0%}–{interval.high:.0%})"


def main() -> None:
    from memagent.models.local import LocalEngine

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples")
    parser.add_argument("-m", "--model", nargs="+", default=["embedded"])
    for name, value in (("batch", 32), ("threads", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    try:
        file = SampleFile.open(options.samples)
        samples = [file.load(entry.id) for entry in file.entries]
        for model in options.model:
            folder = model_folder(model)
            defaults = read_defaults(folder)
            plain = narrowed(LocalEngine(folder), defaults)
            held = narrowed(LocalEngine(folder, drafts=defaults.drafts), defaults)
            asked = cases(samples, plain, options.seed)
            result = {way: right(plain, turns, options.batch) for way, turns in asked.items()}
            result[WAYS[2]] = right(held, asked[WAYS[1]], options.batch)
            print(f"\n{model}: {len(asked[WAYS[0]])} of {len(samples)} samples\n\n| task | turns | {' | '.join(WAYS)} |")
            print("|---|---|---|---|---|")
            for task, values in result[WAYS[0]].items():
                print(f"| {task} | {len(values)} | {' | '.join(cell(result[way][task]) for way in WAYS)} |")
    except MemagentError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
