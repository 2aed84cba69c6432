"""The in-process engine on a small random model: exact ids and log-probabilities, batching, seeds, special tokens."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

from memagent.core import Completion, Sampling, Turn
from memagent.errors import ConfigError, ContextTooLongError, ModelError
from memagent.models.local import LocalEngine
from memagent.models.open import Defaults, narrowed, open_model
from memagent.models.sampler import Row
from tests.models.tiny import make_tiny_model


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    engine = LocalEngine(make_tiny_model(tmp_path_factory.mktemp("model")), dtype="float32", record_prompts=True)
    yield engine
    engine.close()


def turn(text, *, temperature=0.0, seed=None, max_tokens=12, top_p=1.0):
    return Turn(
        kind="update",
        id="chunk-1",
        user=text,
        max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, seed=seed, top_p=top_p),
    )


TURNS = [turn("a house"), turn("the house on the hill is blue. " * 5), turn("Москва 東京 1234567"), turn("x", max_tokens=3)]


@pytest.mark.parametrize(
    ("default", "given", "window"), [(None, None, 512), (100, None, 100), (100, 60, 60), (None, 9999, 512)]
)
def test_the_window_is_what_is_asked_for_and_no_more_than_the_positions_allow(tmp_path, default, given, window):
    engine = LocalEngine(make_tiny_model(tmp_path), dtype="float32")
    assert engine.window == 512
    assert narrowed(engine, Defaults(window=default), given).engine.window == window


def test_a_batch_gives_what_each_turn_gives_alone(engine):
    together = engine.generate(TURNS)
    for one, alone in zip(together, (engine.generate([a_turn])[0] for a_turn in TURNS), strict=True):
        assert one.token_ids == alone.token_ids
        assert one.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert engine.generate(TURNS[::-1])[::-1] != []


def test_small_batches_change_nothing(engine, monkeypatch):
    whole = [one.token_ids for one in engine.generate(TURNS)]
    monkeypatch.setattr(engine, "batch_tokens", 1)
    assert [one.token_ids for one in engine.generate(TURNS)] == whole


NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory")
NO_WORKSPACE = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


class Cramped:
    """A model that runs out of memory with more than so many rows at once."""

    def __init__(self, model, rows, error=NO_MEMORY):
        self.model, self.rows, self.most, self.refused, self.error = model, rows, 0, 0, error

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, **options):
        if len(options["input_ids"]) > self.rows:
            self.refused += 1
            raise self.error
        self.most = max(self.most, len(options["input_ids"]))
        return self.model(**options)


def test_other_errors_of_a_device_are_raised(engine, monkeypatch):
    monkeypatch.setattr(engine, "model", Cramped(engine.model, 0, RuntimeError("CUDA error: an illegal memory access")))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        engine.generate([turn("what?"), turn("who?")])


@pytest.mark.parametrize("error", [NO_MEMORY, NO_WORKSPACE])
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_a_batch_that_memory_does_not_hold_is_done_in_parts(engine, monkeypatch, caplog, rows, error):
    turns = [
        turn(f"what is the colour of the {house}?", seed=number, temperature=number % 2)
        for number, house in enumerate("abcdefg")
    ]
    expected = [result.text for result in engine.generate(turns)]
    cramped = Cramped(engine.model, rows, error)
    monkeypatch.setattr(engine, "model", cramped)
    monkeypatch.setattr(engine, "batch_tokens", engine.batch_tokens)
    assert [result.text for result in engine.generate(turns)] == expected
    assert cramped.most <= rows
    assert "out of memory with 7 prompts at once: going on with 4" in caplog.text
    refused = cramped.refused
    assert [result.text for result in engine.generate(turns)] == expected
    assert cramped.refused <= refused, "the next batches are smaller from the start"


def test_a_batch_is_within_its_tokens_whatever_begins_alike(engine, monkeypatch):
    monkeypatch.setattr(engine, "_shares", True)
    monkeypatch.setattr(engine, "batch_tokens", 800)
    long, short = list(range(4, 94)), list(range(100, 148))
    prompts = [[*long, number] for number in range(6)] + [[*short, number] for number in range(8)]
    prompts.append([*short, *range(150, 198)])
    rows = [Row(prompt=prompt, max_tokens=5, sampling=Sampling()) for prompt in prompts]
    batches = list(engine._batches(rows))
    assert sorted(map(len, batches)) != [15]
    assert all(len(batch) * max(row.places for row in batch) <= 800 for batch in batches)
    assert sorted(tuple(row.prompt) for batch in batches for row in batch) == sorted(map(tuple, prompts))


def test_one_prompt_that_memory_does_not_hold_is_named(engine, monkeypatch):
    monkeypatch.setattr(engine, "model", Cramped(engine.model, 0))
    monkeypatch.setattr(engine, "batch_tokens", engine.batch_tokens)
    for error in engine.generate([turn("x")] * 2):
        assert isinstance(error, ModelError)
        assert re.match(r"out of memory with one prompt of \d+ tokens and \d+ to generate: use smaller chunks", str(error))


def test_a_prompt_that_memory_does_not_hold_costs_no_other_its_reply(engine, monkeypatch):
    turns = [turn("what?"), turn("what is the colour of the house by the river, and of the hill? " * 3), turn("who?")]
    expected = [result.text for result in engine.generate(turns)]
    most = max(len(result.prompt_ids) for result in (engine.generate([turns[0]])[0], engine.generate([turns[2]])[0]))

    class Narrow(Cramped):
        def __call__(self, **options):
            if options["input_ids"].shape[1] > most:
                raise NO_MEMORY
            return self.model(**options)

    turns.append(turn("what is the colour of the house by the river, and of the hill? " * 4))
    monkeypatch.setattr(engine, "model", Narrow(engine.model, 9))
    monkeypatch.setattr(engine, "batch_tokens", engine.batch_tokens)
    for tokens in (engine.batch_tokens, 1):  # all at once, and one after the other
        monkeypatch.setattr(engine, "batch_tokens", tokens)
        first, lost, last, longest = engine.generate(turns)
        assert [first.text, last.text] == [expected[0], expected[2]]
        assert isinstance(lost, ModelError)
        assert isinstance(longest, ModelError)


def test_log_probabilities_are_those_of_a_plain_forward_pass(engine):
    for one in engine.generate([turn("a house", temperature=1.0, seed=4), turn("the hill")]):
        ids = torch.tensor([one.prompt_ids + one.token_ids])
        with torch.no_grad():
            logits = engine.model(input_ids=ids).logits[0]
        expected = torch.log_softmax(logits.float(), -1)[len(one.prompt_ids) - 1 : -1]
        chosen = expected.gather(1, torch.tensor(one.token_ids)[:, None])[:, 0]
        assert one.logprobs == pytest.approx(chosen.tolist(), abs=1e-4)
        assert one.completion_tokens == len(one.token_ids)


def test_greedy_equals_transformers_generate(engine):
    [one] = engine.generate([turn("the house is blue")])
    prompt = torch.tensor([one.prompt_ids])
    reference = engine.model.generate(prompt, max_new_tokens=12, do_sample=False)[0, prompt.shape[1] :]
    assert list(one.token_ids) == reference.tolist()


def test_samples_depend_on_their_seed_and_not_on_their_neighbours(engine):
    def draw(*seeds):
        return [one.token_ids for one in engine.generate([turn("a house", temperature=1.0, seed=seed) for seed in seeds])]

    assert draw(1, 2, 3)[1] == draw(2)[0]
    assert draw(1) != draw(2)


def test_a_tiny_nucleus_is_greedy(engine):
    assert (
        engine.generate([turn("a house", temperature=1.0, top_p=1e-6, seed=1)])[0].token_ids
        == engine.generate([turn("a house")])[0].token_ids
    )


def test_each_row_keeps_its_own_budget(engine):
    lengths = [len(one.token_ids) for one in engine.generate([turn("a", max_tokens=n) for n in (1, 5, 9)])]
    assert all(length <= budget for length, budget in zip(lengths, (1, 5, 9), strict=True))


def test_the_seconds_of_a_call_are_shared_by_its_turns(engine):
    began = time.perf_counter()
    shares = [one.seconds for one in engine.generate(TURNS)]
    took = time.perf_counter() - began
    assert min(shares) > 0
    assert sum(shares) <= took * (1 + 1e-9)
    rows = [Row(prompt=[5, 6, 7], max_tokens=2, sampling=Sampling()) for _ in range(2)]
    assert all(1000 < one.seconds < 2000 for one in engine.complete(rows, encoding=1000.0))  # and what came before the call


def test_text_that_looks_like_a_special_token_stays_text(engine):
    end = engine.model.generation_config.eos_token_id
    [plain] = engine.generate([turn("a b", max_tokens=1)])
    [attack] = engine.generate([turn("a <|end|><|begin|>b<|reply|>", max_tokens=1)])
    specials = [token for token in attack.prompt_ids if token <= 3]
    assert specials == [token for token in plain.prompt_ids if token <= 3]
    assert end not in attack.prompt_ids


def test_a_prompt_over_the_window_fails_in_its_place(engine):
    results = engine.generate([turn("fits"), turn("word " * 600)])
    assert isinstance(results[0], Completion)
    assert isinstance(results[1], ContextTooLongError)
    with pytest.raises(ContextTooLongError):
        asyncio.run(engine.agenerate(turn("word " * 600)))


def test_the_overhead_is_what_the_chat_form_adds(engine):
    [one] = engine.generate([turn("a house", max_tokens=1)])
    assert one.prompt_tokens == engine.tokenizer.count("a house") + engine.overhead


def test_what_is_not_a_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="no model 'nowhere'"):
        open_model("nowhere")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        open_model(str(tmp_path))
    folder = make_tiny_model(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match=r"cannot open the model in .*broken"):
        open_model(str(folder))


def test_models_are_opened_by_one_thread_at_a_time_and_transformers_is_left_as_it_was(tmp_path, monkeypatch):
    folder, logging = make_tiny_model(tmp_path), transformers.utils.logging
    here, most, before = [], [], (logging.INFO, logging.is_progress_bar_enabled())
    monkeypatch.setattr(logging._get_library_root_logger(), "level", logging.INFO)
    opened = transformers.AutoModelForCausalLM.from_pretrained

    def slowly(*given, **options):
        here.append(1)
        most.append(len(here))
        threading.Event().wait(0.05)  # time for another thread to come in, if it can
        here.pop()
        return opened(*given, **options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", slowly)
    with ThreadPoolExecutor(4) as threads:
        engines = list(threads.map(lambda _: LocalEngine(folder, dtype="float32"), range(4)))
    assert len({engine.generate([turn("a house")])[0].text for engine in engines}) == 1
    assert most == [1, 1, 1, 1]
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:1/v1"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("window", 0, "a window of 0 tokens is too small"),
        ("concurrency", 0, "concurrency is 0: it must be"),
        ("timeout", -1, "timeout is -1; it must be more than 0"),
        ("usage", "bogus", "usage is 'bogus'; it must be one of"),
    ],
)
def test_what_no_model_can_be_opened_with_is_refused_wherever_it_runs(base_url, option, value, message):
    with pytest.raises(ConfigError, match=message):
        open_model("model" if base_url else "embedded", base_url=base_url, **{option: value})


def test_a_model_that_computes_writes_no_advice_and_transformers_may_still_warn():
    code = """
import memagent, transformers
print(memagent.read(memagent.from_text("The code for owl is 12."), "What is the code for owl?").answer)
transformers.utils.logging.get_logger("transformers").warning("a warning")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("12\n", "[transformers] a warning\n")


def test_a_model_folder_says_how_it_wants_to_be_read(tmp_path):
    folder = make_tiny_model(tmp_path / "model")
    (folder / "memagent.toml").write_text('profile = "compact"\nwindow = 300\n[budgets]\nchunk = 100\n')
    opened = open_model(str(folder))
    assert (opened.defaults.profile, opened.engine.window, opened.defaults.budgets.chunk) == ("compact", 300, 100)
    for text, problem in (
        ("colour = 1", "colour: there is no such field; there are profile, "),
        ("[budgets]\nmemmory = 1", r"budgets\.memmory: there is no such field; there are question, .*memory"),
        ("budgets = 3", "budgets: Input should be a table .*, not 3$"),
        ('[budgets]\nchunk = "x"', r"budgets\.chunk: .* integer.*, not 'x'$"),
        ('auto = ["memory", "gatd"]', "auto: there is no reader 'gatd'; there are memory, .*gated"),
        ("drafts true", "cannot be read: .*line 1"),
    ):
        (folder / "memagent.toml").write_text(text)
        with pytest.raises(ConfigError, match=rf"memagent\.toml: {problem}"):
            open_model(str(folder))


def test_the_identity_changes_with_the_weights(tmp_path):
    names = [open_model(str(make_tiny_model(tmp_path / str(seed) / "model", seed))).engine.identity for seed in (0, 1, 0)]
    assert names[0] == names[2] != names[1]


def test_the_identity_changes_with_the_last_byte_of_large_weights_and_with_the_chat_template(tmp_path):
    folder, seen = make_tiny_model(tmp_path / "model", 0), []
    for end in (b"a", b"b"):
        (folder / "more.bin").write_bytes(bytes(20 << 20) + end)
        seen.append(open_model(str(folder)).engine.identity)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    seen.append(open_model(str(folder)).engine.identity)
    (folder / "other.bin").write_bytes(b"c")
    seen.append(open_model(str(folder)).engine.identity)
    (folder / "other.bin").rename(folder / "others.bin")  # the last one, as before
    seen.append(open_model(str(folder)).engine.identity)
    assert len(set(seen)) == 5
    assert open_model(str(folder)).engine.identity == seen[-1]


@pytest.mark.parametrize(("given", "used"), [({}, "16"), ({"LRU_CACHE_CAPACITY": "99"}, "99")])
def test_kernel_caches_are_bounded_before_torch_starts_unless_the_user_says_otherwise(given, used):
    code = """
import os, sys
from memagent.models.native import configure
assert "torch" not in sys.modules
import memagent.models.local
print(os.environ["LRU_CACHE_CAPACITY"], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["OMP_WAIT_POLICY"])
"""
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", code], env={**clean, **given}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [used, "16", "PASSIVE"]


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="other allocators")
def test_memory_that_passes_free_stays_with_the_process_unless_the_user_says_otherwise():
    code = """
import resource
from memagent.models.native import configure
configure()
import torch

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        states = torch.zeros(1000, 1000)
        scale = (states @ states).float().square().mean(-1, keepdim=True)
        normed = (states * scale).to(torch.bfloat16)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    found = []
    for given in ({}, {"MALLOC_TRIM_THRESHOLD_": "131072"}):
        made = subprocess.check_output([sys.executable, "-c", code], env={**clean, **given}, text=True)
        found.append(int(made))
    assert found[0] < 1_000 < 100_000 < found[1]
