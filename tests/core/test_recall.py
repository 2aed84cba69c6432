"""Recall: an earlier memory is shown again when a reply asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.core import Budgets, make_reader, start
from memagent.core.readers import recall
from memagent.core.readers.recall import best_match, parted
from memagent.driver import read
from memagent.errors import ConfigError
from memagent.models.scripted import ScriptedModel
from tests.core import test_reading
from tests.helpers import WordTokenizer, next_turn, replied

PROFILE = replace(test_reading.PROFILE, recall="Q {question} M {memory} R {recalled} C {chunk} or {wanted}")
BUDGETS = Budgets(question=20, chunk=26, memory=10, answer=8)


def plan(**options):
    given = {"profile": PROFILE, "budgets": BUDGETS, **options}
    return test_reading.plan(reader=make_reader("recall"), **given)


def reading(*replies):
    engine = ScriptedModel(replies)
    return read(plan(), engine), engine.turns


def test_what_was_overwritten_is_shown_once_when_it_is_asked_for():
    transcript, turns = reading("amber is 12", "cobalt is 34\nRecall: amber", "both", "done")
    assert len(plan().chunks) == 3
    assert "R none C" in turns[0].user
    assert "R none C" in turns[1].user
    assert "M cobalt is 34 R amber is 12 C" in turns[2].user
    assert turns[3].user == "Q why? M both A"
    assert [record.memory for record in transcript.records[:3]] == ["amber is 12", "cobalt is 34", "both"]


def test_the_answer_sees_what_the_last_update_asked_for():
    _, turns = reading("amber is 12", "cobalt is 34", "jade is 5\nrecall: amber", "done")
    assert turns[3].user == "Q why? M amber is 12\njade is 5 A"


def test_a_line_alone_asks_without_changing_the_memory():
    transcript, turns = reading("amber is 12", "cobalt is 34", "recall: amber", "done")
    assert transcript.records[2].outcome == "unchanged"
    assert turns[3].user == "Q why? M amber is 12\ncobalt is 34 A"


def test_nothing_is_shown_where_no_earlier_memory_has_the_words():
    _, turns = reading("amber is 12", "cobalt is 34\nrecall: topaz", "both", "done")
    assert "R none C" in turns[2].user


def test_prompts_with_a_recalled_memory_fit_the_window_of_those_without():
    word = " ".join(["amber"] * 10)
    engine = ScriptedModel(lambda turn: f"{word}\nrecall: amber" if turn.kind == "update" else "done")
    a_plan = plan()
    read(a_plan, engine)
    assert all(chunk.tokens <= BUDGETS.chunk - BUDGETS.memory for chunk in a_plan.chunks)
    assert max(WordTokenizer().count(turn.user) for turn in engine.turns) <= 26 + 10 + 12


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        ("a\nb\nrecall: amber", ("a\nb", "amber")),
        ("a\n**Recall: amber**", ("a", "amber")),
        ("recall:", ("", "")),
        ("a\nrecall: amber\nb", ("a\nrecall: amber\nb", "")),
        ("I recall: nothing", ("I recall: nothing", "")),
    ],
)
def test_only_the_last_line_can_ask(reply, parts):
    assert parted(reply, "recall:") == parts


@given(st.lists(st.text("ab \n", max_size=8), max_size=6), st.text("ab ", max_size=6))
def test_the_best_match_is_an_earlier_memory_with_a_word_of_the_query(memories, query):
    found = best_match(memories, query)
    if found:
        assert found in memories
        assert set(found.split()) & set(query.split())
    else:
        assert not any(set(memory.split()) & set(query.split()) for memory in memories)


def test_of_equal_matches_the_latest_is_shown():
    assert best_match(["amber 1", "amber 2", "cobalt"], "amber") == "amber 2"
    assert best_match(["amber and much more beside it", "amber"], "amber") == "amber"


def test_budgets_without_room_are_refused():
    with pytest.raises(ConfigError, match="24 tokens has no room for a recalled memory of 10 and 16 tokens of text"):
        plan(budgets=replace(BUDGETS, chunk=24))


def test_an_answer_without_room_for_two_memories_is_refused():
    budgets = replace(BUDGETS, answer=60)
    need = 60 + 20 + 2 * 10 + 13  # answer, question, memories; wording with the slack
    plan(budgets=budgets, window=need)
    with pytest.raises(ConfigError, match=r"the answer does not fit the window of 112 tokens: .* 2 × 10 memory"):
        plan(budgets=budgets, window=need - 1)


def test_a_profile_without_a_form_asks_for_nothing():
    assert parted("a\nb", "") == ("a\nb", "")


def test_what_is_wanted_is_only_looked_for_where_it_is_shown(monkeypatch):
    looked = []
    monkeypatch.setattr(recall, "best_match", lambda memories, query: looked.append(query) or "")
    a_plan = plan()
    state = start(a_plan)
    for n in range(3):
        state = replied(a_plan, state, f"memory {n}\nrecall: amber")
    assert not looked
    next_turn(a_plan, state)
    assert looked == ["amber"]


def test_only_memories_that_changed_are_kept_and_the_journal_need_not_store_them():
    transcript, _ = reading("amber is 12", "amber is 12", "cobalt is 34", "done")
    states = [record.state for record in transcript.records]
    assert [state.earlier for state in states] == [(), (), ("amber is 12",), ("amber is 12",)]
    assert [record.snapshot for record in transcript.records] == [True, True, False, False]
