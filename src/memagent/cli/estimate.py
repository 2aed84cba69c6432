"""`--dry-run`: estimates the cost of a reading without calling the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memagent.cli.console import print_json, write
from memagent.core import template_tokens
from memagent.errors import JournalError
from memagent.journal import Journal, ReadingRecord, default_path
from memagent.session import Session

_LIMIT = ", without repeated turns"


def print_estimate(
    session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None, as_json: bool
) -> None:
    """Prints tokens, chunks, calls, and estimates of time and cost. The cost assumes that every memory is full."""
    values = estimate(session, questions, price_in, price_out)
    if as_json:
        print_json(values)
        return
    seconds = (
        "unknown: no earlier reading used this model" if values["seconds"] is None else f"about {values['seconds']:,.0f} s"
    )
    cost = "unknown: pass --price-in and --price-out" if values["cost"] is None else f"at most {values['cost']:.2f}{_LIMIT}"
    write(f"document   {values['characters']:,} characters, {values['tokens']:,} tokens, {values['files']} file(s)")
    write(f"readings   {values['readings']} × {values['chunks']:,} chunks = {values['calls']:,} calls")
    write(f"tokens     at most {values['prompt_tokens']:,} in, {values['completion_tokens']:,} out{_LIMIT}")
    write(f"time       {seconds}")
    write(f"cost       {cost}")
    write(f"model      {session.settings.model}, window {session.settings.window or 'unknown'}")


def estimate(session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """The numbers of a dry run, for JSON. Token counts are upper bounds. Time comes from earlier readings, or is None."""
    settings, engine = session.settings, session.opened.engine
    budgets = settings.budgets
    plans = [session.plan(question) for question in questions]
    wording = template_tokens(settings.profile, engine.tokenizer, engine.overhead, plans[0].reader.templates)
    prompt = completion = 0
    for plan in plans:
        asked = wording + engine.tokenizer.count(plan.question)
        prompt += plan.turns * (asked + budgets.memory) + plan.tokens
        completion += (plan.turns - 1) * budgets.update_tokens + budgets.answer_tokens
    priced = price_in is not None and price_out is not None
    tokens = plans[0].tokens  # the same for each, because they read one document
    speed = session.opened.defaults.tokens_per_second
    return {
        "readings": len(plans),
        "characters": len(session.document),
        "tokens": tokens,
        "files": len(session.document.files),
        "chunks": len(plans[0].chunks),
        "calls": sum(plan.turns for plan in plans),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "seconds": len(plans) * tokens / speed if speed else _from_past(session, len(plans), tokens),
        "cost": (prompt * (price_in or 0) + completion * (price_out or 0)) / 1e6 if priced else None,
    }


def _from_past(session: Session, readings: int, tokens: int) -> float | None:
    """Estimated seconds for `readings` of `tokens` tokens each, from finished readings with the same model in the journal.

    Readings that ran together form a group. The estimate uses the group whose size is nearest, and the latest of several.
    Fewer readings are assumed to take as long, more to take longer in proportion: an upper bound at equal speed.
    """
    groups: list[list[ReadingRecord]] = []
    for record in _finished(session):  # newest first
        if groups and record.updated > min(map(_began, groups[-1])):
            groups[-1].append(record)
        else:
            groups.append([record])
    if not groups:
        return None
    group = min(groups, key=lambda group: abs(len(group) - readings))
    took = max(record.updated for record in group) - min(map(_began, group))
    read = max(float(str(record.document["tokens"])) for record in group)
    return took * tokens / read * max(1.0, readings / len(group))


def _finished(session: Session) -> list[ReadingRecord]:
    """The latest finished readings with the same model, the most recently finished first."""
    if not default_path().is_file():
        return []  # do not create a journal
    try:
        with Journal.open() as journal:
            records = journal.list(limit=50, status="answered")
    except JournalError:
        return []  # the estimate works without it
    same = [
        record
        for record in records
        if record.settings.get("identity") == session.settings.identity and record.seconds and record.document.get("tokens")
    ]
    return sorted(same, key=lambda record: record.updated, reverse=True)


def _began(record: ReadingRecord) -> float:
    return record.updated - (record.seconds or 0.0)
