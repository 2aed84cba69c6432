"""Laws of real documents with labelled questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.models.tokenizers import ByteTokenizer
from memagent.scoring import strict
from memagent.tasks.question_files import load_questions
from memagent.tasks.questions import QuestionSet
from memagent.tasks.real import TASKS
from memagent.tasks.samples import Sample
from memagent.tasks.task import Request, Task
from tests.helpers import WordTokenizer
from tests.tasks.invented import contract, filing, filing_question, materials, squad, write

BY_NAME: dict[str, Task] = {task.name: task for task in TASKS}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QuestionSet]:
    folder: Path = tmp_path_factory.mktemp("real")
    contracts = [contract(), contract("Second.txt", text="Preamble.\n" + contract()["text"])]
    asked = [filing_question(), filing_question(financebench_id="fb_2", question="How many work there?", answer="22")]
    filings = write(folder / "filings.jsonl", [filing()], lines=True)
    return {
        "cuad": load_questions(write(folder / "contracts.jsonl.gz", contracts, lines=True)),
        "financebench": load_questions(write(folder / "asked.jsonl", asked, lines=True), passages=filings),
    }


def make(given: QuestionSet, name: str, *, index: int = 0, tokens: int = 1, seed: int = 1, **options: object) -> Sample:
    request = Request(tokens=tokens, seed=seed, index=index)
    return BY_NAME[name].sample(materials(WordTokenizer(), given), request, BY_NAME[name].options(options))


@pytest.mark.parametrize(("ask", "questions"), [("fact", 8), ("presence", 4), ("clause", 10)])
def test_contracts_are_asked_about_in_three_ways(given: dict[str, QuestionSet], ask: str, questions: int) -> None:
    samples = [make(given["cuad"], "cuad", index=index, ask=ask) for index in range(questions + 1)]
    assert len({sample.meta["question"] for sample in samples}) == questions
    assert samples[-1].question == samples[0].question
    for sample in samples:
        text = str(sample.document)
        assert text in (contract()["text"], "Preamble.\n" + contract()["text"])
        assert [text[fact.start : fact.end] for fact in sample.facts] == [fact.text for fact in sample.facts]
        assert [fact.start for fact in sample.facts] == sorted(fact.start for fact in sample.facts)
        assert all(fact.key == sample.meta["category"] and fact.value in fact.text for fact in sample.facts)
        assert strict(sample.gold, sample.answers, sample.mode) == 1
        assert strict("", sample.answers, sample.mode) == 0


def test_a_filing_is_all_its_pages_and_knows_where_its_evidence_is(given: dict[str, QuestionSet]) -> None:
    samples = [make(given["financebench"], "financebench", index=index) for index in range(2)]
    assert {sample.question for sample in samples} == {"What were the net sales of Bolts in 2022?", "How many work there?"}
    for sample in samples:
        assert str(sample.document) == "\n\n".join(filing()["pages"])
        assert [fact.text for fact in sample.facts] == ["Net sales\n $ 417\nmillion"]
        assert sample.meta["pages"] == [1, 0]
        assert sample.meta["source"] == "BOLTS_2022"


@pytest.mark.parametrize("name", BY_NAME)
def test_the_document_has_its_own_length_and_is_shared(given: dict[str, QuestionSet], name: str) -> None:
    small, large = (make(given[name], name, tokens=tokens) for tokens in (1, 10_000))
    assert small == large
    assert small.tokens == WordTokenizer().count(str(small.document))
    assert small.document.base is given[name].passages.text
    assert len(small.document.pieces) == 1


@pytest.mark.parametrize("name", BY_NAME)
def test_the_order_depends_on_the_seed_alone(given: dict[str, QuestionSet], name: str) -> None:
    orders = {
        tuple(make(given[name], name, index=index, seed=seed).meta["question"] for index in range(2)) for seed in range(20)
    }
    assert len(orders) > 1
    assert make(given[name], name, index=1) == make(given[name], name, index=1)


def test_counts_of_two_tokenizers_are_not_mixed_up(given: dict[str, QuestionSet]) -> None:
    words = make(given["cuad"], "cuad")
    letters = BY_NAME["cuad"].sample(materials(ByteTokenizer(), given["cuad"]), Request(tokens=1, seed=1, index=0))
    assert words.tokens < letters.tokens == ByteTokenizer().count(str(letters.document))


def test_files_of_another_form_are_refused(given: dict[str, QuestionSet], tmp_path: Path) -> None:
    other = load_questions(write(tmp_path / "squad.json", squad(1, 1)))
    with pytest.raises(TaskError, match="'cuad' needs contracts"):
        make(other, "cuad")
    with pytest.raises(TaskError, match="'financebench' needs questions about filings"):
        make(given["cuad"], "financebench")
    with pytest.raises(TaskError, match="option ask"):
        make(given["cuad"], "cuad", ask="what")
    alone = load_questions(write(tmp_path / "one.jsonl", [contract(labels=contract()["labels"][:1])] * 2, lines=True))
    with pytest.raises(TaskError, match="no question of this kind"):
        make(alone, "cuad", ask="presence")
