"""The exam: the right replies of a reading are known in advance."""

from __future__ import annotations

import pytest

from memagent.models.tokenizers import FileTokenizer
from memagent.scoring import strict
from memagent.tasks.needle import make_needle
from memagent.tasks.rope import Rope
from memagent.tasks.samples import Fact, Sample
from memagent.tasks.task import Materials, Request
from memagent.training.config import TrainConfig
from memagent.training.data import Source, open_source
from memagent.training.exam import EXAMS, Step, reading_steps, report, wrong_steps
from memagent.training.model import build_model


@pytest.fixture(scope="module")
def source(config: TrainConfig) -> Source:
    return open_source(config.tokenizer, config.books, config.profile, "eval")


def replies(source: Source, steps: list[Step]) -> list[str]:
    return [source.tokenizer.decode(step.row.targets) for step in steps]


def exam_sample(source: Source, name: str, tokens: int) -> Sample:
    tokenizer = FileTokenizer(source.tokenizer, name="exam")
    materials = Materials(tokenizer=tokenizer, haystack=source.haystack, words=source.words)
    return make_needle(name, materials, Request(tokens=tokens, seed=0, index=1), EXAMS[name])


def test_the_replies_wait_find_keep_and_answer(source: Source) -> None:
    sample = exam_sample(source, "single", tokens=900)
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
        document=Rope([text]),
        answers=("12.",),
        mode="any",
        facts=(sentence,),
    )
    steps = reading_steps(source, sample, 0, chunk_tokens=50)
    assert steps[-1].what == "lost"
    assert "right 0/1" in report(1, steps, [])


def test_a_model_that_knows_nothing_is_wrong_and_says_what(source: Source, config: TrainConfig) -> None:
    sample = exam_sample(source, "multiquery", tokens=600)
    steps = reading_steps(source, sample, 0, chunk_tokens=100)
    model = build_model(config.model, source.tokenizer.get_vocab_size(), 0)
    wrong = wrong_steps(model, steps, bf16=False, batch_tokens=1000)
    assert len(wrong) == len(steps)
    assert all(len(choice) == len(step.row.kinds) for step, choice in wrong)
    assert "right 0/1 = 0.0 %" in report(1, steps, [step for step, _ in wrong])
