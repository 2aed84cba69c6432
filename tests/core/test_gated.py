"""The gates: a short reply leaves the memory as it is, and another one may end the reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memagent.core import Completion, make_reader, start
from memagent.core.readers.gated import needs_whole
from memagent.driver import read
from memagent.errors import ConfigError
from memagent.models.scripted import ScriptedModel
from tests.core import test_reading
from tests.helpers import next_turn, replied

GATED = "Q {question} M {memory} C {chunk} or {nothing}{exit}"
PROFILE = replace(test_reading.PROFILE, gated=GATED, exit=" or {enough}")


def plan(question="why?", profile=PROFILE, **options):
    return test_reading.plan(question=question, profile=profile, reader=make_reader("gated", options))


def after(a_plan, *replies):
    state = start(a_plan)
    for reply in replies:
        state = replied(a_plan, state, reply)
    return state


@pytest.mark.parametrize("reply", ["nothing new", "Nothing new.", " **NOTHING NEW** ", '"nothing new"'])
def test_the_short_form_leaves_the_memory_as_it_is(reply):
    state = after(plan(), "m1", reply)
    assert (state.memory, state.outcome, state.part) == ("m1", "skipped", 2)


def test_a_reply_that_is_not_a_form_is_a_memory():
    for reply in ("nothing new but this", "m2\nnothing new", "enough", "m2\nenough"):
        state = after(plan(), "m1", reply)
        assert (state.memory, state.outcome) == (reply, "kept")


def test_the_prompt_offers_the_exit_only_where_it_is_allowed():
    for options, question, offered in (
        ({}, "why?", False),
        ({"exit": True}, "why?", True),
        ({"exit": True}, "How many ships are there?", False),
        ({"exit": True}, "List all of the captains.", False),
    ):
        a_plan = plan(question, **options)
        shown = next_turn(a_plan, start(a_plan)).user
        assert shown.endswith("or nothing new" + " or enough" * offered)
        assert (after(a_plan, "m1", "Enough.").outcome == "enough") is offered


def test_enough_ends_the_reading_with_the_memory_before_it():
    a_plan = plan(exit=True)
    state = after(a_plan, "m1", "enough")
    assert (state.memory, state.outcome) == ("m1", "enough")
    turn = next_turn(a_plan, state)
    assert (turn.kind, turn.user) == ("answer", "Q why? M m1 A")
    assert a_plan.reader.left(a_plan, state) == 1
    done = replied(a_plan, state, "because")
    assert done.answer == "because"
    assert done.tokens_read == a_plan.chunks[0].tokens + a_plan.chunks[1].tokens < a_plan.tokens


def test_a_memory_may_come_with_the_end_of_the_reading():
    state = after(plan(exit=True), "m1\nenough")
    assert (state.memory, state.outcome) == ("m1", "enough")
    state = after(plan(exit=True), "m1", "nothing new\nenough")
    assert (state.memory, state.outcome) == ("m1", "enough")


def test_a_reading_that_has_noted_nothing_is_not_ended():
    state = after(plan(exit=True), "enough")
    assert (state.memory, state.outcome, state.part) == ("", "skipped", 1)


def test_a_memory_too_long_is_asked_again_also_at_the_end():
    state = after(plan(exit=True), "m1", " ".join(["word"] * 30) + "\nenough")
    assert state.outcome == "retry_long"
    assert after(plan(exit=True), "m1", " ".join(["word"] * 30) + "\nenough", "m2\nenough").memory == "m2"


def test_a_model_that_skips_everything_reads_everything_once():
    engine = ScriptedModel(lambda turn: "nothing new" if turn.kind == "update" else "unknown")
    transcript = read(plan(exit=True), engine)
    assert len(engine.turns) == 4
    assert transcript.memory == ""


def test_reasoning_before_a_form_does_not_hide_it():
    state = after(plan(), "m1", Completion(text="<think>is it new?</think>nothing new"))
    assert (state.memory, state.outcome) == ("m1", "skipped")


def test_a_profile_without_the_wording_is_refused_before_the_first_turn():
    with pytest.raises(ConfigError, match="'test' has no wording for the reader 'gated': its template 'gated' is empty"):
        plan(profile=test_reading.PROFILE)
    with pytest.raises(ConfigError, match="the reader 'gated' with exit: its template 'exit' is empty"):
        plan(profile=replace(PROFILE, exit=""), exit=True)


def test_questions_that_need_the_whole_document_are_known():
    for question in ("How many ships?", "What are all the codes?", "Which city was named most often?", "List the names"):
        assert needs_whole(question)
    for question in ("What is the code for amber-falcon?", "Who wrote the letter?", "Is Allan the captain?"):
        assert not needs_whole(question)


@pytest.mark.parametrize("reply", ["No change.\nenough", "enough", "nothing new\nenough"])
def test_enough_does_not_end_a_reading_that_has_no_memory(reply):
    state = after(plan(exit=True), reply)
    assert (state.memory, state.part) == ("", 1)
    assert state.outcome in ("skipped", "unchanged")


def test_the_short_form_is_the_draft_of_every_update_that_is_not_asked_again():
    a_plan = plan()
    assert next_turn(a_plan, after(a_plan, "m1")).draft == "nothing new"
    assert next_turn(a_plan, after(a_plan, "m1", "")).draft == ""
    assert next_turn(a_plan, after(a_plan, "m1", "m2", "m3")).draft == ""
