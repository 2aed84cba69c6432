"""Reads question files and passage files in published formats, recognised by their content.

Questions: SQuAD 1.1 and 2.0, HotpotQA, 2WikiMultihopQA, MuSiQue, CUAD, FinanceBench; official JSON or one object a line.
Passages: one {"title", "text"} a line, another question file's passages, or plain text with empty lines between paragraphs.
All of them UTF-8, gzipped or not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from memagent.errors import TaskError
from memagent.tables import finding
from memagent.tasks.haystack import read_text
from memagent.tasks.passages import Passage, Passages
from memagent.tasks.question_lines import Filled, Found, MultihopQuestion, SquadFile
from memagent.tasks.questions import Form, Question, QuestionSet
from memagent.tasks.real_lines import Contract, Filing, FilingQuestion, contract_questions, filing_questions

Format: TypeAlias = Literal["auto", "squad", "multihop", "contracts", "filings"]
# (the place in the file, the record)
Located: TypeAlias = tuple[str, Any]
Line = TypeVar("Line", bound=BaseModel)
_TEXT_SUFFIXES = (".txt", ".md")


class PassageLine(BaseModel):
    """A line of a passage file."""

    model_config = ConfigDict(extra="ignore")

    title: str = ""
    text: Filled


def load_questions(path: Path | str, format: Format = "auto", passages: Path | str | None = None) -> QuestionSet:
    """The questions of a file, with the passages they are about and those of another file as further distractors.

    FinanceBench keeps its documents in a file of their own: `passages` is that file. Equal passages become one. Raises
    TaskError that names file, line or record, and field.
    """
    path = Path(path)
    extra = Path(passages) if passages is not None else None
    records = list(_records(path))
    form = _form(path, records) if format == "auto" else format
    notes: Counter[str] = Counter()
    if form == "contracts":
        if extra is not None and extra != path:
            raise TaskError(f"{path}: the question file contains the contracts: omit --passages {extra}")
        return contract_questions(str(path), [_parsed(Contract, path, record) for record in records], notes)
    if form == "filings":
        if extra is None:
            raise TaskError(f"{path}: the questions are about filings in another file: pass it with --passages")
        filings = [_parsed(Filing, extra, record) for record in _records(extra)]
        return filing_questions(str(path), [_parsed(FilingQuestion, path, record) for record in records], filings, notes)
    found = [question for record in records for question in _questions(path, form, record, notes)]
    if not found:
        raise TaskError(f"{path}: the file has no usable question")
    return _numbered(str(path), form, found, load_passages(extra) if extra else iter(()), notes)


def load_passages(path: Path) -> Iterator[Passage]:
    """The passages of a passage file or a question file. Raises TaskError that names file, line or record, and field."""
    if _is_plain(path):
        yield from (Passage(title="", text=text.strip()) for text in read_text(path).split("\n\n") if text.strip())
        return
    records = list(_records(path))
    first = records[0][1]
    if isinstance(first, dict) and "text" in first and "question" not in first:
        for record in records:
            line = _parsed(PassageLine, path, record)
            yield Passage(title=line.title.strip(), text=line.text)
        return
    form = _form(path, records)
    if form not in ("squad", "multihop"):
        raise TaskError(f"{path}: a file of the form {form!r} cannot provide passages")
    for record in records:
        for question in _questions(path, form, record, Counter()):
            yield from question.related or question.context


def _numbered(name: str, form: Form, found: list[Found], extra: Iterator[Passage], notes: Counter[str]) -> QuestionSet:
    """Gives every different passage a number: first those of the questions."""
    numbers: dict[Passage, int] = {}
    shared: dict[int, tuple[int, ...]] = {}  # of the sources: their tuples are the same object for all their questions

    def number(passage: Passage) -> int:
        return numbers.setdefault(passage, len(numbers))

    questions: list[Question] = []
    for item in found:
        context = tuple(number(passage) for passage in item.context)
        if id(item.related) not in shared:
            shared[id(item.related)] = tuple(number(passage) for passage in item.related)
        questions.append(
            Question(
                id=item.id or f"question-{len(questions) + 1}",
                text=item.text,
                answers=item.answers,
                mode=item.mode,
                gold=tuple(dict.fromkeys(context[place] for place in item.gold)),
                values=tuple({context[place]: value for place, value in zip(item.gold, item.values, strict=True)}.values()),
                context=context,
                related=shared[id(item.related)],
                meta=item.meta,
            )
        )
    for passage in extra:
        number(passage)
    return QuestionSet(name=name, form=form, questions=tuple(questions), passages=Passages(numbers), notes=notes)


def _questions(path: Path, form: Form, record: Located, notes: Counter[str]) -> Iterator[Found]:
    if form == "squad":
        for article in _parsed(SquadFile, path, record).data:
            yield from article.found(notes)
    else:
        yield from _parsed(MultihopQuestion, path, record).found(notes)


def _form(path: Path, records: list[Located]) -> Form:
    """The form of a question file, by the fields of its first record."""
    first = records[0][1]
    keys = set(first) if isinstance(first, dict) else set()
    if "data" in keys:
        return "squad"
    if "labels" in keys:
        return "contracts"
    if "doc_name" in keys and "evidence" in keys:
        return "filings"
    if "question" in keys and ("context" in keys or "paragraphs" in keys):
        return "multihop"
    raise TaskError(
        f"{path}, {records[0][0]}: not a question file in a known form (SQuAD, HotpotQA, 2WikiMultihopQA, MuSiQue, CUAD,"
        f" FinanceBench); its fields: {', '.join(sorted(keys)) or 'none'}"
    )


def _records(path: Path) -> Iterator[Located]:
    """The records of a JSON file: the items of a list, the lines of a file of objects, or the one object that it is."""
    text = read_text(path).removeprefix("\ufeff")
    if not text.strip():
        raise TaskError(f"{path}: the file is empty")
    if text.lstrip().startswith("{") and _is_lines(text):
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield f"line {number}", _decoded(path, line, number)
        return
    whole = _decoded(path, text, 1)
    if isinstance(whole, list) and whole:
        yield from ((f"record {number}", item) for number, item in enumerate(whole, 1))
    elif isinstance(whole, dict):
        yield "record 1", whole
    else:
        raise TaskError(f"{path}: the file has no records")


def _is_lines(text: str) -> bool:
    """Whether a text that begins with "{" has an object in its first line and something after it, or two lines begin so."""
    first, _, rest = text.lstrip().partition("\n")
    if not rest.strip() or rest.lstrip("\n").startswith("{"):
        return bool(rest.strip())
    try:
        return isinstance(json.loads(first), dict)
    except json.JSONDecodeError:
        return False


def _decoded(path: Path, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {line + error.lineno - 1}, column {error.colno}"
        raise TaskError(f"{path}, {where}: not JSON: {error.msg}") from error


def _parsed(model: type[Line], path: Path, record: Located) -> Line:
    where, value = record
    try:
        return model.model_validate(value)
    except ValidationError as error:
        place, said = finding(error, branches=("str",))
        raise TaskError(f"{path}, {where}, {place or 'the record'}: {said}") from error


def _is_plain(path: Path) -> bool:
    """Whether a passage file is plain text: by its name, or because it does not begin as JSON does."""
    name = path.name.removesuffix(".gz")
    return name.endswith(_TEXT_SUFFIXES) or read_text(path).lstrip("\ufeff \n\t")[:1] not in ("{", "[")
