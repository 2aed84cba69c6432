"""Questions of a question file among numbered documents: RULER's two (arXiv 2404.06654), under their published names.

As published: the needed passages, those that the file gives with the question (qa_2) or that come from the same article
(qa_1), and others of the same file, shuffled. Not as published: every sample is shuffled anew, where the published code
shuffles with one constant, so that needed passages always fall on the same places; no passage comes twice, synthetic
articles take the place of missing ones; and one distractor may be cut to come within 1 % of the length asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from memagent.errors import TaskError
from memagent.tasks.numbered import numbered
from memagent.tasks.questions import question_number
from memagent.tasks.samples import Sample, checked, generator
from memagent.tasks.task import Materials, Request, Task


@dataclass(frozen=True, slots=True)
class QaOptions:
    """clean: leave out distractors in which an answer stands (published: they stay)."""

    clean: bool = False


def qa(name: Literal["qa_1", "qa_2"], materials: Materials, request: Request, options: QaOptions) -> Sample:
    """A question and numbered documents of `request.tokens` tokens in all."""
    given = materials.questions
    if given is None:
        raise TaskError(f"task {name!r} needs a question file: give one with --questions")
    if name == "qa_1":
        given.require(name, "squad", "questions about single passages (SQuAD)")
    else:
        given.require(name, "multihop", "questions about several passages (HotpotQA, 2WikiMultihopQA, MuSiQue)")
    question = given.questions[question_number(request.seed, name, len(given.questions), request.index)]
    rng = generator(request.seed, name, request.index)
    made = numbered(materials, given.passages, question, rng, tokens=request.tokens, clean=options.clean)
    sample = Sample(
        id=f"{name}-{request.tokens}-{request.seed}-{request.index}",
        task=name,
        question=materials.wording.answering.format(question=question.text),
        document=made.document,
        answers=question.answers,
        mode=question.mode,
        facts=made.facts,
        tokens=made.tokens,
        seed=request.seed,
        meta=made.meta,
    )
    return checked(sample)


TASKS: tuple[Task[QaOptions], ...] = (
    Task(
        name="qa_1",
        summary="a question about one passage among numbered documents (question file in the form of SQuAD)",
        make=partial(qa, "qa_1"),
        defaults=QaOptions(),
        questions=True,
    ),
    Task(
        name="qa_2",
        summary="a question about several passages among numbered documents (question file in the form of HotpotQA)",
        make=partial(qa, "qa_2"),
        defaults=QaOptions(),
        questions=True,
    ),
)
