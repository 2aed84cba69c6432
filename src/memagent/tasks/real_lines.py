"""Labelled real documents: the records of CUAD (contracts) and FinanceBench (filings), and the questions they give."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import accumulate
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from memagent.errors import TaskError
from memagent.scoring import normalize
from memagent.tasks.passages import Passage, Passages, stands_in
from memagent.tasks.question_lines import readable
from memagent.tasks.questions import Evidence, Question, QuestionSet
from memagent.tasks.quotes import Searched

NOT_FOUND = "pieces of evidence that do not stand in their document word for word"
_OMITTED = "<omitted>"
# A clause of up to this number of words is also an accepted answer.
_SHORT_WORDS = 12
# CUAD's categories with a text as label; all others have "Yes" or "No".
_FACT_QUESTIONS = {
    "Document Name": "What is the name of the contract?",
    "Parties": "Who are the parties to the contract?",
    "Agreement Date": "On what date was the contract made?",
    "Effective Date": "On what date does the contract take effect?",
    "Expiration Date": "On what date does the first term of the contract end?",
    "Renewal Term": "For how long is the contract renewed when its first term ends?",
    "Notice Period To Terminate Renewal": "How much notice must be given to stop the renewal of the contract?",
    "Governing Law": "The law of which state or country governs the contract?",
}


class Label(BaseModel):
    """What a contract says on one category. `answer` is a short text, "Yes", "No", or empty."""

    model_config = ConfigDict(extra="ignore")

    category: str = Field(min_length=1)
    clauses: list[Annotated[str, Field(min_length=1)]] = []
    answer: str = ""


class Contract(BaseModel):
    """A line of a CUAD file."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1)
    text: str = Field(min_length=1)
    labels: list[Label]


class Filing(BaseModel):
    """A line of a FinanceBench document file."""

    model_config = ConfigDict(extra="ignore")

    doc_name: str = Field(min_length=1)
    pages: list[str] = Field(min_length=1)


class FilingEvidence(BaseModel):
    """A passage of a filing; pages are counted from 0."""

    model_config = ConfigDict(extra="ignore")

    evidence_text: str
    evidence_page_num: int = Field(ge=0)
    doc_name: str = ""


class FilingQuestion(BaseModel):
    """A line of a FinanceBench question file."""

    model_config = ConfigDict(extra="ignore")

    financebench_id: str = ""
    doc_name: str = Field(min_length=1)
    company: str = ""
    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)
    question_type: str | None = None
    evidence: list[FilingEvidence] = []


def contract_questions(name: str, contracts: Sequence[Contract], notes: Counter[str]) -> QuestionSet:
    """Up to three questions for each category of each contract; their meta says which in "ask":

    "fact"      what the label says as a text; also accepted are short clauses, and dates in other forms
    "presence"  whether there is such a clause; the answer is Yes or No
    "clause"    the words of the contract themselves; any clause of the category is accepted
    """
    passages = Passages(Passage(title="", text=contract.text) for contract in contracts)
    questions = tuple(
        question
        for number, contract in enumerate(contracts)
        for text in [Searched(contract.text)]
        for label in contract.labels
        for question in _label_questions(number, contract, text, label, notes)
    )
    if not questions:
        raise TaskError(f"{name}: no contract has a label")
    return QuestionSet(name=name, form="contracts", questions=questions, passages=passages, notes=notes)


def _label_questions(
    number: int, contract: Contract, text: Searched, label: Label, notes: Counter[str]
) -> Iterator[Question]:
    parts = [part.strip() for clause in label.clauses for part in clause.split(_OMITTED) if normalize(part)]
    found = [place for place in (text.find(part) for part in dict.fromkeys(parts)) if place]
    if missing := len(dict.fromkeys(parts)) - len(found):
        notes[NOT_FOUND] += missing
    found.sort()
    quotes = readable(contract.text[start:end] for start, end in found)
    short = [quote for quote in quotes if len(quote.split()) <= _SHORT_WORDS]

    def question(ask: str, text: str, answers: Iterable[str], values: Iterable[str]) -> Question:
        evidence = zip(found, values, strict=True)
        return Question(
            id=f"{contract.name}/{label.category}/{ask}",
            text=text,
            answers=readable(answers),
            gold=(number,),
            values=("",),
            evidence=tuple(Evidence(start=start, end=end, value=value) for (start, end), value in evidence),
            meta={"ask": ask, "category": label.category, "source": contract.name},
        )

    nothing = [""] * len(found)
    if label.category in _FACT_QUESTIONS:
        if normalize(label.answer):
            answers = [label.answer, *short, *_date_forms(label.answer)]
            values = [_held(contract.text[start:end], answers) for start, end in found]
            yield question("fact", _FACT_QUESTIONS[label.category], answers, values)
        else:
            notes["categories of contracts without a label"] += 1
    elif label.answer in ("Yes", "No"):
        asked = f'Does the contract have a clause of the kind "{label.category}"? Answer yes or no.'
        yield question("presence", asked, [label.answer], nothing)
    if quotes:
        asked = f'Which words of the contract make up its clause of the kind "{label.category}"? Quote one passage.'
        yield question("clause", asked, quotes, nothing)


def filing_questions(
    name: str, asked: Sequence[FilingQuestion], filings: Sequence[Filing], notes: Counter[str]
) -> QuestionSet:
    """One question for each record whose filing is there. The document is the pages with an empty line between them."""
    numbers = {filing.doc_name: number for number, filing in enumerate(filings)}
    texts = ["\n\n".join(filing.pages) for filing in filings]
    searched = [Searched(text) for text in texts]
    questions: list[Question] = []
    for item in asked:
        if item.doc_name not in numbers:
            notes["questions left out whose filing is not there"] += 1
        elif not normalize(item.answer):
            notes["questions left out whose answers are empty once normalized"] += 1
        else:
            number = numbers[item.doc_name]
            found = list(_filing_evidence(item, filings[number], searched[number], notes))
            pages = [evidence.evidence_page_num for evidence in item.evidence]
            about = {"source": item.doc_name, "company": item.company, "type": item.question_type or "", "pages": pages}
            questions.append(
                Question(
                    id=item.financebench_id or f"question-{len(questions) + 1}",
                    text=item.question.strip(),
                    answers=(item.answer.strip(),),
                    gold=(number,),
                    values=("",),
                    evidence=tuple(found),
                    meta=about,
                )
            )
    if not questions:
        raise TaskError(f"{name}: no question is about a given filing")
    passages = Passages(Passage(title="", text=text) for text in texts)
    return QuestionSet(name=name, form="filings", questions=tuple(questions), passages=passages, notes=notes)


def _filing_evidence(item: FilingQuestion, filing: Filing, text: Searched, notes: Counter[str]) -> Iterator[Evidence]:
    """The places of the evidence: on the page that the file names, or else in the whole filing."""
    starts = [0, *accumulate(len(page) + 2 for page in filing.pages)]
    found: dict[tuple[int, int], str] = {}
    for evidence in item.evidence:
        place = None
        if evidence.evidence_page_num < len(filing.pages) and evidence.doc_name in ("", item.doc_name):
            page = starts[evidence.evidence_page_num : evidence.evidence_page_num + 2]
            place = text.find(evidence.evidence_text, *page) or text.find(evidence.evidence_text)
        if place is None:
            notes[NOT_FOUND] += 1
        else:
            found[place] = _held(text.text[place[0] : place[1]], [item.answer])
    yield from (Evidence(start=start, end=end, value=value) for (start, end), value in sorted(found.items()))


def _date_forms(text: str) -> list[str]:
    """Other ways to write a date that CUAD writes as month/day/year, two digits for a year from 1970 to 2069."""
    match = re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{2}|\d{4})", text.strip())
    if not match:
        return []
    month, day, year = map(int, match.groups())
    year += (1900 if year >= 70 else 2000) if year < 100 else 0
    try:
        name = date(year, month, day).strftime("%B")
    except ValueError:
        return []
    return [f"{name} {day}, {year}", f"{day} {name} {year}", f"{month}/{day}/{year}", f"{year}-{month:02}-{day:02}"]


def _held(passage: str, candidates: Sequence[str]) -> str:
    """The first of the candidates that stands in the passage, or ""."""
    return next((candidate for candidate in candidates if stands_in(candidate, passage)), "")
