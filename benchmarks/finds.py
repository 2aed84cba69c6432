"""How sure a model is when its memory takes something up, and what a `placeholder_lenience` would hold back.

    memagent eval samples.jsonl -m MODEL -o RUN
    python benchmarks/finds.py RUN samples.jsonl [--model MODEL] [--json finds.json]

The run has to be read with drafts, a placeholder and no placeholder_lenience (docs/decisions/0017). A find is an update
in which the first token of the memory that gives way is of the placeholder. `left` is what was left to that token then: its
probability as a share of the likeliest one's; with a placeholder_lenience below `left` it would have stood. A find is right
if its line then holds the value of a fact that the answer needs; a value that was miscopied counts as false.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from memagent.core import State, Turn, next_turn
from memagent.errors import ConfigError, MemagentError
from memagent.evaluation.runs import Run
from memagent.models.drafts import Drafts
from memagent.models.open import open_model
from memagent.settings import make_plan, make_settings
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample

SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


class Find(NamedTuple):
    sample: str
    turn: int
    right: bool
    left: float


def finds(run: Run, file: SampleFile, model: str) -> Iterator[Find]:
    """The finds of a run, reading by reading. Raises ConfigError if the run was read in another way."""
    opened = open_model(model)
    engine: Any = opened.engine
    drafts: Drafts | None = engine._drafts
    if drafts is None or not drafts.placeholder or drafts.placeholder_lenience < 1:
        raise ConfigError(f"{model}: its [drafts] must name a placeholder, and no placeholder_lenience: {drafts!r}")
    if (read_by := run.header["settings"]["identity"]) != engine.identity:
        raise ConfigError(f"{run.folder} was read by {read_by}, not by {engine.identity}: give its model with --model")
    if run.header["samples"]["sha256"] != file.sha256:
        raise ConfigError(f"{run.folder} read other samples: those of {run.header['samples']['path']}, as they were then")
    settings = make_settings(opened, model=model)
    for placed in run.records():
        record = placed.record
        sample = file.load(record.sample)
        plan = make_plan(sample.document, sample.question, settings, opened)
        memory = ""
        for chunk, turn in enumerate(turn for turn in record.turns if turn.kind == "update"):
            asked = next_turn(plan, State(turn=turn.number, chunk=chunk, memory=memory))
            if asked is None or asked.span != turn.span:
                raise ConfigError(
                    f"{record.sample}, turn {turn.number}: not the text that the plan shows: budgets of its own, or a turn"
                    " that was asked again"
                )
            if turn.memory is not None:
                if memory and (left := left_to_placeholder(engine, drafts, asked)) is not None:
                    yield Find(record.sample, turn.number, is_right(sample, memory, turn.memory), left)
                memory = turn.memory


def left_to_placeholder(engine: Any, drafts: Drafts, turn: Turn) -> float | None:
    """The share of the likeliest token's probability that is left to the first token of the draft that gives way; None if
    none does, or one that is not of the placeholder."""
    ids, spans = engine._chat.encode_reply(turn.draft)
    prompt = engine._chat.encode(turn.messages)
    with torch.inference_mode():
        output = engine.model(torch.tensor([[*prompt, *ids]]), use_cache=False, logits_to_keep=1 + len(ids))
    logits = output.logits[0, :-1].float()
    lefts = (logits.gather(1, torch.tensor(ids)[:, None])[:, 0] - logits.max(-1).values).exp().tolist()
    shares, empties = drafts.shares(turn.draft, spans), drafts.empty(turn.draft, spans)
    for left, share, empty in zip(lefts, shares, empties, strict=True):
        if left < 1 and left <= share:
            return left if empty else None
    return None


def is_right(sample: Sample, before: str, after: str) -> bool:
    """Whether the first line that is another one now holds the value of a needed fact."""
    old, new = before.splitlines(), after.splitlines()
    line = next((one for at, one in enumerate(new) if at >= len(old) or one != old[at]), "")
    return any(fact.needed and fact.value and fact.value in line.partition(": ")[2] for fact in sample.facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of an evaluation")
    parser.add_argument("samples", help="the sample file it read")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--json", type=Path, help="write every find: [sample, turn, right, left]")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        found = list(finds(Run.open(given.run), SampleFile.open(given.samples), given.model))
    except MemagentError as error:
        parser.error(str(error))
    if given.json:
        given.json.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print("| placeholder_lenience | right finds held back | false finds held back |")
    print("|---|---|---|")
    for share in SHARES:
        counts = [
            f"{sum(find.left > share for find in group)} of {len(group)}"
            for right in (True, False)
            for group in ([find for find in found if find.right == right],)
        ]
        print(f"| {share:g} | {' | '.join(counts)} |")


if __name__ == "__main__":
    main()
