"""InfiniteBench (arXiv 2402.13718): twelve tasks over documents of 100,000 tokens and more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.suites.suite import LETTERS, Exercise, Place, Suite, SuiteRecord, whole, with_choices


class InfiniteBenchRecord(SuiteRecord):
    """A document and a question. Tasks with choices have `options`, and the right one among them as the answer."""

    id: int | str = ""
    context: str
    input: str = ""
    answer: str | int | float | list[Any]
    options: list[str] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Kind:
    """How a task is scored, and its question where records have none."""

    scorer: str
    question: str = ""


KINDS = {
    "passkey": Kind("first_number"),
    "number_string": Kind("first_number"),
    "kv_retrieval": Kind("word"),
    "longbook_sum_eng": Kind("rouge_l", "Summarise the book."),
    "longbook_choice_eng": Kind("choice"),
    "longbook_qa_eng": Kind("f1"),
    "longbook_qa_chn": Kind("f1_characters"),
    "longdialogue_qa_eng": Kind(
        "word",
        'In the script, one name of a speaker is replaced by "$$MASK$$". Whose name is it? Answer with the name only.',
    ),
    "math_find": Kind("first_number"),
    "math_calc": Kind("leading_numbers", "Calculate the expression, and list the result after every operation."),
    "code_run": Kind("last_number"),
    "code_debug": Kind("choice", "One function of the code has a deliberate error that makes it crash. Which one is it?"),
}


def exercises(record: InfiniteBenchRecord, place: Place) -> Iterator[Exercise]:
    kind = KINDS[place.subset]
    question = record.input.strip() or kind.question
    if not question:
        raise TaskError(f"input: expected the question; the task {place.subset} has no other")
    choices = kind.scorer == "choice"
    yield Exercise(
        id=f"{place.subset}-{record.id if record.id != '' else place.number}",
        question=with_choices(question, record.options) if choices else question,
        document=whole(record.context),
        answers=_chosen(record) if choices else _answers(record.answer, place.subset),
        scorer=kind.scorer,
        category=place.subset,
    )


def _answers(answer: Any, subset: str) -> list[str]:
    """The alternatives of a question about a book, and of the other tasks the first; Math.Calc's list is one answer."""
    given = answer if isinstance(answer, list) else [answer]
    if subset == "math_calc":
        numbers = given[0] if given and isinstance(given[0], list) else given
        return [", ".join(map(str, numbers))]
    if not all(isinstance(one, str | int | float) for one in given):
        raise TaskError(f"answer: expected a text, a number or a list of them, not {str(answer)[:60]!r}")
    texts = [str(one).strip() for one in given]
    return texts if subset.startswith("longbook_qa") else texts[:1]


def _chosen(record: InfiniteBenchRecord) -> list[str]:
    """The letter of the right choice, and its text."""
    texts = _answers(record.answer, "")
    if not texts or texts[0] not in (options := [option.strip() for option in record.options]):
        raise TaskError("answer: expected one of the options")
    return [LETTERS[options.index(texts[0])], texts[0]]


SUITE = Suite(
    name="infinitebench",
    title="InfiniteBench",
    file="passkey.jsonl, longbook_qa_eng.jsonl and ten more of xinrongzhang2022/InfiniteBench (Hugging Face)",
    scorer="first_number, last_number, leading_numbers, word, choice, f1, f1_characters, rouge_l",
    official="nearly: letters are read more leniently, and summaries as one line",
    record=InfiniteBenchRecord,
    exercises=exercises,
    subsets=tuple(KINDS),
    shares=True,
)
