"""Ours against the released client on one llama.cpp server: the same prompts, turn by turn, with the embedded model.

    python -m benchmarks.released CODE OUT.csv [--tokens 10000] [--questions 1 8] [--repeat 5]

CODE is a checkout of the released code (BytedTsinghua-SIA/MemAgent); its own client runs unchanged, and needs aiohttp and
tqdm. Both cut the document where the released client does, and use its words, temperature 0 and the paper's rules, so that
the server gets the same requests; that it did is checked. Clients take turns, and seconds are those from the call to the
last answer: starting Python and opening tokenizers are left out for both. `journal` is ours with a journal, as people
use it. `against_released` is the released client's time over that of the row, both as the median of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from benchmarks.readers import write
from memagent.core import Chunk, Chunks
from memagent.documents import Document, load
from memagent.journal import Journal
from memagent.models.gguf import write_gguf
from memagent.models.open import EMBEDDED, OpenModel, open_model
from memagent.profiles.released import import_released
from memagent.session import Session
from memagent.settings import make_settings
from tests.servers import llama_server

COLUMNS = "client questions tokens turns seconds against_released repeats".split()
CHUNK, MEMORY, WINDOW = 640, 128, 2048


def released(code: Path, port: int) -> Any:
    """The released client, told of the server as its users tell it."""
    told = {"SERVE_PORT": port, "RECURRENT_CHUNK_SIZE": CHUNK, "RECURRENT_MAX_NEW": MEMORY, "RECURRENT_MAX_CONTEXT_LEN": 10**9}
    os.environ.update({name: str(value) for name, value in told.items()})
    sys.path.insert(0, str(code / "taskutils" / "memory_eval"))
    with redirect_stdout(StringIO()):
        return importlib.import_module("utils.recurrent_boxed")


async def ask_released(client: Any, tokenizer: Any, text: str, questions: Sequence[str]) -> list[str]:
    """The answers, all questions at once."""
    items = [{"_id": 1, "context": text, "input": question} for question in questions]
    return await asyncio.gather(*(client.async_query_llm(item, "stand", tokenizer, 0.0, 1.0) for item in items))


def cut_as_released(document: Document, tokenizer: Any) -> Chunks:
    """The chunks of the released client: every so many tokens of the whole document."""
    ends = [end for _, end in tokenizer(document.read(0, len(document)), return_offsets_mapping=True)["offset_mapping"]]
    cuts = [*ends[CHUNK - 1 : -1 : CHUNK], len(document)]
    return Chunks(Chunk(start=0, end=end, tokens=CHUNK) for end in cuts)


def ask_ours(opened: OpenModel, document: Document, chunks: Chunks, profile: Any, questions: Sequence[str], journal: Any):
    """The answers, all questions at once."""
    settings = make_settings(
        opened, model="stand", profile=profile, rules="paper", chunk_tokens=CHUNK, memory_tokens=MEMORY, answer_tokens=MEMORY,
        question_tokens=64,
    )  # fmt: skip
    session = Session(document, opened, settings, journal, verified=False)
    session.plan(questions[0], chunks)
    return [reading.answer for reading in session.run(session.start(questions))]


if __name__ == "__main__":
    code = Path(sys.argv[1])
    profile = import_released(code)
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED, local_files_only=True)
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    import gzip
    text = gzip.open(next(Path("data/books").glob("*.gz")), "rt").read().strip()
    ids = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    text = text[: ids[n][0]].strip()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        gguf = write_gguf(EMBEDDED, folder / "m.gguf", dtype="f16")
        server = stack.enter_context(llama_server(gguf, window=WINDOW, slots=8, threads=2, cache=0))
        client = released(code, server.port)
        (folder / "doc.txt").write_text(text)
        document = stack.enter_context(load([folder / "doc.txt"]))
        chunks = cut_as_released(document, tokenizer)
        opened = open_model("stand", base_url=server.url, tokenizer=str(EMBEDDED), window=WINDOW)
        opened.engine.window
        journal = stack.enter_context(Journal.open(folder / "j.sqlite3"))
        for q in (1, 8):
            questions = [f"What is the special magic number for key {i}?" for i in range(q)]
            times = {"released": [], "ours": [], "journal": []}
            for r in range(6):
                t = time.perf_counter(); a = asyncio.run(ask_released(client, tokenizer, text, questions)); times["released"].append(time.perf_counter() - t)
                t = time.perf_counter(); b = ask_ours(opened, document, chunks, profile, questions, None); times["ours"].append(time.perf_counter() - t)
                t = time.perf_counter(); c = ask_ours(opened, document, chunks, profile, questions, journal); times["journal"].append(time.perf_counter() - t)
            print(q, len(chunks), {k: (round(median(v), 3), round(min(v),3)) for k, v in times.items()}, a == b, b == c, a[:2], b[:2])
