"""Laws of RULER-HQA."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.tasks.qa import TASKS
from memagent.tasks.question_files import load_questions
from memagent.tasks.questions import QuestionSet
from memagent.tasks.samples import Sample
from memagent.tasks.task import Request
from tests.helpers import WordTokenizer
from tests.tasks.invented import hotpot, materials, write

(HQA,) = [task for task in TASKS if task.name == "hqa"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> QuestionSet:
    return load_questions(write(tmp_path_factory.mktemp("questions") / "hotpot.json", hotpot()))


def make(given: QuestionSet, *, tokens: int = 1, index: int = 0, seed: int = 1, **options: object) -> Sample:
    return HQA.sample(
        materials(WordTokenizer(), given), Request(tokens=tokens, seed=seed, index=index), HQA.options(options)
    )


@pytest.mark.parametrize("articles", [2, 3, 50, 800])
def test_a_document_has_as_many_articles_as_asked(given: QuestionSet, articles: int) -> None:
    sample = make(given, articles=str(articles))
    text = str(sample.document)
    assert text.count("Document ") == sample.meta["articles"] == articles
    assert sample.tokens == pytest.approx(WordTokenizer().count(text), abs=1)
    assert sample.id == f"hqa-{articles}articles-1-0"
    assert all(text[fact.start : fact.end] == fact.text for fact in sample.facts)
    assert len(sample.facts) == 2


def test_without_articles_the_tokens_decide(given: QuestionSet) -> None:
    for tokens in (1000, 5000):
        assert tokens * 0.99 <= make(given, tokens=tokens).tokens <= tokens


def test_gold_articles_are_placed_uniformly(given: QuestionSet) -> None:
    """Pearson's chi-square over ten tenths of 50 articles: 21.7 is passed by chance once in a hundred times (9 degrees)."""
    counts = [0] * 10
    samples = 1000
    for index in range(samples):
        for slot in make(given, articles=50, index=index).meta["gold_slots"]:
            counts[(slot - 1) // 5] += 1
    expected = 2 * samples / 10
    assert sum((count - expected) ** 2 / expected for count in counts) < 21.7


def test_every_sample_is_shuffled_anew_and_both_orders_occur(given: QuestionSet) -> None:
    samples = [make(given, articles=50, index=index) for index in range(0, 240, 6)]  # the same question each time
    assert len({sample.question for sample in samples}) == 1
    assert len({tuple(sample.meta["gold_slots"]) for sample in samples}) > 35
    assert len({tuple(fact.key for fact in sample.facts) for sample in samples}) == 2


def test_the_question_is_the_same_at_every_size(given: QuestionSet) -> None:
    assert len({make(given, articles=articles, index=4).question for articles in (2, 50, 300)}) == 1


def test_a_sample_is_the_same_whatever_was_made_before(given: QuestionSet, tmp_path: Path) -> None:
    first = make(given, articles=60, index=7)
    fresh = load_questions(write(tmp_path / "hotpot.json", hotpot()))
    for articles in (3000, 5, 60):
        again = make(fresh, articles=articles, index=7)
    assert again == first


def test_articles_run_out_and_synthetic_ones_follow(given: QuestionSet) -> None:
    sample = make(given, articles=500)
    assert sample.meta["synthetic_articles"] == 500 - len(given.passages)
    assert make(given, articles=40).meta["synthetic_articles"] == 0


def test_the_split_of_the_question_stands_in_the_sample(tmp_path: Path) -> None:
    given = load_questions(write(tmp_path / "dev.json", [record | {"split": "dev"} for record in hotpot(2)]))
    assert make(given, articles=10).meta["question_split"] == "dev"


def test_verdicts_are_not_looked_for_in_distractors(given: QuestionSet) -> None:
    samples = [make(given, articles=30, index=index, clean=True) for index in range(6)]
    assert {sample.meta["distractors_with_answer"] for sample in samples if sample.gold == "yes"} == {None}
    assert {sample.meta["distractors_with_answer"] for sample in samples if sample.gold != "yes"} == {0}


def test_too_few_articles_are_refused(given: QuestionSet) -> None:
    with pytest.raises(TaskError, match="needs 2 articles, so 1 are too few"):
        make(given, articles=1)
    with pytest.raises(TaskError, match=r"option articles: .*not '-3'"):
        make(given, articles="-3")
