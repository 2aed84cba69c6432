"""Rounds: what is shown, how notes are merged, when it ends, and how much it may cost at most."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import Budgets, Completion, Span, advance, make_reader, pending, plan_reading, split, start, turn
from memagent.core.readers.notes import Note, combined, grouped, most_merges
from memagent.core.readers.parallel import RoundState
from memagent.driver import read
from memagent.errors import ConfigError, ContextTooLongError
from memagent.models.scripted import ScriptedModel
from memagent.models.tokenizers import EstimateTokenizer
from tests.core import test_reading
from tests.helpers import StringText, WordTokenizer

PROFILE = replace(
    test_reading.PROFILE,
    round="Q {question} M {memory} C {chunk} notes or {nothing}",
    merge="Q {question} M {memory} N {notes}",
)
BUDGETS = Budgets(question=20, chunk=24, memory=10, answer=8)


def plan(words=200, profile=PROFILE, budgets=BUDGETS, rules="careful", **options):
    text = StringText(" ".join(f"w{n}" for n in range(words)))
    reader = make_reader("parallel", options)
    return plan_reading(
        text, "why?", reader=reader, tokenizer=WordTokenizer(), profile=profile, budgets=budgets, rules=rules
    )


def reading(script, **options):
    """A finished reading and the turns that were asked for it."""
    engine = ScriptedModel(script)
    return read(plan(**options), engine), engine.turns


def by_kind(**replies):
    return lambda shown: replies.get(shown.kind, "nothing new")


def test_every_chunk_of_a_round_is_pending_at_once_and_shows_the_same_memory():
    a_plan = plan()
    state = start(a_plan)
    ids = list(pending(a_plan, state))
    assert ids == [f"round-1/chunk-{n + 1}" for n in range(len(a_plan.chunks))]
    shown = [turn(a_plan, state, id) for id in ids]
    assert all("M none C" in one.user and one.kind == "note" for one in shown)
    assert [one.spans for one in shown] == [(chunk.span,) for chunk in a_plan.chunks]


def test_only_turns_of_the_round_and_the_chunks_there_are_are_pending():
    a_plan = plan()
    for id in ("round-2/chunk-1", "round-1/chunk-10", "round-1/chunk-0", "round-1/chunk-1:0-5", "answer"):
        with pytest.raises(ValueError, match="not pending"):
            turn(a_plan, start(a_plan), id)


def test_a_document_with_nothing_new_is_read_once_and_answered():
    transcript, turns = reading(by_kind(answer="unknown"))
    assert [one.kind for one in turns] == ["note"] * 9 + ["answer"]
    assert transcript.memory == ""
    assert transcript.state.tokens_read == plan().tokens


def test_a_single_note_is_the_memory_without_a_merge():
    def script(shown):
        if shown.kind == "note" and "w100" in shown.user and "none" in shown.user:
            return "a: 1"
        return by_kind(answer="1")(shown)

    transcript, turns = reading(script)
    assert [one.kind for one in turns].count("merge") == 0
    assert transcript.memory == "a: 1"
    assert len(turns) == 2 * 9 + 1  # the second round brought nothing new
    assert transcript.state.tokens_read == plan().tokens  # a document is not read more than whole


def test_notes_are_merged_in_document_order_with_the_memory_of_the_round_before():
    def script(shown):
        if shown.kind == "merge":
            return f"merged-{shown.id[6]}"
        if shown.kind == "note" and "w0" in shown.user.split():
            return "first" + shown.id[6]
        if shown.kind == "note" and "w199" in shown.user.split():
            return "last" + shown.id[6]
        return by_kind(answer="done")(shown)

    transcript, turns = reading(script, rounds=2)
    merges = [one.user for one in turns if one.kind == "merge"]
    assert merges == ["Q why? M none N first1\nlast1", "Q why? M merged-1 N first2\nlast2"]
    assert transcript.memory == "merged-2"
    assert all("M merged-1 C" in one.user for one in turns if one.id.startswith("round-2/chunk"))
    assert turns[-1].user == "Q why? M merged-2 A"


def test_more_notes_than_fit_one_prompt_are_merged_in_levels():
    def script(shown):
        if shown.kind == "note" and shown.id.startswith("round-1"):
            return f"{shown.id[14:]} is a note of eight words in all"
        return by_kind(merge="half a dozen words of a merge", answer="done")(shown)

    _, turns = reading(script)
    merges = [one for one in turns if one.kind == "merge"]
    assert [one.id for one in merges] == [
        "round-1/merge-1:1-2", "round-1/merge-1:3-4", "round-1/merge-1:5-6", "round-1/merge-1:7-8",
        "round-1/merge-2:1-3", "round-1/merge-2:4-5", "round-1/merge-3:1-2",
    ]  # fmt: skip
    assert all(WordTokenizer().count(one.user.partition(" N ")[2]) <= BUDGETS.chunk for one in merges)
    assert merges[0].spans == (Span(start=0, end=plan().chunks[1].end),)


def test_lines_that_stand_in_the_memory_are_not_new():
    def script(shown):
        return {
            "note": "a: 1\n" + ("b: 2" if "w50" in shown.user.split() and "M none" in shown.user else ""),
            "merge": "a: 1",
        }.get(shown.kind, "1")

    transcript, turns = reading(script)
    assert [one.id for one in turns if one.kind == "merge"][-1].startswith("round-1")
    assert transcript.records[-2].outcome == "unchanged"
    assert turns[-1].kind == "answer"
    assert len([one for one in turns if one.kind == "note"]) == 18


@pytest.mark.parametrize("reply", ["", "No changes."])
def test_a_merge_that_makes_nothing_keeps_the_notes(reply):
    notes = itertools.count(1)
    transcript, _ = reading(
        lambda shown: f"a{next(notes)}" if shown.kind == "note" else reply if shown.kind == "merge" else "x",
        words=40,
        rounds=1,
    )
    assert transcript.memory == "a1\na2"


def test_a_merge_that_says_nothing_changed_leaves_the_memory():
    def script(shown):
        if shown.kind == "note":
            return f"note {shown.id[6]} of {shown.id[14:]}"
        return {"merge": "memory" if "round-1" in shown.id else "No changes."}.get(shown.kind, "x")

    transcript, _ = reading(script, words=40, rounds=2)
    assert transcript.memory == "memory"


def test_an_empty_note_is_asked_again_once():
    transcript, turns = reading(by_kind(note="", answer="x"), words=40)
    assert [one.id for one in turns][:4] == [
        "round-1/chunk-1", "round-1/chunk-2", "round-1/chunk-1~2", "round-1/chunk-2~2",
    ]  # fmt: skip
    assert turns[2].user.endswith("again 10")
    assert transcript.memory == ""


@pytest.mark.parametrize("rounds", [1, 3])
@given(data=st.data(), words=st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_the_number_of_turns_is_bounded_whatever_the_model_replies(rounds, data, words):
    a_plan = plan(words=words, rounds=rounds)
    replies = st.sampled_from(["nothing new", "enough", "", "word", " ".join(["flood"] * 10), "\n".join("abcdef"), "No."])
    state, asked = start(a_plan), 0
    while ids := list(pending(a_plan, state)):
        asked += 1
        assert a_plan.reader.left(a_plan, state) >= 1
        id = data.draw(st.sampled_from(ids)) if len(ids) < 4 else ids[0]
        state = advance(a_plan, state, id, Completion(text=data.draw(replies) + str(asked)))
    assert asked <= 2 * a_plan.turns
    assert WordTokenizer().count(state.memory) <= BUDGETS.memory


def test_a_model_that_floods_the_merge_is_read_to_the_end():
    counter = itertools.count()
    transcript, turns = reading(lambda shown: " ".join(f"f{next(counter)}" for _ in range(10)), words=2000)
    assert transcript.answer
    assert len(turns) <= plan(words=2000).turns
    assert max(WordTokenizer().count(one.user) for one in turns) <= 24 + 10 + 20


def test_a_chunk_that_does_not_fit_is_halved_and_the_others_stay():
    a_plan = plan(words=40)
    state = start(a_plan)
    before = turn(a_plan, state, "round-1/chunk-2")
    state = split(a_plan, state, "round-1/chunk-1")
    first, second, third = pending(a_plan, state)
    assert turn(a_plan, state, third) == before
    halves = [turn(a_plan, state, id).spans[0] for id in (first, second)]
    assert (halves[0].start, halves[0].end, halves[1].end) == (0, halves[1].start, a_plan.chunks[0].end)


def test_a_merge_that_does_not_fit_is_halved():
    def script(shown):
        if shown.kind == "merge":
            return ContextTooLongError("long") if shown.user.count("\n") > 1 else "merged"
        return f"n{shown.id[14:]}" if shown.kind == "note" else "x"

    transcript, _ = reading(script, rounds=1)
    assert transcript.answer == "x"
    assert transcript.memory == "merged"
    with pytest.raises(ContextTooLongError, match="too small for two notes"):
        reading(lambda shown: ContextTooLongError("long") if shown.kind == "merge" else f"n{shown.id[14:]}", rounds=1)


def test_a_round_that_is_under_way_is_json():
    a_plan = plan()
    state = start(a_plan)
    state = split(a_plan, state, "round-1/chunk-2")
    for number, id in enumerate(list(pending(a_plan, state))[3:]):
        state = advance(a_plan, state, id, Completion(text=f"note {number}"))
    assert not state.settled
    assert a_plan.reader.load(state.to_json()) == state
    assert isinstance(state, RoundState)


def test_budgets_that_cannot_hold_a_merge_are_refused_with_the_sum():
    with pytest.raises(ConfigError, match=r"24 tokens does not hold two notes to merge: 2 × 12 tokens .* \+ 1 = 25"):
        plan(budgets=replace(BUDGETS, memory=12))
    with pytest.raises(ConfigError, match="0 rounds"):
        make_reader("parallel", {"rounds": 0})
    with pytest.raises(ConfigError, match="template 'merge' is empty"):
        plan(profile=replace(PROFILE, merge=""))


def test_a_document_without_text_is_answered_at_once():
    transcript, turns = reading(by_kind(answer="nothing"), words=0)
    assert [one.kind for one in turns] == ["answer"]
    assert transcript.answer == "nothing"


@given(st.lists(st.integers(1, 10), max_size=60), st.integers(21, 80))
def test_groups_are_neighbours_that_fit(sizes, room):
    notes = [Note(text=" ".join(["w"] * size), spans=()) for size in sizes]
    groups = grouped(notes, WordTokenizer(), room)
    assert [number for group in groups for number in range(*group)] == list(range(len(notes)))
    assert all(WordTokenizer().count(combined(notes[slice(*group)]).text) <= room for group in groups)
    assert all(last - first > 1 for first, last in groups[:-1])
    assert len(groups) <= (len(notes) + 1) // 2


def test_merges_are_counted_level_by_level():
    assert [most_merges(notes, 2) for notes in (0, 1, 2, 3, 4, 5, 8)] == [0, 1, 1, 2, 3, 4, 7]
    assert most_merges(1000, 4) == 250 + 63 + 16 + 4 + 1


def test_notes_that_an_estimate_takes_for_too_long_are_merged_in_pairs():
    text = StringText("word " * 400)
    budgets = Budgets(question=20, chunk=100, memory=45, answer=8)
    reader = make_reader("parallel", {"rounds": 1})
    a_plan = plan_reading(
        text, "why?", reader=reader, tokenizer=EstimateTokenizer(), profile=PROFILE, budgets=budgets
    )  # fmt: skip
    digits = " ".join("9" * 40)  # 79 estimated tokens; the server counts 40
    engine = ScriptedModel(lambda shown: Completion(text=digits, completion_tokens=40))
    state = read(a_plan, engine).state
    assert next(one.id for one in engine.turns if one.kind == "merge") == "round-1/merge-1:1-2"
    assert state.turns <= a_plan.turns


def test_a_merge_that_leaves_the_memory_as_it_was_ends_the_reading():
    _, turns = reading(lambda shown: f"note {shown.id}" if shown.kind == "note" else "the same")
    rounds = {one.id.partition("/")[0] for one in turns}
    assert rounds == {"round-1", "round-2", "answer"}


def test_drafts_are_what_most_replies_are():
    a_plan = plan(words=40)
    state = start(a_plan)
    assert {turn(a_plan, state, id).draft for id in pending(a_plan, state)} == {"nothing new"}
    for id in list(pending(a_plan, state)):
        state = advance(a_plan, state, id, Completion(text=f"n{id[-1]}"))
    assert turn(a_plan, state, "round-1/merge-1:1-2").draft == ""
    state = advance(a_plan, state, "round-1/merge-1:1-2", Completion(text="merged"))
    for id in list(pending(a_plan, state)):
        state = advance(a_plan, state, id, Completion(text=f"m{id[-1]}"))
    assert turn(a_plan, state, "round-2/merge-1:1-2").draft == "merged"


def test_only_the_last_level_of_a_merge_shows_the_memory():
    def script(shown):
        if shown.kind == "note":
            return f"{shown.id[6]}-{shown.id[14:]} is a note of eight words in all"
        return by_kind(merge="half a dozen words of a merge", answer="done")(shown)

    _, turns = reading(script, rounds=2)
    merges = {one.id: one.user for one in turns if one.id.startswith("round-2/merge")}
    assert len(merges) == 7
    assert [id for id, user in merges.items() if "M none N" not in user] == ["round-2/merge-3:1-2"]


def test_a_chunk_that_was_halved_stays_so_in_later_rounds():
    a_plan = plan(words=40)
    state = split(a_plan, start(a_plan), "round-1/chunk-1")
    parts = [id.partition("/")[2] for id in pending(a_plan, state)]
    for id in list(pending(a_plan, state)):
        state = advance(a_plan, state, id, Completion(text=f"n{id[-1]}"))
    state = advance(a_plan, state, next(iter(pending(a_plan, state))), Completion(text="merged"))
    assert state.round == 2
    assert [id.partition("/")[2] for id in pending(a_plan, state)] == parts


def test_reasoning_is_no_note_where_the_text_holds_its_closing_tag():
    usual, text = plan(), StringText("the tag </think> stands in the text " * 40)
    a_plan = plan_reading(
        text, "why?", reader=usual.reader, tokenizer=usual.tokenizer, profile=usual.profile, budgets=usual.budgets
    )
    state = start(a_plan)
    first = next(iter(pending(a_plan, state)))
    for reply, note in (
        ("hm, let me see </think> a is 1", "a is 1"),
        ("the tag </think> stands", "the tag </think> stands"),
    ):
        assert [one.text for _, one in advance(a_plan, state, first, Completion(text=reply)).notes] == [note]
