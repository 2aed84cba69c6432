"""Reads the prompt templates out of a local checkout of the released MemAgent code.

The checkout is parsed, never imported or run: only string constants are taken. Its weights were trained on those exact
words, on that text for an empty memory and on a final question whose answer stands in \\boxed{}.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from memagent.core.prompts import Profile
from memagent.errors import ConfigError

# Best first: the code that trained the weights, then the one that evaluated them.
_SOURCES = ("recurrent/impls/memory.py", "taskutils/memory_eval/utils/recurrent_boxed.py")
_ANSWER_NAMES = ("TEMPLATE_FINAL_BOXED", "TEMPLATE_FINAL")
_EMPTY_NAMES = ("NO_MEMORY", "NO_MEMORY_TOKENS")


def import_released(folder: str | Path, name: str = "released") -> Profile:
    """The profile of a checkout of the released code. Raises ConfigError that says what was looked for, and where."""
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"{root} is not a folder: give a local checkout of the released MemAgent code")
    problems = []
    for source in _SOURCES:
        try:
            return _profile(root / source, name)
        except ConfigError as error:
            problems.append(str(error))
    raise ConfigError(f"no templates of the released code below {root}: {'; '.join(problems)}")


def _profile(path: Path, name: str) -> Profile:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path} is not Python: {error}") from error
    strings = dict(_assigned_strings(tree))
    update = _first(strings, ("TEMPLATE",), path)
    return Profile(
        name=name,
        description="Words of the released MemAgent code, read from a local checkout.",
        empty_memory=_first(strings, _EMPTY_NAMES, path),
        update=_rename(update),
        answer=_rename(_first(strings, _ANSWER_NAMES, path)),
        answer_format="boxed",
    )


def _assigned_strings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, text) of every assignment of a string constant, or of a call whose first argument is one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(value, ast.Call) and value.args:
            value = value.args[0]
        label = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
        if label and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield label, value.value


def _first(strings: dict[str, str], names: tuple[str, ...], path: Path) -> str:
    for name in names:
        if name in strings:
            return strings[name]
    raise ConfigError(f"{path} assigns no text to {' or '.join(names)}")


def _rename(template: str) -> str:
    """The released templates call the question {prompt}."""
    return template.replace("{prompt}", "{question}")
