"""One reading of the embedded model, three ways: in this process, on llama.cpp, on `transformers serve`. All real."""

from __future__ import annotations

import pytest

from memagent.core.types import Span
from memagent.models.gguf import write_gguf
from memagent.models.open import EMBEDDED
from memagent.tasks.fitting import Planned, plant
from memagent.tasks.haystack import Haystack
from tests.servers import llama_server, transformers_server

QUESTION = "What is the access code for amber-falcon?"
BUDGETS = ["--question-tokens", 64, "--chunk-tokens", 640, "--memory-tokens", 128, "--answer-tokens", 128]


@pytest.fixture
def novel(tmp_path):
    """Five chunks of Moby-Dick with the fact in the middle."""
    fact = Planned(text="The access code for amber-falcon is 4821973.")
    text, _ = plant(Haystack.shipped(), [Span(start=30_000, end=38_000)], [fact], [0.5])
    path = tmp_path / "novel.txt"
    path.write_text(str(text))
    return path


def ask(memagent, novel, *options):
    result = memagent("ask", novel, "-q", QUESTION, "--json", *BUDGETS, *options)
    assert result.code == 0, result.err
    return result.json


@pytest.fixture
def here(memagent, novel):
    return ask(memagent, novel)


@pytest.mark.parametrize("guess", [0, 16])
def test_llama_cpp_reads_as_this_process_does_also_if_it_guesses(memagent, novel, here, tmp_path, guess):
    gguf = write_gguf(EMBEDDED, tmp_path / "embedded.gguf")
    with llama_server(gguf, window=1024, slots=2, guess=guess) as server:
        there = ask(memagent, novel, "--model", "embedded-gguf", "--base-url", server.url, "--profile", "compact")
    for key in ("answer", "memory", "turns", "provenance", "quotes"):
        assert there[key] == here[key], key
    assert there["document"] == here["document"]  # counted by the server, exactly as here


def test_a_run_on_llama_cpp_scores_as_one_in_this_process(memagent, tmp_path):
    samples = tmp_path / "s.jsonl"
    command = ["synth", "niah_single_2", "niah_multiquery", "--tokens", 1500, "--samples", 2, "--seed", 5, "-o", samples]
    assert memagent(*command).code == 0
    gguf = write_gguf(EMBEDDED, tmp_path / "embedded.gguf")
    for reader in ("memory", "retrieve"):
        here = memagent("eval", samples, "-o", tmp_path / f"here-{reader}", "--reader", reader, "--json").json
        with llama_server(gguf, window=1024, slots=2) as server:
            model = ["--model", "embedded-gguf", "--base-url", server.url, "--profile", "compact", *BUDGETS]
            model += ["--through-memory"] if reader == "retrieve" else []
            there = memagent("eval", samples, "-o", tmp_path / f"there-{reader}", "--reader", reader, "--json", *model).json
        assert there["cells"] == here["cells"]
        assert not there["failures"]


def test_transformers_serve_reads_as_this_process_does(memagent, novel, here):
    # This server does not tell what its chat form adds: 64 tokens are set aside where 2 would do, hence the wider window.
    options = ["--profile", "compact", "--window", 1088, "--tokenizer", EMBEDDED]
    with transformers_server(EMBEDDED) as server:
        there = ask(memagent, novel, "--model", str(EMBEDDED), "--base-url", server.url, *options)
    for key in ("answer", "memory", "turns", "provenance", "quotes"):
        assert there[key] == here[key], key


def test_the_embedded_model_finds_the_fact(here):
    assert here["answer"] == "4821973"
    assert "4821973" in here["quotes"][0]["cited_text"]
    assert here["usage"]["prompt_tokens"] > here["document"]["tokens"]
