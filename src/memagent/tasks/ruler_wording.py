"""RULER's sentences and questions from a local checkout, which is parsed and never run.

A RULER prompt is one text: what is to be done, the document, what is asked, and the beginning of the answer. A task of ours
has a document and a question, which a reader may see beside every part of the document. So the question is what stands
behind the document, without the label "Question:". What stands before it only announces the question and is left out,
except where the question alone does not say what to follow from the start (variable tracking and counting): there it comes
first. The worked example and the beginning of the answer are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from memagent.errors import TaskError
from memagent.tasks.wording import Wording

_FOLDER = Path("scripts/data/synthetic")
_DOCUMENT = "{context}"


def load_wording(checkout: Path) -> Wording:
    """The wording of a checkout of RULER. Raises TaskError that names an invalid file and its problem."""
    folder = checkout / _FOLDER
    if not folder.is_dir():
        raise TaskError(f"{checkout}: not a checkout of RULER: it has no folder {_FOLDER}")
    constants, needles, passages = folder / "constants.py", folder / "niah.py", folder / "qa.py"
    templates = _templates(constants)
    _, asking = _split(constants, templates, "niah")
    # One fact: RULER turns its question into the singular in this way.
    singular = asking.replace("are all", "is").replace("are", "is").replace("answers", "answer")
    return Wording(
        name="ruler",
        needle=_renamed(
            needles, _text(needles, "needle"), {"type_needle_v": "{kinds}", "key": "{key}", "value": "{value}"}
        ),
        ask_one=_renamed(constants, singular, {"type_needle_v": "{kind}", "query": "{keys}"}),
        ask_many=_renamed(constants, asking, {"type_needle_v": "{kinds}", "query": "{keys}"}),
        last=", and ",
        noise=_text(needles, "haystack"),
        tracking=_renamed(constants, " ".join(_split(constants, templates, "variable_tracking")), {"query": "{value}"}),
        common=_renamed(
            constants, " ".join(_split(constants, templates, "common_words_extraction")), {}, {"num_cw": "{count}"}
        ),
        frequent=_renamed(constants, " ".join(_split(constants, templates, "freq_words_extraction")), {}),
        answering=_renamed(constants, _split(constants, templates, "qa")[1], {"query": "{question}"}),
        heading=_renamed(passages, _text(passages, "DOCUMENT_PROMPT"), {"i": "{number}", "document": ""}).rstrip(),
    )


def _templates(path: Path) -> dict[str, str]:
    """The prompt template of each task, from the table TASKS."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Assign) and _names(node, "TASKS"):
            try:
                table = ast.literal_eval(node.value)
                return {task: str(entry["template"]) for task, entry in table.items()}
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise TaskError(f"{path}: TASKS is not a table of tasks that each have a template: {error}") from error
    raise TaskError(f"{path}: expected a table named TASKS with the prompt templates")


def _split(path: Path, templates: Mapping[str, str], task: str) -> tuple[str, str]:
    """The text before the document, and the question after it."""
    before, found, after = templates.get(task, "").partition(_DOCUMENT)
    after = after.strip().removeprefix("Question:").strip()
    if not found or not after:
        raise TaskError(f"{path}: expected TASKS[{task!r}] to have a template with {_DOCUMENT} and a question behind it")
    return before.strip(), after


def _text(path: Path, name: str) -> str:
    """The first text that a file assigns to `name`."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Assign) and _names(node, name) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and text.strip():
                return text.strip()
    raise TaskError(f"{path}: expected a text that is assigned to the name {name!r}")


def _names(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _renamed(path: Path, text: str, needed: Mapping[str, str], optional: Mapping[str, str] | None = None) -> str:
    """The template with our names for its fields. Raises TaskError if a field is missing or unknown."""
    known = {**needed, **(optional or {})}
    try:
        fields = [field for _, field, _, _ in Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise TaskError(f"{path}: {text[:60]!r} is not a template: {error}") from error
    if missing := sorted(set(needed) - set(fields)):
        raise TaskError(f"{path}: expected the field {{{missing[0]}}} in {text[:60]!r}")
    if unknown := sorted(set(fields) - set(known)):
        raise TaskError(f"{path}: unknown field {{{unknown[0]}}} in {text[:60]!r}")
    for field, ours in known.items():
        text = text.replace(f"{{{field}}}", ours)
    return text


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise TaskError(f"{path}: cannot be read; a checkout of RULER has it: {error}") from error
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"{path}: is not Python source: {error}") from error
