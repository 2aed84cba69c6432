"""Holds answers against their document: with the model where its profile says how, else by a search for their words."""

from __future__ import annotations

import asyncio
import json
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to hold against the document, and the lines of the memory that it was given from."""

    plan: Plan
    question: str
    answer: str
    origins: Sequence[LineOrigin]

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


def verify(answers: Sequence[Answered], engine: Engine, text: Located) -> list[Verified]:
    """A verdict on each answer. A check that fails makes no answer fail: the verdict says what went wrong."""
    planned = [_checks(one) for one in answers]
    return _verdicts(answers, planned, ask(_turns(planned), engine), text)


async def averify(answers: Sequence[Answered], engine: Engine, text: Located) -> list[Verified]:
    """As `verify`, without blocking the event loop."""
    planned = await asyncio.to_thread(lambda: [_checks(one) for one in answers])
    results = await aask(_turns(planned), engine)
    return await asyncio.to_thread(_verdicts, answers, planned, results, text)


def _turns(planned: Sequence[Sequence[Check] | ModelError]) -> list[Turn]:
    return [check.turn for part in planned if not isinstance(part, ModelError) for check in part]


def _checks(one: Answered) -> list[Check] | ModelError:
    """The turns that verify an answer, or why there can be none."""
    if not one.plan.profile.verify or _not_found(one):
        return []
    try:
        if one.fields is not None:
            return field_checks(one.plan, one.question, one.fields, one.origins)
        return checks(one.plan, one.question, one.answer, one.origins)
    except ModelError as error:  # a server that counts tokens is gone
        return error


def _not_found(one: Answered) -> bool:
    """Whether the answer, or each item of it, says that the document does not hold one, or is JSON without a value."""
    if one.fields is not None:
        return not one.fields
    items = (one.answer, *claims(one.answer))
    form = one.plan.profile.not_found
    return says(items[0], form) or (len(items) > 1 and all(says(item, form) for item in items[1:]))


def _verdicts(
    answers: Sequence[Answered],
    planned: Sequence[Sequence[Check] | ModelError],
    results: Sequence[Completion | ModelError],
    text: Located,
) -> list[Verified]:
    replies: Iterator[Completion | ModelError] = iter(results)
    asked: list[list[tuple[Check | None, Completion | ModelError]]] = [
        [(None, part)] if isinstance(part, ModelError) else [(check, next(replies)) for check in part] for part in planned
    ]
    return [_verdict(one, pairs, text) for one, pairs in zip(answers, asked, strict=True)]


def _verdict(one: Answered, asked: Sequence[tuple[Check | None, Completion | ModelError]], text: Located) -> Verified:
    if _not_found(one):
        return Verified(verdict=Verdict(status="not_found"), usage=Usage())
    replied = [(check, made) for check, made in asked if check is not None and isinstance(made, Completion)]
    error = next((str(made) for _, made in asked if isinstance(made, ModelError)), None)
    if replied:
        said = [(check, reply_text(made, "", False)[0]) for check, made in replied]
        verdict = _by_model(one, said, text)
    elif one.fields is not None:
        verdict = on_fields(one.fields, search_for_fields(one.fields, one.origins, text))
    else:
        verdict = verdict_by_search(one.answer, one.origins, text)
    return Verified(verdict=replace(verdict, error=error), usage=usage_of(made for _, made in replied))


def _by_model(one: Answered, said: Sequence[tuple[Check, str]], text: Located) -> Verdict:
    unsupported = one.plan.profile.unsupported
    if one.fields is not None:
        asked = {pointer for check, _ in said for pointer in check.fields}
        others = [field for field in one.fields if field.pointer not in asked]  # that no turn asked about
        cited = quotes_of_fields(one.fields, said, text, unsupported)
        return on_fields(one.fields, search_for_fields(others, one.origins, text) | cited)
    return verdict_by_model(one.question, one.answer, said, text, unsupported)
