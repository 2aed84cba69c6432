"""memagent at a vLLM server on a CPU: speculation, prompts that begin alike, and many readings at once.

    python -m benchmarks.vllm PYTHON_OF_VLLM OUT.csv [--part speculation prefixes throughput] [--guess ngram suffix]
        [--questions 1 4] [--asked 4 8] [--readings 64] [--chunks 3] [--changed 0.0] [--repeat 2] [--hidden 512]
        [--layers 4] [--dtype float32]

PYTHON_OF_VLLM is the interpreter of an environment that has vLLM. What replies is no trained model: it is a Llama whose
weights we set (`benchmarks/copier.py`), so that its greedy replies copy the memory in the prompt, all of it, or with a
share `--changed` of its vocabulary replaced. Arms take turns, each is as often the first, and a first round is left out;
before each of them the server forgets the prompts that it has seen. Seconds are medians. The parts:

    speculation  a server without it against one for each `--guess`, `--questions` at once; `same`: the same answers.
                 `suffix` needs the package arctic-inference there; what it keeps of earlier replies is switched off
    prefixes     the profile `default` against `chunk-first`, `--asked` questions on one document
    throughput   `--readings` readings at once, with a journal, against their recorded requests sent by a bare loop

`against` is the time of the first arm over that of the row; `cached` is the share of prompt tokens from the server's cache;
`drafted` and `accepted` are tokens that the server guessed in all rounds, and those that were right.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from transformers import AutoTokenizer

from benchmarks.copier import MEMORY, write_copier
from benchmarks.readers import write
from memagent.core import Turn
from memagent.documents import Document, load
from memagent.embedded import FOLDER as EMBEDDED
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.models.openai_compatible import OpenAIEngine
from memagent.profiles import load_profile
from memagent.session import Session
from memagent.settings import make_settings
from tests.servers import free_port

COLUMNS = "part arm questions turns seconds against same cached drafted accepted changed parameters dtype repeats".split()
BOOK = Path(__file__).parent.parent / "data" / "books"
CHUNK, WINDOW = 640, 2048
GUESSES = {
    "ngram": '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4}',
    "suffix": '{"method": "suffix", "suffix_decoding_max_cached_requests": 0}',
}
_STARTS_WITHIN = 600  # seconds


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
def vllm_server(
    python: Path, model: Path, dtype: str, log: Path, *flags: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A vLLM server and its address. It may still be starting, and is gone at the end, with all its processes."""
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--served-model-name", "copier", "--dtype", dtype, "--enforce-eager", "--max-model-len", str(WINDOW)]
    command += ["--host", "127.0.0.1", "--enable-prompt-tokens-details", *flags]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_SERVER_DEV_MODE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd="/", start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def await_server(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < end:
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


def speculation(stands: Mapping[str, Stand], document: Document, given: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in given.questions:
        before = {name: stand.engine.speculation() for name, stand in stands.items()}
        arms = {name: partial(stand.read, document, questions_of(count)) for name, stand in stands.items()}
        rows += rows_of("speculation", count, in_turns(arms, given.repeat))
        for row in rows[-len(stands) :]:
            first, last = before[row["arm"]], stands[row["arm"]].engine.speculation()
            if first and last:
                row |= {"drafted": last[0] - first[0], "accepted": last[1] - first[1]}
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
    parser.add_argument("--guess", nargs="+", choices=GUESSES, default=["ngram"])
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
    shape = {name: getattr(given, name) for name in ("hidden", "layers", "changed", "dtype")}
    parameters = write_copier(folder / "copier", window=WINDOW, **shape)
    documents = {count: stack.enter_context(load([_text(folder, count)])) for count in (1, given.chunks)}
    guesses = given.guess if "speculation" in given.part else ()
    flags = {"plain": (), **{name: ("--speculative-config", GUESSES[name]) for name in guesses}}
    servers = {
        name: stack.enter_context(vllm_server(given.python, folder / "copier", given.dtype, folder / f"{name}.log", *more))
        for name, more in flags.items()
    }
    stands: dict[str, Stand] = {}
    for name, (url, process) in servers.items():
        await_server(url, process, folder / f"{name}.log")
        stands[name] = Stand(stack, url, folder, given.readings)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "speculation": lambda: speculation(stands, documents[given.chunks], given),
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


if __name__ == "__main__":
    main(sys.argv[1:])
