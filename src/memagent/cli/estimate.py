"""`--dry-run`: what a reading would take, without calling the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memagent.cli.console import out, plain, print_json
from memagent.core import template_tokens
from memagent.journal import Journal
from memagent.session import Session


def print_estimate(
    session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None, as_json: bool
) -> None:
    """Prints tokens, chunks, calls, and estimates of time and cost; costs assume that every memory is full."""
    values = estimate(session, questions, price_in, price_out)
    if as_json:
        print_json(values)
        return
    seconds = (
        "unknown: no earlier reading with this model" if values["seconds"] is None else f"about {values['seconds']:,.0f} s"
    )
    out.print(f"document   {values['characters']:,} characters, {values['tokens']:,} tokens, {values['files']} file(s)")
    out.print(f"readings   {values['readings']} × {values['chunks']:,} chunks = {values['calls']:,} calls")
    out.print(f"tokens     at most {values['prompt_tokens']:,} in, {values['completion_tokens']:,} out")
    out.print(f"time       {seconds}")
    out.print(
        "cost       " + ("give --price-in and --price-out" if values["cost"] is None else f"at most {values['cost']:.2f}")
    )
    out.print(f"model      {plain(session.settings.identity)}, window {session.settings.window or 'unknown'}")


def estimate(session: Session, questions: Sequence[str], price_in: float | None, price_out: float | None) -> dict[str, Any]:
    """The numbers of a dry run, JSON-ready. Token counts are upper bounds; time is from the past, or None."""
    settings, engine = session.settings, session.opened.engine
    budgets = settings.budgets
    plans = [session.plan(question) for question in questions]
    wording = template_tokens(settings.profile, engine.tokenizer, engine.overhead)
    prompt = completion = 0
    for plan in plans:
        asked = wording + engine.tokenizer.count(plan.question)
        prompt += plan.turns * (asked + budgets.memory) + plan.tokens
        completion += len(plan.chunks) * budgets.update_tokens + budgets.answer_tokens
        if plan.direct:
            prompt += engine.tokenizer.count(session.document.read(0, len(session.document)))
    priced = price_in is not None and price_out is not None
    speed = session.opened.defaults.tokens_per_second or _past_speed(session)
    total = sum(plan.tokens for plan in plans)
    return {
        "readings": len(plans),
        "characters": len(session.document),
        "tokens": plans[0].tokens,
        "files": len(session.document.files),
        "chunks": len(plans[0].chunks),
        "calls": sum(plan.turns for plan in plans),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "seconds": total / speed if speed else None,
        "cost": (prompt * (price_in or 0) + completion * (price_out or 0)) / 1e6 if priced else None,
    }


def _past_speed(session: Session) -> float | None:
    """Document tokens per second of the latest finished reading with the same model, if the journal has one."""
    with session.journal or Journal.open() as journal:
        for record in journal.list(limit=50, status="answered"):
            tokens = record.document.get("tokens")
            if record.settings.get("identity") == session.settings.identity and record.seconds and tokens:
                return float(str(tokens)) / record.seconds
    return None
