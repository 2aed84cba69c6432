"""Laws of questions among numbered documents."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import ByteTokenizer, FileTokenizer
from memagent.scoring import strict
from memagent.tasks.passages import Passages
from memagent.tasks.qa import TASKS
from memagent.tasks.question_files import load_questions
from memagent.tasks.questions import QuestionSet
from memagent.tasks.samples import Sample
from memagent.tasks.task import Request, Task
from memagent.tasks.wording import OURS
from tests.helpers import WordTokenizer
from tests.tasks.invented import hotpot, materials, squad, write

BY_NAME: dict[str, Task] = {task.name: task for task in TASKS if task.name != "hqa"}
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "words": WordTokenizer,
    "bytes": ByteTokenizer,
    "embedded": lambda: FileTokenizer.load(EMBEDDED),
}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QuestionSet]:
    folder: Path = tmp_path_factory.mktemp("questions")
    return {
        "qa_1": load_questions(write(folder / "squad.json", squad())),
        "qa_2": load_questions(write(folder / "hotpot.json", hotpot())),
    }


def make(
    given: QuestionSet, name: str, tokens: int, *, index: int = 0, seed: int = 1, tokenizer: Tokenizer, **options
) -> Sample:
    task = BY_NAME[name]
    return task.sample(materials(tokenizer, given), Request(tokens=tokens, seed=seed, index=index), task.options(options))


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", BY_NAME)
def test_documents_come_within_one_per_cent_and_never_above(given: dict[str, QuestionSet], name: str, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    for tokens in (1500, 4000, 40_000):
        for index in range(3):
            sample = make(given[name], name, tokens, index=index, tokenizer=tokenizer)
            real = tokenizer.count(str(sample.document))
            assert tokens * 0.99 <= sample.tokens <= tokens
            assert tokens * 0.99 <= real <= tokens
            assert sample.id == f"{name}-{tokens}-1-{index}"


@pytest.mark.parametrize("name", BY_NAME)
def test_samples_hold_their_facts_and_check_themselves(given: dict[str, QuestionSet], name: str) -> None:
    for index in range(len(given[name].questions)):
        sample = make(given[name], name, 3000, index=index, tokenizer=WordTokenizer())
        text = str(sample.document)
        assert len(sample.facts) == {"qa_1": 1, "qa_2": 2}[name]
        for fact in sample.facts:
            assert text[fact.start : fact.end] == fact.text
            assert fact.value in fact.text
            assert fact.needed
        assert strict(sample.gold, sample.answers, sample.mode) == 1
        assert strict("", sample.answers, sample.mode) == 0
        slots = [text[: fact.start].count("Document ") for fact in sample.facts]
        assert sample.meta["gold_slots"] == slots
        assert text.startswith("Document 1:\n")
        assert f"\n\nDocument {sample.meta['articles']}:\n" in text


def test_a_sample_depends_on_seed_task_and_index_only(given: dict[str, QuestionSet], tmp_path: Path) -> None:
    first = make(given["qa_2"], "qa_2", 5000, index=3, tokenizer=WordTokenizer())
    random.seed(5)
    fresh = load_questions(write(tmp_path / "again.json", hotpot()))
    make(fresh, "qa_2", 9000, index=1, tokenizer=WordTokenizer())
    assert make(fresh, "qa_2", 5000, index=3, tokenizer=WordTokenizer()) == first
    assert make(fresh, "qa_2", 5000, index=3, seed=2, tokenizer=WordTokenizer()) != first
    assert make(fresh, "qa_2", 5000, index=4, tokenizer=WordTokenizer()) != first


def test_the_question_does_not_depend_on_the_length(given: dict[str, QuestionSet]) -> None:
    for index in range(6):
        samples = [
            make(given["qa_2"], "qa_2", tokens, index=index, tokenizer=WordTokenizer()) for tokens in (700, 3000, 20_000)
        ]
        assert len({sample.question for sample in samples}) == 1


def test_every_question_is_asked_once_before_one_comes_again(given: dict[str, QuestionSet]) -> None:
    asked = [make(given["qa_2"], "qa_2", 700, index=index, tokenizer=WordTokenizer()).question for index in range(12)]
    assert len(set(asked[:6])) == 6
    assert asked[6:] == asked[:6]


def test_no_passage_comes_twice_and_synthetic_articles_take_over(given: dict[str, QuestionSet]) -> None:
    sample = make(given["qa_2"], "qa_2", 20_000, tokenizer=WordTokenizer())
    texts = [part.partition(":\n")[2] for part in str(sample.document).split("Document ")[1:]]
    assert len(set(texts)) == len(texts) == sample.meta["articles"]
    assert 0 < sample.meta["synthetic_articles"] == len(texts) - len(given["qa_2"].passages)


def test_the_passages_of_the_question_come_before_others(given: dict[str, QuestionSet]) -> None:
    sample = make(given["qa_2"], "qa_2", 900, tokenizer=WordTokenizer())
    question = next(one for one in given["qa_2"].questions if one.text == sample.question)
    text = str(sample.document)
    assert all(given["qa_2"].passages[number].text in text for number in question.context[:1] + question.gold)
    assert sample.meta["synthetic_articles"] == 0


def test_documents_share_the_text_of_the_passages(given: dict[str, QuestionSet]) -> None:
    samples = [make(given["qa_1"], "qa_1", 1000, index=index, tokenizer=WordTokenizer()) for index in range(3)]
    assert {id(sample.document.base) for sample in samples} == {id(given["qa_1"].passages.text)}


def test_the_wording_gives_headings_and_the_form_of_the_question(given: dict[str, QuestionSet]) -> None:
    wording = dataclasses.replace(OURS, heading="== {number} ==", answering="Answer this: {question}")
    theirs = dataclasses.replace(materials(WordTokenizer(), given["qa_2"]), wording=wording)
    sample = BY_NAME["qa_2"].sample(theirs, Request(tokens=2000, seed=1, index=0))
    assert sample.question.startswith("Answer this: ")
    assert str(sample.document).startswith("== 1 ==\n")
    assert 1980 <= WordTokenizer().count(str(sample.document)) <= 2000


def test_clean_leaves_out_distractors_that_hold_the_answer(given: dict[str, QuestionSet]) -> None:
    questions = given["qa_1"]
    copy = [dataclasses.replace(passage, text=passage.text + " Mr. Keeper0x0 came.") for passage in questions.passages]
    spoiled = dataclasses.replace(
        questions, passages=Passages([*questions.passages, *copy]), questions=questions.questions[:1]
    )
    plain = make(spoiled, "qa_1", 4000, tokenizer=WordTokenizer())
    clean = make(spoiled, "qa_1", 4000, tokenizer=WordTokenizer(), clean="true")
    assert plain.meta["distractors_with_answer"] > 0
    assert clean.meta["distractors_with_answer"] == 0
    assert str(clean.document).count("Keeper0x0") == 1


def test_files_of_the_wrong_form_and_lengths_too_small_are_refused(given: dict[str, QuestionSet]) -> None:
    with pytest.raises(TaskError, match="'qa_1' needs questions about single passages"):
        make(given["qa_2"], "qa_1", 1000, tokenizer=WordTokenizer())
    with pytest.raises(TaskError, match="'qa_2' needs questions about several passages"):
        make(given["qa_1"], "qa_2", 1000, tokenizer=WordTokenizer())
    with pytest.raises(TaskError, match="cannot make a document of 20 tokens from the 2 passages"):
        make(given["qa_2"], "qa_2", 20, tokenizer=WordTokenizer())
    with pytest.raises(TaskError, match="needs a question file"):
        BY_NAME["qa_1"].sample(materials(WordTokenizer()), Request(tokens=1000, seed=0, index=0))
