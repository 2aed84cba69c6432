"""The engine against real servers, llama.cpp and `transformers serve`: one tiny model, equal to transformers in process."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from memagent.core.types import Completion, Turn
from memagent.errors import ContextTooLongError, ModelRefusedError, ModelUnavailableError
from memagent.models.gguf import write_gguf
from memagent.models.openai_compatible import OpenAIEngine
from memagent.models.retrying import Backoff
from memagent.models.server_tokenizer import ServerTokenizer
from memagent.models.tokenizers import FileTokenizer
from tests.models.tiny import make_tiny_model
from tests.servers import ServerProgram, llama_server, transformers_server

pytestmark = pytest.mark.timeout(180)
WINDOW = 512
BOOK = Path(__file__).parents[2] / "src" / "memagent" / "tasks" / "data" / "moby_dick.txt.gz"
PROMPTS = [
    "Question: what is the colour of the house?",
    "the house on the hill is blue. New memory:",
    "Naïve café, straße, Москва, 東京, 한국어 🙂",
    "def f(x):\n    return x + 1\n\n\tdone 1234567",
    "x",
]


@dataclass(frozen=True)
class Model:
    folder: Path
    gguf: Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    root = tmp_path_factory.mktemp("served")
    folder = make_tiny_model(root / "tiny", seed=1, window=WINDOW)
    return Model(folder, write_gguf(folder, root / "tiny.gguf"))


@pytest.fixture(scope="module")
def greedy(model: Model) -> dict[str, list[int]]:
    """Token ids of transformers' own greedy continuation of every prompt."""
    import torch
    import transformers

    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(model.folder, dtype=torch.float32).eval()
    continuations = {}
    for prompt in PROMPTS:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            out = network.generate(**ids, max_new_tokens=40, do_sample=False)
        continuations[prompt] = out[0, ids["input_ids"].shape[1] :].tolist()
    return continuations


@pytest.fixture(scope="module")
def llama(model: Model) -> Iterator[ServerProgram]:
    with llama_server(model.gguf, window=WINDOW, slots=2) as server:
        yield server


@pytest.fixture(scope="module")
def poor(model: Model) -> Iterator[ServerProgram]:
    pytest.importorskip("accelerate")
    with transformers_server(model.folder) as server:
        yield server


def turn(user: str, max_tokens: int = 40) -> Turn:
    return Turn(kind="update", id="chunk-1", user=user, max_tokens=max_tokens)


def completions(results: list[Completion | Exception]) -> list[Completion]:
    assert all(isinstance(result, Completion) for result in results), results
    return [result for result in results if isinstance(result, Completion)]


def expected(model: Model, greedy: dict[str, list[int]]) -> list[str]:
    """What the greedy tokens say."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model.folder)
    return [comparable(tokenizer.decode(greedy[prompt], skip_special_tokens=True)) for prompt in PROMPTS]


def comparable(text: str) -> str:
    """`text` with every run of undecodable bytes as one mark: servers differ in how many they make of it."""
    return re.sub("\ufffd+", "\ufffd", text).rstrip("\ufffd")


class TestLlamaCpp:
    def test_greedy_text_is_that_of_transformers(
        self, model: Model, greedy: dict[str, list[int]], llama: ServerProgram
    ) -> None:
        with OpenAIEngine("tiny", llama.url) as engine:
            results = completions(engine.generate([turn(prompt) for prompt in PROMPTS]))
        assert [comparable(result.text) for result in results] == expected(model, greedy)
        assert [result.completion_tokens for result in results] == [len(greedy[prompt]) for prompt in PROMPTS]

    def test_tokens_are_those_of_the_file(self, model: Model, llama: ServerProgram) -> None:
        book = gzip.decompress(BOOK.read_bytes()).decode()[:60_000]
        file = FileTokenizer.load(model.folder)
        with OpenAIEngine("tiny", llama.url) as engine:
            tokenizer = engine.tokenizer
            assert isinstance(tokenizer, ServerTokenizer)
            for text in [*PROMPTS, "<|end|> is text", "e\u0301 👩‍💻", book]:
                assert tokenizer.count(text) == file.count(text)
                assert tokenizer.ends(text) == file.ends(text)

    def test_it_tells_window_overhead_and_usage(self, model: Model, llama: ServerProgram) -> None:
        with OpenAIEngine("tiny", llama.url) as engine:
            assert (engine.window, engine.overhead) == (WINDOW, 2)
            (result,) = completions(engine.generate([turn("the house", max_tokens=3)]))
            assert result.prompt_tokens == engine.tokenizer.count("the house") + engine.overhead
            assert (result.completion_tokens, result.finish) == (3, "length")

    def test_context_too_long(self, llama: ServerProgram) -> None:
        with OpenAIEngine("tiny", llama.url) as engine:
            short, long = engine.generate([turn("x"), turn("the house is blue " * 300)])
        assert isinstance(short, Completion)
        assert isinstance(long, ContextTooLongError)

    def test_api_key(self, model: Model) -> None:
        with llama_server(model.gguf, window=WINDOW, api_key="let-me-in") as server:
            with OpenAIEngine("tiny", server.url, api_key="let-me-in") as engine:
                assert isinstance(engine.generate([turn("x")])[0], Completion)
            with OpenAIEngine("tiny", server.url, api_key="wrong-key") as engine:
                (error,) = engine.generate([turn("x")])
        assert isinstance(error, ModelRefusedError)
        assert "wrong-key" not in str(error)


class TestCrash:
    """The prompt and the reply are as long as fits, and several are under way, so that the crash meets them at work."""

    TURNS = 60

    def test_killed_for_good(self, model: Model) -> None:
        with llama_server(model.gguf, window=WINDOW) as server, self.engine(server, retries=2) as engine:
            results = self.generate_and_kill(engine, server)
        failed = [result for result in results if not isinstance(result, Completion)]
        assert failed
        assert {type(error) for error in failed} == {ModelUnavailableError}
        assert server.url in str(failed[0])

    def test_restarted_within_the_retries(self, model: Model) -> None:
        with llama_server(model.gguf, window=WINDOW) as server, self.engine(server, retries=12) as engine:
            reference = engine.generate([self.turn()])
            results = self.generate_and_kill(engine, server, then=server.start)
        assert {result.text for result in completions(results)} == {result.text for result in completions(reference)}

    def engine(self, server: ServerProgram, retries: int) -> OpenAIEngine:
        return OpenAIEngine("tiny", server.url, retries=retries, backoff=Backoff(base=0.05, limit=0.5))

    def turn(self) -> Turn:
        return turn("the house on the hill " * 20, max_tokens=200)

    def generate_and_kill(
        self, engine: OpenAIEngine, server: ServerProgram, then: Callable[[], None] | None = None
    ) -> list[Completion | Exception]:
        def crash() -> None:
            server.kill()
            if then is not None:
                time.sleep(0.2)
                then()

        engine.generate([self.turn()])
        timer = threading.Timer(0.3, crash)
        timer.start()
        results = engine.generate([self.turn()] * self.TURNS)
        timer.join()
        return results


class TestTransformersServe:
    """The strict, poor server: it refuses unknown fields, lists no models and checks no context."""

    def test_greedy_text_is_that_of_transformers(
        self, model: Model, greedy: dict[str, list[int]], poor: ServerProgram
    ) -> None:
        with OpenAIEngine(str(model.folder), poor.url) as engine:
            results = completions(engine.generate([turn(prompt) for prompt in PROMPTS]))
            assert [comparable(result.text) for result in results] == expected(model, greedy)
            assert results[0].prompt_tokens > 10
            assert (engine.window, engine.tokenizer.exact) == (None, False)

    def test_unknown_fields_and_models_are_refused(self, model: Model, poor: ServerProgram) -> None:
        with OpenAIEngine(str(model.folder), poor.url, extra_body={"top_banana": 1}) as engine:
            (error,) = engine.generate([turn("x")])
        assert isinstance(error, ModelRefusedError)
        assert "top_banana" in str(error)
        with OpenAIEngine("another", poor.url) as engine:
            (error,) = engine.generate([turn("x")])
        assert isinstance(error, ModelRefusedError)
        assert "another" in str(error)
