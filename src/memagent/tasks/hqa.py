"""RULER-HQA, the main test of the MemAgent paper (arXiv 2507.02259): HotpotQA questions among N articles, 50 to 25,600.

As released: the articles given with the question, and others of the same file. Not as released: every sample is shuffled
anew (the released code shuffles with one constant, so that needed articles always fall on the same places), passage files
add distractors, and when they run out, synthetic articles do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from memagent.errors import TaskError
from memagent.tasks.numbered import numbered
from memagent.tasks.questions import question_number
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task


@dataclass(frozen=True, slots=True)
class HqaOptions:
    """articles: how many of them (the paper: 50, 100, … 25,600; 200 in training); the tokens asked for then play no part.
    0: as many as make the tokens asked for.
    clean: leave out distractors in which an answer stands (the paper does not).
    """

    articles: Annotated[int, Field(ge=0)] = 0
    clean: bool = False


def hqa(materials: Materials, request: Request, options: HqaOptions) -> Sample:
    """A question that needs several articles, among many."""
    given = materials.questions
    if given is None:
        raise TaskError("task 'hqa' needs a question file: give one with --questions")
    given.require("hqa", "multihop", "questions about several articles (HotpotQA, 2WikiMultihopQA, MuSiQue)")
    question = given.questions[question_number(request.seed, "hqa", len(given.questions), request.index)]
    rng = generator(request.seed, "hqa", request.index)
    length = {"articles": options.articles} if options.articles else {"tokens": request.tokens}
    made = numbered(materials, given.passages, question, rng, clean=options.clean, **length)
    size = f"{options.articles}articles" if options.articles else str(request.tokens)
    sample = Sample(
        id=f"hqa-{size}-{request.seed}-{request.index}",
        task="hqa",
        question=question.text,
        document=made.document,
        answers=question.answers,
        mode=question.mode,
        facts=made.facts,
        tokens=made.tokens,
        seed=request.seed,
        meta=made.meta,
    )
    return checked(sample)


TASKS: tuple[Task[HqaOptions], ...] = (
    Task(
        name="hqa",
        summary="RULER-HQA: a question about several articles among N articles (question file in the form of HotpotQA)",
        make=hqa,
        defaults=HqaOptions(),
        questions=True,
    ),
)
