"""Whole readings, checked in one pass: is every reply of a reading the one the update rule asks for?

As long as every reply so far was right, the next prompt is known; so all prompts of a reading can be made in advance and
the right reply of each compared with the model's greedy choice, token by token, without generating. A reading whose
replies are all right is right when it is generated. A wrong reply that does no harm counts as wrong here: this is a lower
bound of the accuracy that the driver measures, many times faster, and it says which turns fail.

    python -m memagent.training.exam RUN_FOLDER --task single --tokens 16384 --samples 50

The documents are made of the shipped book, which training never sees, and of words that it never uses.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import Lfm2ForCausalLM

from memagent.core.chunking import chunk
from memagent.core.types import Span
from memagent.models.tokenizers import FileTokenizer
from memagent.tasks.haystack import Haystack
from memagent.tasks.needle import NeedleOptions, make_needle
from memagent.tasks.samples import Sample
from memagent.tasks.task import Materials, Request
from memagent.tasks.words import shipped_words
from memagent.training.checkpoint import load_checkpoint
from memagent.training.config import load_config
from memagent.training.data import Source, conversation, encode_pieces, open_source
from memagent.training.model import build_model, reply_hidden
from memagent.training.rows import Row, make_batch
from memagent.training.updates import Exercise, answer_pieces, answer_prompt, memory_pieces, prompt_parts, updated, visible

CHUNK_TOKENS = 640


# Needle tasks in all the wordings of training.
EXAMS = {
    "single": NeedleOptions(wordings="many"),
    "single-word": NeedleOptions(wordings="many", value="word"),
    "multikey": NeedleOptions(wordings="many", keys=8, rivals=True),
    "multiquery": NeedleOptions(wordings="many", queries=4),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One conversation of a reading, with its right reply. `what` names the turn: keep, wait, find, answer or lost."""

    sample: int
    what: str
    row: Row


def reading_steps(source: Source, sample: Sample, number: int, chunk_tokens: int = CHUNK_TOKENS) -> list[Step]:
    """All conversations of a reading that goes right. "lost": a chunk border cuts a fact, no answer can be right."""
    keys = tuple(dict.fromkeys(fact.key for fact in sample.facts if fact.key in sample.question))
    keys = tuple(sorted(keys, key=sample.question.index))
    tokenizer = FileTokenizer(source.tokenizer, name="exam")
    document = str(sample.document)
    memory: dict[str, str] = {}
    steps: list[Step] = []
    for place in chunk(sample.document, tokenizer, chunk_tokens):
        span = Span(start=place.start, end=place.end)
        exercise = Exercise(question=sample.question, asked=keys, memory=memory, first=not steps)
        head, tail = prompt_parts(source.profile, exercise)
        seen = visible(sample.facts, document, span.start, span.end)
        memory = updated(keys, memory, seen)
        changed = memory != exercise.memory
        what = "find" if changed else "keep" if memory else "wait"
        pieces = memory_pieces(keys, memory)
        prompt = source.tokenizer.encode(head + document[span.start : span.end] + tail).ids
        steps.append(Step(number, what, conversation(source, prompt, *encode_pieces(source.tokenizer, pieces))))
    exercise = Exercise(question=sample.question, asked=keys, memory=memory, first=False)
    prompt = source.tokenizer.encode(answer_prompt(source.profile, exercise)).ids
    what = "answer" if all(key in memory for key in keys) else "lost"
    pieces = answer_pieces(keys, memory)
    return [*steps, Step(number, what, conversation(source, prompt, *encode_pieces(source.tokenizer, pieces)))]


@torch.inference_mode()
def wrong_steps(
    model: Lfm2ForCausalLM, steps: Sequence[Step], *, bf16: bool, batch_tokens: int = 16384
) -> list[tuple[Step, list[int]]]:
    """The steps whose greedy reply is not the right one, with the model's choice after every token of the right one."""
    ordered = sorted(steps, key=lambda step: len(step.row.ids))
    wrong: list[tuple[Step, list[int]]] = []
    while ordered:
        width = len(ordered[-1].row.ids)
        part = ordered[-max(1, batch_tokens // width) :]
        del ordered[-len(part) :]
        batch = make_batch([step.row for step in part], 0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            hidden_NRD = reply_hidden(model, torch.tensor(batch.ids), torch.tensor(batch.at))
            best_NR = model.lm_head(hidden_NRD).argmax(-1)
        right_N = ((best_NR == torch.tensor(batch.target)) | (torch.tensor(batch.kind) < 0)).all(1)
        wrong += [(part[i], best_NR[i, : len(part[i].row.kinds)].tolist()) for i in (~right_N).nonzero()[:, 0].tolist()]
    return wrong


def report(samples: int, steps: Sequence[Step], wrong: Sequence[Step]) -> str:
    """One line: readings that are right, and wrong turns of all turns, per kind of turn."""
    lost = {step.sample for step in steps if step.what == "lost"}
    failed = {step.sample for step in wrong} | lost
    total, bad = Counter(step.what for step in steps), Counter(step.what for step in wrong)
    parts = " ".join(f"{what} {bad[what]}/{total[what]}" for what in ("wait", "find", "keep", "answer", "lost"))
    return f"right {samples - len(failed)}/{samples} = {100 * (1 - len(failed) / samples):.1f} %; wrong turns: {parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Check whole readings of a training run's model.")
    parser.add_argument("run", type=Path, help="folder with config.toml and checkpoint.pt")
    parser.add_argument("--books", type=Path, nargs="+", help="texts to hide facts in (default: the shipped book)")
    parser.add_argument("--task", choices=sorted(EXAMS), default="single")
    parser.add_argument("--tokens", type=int, default=16384, help="length of the documents")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--last", action="store_true", help="the last weights instead of their average")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    parser.add_argument("--show", type=int, default=0, help="how many wrong turns to print")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config, state = load_config(options.run / "config.toml"), load_checkpoint(options.run / "checkpoint.pt")
    source = open_source(config.tokenizer, config.books, config.profile, "eval")
    model = build_model(config.model, source.tokenizer.get_vocab_size(), 0)
    model.load_state_dict(state["model" if options.last else "average"])
    began = time.perf_counter()
    haystack = Haystack.load(options.books) if options.books else Haystack.shipped()
    materials = Materials(
        tokenizer=FileTokenizer(source.tokenizer, name="exam"), haystack=haystack, words=shipped_words("eval")
    )
    steps: list[Step] = []
    wrong: list[tuple[Step, list[int]]] = []
    for number in range(options.samples):
        request = Request(tokens=options.tokens, seed=options.seed, index=number)
        sample = make_needle(options.task, materials, request, EXAMS[options.task])
        mine = reading_steps(source, sample, number)
        steps += mine
        wrong += wrong_steps(model, mine, bf16=options.bf16)
    print(
        f"step {state['step']} {options.task} {options.tokens}:"
        f" {report(options.samples, steps, [step for step, _ in wrong])}"
        f" ({time.perf_counter() - began:.0f} s)"
    )
    for step, choice in wrong[: options.show]:
        text = source.tokenizer.decode(step.row.ids, skip_special_tokens=False)
        print(f"----- {step.what}\n{text}\n{source.tokenizer.decode(choice, skip_special_tokens=False)}")


if __name__ == "__main__":
    main()
