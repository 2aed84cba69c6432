"""The HTML of the service. As on the page of a reading, what comes from outside is cleaned and escaped at one place."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from memagent.html import environment
from memagent.page.text import brief, plain, shown
from memagent.page.words import alignment, counted, outcome
from memagent.server.web.assets import address


def rendered(template: str, **values: Any) -> str:
    """A template of this folder, filled in."""
    return _environment().get_template(template).render(**values).lstrip()


@cache
def _environment() -> Environment:
    made = environment(Path(__file__).parent, plain)
    made.filters.update(shown=shown, brief=brief, typed=_typed)
    made.globals.update(address=address, alignment=alignment, counted=counted, outcome=outcome)
    return made


def _typed(text: str) -> Markup:
    """Text for a field that can be changed, where it stays as it is."""
    return Markup(escape(text.encode(errors="replace").decode()))
