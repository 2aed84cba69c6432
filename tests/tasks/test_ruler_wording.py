"""The wording of a RULER checkout, of which a small one is made here, in words of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.tasks.ruler_wording import load_wording
from tests.tasks.made import materials, sample

CONSTANTS = '''
import os
TASKS = {
    "niah": {
        "tokens_to_generate": 1,
        "template": """Look for {type_needle_v}.\\n{context}\\nSo what are all the {type_needle_v} of {query}?""",
    },
    "variable_tracking": {"template": "Follow the letters.\\n\\n{context}\\nQuestion: Who equals {query}?"},
    "common_words_extraction": {"template": "Count.\\n{context}\\nQuestion: Name the 10 usual ones."},
    "freq_words_extraction": {"template": "Count codes. {context}\\nQuestion: Name three."},
    "qa": {"template": "Be short.\\n\\n{context}\\n\\nBe short.\\n\\nQuestion: {query}"},
}
raise SystemExit("this file is never run")
'''
NIAH = """
haystack = open("somewhere")
needle = "Now one of the {type_needle_v} of {key} equals {value}."
if True:
    haystack = "Rain falls. Wind blows."
"""
QA = 'DOCUMENT_PROMPT = "Paper {i}:\\n{document}"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts" / "data" / "synthetic"
    folder.mkdir(parents=True)
    for name, text in (("constants.py", CONSTANTS), ("niah.py", NIAH), ("qa.py", QA)):
        (folder / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_sentences_and_questions_are_those_of_the_checkout(checkout: Path) -> None:
    wording = load_wording(checkout)
    assert wording.state("number", "a-b", "12") == "Now one of the numbers of a-b equals 12."
    assert wording.ask("number", ["a-b"], 1) == "So what is the number of a-b?"
    assert wording.ask("uuid", ["a", "b", "c"], 3) == "So what are all the uuids of a, b, and c?"
    assert wording.noise == "Rain falls. Wind blows."
    assert wording.tracking == "Follow the letters. Who equals {value}?"
    assert wording.common == "Count. Name the 10 usual ones."
    assert wording.frequent == "Count codes. Name three."
    assert wording.answering == "Be short.\n\nQuestion: {question}"
    assert wording.heading == "Paper {number}:"


def test_tasks_use_it(checkout: Path) -> None:
    using = replace(materials(), wording=load_wording(checkout))
    one = sample("niah_single_1", using=using)
    assert one.facts[0].text.startswith("Now one of the numbers of ")
    assert str(one.document).count("Rain falls. Wind blows.") > 100
    assert one.question.startswith("So what is the number of ")
    assert sample("niah_multivalue", using=using).question.startswith("So what are all the numbers of ")
    assert "equals" in str(sample("niah_multikey_2", using=using).document)
    assert sample("vt", using=using).question.startswith("Follow the letters. Who equals ")
    assert sample("cwe", using=using).question == "Count. Name the 10 usual ones."
    assert sample("fwe", using=using).question == "Count codes. Name three."
    ours = sample("niah_single_1")
    assert one.answers == ours.answers
    with pytest.raises(TaskError, match="another number"):
        sample("cwe", using=using, common=5)


def test_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"not a checkout of RULER.*scripts/data/synthetic"):
        load_wording(tmp_path)


@pytest.mark.parametrize("name", ["constants.py", "niah.py", "qa.py"])
def test_a_file_is_missing_or_no_python(checkout: Path, name: str) -> None:
    path = checkout / "scripts" / "data" / "synthetic" / name
    path.write_text("TASKS = {", encoding="utf-8")
    with pytest.raises(TaskError, match=rf"{name}: is not Python"):
        load_wording(checkout)
    path.unlink()
    with pytest.raises(TaskError, match=rf"{name}: cannot be read"):
        load_wording(checkout)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("constants.py", "TASKS", "JOBS", r"constants\.py: expected a table named TASKS"),
        ("constants.py", '"template": "Count codes', '"text": "Count codes', r"constants\.py: TASKS is not a table"),
        ("constants.py", '"qa"', '"ask"', r"constants\.py: expected TASKS\['qa'\]"),
        ("constants.py", "{context}\\nQuestion: Who", "Question: Who", r"TASKS\['variable_tracking'\].*\{context\}"),
        ("constants.py", "equals {query}", "equals it", r"constants\.py: expected the field \{query\}"),
        ("constants.py", "Name three", "Name {many}", r"constants\.py: unknown field \{many\}"),
        ("niah.py", "needle =", "pin =", r"niah\.py: expected a text that is assigned to the name 'needle'"),
        ("niah.py", "{key}", "{", r"niah\.py: .* is not a template"),
        ("niah.py", '"Rain falls. Wind blows."', "None", r"niah\.py: .*'haystack'"),
        ("qa.py", "{i}", "", r"qa\.py: expected the field \{i\}"),
    ],
)
def test_what_is_missing_is_named(checkout: Path, name: str, old: str, new: str, message: str) -> None:
    path = checkout / "scripts" / "data" / "synthetic" / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        load_wording(checkout)
