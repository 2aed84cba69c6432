"""Ours against the released client on one llama.cpp server: the same prompts, turn by turn.

    python -m benchmarks.released CODE OUT.csv [--tokens 10000] [--questions 1 8] [--repeat 5] [--guess 0 16] [--memory 128]
        [--model copier [--changed 0.1] [--kept 512]]

The model is the embedded one, or a Llama whose weights we set so that it copies its memory, all of it or with a share
`--changed` of its vocabulary replaced (`benchmarks/copier.py`): its readings begin with a memory of `--kept` tokens, up to
some 500: beyond, it takes other words for the next one.

CODE is a checkout of the released code (BytedTsinghua-SIA/MemAgent); its own client runs unchanged, and needs aiohttp and
tqdm. Both cut the document where the released client does, and use its words, temperature 0 and the paper's rules, so that
the server gets the same requests; the answers are compared. Clients take turns. Seconds are those from the call to the last
answer; starting Python and opening tokenizers are left out for both.

    released   the released client, all questions at once
    ours       a session without a journal and without verification, which the released client does not have
    journal    the same with a journal, as people use it
    together   all questions in one reading (`--together`), with words of our own, since the released ones have none for it;
               not with the copier, which has one memory to copy

`--guess` starts the server with speculation of so many tokens (0: without). `against_released` is the median of the
released client without speculation over that of the row; `same` says whether all answers are those of that client.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from benchmarks.copier import long_memory, write_copier
from benchmarks.readers import write
from memagent.core import Chunk, Chunks, Plan
from memagent.documents import Document, load
from memagent.embedded import FOLDER as EMBEDDED
from memagent.journal import Journal
from memagent.models.gguf import write_gguf
from memagent.models.open import open_model
from memagent.profiles.released import import_released
from memagent.session import Session
from memagent.settings import make_settings
from tests.servers import llama_server

COLUMNS = "model changed kept client guess questions tokens turns seconds against_released same repeats".split()
BOOK = Path(__file__).parent.parent / "data" / "books"
CHUNK, WINDOW, SLOTS = 640, 2048, 8
_SECTION = 32  # tokens of a memory for several questions that each of them has at least


class CutAs(Session):
    """A session whose chunks are given."""

    chunks: Chunks

    def plan(self, question: str) -> Plan:
        return self._plan(question, self.document, self.document.digest, self.chunks)


def cut_as_released(document: Document, tokenizer: Any) -> Chunks:
    """The chunks of the released client: every so many tokens of the whole document."""
    text = document.read(0, len(document))
    ends = [end for _, end in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]]
    return Chunks(Chunk(start=0, end=end, tokens=CHUNK) for end in [*ends[CHUNK - 1 : -1 : CHUNK], len(text)])


def released(code: Path, port: int, memory: int, empty: str = "") -> Any:
    """The released client, told of the server as its users tell it. `empty`: what a reading begins with instead."""
    told = {
        "SERVE_PORT": port,
        "RECURRENT_CHUNK_SIZE": CHUNK,
        "RECURRENT_MAX_NEW": memory,
        "RECURRENT_MAX_CONTEXT_LEN": 10**9,
    }
    os.environ.update({name: str(value) for name, value in told.items()})
    sys.path.insert(0, str(code / "taskutils" / "memory_eval"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "utils"]:
        del sys.modules[name]  # it reads its environment as it is imported
    with redirect_stdout(StringIO()):
        client: Any = importlib.import_module("utils.recurrent_boxed")
    client.NO_MEMORY = empty or client.NO_MEMORY
    return client


class Stand:
    """Both clients at one server."""

    def __init__(
        self, stack: ExitStack, given: argparse.Namespace, port: int, document: Document, journal: Journal
    ) -> None:
        code, memory = given.code, given.memory
        self.copies = given.model == "copier"
        self.tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
        empty = long_memory(self.tokenizer, given.kept) if self.copies else ""
        self.client, self.document, self.journal = released(code, port, memory, empty), document, journal
        self.opened = open_model("stand", base_url=f"http://127.0.0.1:{port}/v1", tokenizer=str(EMBEDDED), window=WINDOW)
        stack.callback(self.opened.engine.close)
        whole = replace(import_released(code), answer_format="text")  # as the released client hands it on
        whole = replace(whole, empty_memory=empty or whole.empty_memory)
        self.settings = {
            name: make_settings(
                self.opened,
                model="stand",
                profile=profile,
                rules="paper",
                question_tokens=256,
                chunk_tokens=CHUNK,
                memory_tokens=memory if name == "ours" else max(memory, _SECTION * max(given.questions)),
                answer_tokens=memory,
            )
            for name, profile in (("ours", whole), ("together", "default"))
        }
        self.turns = len(cut_as_released(document, self.tokenizer)) + 1

    def by_released(self, questions: Sequence[str]) -> list[str]:
        text = self.document.read(0, len(self.document))
        items = [{"_id": 1, "context": text, "input": question} for question in questions]

        async def ask() -> list[str]:
            return await asyncio.gather(
                *(self.client.async_query_llm(item, "stand", self.tokenizer, temperature=0.0, top_p=1.0) for item in items)
            )

        with redirect_stderr(StringIO()):
            return asyncio.run(ask())

    def by_us(self, questions: Sequence[str], journal: Journal | None = None, *, together: bool = False) -> list[str]:
        settings = self.settings["together" if together else "ours"]
        session = CutAs(self.document, self.opened, settings, journal, verified=False)
        session.chunks = cut_as_released(self.document, self.tokenizer)
        asked = session.together(questions) if together else questions
        return [reading.answer for reading in session.run(session.start(asked))]


def timed(stand: Stand, questions: Sequence[str], repeat: int) -> Mapping[str, tuple[float, list[str]]]:
    """The median seconds, and the last answers, of each client. They take turns, and each is as often the first as the
    others are: what one leaves in the server's slots makes the next faster or slower. A first round is left out."""
    clients: dict[str, Callable[[], list[str]]] = {
        "released": lambda: stand.by_released(questions),
        "ours": lambda: stand.by_us(questions),
        "journal": lambda: stand.by_us(questions, stand.journal),
    }
    if len(questions) > 1 and not stand.copies:
        clients["together"] = lambda: stand.by_us(questions, stand.journal, together=True)
    seconds: dict[str, list[float]] = {name: [] for name in clients}
    answers: dict[str, list[str]] = {}
    order = list(clients)
    for number in range(repeat + 1):
        order = order[1:] + order[:1]
        for name in order:
            began = time.perf_counter()
            answers[name] = clients[name]()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return {name: (median(seconds[name]), answers[name]) for name in clients}


def rows_of(stand: Stand, given: argparse.Namespace, guess: int, base: dict[int, Any]) -> list[dict[str, Any]]:
    """One row for each client and number of questions. `base` has what the released client did without speculation."""
    rows: list[dict[str, Any]] = []
    for count in given.questions:
        questions = [f"What is the special magic number for the {number + 1}. ship?" for number in range(count)]
        found = timed(stand, questions, given.repeat)
        base.setdefault(count, found["released"])
        for client, (seconds, answers) in found.items():
            row = {
                "model": given.model,
                "changed": given.changed,
                "kept": given.kept,
                "client": client,
                "guess": guess,
                "questions": count,
                "tokens": given.tokens,
                "repeats": given.repeat,
            }
            row["turns"] = stand.turns * (1 if client == "together" else count)
            row["seconds"] = round(seconds, 3)
            row["against_released"] = round(base[count][0] / seconds, 3)
            row["same"] = list(map(str.strip, answers)) == list(map(str.strip, base[count][1]))
            rows.append(row)
            print(row, file=sys.stderr)
    return rows


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.released")
    parser.add_argument("code", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--guess", type=int, nargs="+", default=[0, 16])
    parser.add_argument("--memory", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", choices=["embedded", "copier"], default="embedded")
    parser.add_argument("--changed", type=float, default=0.0)
    parser.add_argument("--kept", type=int, default=75)
    given = parser.parse_args(arguments)
    if given.kept >= given.memory:
        parser.error(f"--kept {given.kept} needs a --memory of more tokens than {given.memory}")
    rows: list[dict[str, Any]] = []
    base: dict[int, Any] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        book = gzip.decompress(next(BOOK.glob("*.gz")).read_bytes()).decode().strip()
        tokenizer: Any = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
        offsets = tokenizer(book, return_offsets_mapping=True)["offset_mapping"]
        (folder / "book.txt").write_text(book[: offsets[given.tokens][0]].strip())
        document = stack.enter_context(load([folder / "book.txt"]))
        journal = stack.enter_context(Journal.open(folder / "journal.sqlite3"))
        model = EMBEDDED
        if given.model == "copier":
            write_copier(model := folder / "copier", window=WINDOW, changed=given.changed)
        weights = write_gguf(model, folder / "model.gguf", dtype="f16")
        for guess in given.guess:
            with llama_server(weights, window=WINDOW, slots=SLOTS, threads=given.threads, cache=0, guess=guess) as server:
                stand = Stand(stack, given, server.port, document, journal)
                rows += rows_of(stand, given, guess, base)
    write(given.out, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
