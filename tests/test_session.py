"""Sessions and the façade, with a scripted engine: what Python users call."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import memagent
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.session import Session
from memagent.settings import make_settings
from tests.cli.conftest import FACT, reader

TEXT = "\n".join(f"Line {number} tells of the sea." if number != 30 else FACT for number in range(40))
OPTIONS = {"chunk_tokens": 300, "memory_tokens": 100}


def scripted(script=lambda turn: reader(turn.messages), **options):
    return OpenModel(engine=ScriptedModel(script, **options))


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


def test_read_from_a_path_and_from_text(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    from_path = memagent.read(path, "the code?", model=scripted(), **OPTIONS)
    from_text = memagent.read(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS)
    assert from_path.answer == from_text.answer == "4821973"
    assert from_path.id is None
    assert str(path) in from_path.evidence[0].place


def test_aread_gives_what_read_gives():
    there = memagent.read(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS)
    here = asyncio.run(memagent.aread(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS))
    assert (here.answer, here.memory, here.turns, here.provenance) == (
        there.answer,
        there.memory,
        there.turns,
        there.provenance,
    )


def test_a_failed_reading_raises_for_one_and_is_a_record_among_many():
    def script(turn):
        return memagent.ModelUnavailableError("gone") if "bad" in turn.user else reader(turn.messages)

    with pytest.raises(memagent.ModelError, match="gone"):
        memagent.read(memagent.from_text(TEXT), "bad", model=scripted(script), **OPTIONS)
    good, bad = memagent.read_many(memagent.from_text(TEXT), ["good", "bad"], model=scripted(script), **OPTIONS)
    assert (good.error, good.answer) == (None, "4821973")
    assert (bad.error, bad.answer) == ("gone", "")


def test_the_watcher_sees_every_turn_and_all_tokens():
    seen = []
    result = memagent.read(
        memagent.from_text(TEXT),
        "q",
        model=scripted(),
        watcher=lambda moved: seen.append((moved[0].tokens_read, moved[0].turns_left)),
        **OPTIONS,
    )
    assert len(seen) == result.turns
    assert seen[-1] == (len(TEXT.encode()), 0)
    assert [left for _, left in seen] == list(range(result.turns))[::-1]


def test_a_reading_in_the_journal_resumes_after_any_turn(journal):
    text = memagent.from_text(TEXT)
    settings = make_settings(scripted(), model="scripted", **OPTIONS)
    whole = memagent.read(memagent.from_text(TEXT), "q", model=scripted(), **OPTIONS)
    for stop in range(whole.turns):

        def dies(turn, stop=stop):
            return memagent.ModelUnavailableError("gone") if turn.number == stop else reader(turn.messages)

        first = Session(text, scripted(dies), settings, journal)
        [broken] = first.run(first.start(["q"]))
        assert (broken.error, broken.turns) == ("gone", stop)
        model = scripted()
        again = Session(text, model, settings, journal)
        [resumed] = again.run([again.resume(broken.id)])
        assert [turn.number for turn in model.engine.turns] == list(range(stop, whole.turns))
        assert (resumed.answer, resumed.memory, resumed.provenance, resumed.turns, resumed.outcomes) == (
            whole.answer,
            whole.memory,
            whole.provenance,
            whole.turns,
            whole.outcomes,
        )


def test_other_settings_on_resume_are_refused_by_name(journal):
    text = memagent.from_text(TEXT)
    first = Session(text, scripted(["x", memagent.ModelError("gone")]), _settings(), journal)
    [broken] = first.run(first.start(["q"]))
    for name, options in (
        ("budgets.memory", {"memory_tokens": 120}),
        ("sampling.seed", {"seed": 9}),
        ("rules", {"rules": "paper"}),
    ):
        other = Session(text, scripted(), _settings(**options), journal)
        with pytest.raises(memagent.JournalError, match=rf"settings\.{name}: .* → .*"):
            other.resume(broken.id)


def _settings(**options):
    return make_settings(scripted(), model="scripted", **{**OPTIONS, **options})


def test_evidence_finds_each_item_of_a_listed_answer():
    text = "Alpha is 111. " + "x " * 300 + "Beta is 222."

    def script(turn):
        if turn.kind == "answer":
            return "111, 222, and 333"
        known = [line for line in ("Alpha 111", "Beta 222") if line.split()[1] in turn.user]
        return "\n".join(known) or "none"

    result = memagent.read(memagent.from_text(text), "q", model=scripted(script), **OPTIONS)
    assert [(one.text, one.offset) for one in result.evidence] == [("111", 9), ("222", text.index("222"))]
    assert result.evidence[0].quote.startswith("Alpha is 111.")


def test_an_answer_from_nowhere_has_no_evidence():
    result = memagent.read(memagent.from_text(TEXT), "q", model=scripted(lambda turn: "invented"), **OPTIONS)
    assert result.evidence == ()


def test_importing_memagent_loads_nothing_heavy():
    heavy = ("torch", "transformers", "openai", "pypdf")
    code = f"import sys, memagent, memagent.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_public_names_are_these():
    assert sorted(memagent.__all__) == sorted(set(memagent.__all__))
    for name in memagent.__all__:
        assert getattr(memagent, name) is not None
    assert dir(memagent) == sorted(memagent.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        memagent.nonsense  # noqa: B018


def test_missing_extras_name_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "memagent.models.local", raising=False)
    with pytest.raises(memagent.MissingExtraError, match=r"pip install 'memagent\[local\]'"):
        memagent.open_model("embedded")
