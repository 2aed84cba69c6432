"""The engine in process on one GPU, with random weights in the shapes of Qwen2.5, against `generate` of transformers.

    python -m benchmarks.accelerator OUT.csv [--model 0.5B --model 1.5B --model 7B | --tiny] [--seconds 95] [--device cuda]
        [--part replies lengths] [--batch 1 32 8] [--prompt 1000] [--reply 64] [--kept 1.0 0.8 0.5] [--rounds 2] [--turns 3]

It says how fast shapes are, not what a model says. Weights are random (bfloat16) but for one head, the first: it looks
back a seventh of `--prompt`, and what it sees is said next. So replies copy the prompt; random weights alone are undecided
between tokens too often to compare replies, or to guess them. Prompts are random tokens, 0 to 3 % fewer than `--prompt`, so
that batches are padded. Nothing ends a reply but its length.

Part *replies*: `generate` (greedy, dynamic cache, SDPA, not compiled), the same with its prompt lookup (batch 1 only),
*memagent* as readings use it (continuous batching), *lookup* in an old memory, and *draft* (the whole memory is checked
first). That memory is the reply in pieces of eight tokens, of which a share of `--kept` is left and the others are random.
*wide* is memagent without its bound on the tokens of a batch, where that bound splits a batch. Part *lengths*: 32 readings
of some turns with prompts of 30 % of `--prompt`; nine of ten replies have three tokens, the others 8 to `--reply`; for
`generate` and lockstep (*together*), a turn is a batch, of which `generate` computes all to the longest reply.

Engines take turns, and the fastest of each is taken. Seconds are those of whole calls from token ids on; ours also decode
the text and take log-probabilities. `prefill` is one such call for a single token each. `equal` is the share of replies
that are those of `generate`, `copied` of those that copy as they should; `guessed` and `accepted` are tokens of a reply, on
average; `peak_gib` is what torch allocated. Each model has an equal share of `--seconds`, and begins nothing after it.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

import torch
import transformers

import memagent
from memagent.core import Sampling
from memagent.models.local import LocalEngine
from memagent.models.lookup import Lookup
from memagent.models.sampler import Row, left_pad

_SIZES = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size".split()
SHAPES = {
    "tiny": (64, 128, 2, 2, 1, 8192),
    "0.5B": (896, 4864, 24, 14, 2, 151936),
    "1.5B": (1536, 8960, 28, 12, 2, 151936),
    "7B": (3584, 18944, 28, 28, 4, 151936),
}
_BATCHES = {"tiny": [1, 8], "0.5B": [1, 32, 8, 128]}  # of the others: the first three
_BASE, _SHARP, _CLEAR, _QUIET = 1e6, 20.0, 4.0, 0.05
_WORDS = 4096  # tokens that prompts are drawn from: those of the tokenizer
_PIECE, _GUESSED_TO, _READINGS = 8, 8, 32


class Asked(Row):
    """A row that counts its guesses."""

    steps = guessed = 0

    def guess(self, most: int) -> Sequence[int]:
        found = Row.guess(self, most)
        self.steps, self.guessed = self.steps + 1, self.guessed + len(found)
        return found

    @property
    def right(self) -> int:
        """Tokens of guesses, or at the beginning of the draft, that were right."""
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(self.ids, self.draft, strict=False))
        return len(list(alike)) if self.draft else len(self.ids) - 1 - self.steps if self.lookup else 0


Rows: TypeAlias = Sequence[Sequence[Asked]]
Way: TypeAlias = Callable[[int], Rows]  # replies of at most so many tokens each
Name: TypeAlias = tuple[str, float | None]


def built(name: str, device: str, distance: int) -> Any:
    """A model of that shape, on the device, that says what stands so many tokens before."""
    sizes: dict[str, Any] = dict(zip(_SIZES, SHAPES[name], strict=True))
    config = transformers.Qwen2Config(
        **sizes,
        tie_word_embeddings=name != "7B",
        rope_parameters={"rope_type": "default", "rope_theta": _BASE},
        eos_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    with torch.no_grad():
        copying(model, distance)
    return model.eval()


def copying(model: Any, distance: int) -> None:
    """Lets the first head look back, and show its first dimensions of the token it sees where they are said."""
    size = model.config.hidden_size // model.config.num_attention_heads
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.mul_(_QUIET)
        layer.self_attn.o_proj.weight.mul_(_QUIET)
    q, k, v, o = (getattr(model.model.layers[0].self_attn, f"{name}_proj") for name in "qkvo")
    for one in (q, k, v):
        one.weight[:size] = 0
    turn = _BASE ** (-torch.arange(size // 4) / (size / 2)) * distance
    strength = math.sqrt(_SHARP * math.sqrt(size))
    k.bias[: size // 4] = strength
    q.bias[: size // 4] = (strength * torch.cos(turn)).to(q.bias)
    q.bias[size // 2 : size // 2 + size // 4] = (-strength * torch.sin(turn)).to(q.bias)
    seen = torch.eye(size).to(o.weight)
    v.weight[:size, :size] = seen
    o.weight[:, :size] = 0
    o.weight[:size, :size] = _CLEAR * math.sqrt(model.config.hidden_size / size) * seen
    if not model.config.tie_word_embeddings:
        model.lm_head.weight.copy_(model.model.embed_tokens.weight)


@dataclass
class Bench:
    """A model, and the ways to make replies with it. Rows are those of each reading, one for each of its turns."""

    model: Any
    engine: Any
    given: argparse.Namespace
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def prompt(self, most: int) -> list[int]:
        return self.draw.choices(range(_WORDS), k=most - self.draw.randint(0, most * 3 // 100))

    def copied(self, prompt: Sequence[int], reply: int) -> list[int]:
        ids = list(prompt)
        for _ in range(reply):
            ids.append(ids[-1 - self.given.prompt // 7])
        return ids[len(prompt) :]

    def memory(self, reply: Sequence[int], kept: float) -> list[int]:
        pieces = range(0, len(reply), _PIECE)
        changed = self.draw.sample(pieces, round((1 - kept) * len(pieces)))
        return [self.draw.randrange(_WORDS) if at - at % _PIECE in changed else token for at, token in enumerate(reply)]

    def generate(self, of: Rows, **options: Any) -> None:
        for rows in zip(*of, strict=True):
            ids, mask = left_pad([row.prompt for row in rows], 0, self.model.device)
            options |= {"max_new_tokens": max(row.max_tokens for row in rows), "do_sample": False, "pad_token_id": 0}
            made = self.model.generate(ids, attention_mask=mask, **options)[:, ids.shape[1] :].tolist()
            for row, reply in zip(rows, made, strict=True):
                row.ids = reply[: row.max_tokens]

    def together(self, of: Rows) -> None:
        for rows in zip(*of, strict=True):
            self.engine.generate(rows)

    def continuous(self, of: Rows, bound: int = 0) -> None:
        batch, usual = self.engine.batch(), self.engine.batch_tokens
        self.engine.batch_tokens = bound or usual
        left = [iter(rows) for rows in of]
        for number, rows in enumerate(left):
            batch.add(number, next(rows))
        while ended := batch.step():
            for number, result in ended:
                if isinstance(result, Exception):
                    raise result
                if (row := next(left[number], None)) is not None:
                    batch.add(number, row)
        self.engine.batch_tokens = usual

    def ways(self, part: str, batch: int) -> dict[Name, Way]:
        """How replies are made, by engine and share of the memory that is kept."""
        reply, alike, draw = self.given.reply, part == "replies", random.Random(2)
        size = lambda: reply if alike else 3 if draw.random() < 0.9 else draw.randint(8, max(8, reply))  # noqa: E731
        turns, most = (1, self.given.prompt) if alike else (self.given.turns, self.given.prompt * 3 // 10)
        asked = [[(self.prompt(most), size()) for _ in range(turns)] for _ in range(batch)]

        def way(run: Callable[[Rows], object], memories: Sequence[Sequence[int]] = (), whole: bool = False) -> Way:
            def made(limit: int) -> Rows:
                of = [
                    [Asked(prompt=ids, max_tokens=min(size, limit), sampling=Sampling()) for ids, size in one]
                    for one in asked
                ]
                for [row], memory in zip(of if memories else (), memories, strict=True):
                    row.lookup, row.draft = (None, memory[: row.max_tokens]) if whole else (Lookup(memory), ())
                run(of)
                return of

            return made

        ways: dict[Name, Way] = {("generate", None): way(self.generate)}
        if batch == 1:
            ways["generate lookup", None] = way(lambda of: self.generate(of, prompt_lookup_num_tokens=10))
        if not alike:
            ways["together", None] = way(self.together)
        ways["memagent", None] = way(self.continuous)
        if batch * (most + reply) > self.engine.batch_tokens:
            ways["wide", None] = way(lambda of: self.continuous(of, 1 << 40))
        for share in self.given.kept if alike and batch <= _GUESSED_TO else ():
            memories = [self.memory(self.copied(prompt, reply), share) for [(prompt, _)] in asked]
            ways["lookup", share] = way(self.continuous, memories)
            if share == max(self.given.kept):
                ways["draft", share] = way(self.together, memories, True)
        return ways


def timed(bench: Bench, way: Way, limit: int) -> tuple[float, float, list[Asked]]:
    """Seconds, the most GiB that were allocated, and the rows."""
    gpu = bench.model.device.type == "cuda"
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    rows = [row for rows in way(limit) for row in rows]
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 2**30 if gpu else 0.0, rows


def measured(bench: Bench, ways: dict[Name, Way], until: float) -> Iterator[dict[str, Any]]:
    """A row for each way."""
    for way in ways.values():
        way(3)  # to warm up
    prefill = {name: timed(bench, way, 1)[0] for name, way in ways.items()}
    found: dict[Name, list[tuple[float, float, list[Asked]]]] = {name: [] for name in ways}
    for number in range(bench.given.rounds):
        if number and time.perf_counter() > until:
            break
        for name, way in ways.items():
            found[name].append(timed(bench, way, 1 << 20))
    took = {name: min(seconds for seconds, _, _ in runs) for name, runs in found.items()}
    expected = [row.ids for row in found["generate", None][-1][2]]
    for name, runs in found.items():
        rows, peak = runs[-1][2], max(most for _, most, _ in runs)
        put_in, out = sum(len(row.prompt) for row in rows), sum(len(row.ids) for row in rows)
        decoding = took[name] - prefill[name]
        row: dict[str, Any] = {"engine": name[0], "kept": name[1], "rounds": len(runs)}
        row |= {"tokens_in": put_in, "tokens_out": out, "seconds": took[name], "prefill": prefill[name]}
        row |= {"prompt": max(len(row.prompt) for row in rows), "tokens_per_second": (put_in + out) / took[name]}
        row |= {"decoded_per_second": (out - len(rows)) / decoding if decoding > 0 else None}
        row |= {f"against_{one}": took[one, None] / took[name] for one in ("generate", "memagent")}
        row |= {"equal": mean(float(row.ids == ids) for row, ids in zip(rows, expected, strict=True))}
        row |= {"copied": mean(float(row.ids == bench.copied(row.prompt, len(row.ids))) for row in rows)}
        row |= {"guessed": mean(row.guessed + len(row.draft) for row in rows), "accepted": mean(row.right for row in rows)}
        yield row | {"peak_gib": peak or None}


def run(name: str, given: argparse.Namespace, until: float, device: str) -> None:
    """Measures one model."""
    model = built(name, device, given.prompt // 7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(Path(memagent.__file__).parent / "embedded" / "model")
    engine: Any = LocalEngine.hosting(model, tokenizer, name=name, version="random", record_prompts=False)
    engine.stop_ids, engine._continuous = frozenset(), True
    engine.row = lambda turn: turn  # turns are rows of token ids already
    chip = torch.cuda.get_device_name() if device.startswith("cuda") else device
    same = {"device": chip, "torch": torch.__version__, "transformers": transformers.__version__, "dtype": "bfloat16"}
    same |= {"model": name, "parameters": sum(one.numel() for one in model.parameters()), "reply": given.reply}
    todo = [("replies", batch) for batch in given.batch or _BATCHES.get(name, [1, 32, 8])] + [("lengths", _READINGS)]
    for part, batch in sorted(todo, key=lambda one: one[1] > _READINGS):  # the widest last
        if part not in given.part:
            continue
        bench, late = Bench(model, engine, given), time.perf_counter() > until
        if late:
            print(f"no time left for {name}, {part}, batch {batch}", file=sys.stderr)
        for row in () if late else measured(bench, bench.ways(part, batch), until):
            put(given.out, same | {"part": part, "batch": batch, "turns": 1 if part == "replies" else given.turns} | row)


def put(path: Path, row: dict[str, Any]) -> None:
    """Appends a row to the table."""
    row = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
    print({name: value for name, value in row.items() if value is not None}, file=sys.stderr, flush=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerow(row)


def main(arguments: Sequence[str]) -> None:
    began = time.perf_counter()
    parser = argparse.ArgumentParser(prog="benchmarks.accelerator")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", action="append", choices=SHAPES)
    parser.add_argument("--tiny", action="append_const", const="tiny", dest="model")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--part", nargs="+", choices=("replies", "lengths"), default=["replies", "lengths"])
    parser.add_argument("--batch", type=int, nargs="+")
    parser.add_argument("--kept", type=float, nargs="+", default=[1.0, 0.8, 0.5])
    for name, usual in {"seconds": 95, "prompt": 1000, "reply": 64, "rounds": 2, "turns": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    names = given.model or ["0.5B"]
    for number, name in enumerate(names):
        now = time.perf_counter()
        run(name, given, now + (began + given.seconds - now) / (len(names) - number), given.device)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1:])
