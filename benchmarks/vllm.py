"""memagent at a vLLM server on a CPU: speculation, prompts that begin alike, and many readings at once.

    python -m benchmarks.vllm PYTHON_OF_VLLM OUT.csv [--part speculation prefixes throughput] [--questions 1 4]
        [--asked 4 8] [--readings 64] [--chunks 3] [--changed 0.0] [--repeat 2] [--hidden 512] [--layers 4]
        [--dtype float32]

PYTHON_OF_VLLM is the interpreter of an environment that has vLLM. What replies is no trained model: it is a Llama whose
weights we set (`copier`), so that its greedy replies copy the memory in the prompt, all of it, or with a share
`--changed` of its vocabulary replaced. So what it says means nothing, how much of a memory stays is our choice, and time is
that of a model of its size. Arms take turns, each is as often the first, and a first round is left out; before each of them
the server forgets the prompts that it has seen. Seconds are medians. The parts:

    speculation  a server without it against one with it (`ngram`), `--questions` at once; `same`: the same answers
    prefixes     the profile `default` against `chunk-first`, `--asked` questions on one document
    throughput   `--readings` readings at once, with a journal, against their recorded requests sent by a bare loop

`against` is the time of the first arm over that of the row; `cached` is the share of prompt tokens from the server's cache;
`drafted` and `accepted` are tokens that the server guessed in all rounds, and those that were right.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import math
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.readers import write
from memagent.core import Turn
from memagent.documents import Document, load
from memagent.journal import Journal
from memagent.models.open import EMBEDDED, OpenModel
from memagent.models.openai_compatible import OpenAIEngine
from memagent.profiles import load_profile
from memagent.session import Session
from memagent.settings import make_settings
from tests.servers import free_port

COLUMNS = "part arm questions turns seconds against same cached drafted accepted changed parameters dtype repeats".split()
BOOK = Path(__file__).parent.parent / "data" / "books"
CHUNK, WINDOW = 640, 2048
NGRAM = '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4}'
MEMORY = (
    "Found so far: the captain of the first ship promised 4711 gold coins to whoever raised the white whale; the second"
    " mate, Stubb, smoked 12 pipes a day; the carpenter made 33 lances; the cook gave a sermon to the sharks"
)
_STARTS_WITHIN = 600  # seconds

# The copier: dimensions of a head, and of the code of a token. The first _PLACES pairs of a head's dimensions tell places
# apart, and those from _SLOW on hardly turn within a window, so that codes can be compared in them.
HEADS, CODE = 256, 44
_THETA, _PLACES, _SLOW = 1e16, 24, 40
# A reply begins after what a memory stands after, and ends with its line.
_TEMPLATE = (
    "{%- for message in messages -%}{{ message['content'] }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '\\n\\n<memory>\\n' }}{%- endif -%}"
)


class Recording(OpenAIEngine):
    """An engine that keeps the requests that it sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.bodies: list[dict[str, Any]] = []

    def _request(self, turn: Turn) -> dict[str, Any]:
        self.bodies.append(super()._request(turn))
        return self.bodies[-1]


@dataclass(frozen=True)
class Run:
    """What one arm did in one round. `cached`: tokens of its prompts that the server had in its cache."""

    seconds: float
    turns: int = 0
    prompt: int = 0
    cached: int = 0
    answers: tuple[str, ...] = ()


class Stand:
    """A vLLM server, and how it is asked."""

    def __init__(self, stack: ExitStack, url: str, folder: Path, concurrency: int) -> None:
        self.url = url
        self.engine = Recording("copier", f"{url}/v1", concurrency=concurrency)
        stack.callback(self.engine.close)
        self.journal = stack.enter_context(Journal.open(folder / f"{url.rpartition(':')[2]}.sqlite3"))

    def forget(self) -> None:
        """The server forgets the prompts that it has seen, and we the requests."""
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request):
            self.engine.bodies.clear()

    def read(self, document: Document, questions: Sequence[str], profile: str = "default", chunk: int = CHUNK) -> Run:
        """Readings of all questions at once."""
        self.forget()
        settings = make_settings(
            OpenModel(engine=self.engine),
            model="copier",
            profile=replace(load_profile(profile), empty_memory=MEMORY),
            question_tokens=64,
            chunk_tokens=chunk,
            memory_tokens=128,
            answer_tokens=128,
        )
        session = Session(document, OpenModel(engine=self.engine), settings, self.journal, verified=False)
        began = time.perf_counter()
        made = session.run(session.start(questions))
        seconds = time.perf_counter() - began
        if failed := [one.error for one in made if one.error]:
            raise SystemExit(failed[0])
        return Run(
            seconds,
            sum(one.turns for one in made),
            sum(one.usage.prompt_tokens for one in made),
            sum(one.usage.cached_tokens for one in made),
            tuple(one.answer for one in made),
        )

    def send(self, bodies: Sequence[Mapping[str, Any]], concurrency: int) -> Run:
        """The requests themselves, so many at a time, in a bare loop."""
        self.forget()
        began = time.perf_counter()
        replies = asyncio.run(_sent(f"{self.url}/v1/chat/completions", bodies, concurrency))
        seconds = time.perf_counter() - began
        usages = [one["usage"] for one in replies]
        cached = sum((one.get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for one in usages)
        return Run(seconds, len(replies), sum(one["prompt_tokens"] for one in usages), cached)


async def _sent(url: str, bodies: Sequence[Mapping[str, Any]], concurrency: int) -> list[Any]:
    waiting, replies = iter(bodies), []

    async def work(session: aiohttp.ClientSession) -> None:
        for body in waiting:
            async with session.post(url, json=body) as reply:
                reply.raise_for_status()
                replies.append(await reply.json())

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await asyncio.gather(*(work(session) for _ in range(concurrency)))
    return replies


@contextmanager
def vllm_server(python: Path, model: Path, dtype: str, log: Path, *flags: str) -> Iterator[str]:
    """The address of a vLLM server, which is gone at the end, with all its processes. It may still be starting."""
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--served-model-name", "copier", "--dtype", dtype, "--enforce-eager", "--max-model-len", str(WINDOW)]
    command += ["--host", "127.0.0.1", "--enable-prompt-tokens-details", *flags]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_SERVER_DEV_MODE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd="/", start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def await_server(url: str, log: Path) -> None:
    end = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the server did not come up; its log ends:\n{log.read_text(errors='replace')[-4000:]}")


def in_turns(arms: Mapping[str, Callable[[], Run]], repeat: int) -> dict[str, list[Run]]:
    """The runs of every arm. A first round is left out."""
    runs: dict[str, list[Run]] = {name: [] for name in arms}
    order = list(arms)
    for number in range(repeat + 1):
        order = order[1:] + order[:1]
        for name in order:
            run = arms[name]()
            print(number, name, run, file=sys.stderr)
            if number:
                runs[name].append(run)
    return runs


def rows_of(part: str, questions: int, runs: Mapping[str, list[Run]]) -> list[dict[str, Any]]:
    """A row for each arm, against the first."""
    took = {name: median(run.seconds for run in found) for name, found in runs.items()}
    base = next(iter(runs))
    answers = runs[base][0].answers
    return [
        {
            "part": part,
            "arm": name,
            "questions": questions,
            "turns": found[0].turns,
            "seconds": round(took[name], 2),
            "against": round(took[base] / took[name], 2),
            "same": all(run.answers == answers for run in found) if answers else "",
            "cached": round(sum(run.cached for run in found) / sum(run.prompt for run in found), 3),
            "repeats": len(found),
        }
        for name, found in runs.items()
    ]


def questions_of(count: int) -> list[str]:
    return [f"What is the special magic number for the {number + 1}. ship?" for number in range(count)]


def speculation(plain: Stand, guessing: Stand, document: Document, given: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in given.questions:
        asked = questions_of(count)
        before = guessing.engine.speculation()
        arms = {"plain": lambda a=asked: plain.read(document, a), "ngram": lambda a=asked: guessing.read(document, a)}
        rows += rows_of("speculation", count, in_turns(arms, given.repeat))
        if before and (after := guessing.engine.speculation()):
            rows[-1] |= {"drafted": after[0] - before[0], "accepted": after[1] - before[1]}
    return rows


def prefixes(stand: Stand, document: Document, given: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in given.asked:
        arms = {
            profile: lambda count=count, profile=profile: stand.read(document, questions_of(count), profile)
            for profile in ("default", "chunk-first")
        }
        rows += rows_of("prefixes", count, in_turns(arms, given.repeat))
    return rows


def throughput(stand: Stand, document: Document, given: argparse.Namespace) -> list[dict[str, Any]]:
    asked = questions_of(given.readings)
    stand.read(document, asked)
    bodies = list(stand.engine.bodies)
    arms = {
        "bare loop": lambda: stand.send(bodies, given.readings),
        "memagent": lambda: stand.read(document, asked),
    }
    return rows_of("throughput", given.readings, in_turns(arms, given.repeat))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.vllm")
    parser.add_argument("python", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", nargs="+", default=["speculation", "prefixes", "throughput"])
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--asked", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--readings", type=int, default=64)
    parser.add_argument("--chunks", type=int, default=3)
    parser.add_argument("--changed", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        write(given.out, COLUMNS, measured(stack, folder, given))


def measured(stack: ExitStack, folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    parameters = copier(folder / "copier", given)
    documents = {count: stack.enter_context(load([_text(folder, count)])) for count in (1, given.chunks)}
    flags = {"plain": (), "ngram": ("--speculative-config", NGRAM)} if "speculation" in given.part else {"plain": ()}
    urls = {
        name: stack.enter_context(vllm_server(given.python, folder / "copier", given.dtype, folder / f"{name}.log", *more))
        for name, more in flags.items()
    }
    stands: dict[str, Stand] = {}
    for name, url in urls.items():
        await_server(url, folder / f"{name}.log")
        stands[name] = Stand(stack, url, folder, given.readings)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "speculation": lambda: speculation(stands["plain"], stands["ngram"], documents[given.chunks], given),
        "prefixes": lambda: prefixes(stands["plain"], documents[given.chunks], given),
        "throughput": lambda: throughput(stands["plain"], documents[1], given),
    }
    rows: list[dict[str, Any]] = []
    for part in given.part:
        for row in parts[part]():
            rows.append({**row, "changed": given.changed, "parameters": parameters, "dtype": given.dtype})
            print(rows[-1], file=sys.stderr)
        write(given.out, COLUMNS, rows)
    return rows


def _text(folder: Path, chunks: int) -> Path:
    """A book's beginning that fills so many chunks."""
    book = gzip.decompress(next(BOOK.glob("*.gz")).read_bytes()).decode().strip()
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    offsets = tokenizer(book[:100_000], return_offsets_mapping=True)["offset_mapping"]
    path = folder / f"book-{chunks}.txt"
    path.write_text(book[: offsets[(chunks - 1) * CHUNK + CHUNK // 2][0]].strip())
    return path


def copier(folder: Path, given: argparse.Namespace) -> int:
    """Writes a Llama whose greedy replies copy the old memory, by weights that we set; returns how many it has."""
    tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    ends = [number for token, number in tokenizer.get_vocab().items() if "Ċ" in token]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=given.hidden,
        intermediate_size=2 * given.hidden,
        num_hidden_layers=given.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=HEADS,
        max_position_embeddings=WINDOW,
        rope_parameters={"rope_type": "default", "rope_theta": _THETA},
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=ends,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        _copying(model, ends, given.changed)
    model.generation_config.eos_token_id = ends
    model.to(getattr(torch, given.dtype)).save_pretrained(folder)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return sum(one.numel() for one in model.parameters())


def _copying(model: Any, ends: list[int], changed: float) -> None:
    """Sets the weights of an induction head: what followed the last four tokens before, follows them again.

    A row of the residual stream has the code of its token, those of the four tokens before it, what is to be said next,
    and a constant.
    """
    token, *before, said = (slice(number * CODE, (number + 1) * CODE) for number in range(6))
    constant = 6 * CODE
    codes = torch.randint(0, 2, (model.config.vocab_size, CODE)) * 2.0 - 1
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.zero_()
        layer.self_attn.o_proj.weight.zero_()
    embedded = model.model.embed_tokens.weight.zero_()
    embedded[:, token], embedded[:, constant] = codes, math.sqrt(CODE)
    width = model.config.hidden_size
    first, second = math.sqrt(2 * CODE / width), math.sqrt(6 * CODE / width)  # what a norm divides by
    _look_back(model.model.layers[0].self_attn, token, before, constant, first)
    _match(model.model.layers[1].self_attn, token, before, said, second)
    head = model.lm_head.weight.zero_()
    head[:, said] = codes
    draw = random.Random(0)
    others = [number for number in range(len(codes)) if number not in ends]
    chosen = draw.sample(others, round(changed * len(others)))
    head[chosen] = head[chosen[1:] + chosen[:1]]


def _look_back(attention: Any, token: slice, before: list[slice], constant: int, norm: float) -> None:
    """Head n looks at the token n places before, and puts its code into the slot for it."""
    q, k, v, o = (getattr(attention, f"{name}_proj").weight for name in "qkvo")
    for weight in (q, k, v):
        weight.zero_()
    turn = _THETA ** (-torch.arange(_PLACES) / (HEADS / 2))
    strength = 16.0 * norm / math.sqrt(CODE)
    for number, slot in enumerate(before):
        start = number * HEADS
        q[start : start + _PLACES, constant] = strength * torch.cos(-(number + 1) * turn)
        q[start + HEADS // 2 : start + HEADS // 2 + _PLACES, constant] = strength * torch.sin(-(number + 1) * turn)
        k[start : start + _PLACES, constant] = strength
        v[start : start + CODE, token] = torch.eye(CODE) * norm
        o[slot, start : start + CODE] = torch.eye(CODE)


def _match(attention: Any, token: slice, before: list[slice], said: slice, norm: float) -> None:
    """A head looks at the token that follows the most of the last four tokens, the last one counting most."""
    q, k, v, o = (getattr(attention, f"{name}_proj").weight for name in "qkvo")
    for weight in (q, k, v):
        weight.zero_()
    slow = [*range(_SLOW, HEADS // 2), *range(HEADS // 2 + _SLOW, HEADS)]
    for number, (asked, known, weight) in enumerate(zip([token, *before], before, (1.0, 0.8, 0.7, 0.6), strict=False)):
        rows = slow[number * CODE : (number + 1) * CODE]
        q[rows, asked] = torch.eye(CODE) * 3 * weight * norm
        k[rows, known] = torch.eye(CODE) * 3 * norm
    v[:CODE, token] = torch.eye(CODE) * norm
    o[said, :CODE] = 4 * torch.eye(CODE)


if __name__ == "__main__":
    main(sys.argv[1:])
