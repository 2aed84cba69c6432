"""The exam: the right replies of a reading are known in advance."""

from __future__ import annotations

import pytest

from memagent.scoring import strict
from memagent.tasks.needle import SPECS, needle
from memagent.tasks.samples import Fact, Sample
from memagent.training.config import TrainConfig
from memagent.training.data import Source, open_source
from memagent.training.exam import Step, reading_steps, report, wrong_steps
from memagent.training.measure import wilson
from memagent.training.model import build_model


@pytest.fixture(scope="module")
def source(config: TrainConfig) -> Source:
    return open_source(config.tokenizer, config.books, config.profile, "eval")


def replies(source: Source, steps: list[Step]) -> list[str]:
    return [source.tokenizer.decode(step.row.targets) for step in steps]


def count(source: Source, text: str) -> int:
    return len(source.tokenizer.encode(text).ids)


def test_the_replies_wait_find_keep_and_answer(source: Source) -> None:
    sample = needle(SPECS["single"], source.haystack, lambda text: count(source, text), tokens=900, seed=0, index=1)
    steps = reading_steps(source, sample, 0, chunk_tokens=100)
    names = [step.what for step in steps]
    found = names.index("find")
    assert names == ["wait"] * found + ["find"] + ["keep"] * (len(names) - found - 2) + ["answer"]
    texts = replies(source, steps)
    assert all(text.endswith(": not yet") for text in texts[:found])
    assert all(text.endswith(f": {sample.gold}") for text in texts[found:-1])
    assert strict(texts[-1], sample.answers) == 1


def test_a_fact_that_no_chunk_shows_whole_is_lost(source: Source) -> None:
    text = "The code for a-b is " + "long " * 200 + "12."
    sentence = Fact(text=text, start=0, end=len(text), key="a-b", value="12.")
    sample = Sample(
        id="x",
        task="t",
        question="What is the code for a-b?",
        document=text,
        answers=("12.",),
        mode="any",
        facts=(sentence,),
        tokens=count(source, text),
        seed=0,
    )
    steps = reading_steps(source, sample, 0, chunk_tokens=50)
    assert steps[-1].what == "lost"
    assert "right 0/1" in report(1, steps, [])


def test_a_model_that_knows_nothing_is_wrong_and_says_what(source: Source, config: TrainConfig) -> None:
    sample = needle(SPECS["multiquery"], source.haystack, lambda text: count(source, text), tokens=600, seed=0, index=1)
    steps = reading_steps(source, sample, 0, chunk_tokens=100)
    model = build_model(config.model, source.tokenizer.get_vocab_size(), 0)
    wrong = wrong_steps(model, steps, bf16=False, batch_tokens=1000)
    assert len(wrong) == len(steps)
    assert all(len(choice) == len(step.row.kinds) for step, choice in wrong)
    assert "right 0/1 = 0.0 %" in report(1, steps, [step for step, _ in wrong])


def test_wilson_interval_of_known_values() -> None:
    low, high = wilson(190, 200)
    assert low == pytest.approx(0.9104, abs=1e-3)
    assert high == pytest.approx(0.9726, abs=1e-3)
    assert wilson(10, 10)[1] == 1.0
