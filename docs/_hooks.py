"""Hooks of the documentation site: what is made from the code, lists of pages, and links out of `docs/` as paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from memagent.cli.commands import app
from memagent.training.reference import Row, chapter

DOCS = Path(__file__).parent
_FIELDS = re.compile(r"<!-- fields of (\w+) -->")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Lists every page of a folder whose entry in the navigation is its path, by the title of the page."""
    config.nav = [_listed(entry) for entry in config.nav]
    return config


def _listed(entry: Any) -> Any:
    [(title, value)] = entry.items() if isinstance(entry, dict) else [(None, entry)]
    if not (isinstance(value, str) and value.endswith("/")):
        return entry
    pages = sorted((DOCS / value).glob("*.md"), key=lambda page: (page.name != "index.md", page.name))
    return {title: [{_title(page): f"{value}{page.name}"} for page in pages]}


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts what is made from the code in its place, and names files outside the site by their path in the repository."""
    folder = Path(page.file.abs_src_path).parent

    def linked(match: re.Match[str]) -> str:
        image, text, target, _ = match.groups()
        path = (folder / target).resolve()
        if image or "://" in target or path.is_relative_to(DOCS):
            return match[0]
        inside = path.relative_to(DOCS.parent).as_posix()
        return f"{text} (`{inside}`)" if text.strip("`") != inside else f"`{inside}`"

    written = _LINK.sub(linked, markdown).replace("<!-- command line -->", "\n".join(_commands()))
    return _FIELDS.sub(lambda match: "\n".join(_fields(match[1])), written)


def _fields(name: str) -> list[str]:
    lines: list[str] = []
    for table in chapter(name):
        lines += ["", f"### `{table.head}` {{#{name}-{table.head.strip('[]')}}}"] if table.head else []
        lines += ["", table.says, "", "| field | type | default | allowed | what it does |", "|---|---|---|---|---|"]
        lines += [_field(row) for row in table.rows]
    return lines


def _field(row: Row) -> str:
    default = row.default if row.default in ("", "required") else f"`{row.default}`"
    cells = (f"`{row.name}`", row.kind, default, row.allowed, row.does)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _commands() -> list[str]:
    group: Any = typer.main.get_command(app)
    lines: list[str] = []
    for name, command in group.commands.items():
        for words, one in _leaves(["memagent", name], command):
            usage = " ".join(part for part in one.collect_usage_pieces(one.make_context("", [], resilient_parsing=True)))
            lines += ["", f"## {' '.join(words)}", "", one.help or "", "", f"    {' '.join(words)} {usage}", ""]
            options = [part for part in one.params if part.param_type_name == "option" and not part.hidden]
            lines += ["| option | default | meaning |", "|---|---|---|"] if options else []
            lines += [_row(part) for part in options]
    return lines


def _leaves(words: list[str], command: Any) -> list[tuple[list[str], Any]]:
    if not hasattr(command, "commands"):
        return [(words, command)]
    return [leaf for name, one in command.commands.items() for leaf in _leaves([*words, name], one)]


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    default = "" if option.default in (None, False, [], ()) or callable(option.default) else f"`{option.default}`"
    return f"| {names} | {default} | {(option.help or '').replace('|', chr(92) + '|')} |"
