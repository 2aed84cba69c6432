"""What is advised for servers that were measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memagent.doctor.advice import advise
from memagent.doctor.values import Diagnosis, Level, ShortReading

GOOD = Diagnosis(
    model="m",
    base_url="http://127.0.0.1:1/v1",
    kind="vllm",
    window=8192,
    slots=None,
    counting="server",
    exact=True,
    counted=1000,
    reported=1000,
    request=0.01,
    prefill=10_000.0,
    decode=100.0,
    prefix_cache=True,
    repeats=True,
    too_long="refused",
    reading=ShortReading(turns=6, prompt=5000, reply=100, seconds=2.0, kept=0.8, drafted=400, accepted=300),
    levels=(Level(concurrency=1, turns_per_second=0.5), Level(concurrency=2, turns_per_second=0.52)),
)


def told(found: Diagnosis = GOOD, **turns: Any) -> str:
    """What is advised, in one text."""
    found = replace(found, reading=replace(found.reading, **turns))
    return "\n".join(f"{one.do}: {one.why}" for one in advise(found))


def test_a_server_that_does_all_of_it_needs_no_advice():
    assert advise(GOOD) == []
    assert (GOOD.decoding, GOOD.best.concurrency) == (0.5, 1)


@pytest.mark.parametrize(
    ("kind", "flag"), [("vllm", "--speculative-config"), ("llamacpp", "--spec-type"), ("sglang", "--speculative-algorithm")]
)
def test_flags_for_speculation_are_those_of_the_server(kind, flag):
    assert flag in told(replace(GOOD, kind=kind), drafted=0, accepted=0)
    assert "unless it does so already" in told(replace(GOOD, kind=kind), drafted=None, accepted=None)
    assert told(replace(GOOD, kind="another"), drafted=0, accepted=0) == ""


def test_the_gain_of_speculation_follows_from_decoding_and_from_what_stays():
    [one] = advise(replace(GOOD, reading=replace(GOOD.reading, drafted=0, accepted=0)))
    assert one.gain == pytest.approx(1 / (0.5 + 0.5 * (0.2 + 0.8 / 8)))
    assert told(drafted=0, accepted=0, kept=0.05) == "", "a memory that is new each time has nothing to guess from"
    assert told(replace(GOOD, decode=10_000.0), drafted=0, accepted=0) == "", "decoding is no time to gain from"
    assert told(replace(GOOD, decode=None), drafted=0, accepted=0) == ""


def test_guesses_that_are_mostly_wrong_are_said_to_cost_time():
    assert "400 tokens and 100 were right" in told(accepted=100)
    assert told(accepted=120) == ""


def test_the_best_concurrency_is_the_lowest_that_is_nearly_as_fast_as_any():
    levels = tuple(Level(concurrency=2**n, turns_per_second=rate) for n, rate in enumerate((1.0, 1.9, 3.5, 3.6)))
    [one] = advise(replace(GOOD, levels=levels))
    assert one.do.endswith("--concurrency 4")
    assert one.gain == 3.5
    assert "more slots" in told(replace(GOOD, levels=levels, slots=4))
    assert "more slots" not in told(replace(GOOD, levels=levels, slots=8))


def test_the_greater_gain_comes_first_and_safety_before_it():
    levels = (Level(concurrency=1, turns_per_second=1.0), Level(concurrency=2, turns_per_second=1.8))
    found = replace(GOOD, levels=levels, too_long="cut", exact=False, repeats=False)
    lines = told(found, drafted=0, accepted=0).split("\n")
    assert ["--window" in lines[0], "--tokenizer" in lines[1], "--temperature" in lines[2]] == [True] * 3
    assert ["--concurrency" in lines[3], "--speculative-config" in lines[4]] == [True] * 2


def test_windows_that_are_unknown_or_small_are_named():
    assert "--window" in told(replace(GOOD, window=None, too_long="unknown"))
    assert "num_ctx" in told(replace(GOOD, kind="ollama", window=4096))
    assert "num_ctx" in told(replace(GOOD, kind="ollama", window=4096, too_long="cut")), "which is why it cuts"
    assert told(replace(GOOD, kind="ollama", window=32768)) == ""


def test_an_estimate_of_tokens_is_compared_with_the_count_of_the_server():
    assert "+25% against the server" in told(replace(GOOD, exact=False, counted=1250))
    assert "against" not in told(replace(GOOD, exact=False, reported=0))
