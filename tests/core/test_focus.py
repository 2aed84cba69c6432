"""Rounds with `focus`: which chunks a later round shows, and what it costs at most."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import Budgets, Completion, advance, make_reader, pending, plan_reading, split, start
from memagent.core.readers.parallel import RoundState
from memagent.core.reading import options
from memagent.driver import read
from memagent.errors import ConfigError
from memagent.models.scripted import ScriptedModel
from memagent.ranking import bm25
from tests.core import test_reading
from tests.core.test_parallel import PROFILE
from tests.helpers import StringText, WordTokenizer

LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(300)]
LINES[200], LINES[120], LINES[30] = (
    "The falcon belongs to Miranda.", "Miranda lives in the town of Oslo.", "In Oslo it rains.",
)  # fmt: skip
NOTES = {"falcon": "falcon: Miranda", "Miranda": "Miranda: Oslo", "Oslo": "Oslo: rains"}
BUDGETS = Budgets(question=20, chunk=60, memory=25, answer=8)


def plan(lines=LINES, ranker=bm25, profile=PROFILE, focus=True, **more):
    return plan_reading(
        StringText("\n".join(lines)),
        "Where does the owner of the falcon live?",
        reader=make_reader("parallel", {"focus": focus, **more}),
        tokenizer=WordTokenizer(),
        profile=profile,
        budgets=BUDGETS,
        ranker=ranker,
    )


def noting(turn):
    """Notes what belongs to the falcon, and what is said of somebody or something that the memory names."""
    if turn.kind == "answer":
        return "Oslo"
    if turn.kind == "merge":
        memory, _, notes = turn.user.partition(" M ")[2].partition(" N ")
        return "\n".join(line for line in [memory.removeprefix("none"), *notes.splitlines()] if line)
    memory, _, chunk = turn.user.partition(" M ")[2].removesuffix(" notes or nothing new").partition(" C ")
    known = {"falcon": LINES[200], "Miranda": LINES[120], "Oslo": LINES[30]}
    found = [name for name, line in known.items() if line in chunk and (name in memory or name == "falcon")]
    return "\n".join(NOTES[name] for name in found if NOTES[name] not in memory) or "nothing new"


def rounds_of(turns):
    """The numbers of the chunks that each round showed."""
    shown = {}
    for one in turns:
        if one.kind == "note":
            name, _, chunk = one.id.partition("/chunk-")
            shown.setdefault(name, []).append(int(chunk) - 1)
    return list(shown.values())


def numbers_with(a_plan, word):
    return [n for n, one in enumerate(a_plan.chunks) if word in a_plan.text.read(one.start, one.end)]


def test_later_rounds_show_the_chunks_that_the_memory_leads_to():
    a_plan, engine = plan(rounds=5), ScriptedModel(noting)
    transcript = read(a_plan, engine)
    first, second, third, *more = rounds_of(engine.turns)
    assert first == list(range(len(a_plan.chunks)))
    assert second == numbers_with(a_plan, "Miranda")
    assert third == numbers_with(a_plan, "Oslo")
    assert more == [numbers_with(a_plan, "rains")]
    assert transcript.memory.splitlines() == list(NOTES.values())


def test_it_finds_what_rounds_over_everything_find_in_far_fewer_turns():
    found = []
    for focus in (False, True):
        engine = ScriptedModel(noting)
        transcript = read(plan(rounds=5, focus=focus), engine)
        found.append((transcript.memory, transcript.answer, transcript.state.tokens_read))
        turns = len(engine.turns)
    assert found[0] == found[1]
    assert turns < 1.3 * len(plan().chunks)


def test_a_memory_that_leads_nowhere_is_answered_from():
    engine = ScriptedModel(lambda turn: "555 0123" if turn.kind != "answer" else "x")
    transcript = read(plan(), engine)
    assert len(rounds_of(engine.turns)) == 1
    assert transcript.answer == "x"


@pytest.mark.parametrize(("lines", "most"), [(300, 6), (20, 4), (5, 1)])
def test_a_word_that_is_everywhere_leads_to_a_tenth_of_the_chunks_or_a_few(lines, most):
    replies = iter(["sea"] + ["nothing new"] * 1000)
    a_plan = plan([f"Line {number} tells of the sea and of nothing else in particular." for number in range(lines)])
    engine = ScriptedModel(lambda turn: "x" if turn.kind == "answer" else next(replies))
    read(a_plan, engine)
    first, second = rounds_of(engine.turns)
    assert len(first) == len(a_plan.chunks)
    assert len(second) == most == min(len(first), max(4, len(first) // 10))


@given(data=st.data(), lines=st.integers(1, 200), rounds=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_the_number_of_turns_is_bounded_whatever_the_model_replies(data, lines, rounds):
    a_plan = plan(LINES[:lines], rounds=rounds)
    replies = st.sampled_from(["nothing new", "", "sea", "Line 7", " ".join(["flood"] * 20), "tells\nelse", "Miranda"])
    state, asked = start(a_plan), 0
    while ids := list(pending(a_plan, state)):
        asked += 1
        assert a_plan.reader.left(a_plan, state) >= 1
        state = advance(a_plan, state, ids[-1], Completion(text=data.draw(replies)))
    assert asked <= 2 * a_plan.turns
    assert a_plan.reader.left(a_plan, state) == 0


def test_what_it_costs_at_most_is_known_before():
    a_plan, everything = plan(rounds=3), plan(rounds=3, focus=False)
    chunks = len(a_plan.chunks)
    assert chunks > 50
    assert a_plan.turns < 0.5 * everything.turns
    assert a_plan.reader.shown(a_plan) < 0.5 * everything.reader.shown(everything)
    assert plan(rounds=1).turns == plan(rounds=1, focus=False).turns


def test_a_round_that_is_under_way_is_json_and_goes_on_where_it_was():
    a_plan = plan()
    state = start(a_plan)
    for id in list(pending(a_plan, state)):
        state = advance(a_plan, state, id, Completion(text="sea" if id.endswith("-3") else "nothing new"))
    assert state.round == 2
    ids = list(pending(a_plan, state))
    state = advance(a_plan, state, ids[1], Completion(text="nothing new"))
    loaded = a_plan.reader.load(state.to_json())
    assert loaded == state
    assert list(pending(a_plan, loaded)) == [ids[0], *ids[2:]]
    first = next(number for number in range(len(a_plan.chunks)) if number not in state.shown)
    with pytest.raises(ValueError, match="not pending in round 2"):
        advance(a_plan, state, f"round-2/chunk-{first + 1}", Completion(text="x"))


def test_a_chunk_that_was_halved_stays_so():
    a_plan = plan()
    [number] = numbers_with(a_plan, "Miranda lives")
    state = split(a_plan, start(a_plan), f"round-1/chunk-{number + 1}")
    parts = [id.partition("/")[2] for id in pending(a_plan, state) if id.startswith(f"round-1/chunk-{number + 1}:")]
    for id in list(pending(a_plan, state)):
        state = advance(a_plan, state, id, Completion(text="Miranda" if id.endswith("-1") else "nothing new"))
    assert [id for id in (one.partition("/")[2] for one in pending(a_plan, state)) if ":" in id] == parts


def test_readings_without_it_are_those_of_before():
    assert options(make_reader("parallel")) == {"rounds": 3}
    assert options(make_reader("parallel", {"focus": True})) == {"rounds": 3, "focus": True}
    assert plan(focus=False).digest() != plan().digest()
    older = {name: value for name, value in RoundState(round=2).to_json().items() if name != "shown"}
    assert plan(focus=False).reader.load(older) == RoundState(round=2)


def test_what_cannot_work_is_refused_before_the_first_turn():
    with pytest.raises(ConfigError, match="'focus' of the reader 'parallel' needs a ranker"):
        plan(ranker=None)
    assert plan(ranker=None, focus=False).turns
    with pytest.raises(ConfigError, match="'gated' has no option 'focus'; it has exit"):
        make_reader("gated", {"focus": True})
    with pytest.raises(ConfigError, match="template 'round' is empty"):
        plan(profile=replace(test_reading.PROFILE, merge="{question}{memory}{notes}"))

    def unusable(text, passages, query):
        raise ConfigError("no index")

    with pytest.raises(ConfigError, match="no index"):
        plan(ranker=unusable)


def test_an_empty_document_leads_nowhere():
    engine = ScriptedModel(lambda turn: "nothing")
    assert read(plan([]), engine).answer == "nothing"
    assert len(engine.turns) == 1
