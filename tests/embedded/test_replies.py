"""The form of the embedded model's memories: what is not one is not taken, and a loop counts once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.core import make_reader
from memagent.embedded.family import EmbeddedFamily
from memagent.embedded.replies import FactLines, without_loop
from tests.core.test_reading import after, plan

LINES = FactLines()


@pytest.mark.parametrize("slip", ["as bread is warm", ",", "- k: 1\nas bread", "-k: 1", "- k:", "- k: 1\n\n- j: 2"])
def test_a_reply_without_the_form_of_a_memory_is_not_taken(slip):
    state = after(plan(check=LINES), "- k: 1\n- j: not yet", slip)
    assert (state.outcome, state.memory, state.part) == ("malformed", "- k: 1\n- j: not yet", 2)
    state = after(plan(check=LINES, rules="paper"), "- k: 1", slip)
    assert (state.outcome, state.memory) == ("kept", slip)


def test_a_reply_with_the_form_of_a_memory_replaces_it_and_no_change_is_still_no_change():
    state = after(plan(check=LINES), "- k: 1", "- k: 2\n- j: 3")
    assert (state.outcome, state.memory) == ("kept", "- k: 2\n- j: 3")
    assert after(plan(check=LINES), "- k: 1", "No change.").outcome == "unchanged"
    assert after(plan(check=LINES), "").outcome == "retry_empty"


def test_a_note_without_the_form_is_not_added_to_the_others():
    state = after(plan(check=LINES, reader=make_reader("append")), "- k: 1", "as bread is warm", "- j: 2")
    assert state.memory == "- k: 1\n- j: 2"


def test_what_fits_of_a_long_reply_must_have_the_form_too():
    a_plan = plan(check=LINES)
    long = " ".join(f"x{n}" for n in range(30))
    state = after(a_plan, "- k: 1", f"- k: {long}", f"- k: {long}")
    assert (state.outcome, state.memory.startswith("- k: x0")) == ("fitted", True)
    assert after(a_plan, "- k: 1", long, long).outcome == "malformed"


LOOP = "- k: 1 2" + " 3" * 12


def test_while_nothing_is_noted_a_loop_counts_once_at_once_if_it_has_the_form():
    state = after(plan(check=LINES), LOOP)
    assert (state.outcome, state.memory, state.part) == ("fitted", "- k: 1 2 3", 1)
    state = after(plan(check=LINES, rules="paper"), LOOP)
    assert state.memory == "- k: 1 2" + " 3" * 6


def test_a_loop_is_asked_again_first_if_there_is_a_memory_to_lose():
    state = after(plan(check=LINES), "- k: 1", LOOP)
    assert (state.outcome, state.memory) == ("retry_long", "- k: 1")
    assert after(plan(check=LINES), "- k: 1", LOOP, "- k: 2").memory == "- k: 2"
    state = after(plan(check=LINES), "- k: 1", LOOP, LOOP)
    assert (state.outcome, state.memory) == ("fitted", "- k: 1 2 3")


def test_a_model_without_such_a_rule_keeps_its_loop():
    assert after(plan(), LOOP).outcome == "retry_long"
    assert after(plan(), LOOP, LOOP).memory == "- k: 1 2" + " 3" * 6


def test_a_loop_without_the_form_is_asked_again_and_then_not_taken():
    run_on = "bread" + " and bread" * 12
    assert after(plan(check=LINES), run_on).outcome == "retry_long"
    state = after(plan(check=LINES), "- k: 1", run_on)
    assert (state.outcome, state.memory) == ("retry_long", "- k: 1")
    state = after(plan(check=LINES), "- k: 1", run_on, run_on)
    assert (state.outcome, state.memory) == ("malformed", "- k: 1")


def test_what_is_too_long_even_with_its_loop_once_is_asked_again_and_cut():
    long = "- k: " + " ".join(f"x{n}" for n in range(14)) + " y" * 60
    assert after(plan(check=LINES), long).outcome == "retry_long"
    assert after(plan(check=LINES), long, long).memory == "- k: " + " ".join(f"x{n}" for n in range(8))


@pytest.mark.parametrize(
    ("reply", "once"),
    [
        ("- k: 4322503, 8379973, 8379973, 8379973, 83", "- k: 4322503, 8379973"),  # both end in 3
        ("- a: not yet\n- b: not yet\n- b: not yet\n- b: not", "- a: not yet\n- b: not yet"),
        ("- a: 1\n- a: 1\n- a: 1\n- a", "- a: 1"),
        ("a b a b a b a b", "a b"),
        ("重复这个重复这个重复这个重复", "重复这个"),
        ("\n" * 9, ""),
        ("1, 2, 2", "1, 2, 2"),
        ("of all that was said, nothing matters: no, no, no", "of all that was said, nothing matters: no, no, no"),
        ("", ""),
    ],
)
def test_what_a_loop_is(reply, once):
    assert without_loop(reply) == once


@given(st.text("ab1 ,\n", max_size=40), st.text("ab1 ,\n", min_size=1, max_size=8), st.integers(0, 30))
def test_without_its_loop_a_reply_is_a_beginning_of_it_and_short_however_long_it_ran(lead, unit, times):
    reply = lead + unit * times
    once = without_loop(reply)
    assert reply.startswith(once)
    if len(unit) * times > 3 * len(lead) + 4 * len(unit):
        assert len(once) <= len(lead) + 2 * len(unit)


def test_a_fixed_reply_is_guessed_as_the_model_writes_it():
    family = EmbeddedFamily()
    assert family.written("nothing new") == " nothing new"
    assert family.written("- amber: 12") == "- amber: 12"
