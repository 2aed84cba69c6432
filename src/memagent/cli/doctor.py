"""`memagent doctor`."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Annotated

import typer

from memagent.cli.console import boundary, err, plain, print_json, write
from memagent.cli.options import AsJson, Chosen, reads
from memagent.doctor.advice import advise
from memagent.doctor.values import Diagnosis
from memagent.models.concurrency import most_of

_TOO_LONG = {
    "refused": "refuses a prompt that is too long, and says so",
    "cut": "cuts a prompt that is too long without saying so",
    "taken": "takes a prompt that is longer than that",
    "failed": "fails at a prompt that is too long, without saying why",
    "unknown": "unknown",
}


@reads
def doctor(
    chosen: Chosen,
    turns: Annotated[int, typer.Option(min=3, help="Chunks of the short reading that is measured.")] = 6,
    as_json: AsJson = False,
) -> None:
    """Measure a served model with a few real turns, up to --concurrency of them at once, and say what would make reading
    with it faster or safer."""
    from memagent.doctor.probe import Probe  # with the client of OpenAI, which takes a moment to import

    with boundary(), ExitStack() as stack, err.status("", spinner="line") as status:
        most = most_of(chosen.concurrency)
        opened = replace(chosen, concurrency=most).opened(stack)
        probe = Probe(
            opened,
            chosen.settings(opened),
            turns=turns,
            most=most,
            say=lambda what: status.update(f"measuring {plain(what)}"),
        )
        found = asyncio.run(probe.run())
    advice = advise(found)
    if as_json:
        derived = {"decoding": found.decoding, "best": asdict(found.best)}
        print_json({**asdict(found), **derived, "advice": [asdict(one) for one in advice]})
        return
    for name, text in _lines(found):
        write((f"{name:<13}", "dim"), text)
    write()
    for one in advice:
        gain = f"up to {one.gain:.1f} × as fast: " if one.gain else ""
        write(("→ ", "bold"), f"{gain}{one.do}")
        write(f"  {one.why}")
    if not advice:
        write("nothing to advise")


def _lines(found: Diagnosis) -> list[tuple[str, str]]:
    turn, share = found.reading, found.decoding
    window = "not reported" if found.window is None else f"{found.window:,} tokens; {_TOO_LONG[found.too_long]}"
    reported = f"{found.reported:,}" if found.reported else "none"
    counted = f"{found.counted:,} tokens by us, {reported} by the server, of one prompt"
    kept = "" if turn.kept is None else f"; {turn.kept:.0%} of the words of a memory stay"
    caches = {
        None: "a cache cannot be seen",
        True: "a cache shortens repeated ones",
        False: "no cache shortens repeated ones",
    }
    guesses = "not shown (/metrics)" if turn.drafted is None else "none"
    if turn.drafted:
        guesses = f"{turn.drafted:,} tokens, {(turn.accepted or 0) / turn.drafted:.0%} of them right"
    seeds = {
        None: "no difference seen",
        True: "a seed repeats a sampled reply",
        False: "a seed does not repeat a sampled reply",
    }
    return [
        ("server", f"{found.kind or 'of unknown kind'} at {found.base_url}, model {found.model}"),
        ("window", window),
        ("counting", f"{'exact' if found.exact else 'an estimate'} ({found.counting}); {counted}"),
        ("sampling", seeds[found.repeats]),
        ("request", f"{1000 * found.request:,.0f} ms for a prompt of one word"),
        (
            "prompts",
            f"{_rate(found.prefill)}; {caches[found.prefix_cache]}",
        ),
        ("replies", f"{_rate(found.decode)}{'' if share is None else f', {share:.0%} of the time of a turn'}"),
        ("guesses", guesses),
        ("a turn", f"{turn.seconds:.2f} s: {turn.prompt:,.0f} tokens in, {turn.reply:,.0f} out{kept}"),
        (
            "at once",
            ", ".join(f"{one.concurrency}: {one.turns_per_second:.2f}" for one in found.levels) + " turns a second",
        ),
    ]


def _rate(rate: float | None) -> str:
    return "too fast to tell" if rate is None else f"{rate:,.0f} tokens a second"
