"""Holds answers against their document: with the model where its profile says how, else by a search for their words."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from memagent.core import Completion, Engine, LineOrigin, Plan, Turn
from memagent.core.outcomes import reply_text, says
from memagent.core.types import Usage, usage_of
from memagent.driver import aask, ask
from memagent.errors import ModelError
from memagent.grounding.claims import claims
from memagent.grounding.fields import Field, fields
from memagent.grounding.search import search_for_fields, verdict_by_search
from memagent.grounding.verdict import Located, Verdict, on_fields
from memagent.grounding.verification import Check, checks, field_checks, quotes_of_fields, verdict_by_model

# What a model may write before its answer.
_ANSWER = re.compile(r"^[\s*_]*(?:final\s+)?answer[*_]*\s*[:：][\s*_]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to hold against the document, and the lines of the memory that it was given from. `reading` is the number
    of its reading among those that run together."""

    plan: Plan
    question: str
    answer: str
    origins: Sequence[LineOrigin]
    reading: int = 0

    @property
    def fields(self) -> list[Field] | None:
        """The fields of an answer that is JSON; None: it is text."""
        if not is_json(self.plan, self.answer):
            return None
        return fields(json.loads(self.answer), self.plan.profile.not_found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What came of it, and what it cost."""

    verdict: Verdict
    usage: Usage

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {**self.verdict.to_json(), "usage": asdict(self.usage)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Verified:
        """What `to_json` wrote."""
        return cls(verdict=Verdict.from_json(values), usage=Usage(**values["usage"]))


def is_json(plan: Plan, answer: str) -> bool:
    """Whether an answer is JSON that follows a schema. One that there is not, or that says so, is none."""
    return plan.form is not None and bool(answer) and not says(answer, plan.profile.not_found)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The turns that verify an answer, and why there are none if there should be."""

    checks: Sequence[Check] = ()
    error: ModelError | None = None


def verify(answers: Sequence[Answered], engine: Engine, text: Located) -> list[Verified]:
    """A verdict on each answer. A check that fails makes no answer fail: the verdict says what went wrong."""
    planned = [_planned(one) for one in answers]
    return _verdicts(answers, planned, ask(_turns(answers, planned), engine), text)


async def averify(answers: Sequence[Answered], engine: Engine, text: Located) -> list[Verified]:
    """As `verify`, without blocking the event loop."""
    planned = await asyncio.to_thread(lambda: [_planned(one) for one in answers])
    results = await aask(_turns(answers, planned), engine)
    return await asyncio.to_thread(_verdicts, answers, planned, results, text)


def _turns(answers: Sequence[Answered], planned: Sequence[_Planned]) -> list[tuple[int, Turn]]:
    return [(one.reading, check.turn) for one, part in zip(answers, planned, strict=True) for check in part.checks]


def _planned(one: Answered) -> _Planned:
    if not one.plan.profile.verify or _not_found(one):
        return _Planned()
    try:
        if one.fields is not None:
            return _Planned(field_checks(one.plan, one.question, one.fields, one.origins))
        return _Planned(checks(one.plan, one.question, one.answer, one.origins))
    except ModelError as error:  # a server that counts tokens is gone
        return _Planned(error=error)


def _items(one: Answered) -> tuple[str, ...]:
    """An answer that is text, and its claims."""
    answer = _ANSWER.sub("", one.answer)
    return answer, *claims(answer)


def _not_found(one: Answered) -> bool:
    """Whether the answer, or each item of it, says that the document does not hold one, or is JSON without a value."""
    if one.fields is not None:
        return not one.fields
    answer, *items = (says(item, one.plan.profile.not_found) for item in _items(one))
    return answer or (bool(items) and all(items))


def _refuses(one: Answered) -> bool:
    """Whether a text begins by saying that the document does not hold an answer, and says more, perhaps why."""
    return one.fields is None and any(says(item, one.plan.profile.not_found) for item in _items(one)[1:2])


def _verdicts(
    answers: Sequence[Answered],
    planned: Sequence[_Planned],
    results: Sequence[Completion | ModelError],
    text: Located,
) -> list[Verified]:
    replies: Iterator[Completion | ModelError] = iter(results)
    return [
        _verdict(one, part, [next(replies) for _ in part.checks], text) for one, part in zip(answers, planned, strict=True)
    ]


def _verdict(one: Answered, part: _Planned, results: Sequence[Completion | ModelError], text: Located) -> Verified:
    if _not_found(one):
        return Verified(verdict=Verdict(status="not_found"), usage=Usage())
    replied = [(check, made) for check, made in zip(part.checks, results, strict=True) if isinstance(made, Completion)]
    failed = [part.error, *(made for made in results if isinstance(made, ModelError))]
    error = next((str(one) for one in failed if one is not None), None)
    if replied:
        said = [(check, reply_text(made, check.turn.user, False)[0]) for check, made in replied]
        verdict = _by_model(one, said, text)
    elif one.fields is not None:
        verdict = on_fields(one.fields, search_for_fields(one.fields, one.origins, text))
    else:
        verdict = verdict_by_search(one.answer, one.origins, text)
    if verdict.status == "unsupported" and _refuses(one):  # what else it says is no answer that was found
        verdict = Verdict(status="not_found")
    if error is not None and not replied:  # a search says where the words are; it is not the check that was to be made
        verdict = Verdict(status=None, quotes=verdict.quotes)
    return Verified(verdict=replace(verdict, error=error), usage=usage_of(made for _, made in replied))


def _by_model(one: Answered, said: Sequence[tuple[Check, str]], text: Located) -> Verdict:
    unsupported = one.plan.profile.unsupported
    if one.fields is not None:
        asked = {pointer for check, _ in said for pointer in check.fields}
        others = [field for field in one.fields if field.pointer not in asked]  # that no turn asked about
        cited = quotes_of_fields(one.fields, said, text, unsupported)
        return on_fields(one.fields, search_for_fields(others, one.origins, text) | cited)
    return verdict_by_model(one.question, one.answer, said, text, unsupported)
