"""The HTML of a page. What comes from outside is cleaned and escaped at one place; the policy allows only what is ours."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from memagent.html import digest, environment
from memagent.page import words
from memagent.page.passages import Border, Gap
from memagent.page.text import brief, plain, shown
from memagent.page.view import PageView

_HERE = Path(__file__).parent
_TEXT = 50_000  # the maximum number of characters of an answer or a memory
_CLAIMS = 200  # the maximum number of claims without support that are listed


def html(page: PageView, back: str = "") -> str:
    """One HTML file that needs no other, and asks for none. `back`: the address of the service that shows it."""
    style, script = _own()
    first = page.questions[0].question if len(page.questions) == 1 else words.counted(len(page.questions), "question")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            record=page.record,
            trace=page.trace,
            ledger=page.trace.ledger,
            timeline=page.trace.timeline,
            title=f"{brief(first, 80)} · {page.record.id}",
            version=version("memagent"),
            when=datetime.fromtimestamp(page.record.created).strftime("%Y-%m-%d %H:%M"),
            style=Markup(style),
            script=Markup(script),
            policy=policy(),
            back=back,
        )
        .lstrip()
    )


def policy() -> str:
    """What the page may do: use its own style and its own script."""
    style, script = map(digest, _own())
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


@cache
def _own() -> tuple[str, str]:
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    return style, script


@cache
def _environment() -> Environment:
    made = environment(_HERE, plain)
    made.globals.update(
        {name: getattr(words, name) for name in ("status", "outcome", "alignment", "counted", "turns", "share", "tokens")}
    )
    made.filters.update(shown=shown, brief=brief)
    made.tests.update(gap=lambda block: isinstance(block, Gap), border=lambda block: isinstance(block, Border))
    made.globals.update(TEXT=_TEXT, CLAIMS=_CLAIMS)
    return made
