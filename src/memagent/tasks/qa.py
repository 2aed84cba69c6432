"""Questions of a question file among numbered documents.

These are the two tasks of RULER (arXiv 2404.06654), and RULER-HQA, the main test of the MemAgent paper (arXiv 2507.02259):
HotpotQA questions among N articles, 50 to 25,600.

As published: the needed passages, which the file gives with the question (qa_2, hqa) or which come from the same article
(qa_1), and other passages of the same file, shuffled. Different: every sample is shuffled with its own seed, whereas the
published code uses one constant, which puts the needed passages at the same positions every time. No passage comes twice.
Passage files add distractors, and synthetic articles follow when these run out. One distractor may be cut so that the
document is within 1 % of the requested length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from memagent.tasks.numbered import numbered
from memagent.tasks.questions import Form, question_number
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task


@dataclass(frozen=True, slots=True)
class QaOptions:
    """clean: leave out distractors that contain an answer (in the published code they stay)."""

    clean: bool = False


@dataclass(frozen=True, slots=True)
class HqaOptions(QaOptions):
    """articles: the number of articles (the paper: 50, 100, … 25,600; 200 in training), whatever the requested tokens are;
    0: as many as fit the requested tokens.
    """

    articles: Annotated[int, Field(ge=0)] = 0


def make_qa(name: str, form: Form, needs: str, materials: Materials, request: Request, options: QaOptions) -> Sample:
    """A question and numbered documents: `request.tokens` tokens in all, or the number of articles in the options."""
    given = materials.question_set(name, form, needs)
    question = given.questions[question_number(request.seed, name, len(given.questions), request.index)]
    rng = generator(request.seed, name, request.index)
    articles = getattr(options, "articles", 0)
    length = {"articles": articles} if articles else {"tokens": request.tokens}
    made = numbered(materials, given.passages, question, rng, clean=options.clean, **length)
    size = f"{articles}articles" if articles else str(request.tokens)
    asked = question.text if name == "hqa" else materials.wording.answering.format(question=question.text)
    sample = Sample(
        id=f"{name}-{size}-{request.seed}-{request.index}",
        task=name,
        question=asked,
        document=made.document,
        answers=question.answers,
        mode=question.mode,
        facts=made.facts,
        tokens=made.tokens,
        seed=request.seed,
        meta=made.meta,
    )
    return checked(sample)


def _task(name: str, form: Form, needs: str, defaults: QaOptions, summary: str) -> Task[Any]:
    make = partial(make_qa, name, form, needs)
    return Task(name=name, summary=summary, make=make, defaults=defaults, questions=True)


TASKS: tuple[Task[Any], ...] = (
    _task(
        "qa_1",
        "squad",
        "questions about single passages (SQuAD)",
        QaOptions(),
        "a question about one passage among numbered documents (question file in the form of SQuAD)",
    ),
    _task(
        "qa_2",
        "multihop",
        "questions about several passages (HotpotQA, 2WikiMultihopQA, MuSiQue)",
        QaOptions(),
        "a question about several passages among numbered documents (question file in the form of HotpotQA)",
    ),
    _task(
        "hqa",
        "multihop",
        "questions about several articles (HotpotQA, 2WikiMultihopQA, MuSiQue)",
        HqaOptions(),
        "RULER-HQA: a question about several articles among N articles (question file in the form of HotpotQA)",
    ),
)
