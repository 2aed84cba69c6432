"""`--dry-run`: estimates the cost of a reading without calling the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from memagent.cli.console import print_json, write
from memagent.cli.progress import cutting
from memagent.core import Plan, template_tokens
from memagent.core.readers.chunkwise import QUERIES, memory_tokens
from memagent.errors import JournalError
from memagent.grounding.verification import MOST_CHECKS, MOST_FIELD_CHECKS
from memagent.journal import Journal, ReadingRecord, default_path
from memagent.session import Session

_LIMIT = ", without repeated turns"


def past(stack: ExitStack) -> Journal | None:
    """The journal, if there is one that can be used: an estimate makes none, and works without it."""
    if not default_path().is_file():
        return None
    with suppress(JournalError):
        return stack.enter_context(Journal.open())
    return None


def print_estimate(
    session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None, as_json: bool
) -> None:
    """Prints tokens, chunks, calls, and estimates of time and cost. The cost assumes that every memory is full.

    Chunks that the session's journal has are not cut again, and times are those of its readings."""
    values = estimate(session, questions, price_in, price_out)
    if as_json:
        print_json(values)
        return
    seconds = (
        "unknown: no recent reading used this reader with this model"
        if values["seconds"] is None
        else f"about {values['seconds']:,.0f} s"
    )
    cost = "unknown: pass --price-in and --price-out" if values["cost"] is None else f"at most {values['cost']:.2f}{_LIMIT}"
    counted = f"{values['tokens']:,} tokens{'' if session.opened.engine.tokenizer.exact else ' (estimated)'}"
    files = f"{values['files']:,} file{'s' if values['files'] != 1 else ''}"
    write(f"document   {values['characters']:,} characters, {counted}, {files}")
    reason = f": {values['reason']}" if "reason" in values else ""
    write(f"reader     {values['reader']}{reason}")
    chunks = f"{values['chunks']:,} chunk{'s' if values['chunks'] != 1 else ''}"
    write(f"readings   {values['readings']}, {chunks}, {_calls(values)}")
    write(f"tokens     at most {values['prompt_tokens']:,} in, {values['completion_tokens']:,} out{_LIMIT}")
    if checks := values["verification"]:
        tokens = f"{checks['prompt_tokens']:,} tokens in, {checks['completion_tokens']:,} out"
        write(f"verify     at most {checks['calls']:,} more calls, {tokens}")
    write(f"time       {seconds}")
    write(f"cost       {cost}")
    write(f"model      {session.settings.model}, window {session.settings.window or 'unknown'}")
    for other in values.get("choices", ()):
        took = "time unknown" if other["seconds"] is None else f"about {other['seconds']:,.0f} s"
        tokens = f"{other['prompt_tokens']:,} tokens in, {other['completion_tokens']:,} out"
        write((f"  {other['reader']:<9} at most {other['calls']:,} calls, {tokens}, {took}", "dim"))


def _calls(values: Mapping[str, Any]) -> str:
    """How many calls: of a reader that decides how much it reads, the most there can be."""
    most = "at most " if values["reader"] in ("parallel", "search", "reread", "gated") else ""
    return f"{most}{values['calls']:,} call{'s' if values['calls'] != 1 else ''}"


def estimate(session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """The numbers of a dry run, JSON-ready. Token counts are upper bounds; time is from the past, or None.

    For the reader `auto`, `choices` has the same numbers for every reader that it could have chosen.
    """
    session.only_plans()
    with cutting(session):
        plans = list(session.plans(questions))
    values = _numbers(session, session.settings.reader, plans, price_in, price_out)
    if session.choice is None:
        return values
    others = {name: [plan] * len(plans) for name, plan in session.choice.plans.items()}
    choices = [_numbers(session, name, same, price_in, price_out) for name, same in others.items()]
    return {**values, "reason": session.choice.reason, "choices": choices}


def _numbers(
    session: Session, reader: str, plans: Sequence[Plan], price_in: float | None, price_out: float | None
) -> dict[str, Any]:
    settings, engine, budgets = session.settings, session.opened.engine, session.settings.budgets
    templates = plans[0].reader.templates
    # A query may be longer than a memory.
    written = max([budgets.memory, *(budgets.question for name in templates if name in QUERIES)]) + budgets.reasoning
    prompt = completion = 0
    for plan in plans:
        question = engine.tokenizer.count(plan.asked)
        wording = template_tokens(settings.profile, engine.tokenizer, engine.overhead, templates, question=question)
        prompt += plan.turns * (wording + question + memory_tokens(plan)) + plan.reader.shown(plan)
        answers = max(1, len(settings.together))
        completion += (plan.turns - answers) * written + answers * budgets.answer_tokens
    checks = _verification(session, plans)
    priced = price_in is not None and price_out is not None
    paid = (prompt + checks.get("prompt_tokens", 0)) * (price_in or 0)
    paid += (completion + checks.get("completion_tokens", 0)) * (price_out or 0)
    shown = plans[0].tokens  # of each: they read the same document
    speed = session.opened.defaults.tokens_per_second if reader == "memory" else None
    return {
        "reader": reader,
        "readings": len(plans),
        "characters": len(session.document),
        "tokens": session.tokens(plans[0]),
        "files": len(session.document.files),
        "chunks": len(plans[0].chunks),
        "calls": sum(plan.turns for plan in plans),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "seconds": len(plans) * shown / speed if speed else _from_past(session, reader, len(plans), shown),
        "verification": checks,
        "cost": paid / 1e6 if priced else None,
    }


def _verification(session: Session, plans: Sequence[Plan]) -> dict[str, int]:
    """The most that verification can cost; {} if the model is not asked."""
    settings, engine, budgets = session.settings, session.opened.engine, session.settings.budgets
    if not session.verified or not settings.profile.verify:
        return {}
    wording = template_tokens(settings.profile, engine.tokenizer, engine.overhead, ["verify"])
    questions = sum(engine.tokenizer.count(plan.question) for plan in plans) * (1 + settings.profile.repeats("verify"))
    calls = MOST_FIELD_CHECKS if settings.schema else MOST_CHECKS * max(1, len(settings.together))
    return {
        "calls": calls * len(plans),
        "prompt_tokens": calls * (len(plans) * (wording + budgets.memory + budgets.chunk) + questions),
        "completion_tokens": calls * len(plans) * budgets.update_tokens,
    }


def _from_past(session: Session, reader: str, readings: int, tokens: int) -> float | None:
    """Estimated seconds for `readings` of `tokens` tokens each, from finished readings with the same model in the journal.

    Readings that ran together form a group. The estimate uses the group whose size is nearest, and the latest of several.
    Fewer readings are assumed to take as long, more to take longer in proportion: an upper bound at equal speed.
    """
    groups: list[list[ReadingRecord]] = []
    for record in _finished(session, reader):  # newest first
        if groups and record.updated > min(map(_began, groups[-1])):
            groups[-1].append(record)
        else:
            groups.append([record])
    if not groups:
        return None
    group = min(groups, key=lambda group: abs(len(group) - readings))
    took = max(record.updated for record in group) - min(map(_began, group))
    read = max(_shown(record) for record in group)
    return took * tokens / read * max(1.0, readings / len(group))


def _finished(session: Session, reader: str) -> list[ReadingRecord]:
    """The latest finished readings with the same model, the most recently finished first."""
    records: Sequence[ReadingRecord] = []
    with suppress(JournalError):  # the estimate works without them
        records = session.journal.list(limit=50, status="answered") if session.journal else []
    same = [
        record
        for record in records
        if record.settings.get("identity") == session.settings.identity
        and record.settings.get("reader") == reader
        and record.seconds
        and _shown(record)
    ]
    return sorted(same, key=lambda record: record.updated, reverse=True)


def _shown(record: ReadingRecord) -> float:
    """The document tokens that a reading showed, at least once; older records have those of the document alone."""
    return float(str(record.document.get("shown", record.document.get("tokens")) or 0))


def _began(record: ReadingRecord) -> float:
    return record.updated - (record.seconds or 0.0)
