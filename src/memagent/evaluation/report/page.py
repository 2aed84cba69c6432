"""The HTML page: templates filled. What comes from outside is cleaned and escaped at one place, for every template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from memagent.evaluation.diagnosis import VERDICTS
from memagent.evaluation.report import numbers
from memagent.evaluation.report.charts import accuracy_charts, cost_charts, key
from memagent.evaluation.report.findings import Findings
from memagent.evaluation.report.readings import Gap, ReadingView
from memagent.evaluation.tally import STEPS
from memagent.harmful import clean
from memagent.html import digest, environment

GENERATOR = '<meta name="generator" content="memagent'
_HERE = Path(__file__).parent
_OPEN_MAPS = 3  # more depth maps are folded, grouped by task
_REPLY = 600  # the maximum number of characters shown of a reply


def html_page(findings: Findings, title: str, views: Sequence[ReadingView]) -> str:
    """One HTML file that needs no other, and asks for none. The same findings give the same bytes."""
    summary = findings.summary
    return rendered(
        "page.html.j2",
        title,
        scripts=("script.js",),
        findings=findings,
        summary=summary,
        keys=[Markup(key(place)) for place in range(len(summary.systems))],
        accuracy=accuracy_charts(summary),
        costs=cost_charts(summary) if any(summary.lengths) else [],
        views=views,
        verdicts=VERDICTS,
    )


def rendered(template: str, title: str, *, scripts: Sequence[str], **values: Any) -> str:
    """A template of this folder, filled. Its policy allows the given scripts of this folder, and no other."""
    script = "".join((_HERE / name).read_text(encoding="utf-8") for name in scripts)
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            version=version("memagent"),
            style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_digest=digest(script),
            **values,
        )
    )


def _environment() -> Environment:
    made = environment(_HERE, clean)
    made.globals.update(
        {
            name: getattr(numbers, name)
            for name in ("percent", "percents", "signed", "signed_interval", "number", "tokens", "short", "depth", "r2")
        }
    )
    made.globals.update(STEPS=STEPS, OPEN_MAPS=_OPEN_MAPS, REPLY=_REPLY)
    made.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str)
    made.filters["is_gap"] = lambda turn: isinstance(turn, Gap)
    return made
