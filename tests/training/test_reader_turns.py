"""The right turns of readers that skip and take notes lead the real readers to the right answer."""

from __future__ import annotations

import random
import re

import pytest

from memagent.core import Budgets, make_reader, plan_reading
from memagent.driver import read
from memagent.models.scripted import ScriptedModel
from memagent.profiles import load_profile
from memagent.scoring import SCORERS
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Fact
from memagent.tasks.task import Materials
from memagent.tasks.words import shipped_words
from memagent.training.ideal import Slots, Variables
from memagent.training.reader_turns import TURNS, Found, Mistakes, assigned, parallel_turns
from memagent.training.readings import draw_sample
from tests.helpers import WordTokenizer

PROFILE = load_profile("compact")
TASKS = (
    ("niah_single_2", {}),
    ("niah_multikey_1", {}),
    ("niah_multivalue", {}),
    ("niah_multiquery", {}),
    ("updates", {}),
    ("vt", {"hops": 4, "chains": 2}),
    ("multihop", {"hops": 2}),
)


def sample(task, options, seed):
    materials = Materials(tokenizer=WordTokenizer(), haystack=Haystack.shipped(), words=shipped_words("train"))
    return draw_sample(random.Random(seed), task, options, materials, 800)


@pytest.mark.parametrize("reader", sorted(TURNS))
@pytest.mark.parametrize(("task", "options"), TASKS, ids=[task for task, _ in TASKS])
def test_a_model_that_gives_the_right_replies_is_shown_the_prompts_and_answers_right(reader, task, options):
    for seed in range(4):
        drawn = sample(task, options, seed)
        turns = TURNS[reader](PROFILE, WordTokenizer(), drawn, 100)
        replies = {turn.prompt: "".join(text for text, _ in turn.reply).strip() for turn in turns}
        plan = plan_reading(
            drawn.document,
            drawn.question,
            reader=make_reader(reader),
            tokenizer=WordTokenizer(),
            profile=PROFILE,
            budgets=Budgets(question=100, chunk=100, memory=48, answer=60),
        )
        engine = ScriptedModel(lambda turn, replies=replies: replies[turn.user])
        transcript = read(plan, engine)
        last = turns[-1]
        if last.what == "answer":
            assert SCORERS["all_required"](transcript.answer, drawn.answers, drawn.mode) == 1
        assert {turn.user for turn in engine.turns} == set(replies)


def test_most_turns_of_a_gated_reading_are_three_tokens_long():
    turns = TURNS["gated"](PROFILE, WordTokenizer(), sample("niah_single_2", {}, 1), 100)
    assert [turn.what for turn in turns].count("find") == 1
    assert {turn.reply[0][0] for turn in turns if turn.what in ("wait", "keep")} == {" nothing new"}


def test_a_chain_over_many_chunks_is_noted_in_one_round_and_resolved_by_its_merge():
    for seed in range(6):
        drawn = sample("vt", {"hops": 4}, seed)
        turns = TURNS["parallel"](PROFILE, WordTokenizer(), drawn, 100)
        merges = [turn for turn in turns if "\nNotes: " in turn.prompt]
        assert len(merges) == 1
        assert all(answer in "".join(text for text, _ in merges[0].reply) for answer in drawn.answers)


def test_a_round_notes_the_assignments_of_a_chunk_by_what_is_known_of_their_value():
    pairs = [("48213", "X1"), ("X1", "X2"), ("X9", "A"), ("99999", "C"), ("A", "B"), ("C", "D"), ("X2", "X3")]
    facts = [Fact(text=f"VAR {name} = {root}", start=0, end=1, key=root, value=name) for root, name in pairs]
    assert assigned(Variables("48213"), facts).lines == [("48213", ("X1", "X2", "X3")), ("X9", ("A", "B"))]


@pytest.mark.parametrize("reader", ["gated", "parallel"])
def test_turns_before_the_first_fact_wait_and_those_after_it_keep(reader):
    turns = TURNS[reader](PROFILE, WordTokenizer(), sample("niah_single_2", {}, 1), 100)
    whats = [turn.what for turn in turns]
    if reader == "gated":
        found = whats.index("find")
        assert 0 < found < len(whats) - 2
        assert whats == ["wait"] * found + ["find"] + ["keep"] * (len(whats) - found - 2) + ["answer"]
    else:  # the first round finds it; in the second one, the memory holds it
        chunks = (len(whats) - 1) // 2
        assert sorted(whats[:chunks]) == ["find"] + ["wait"] * (chunks - 1)
        assert whats[chunks:] == ["keep"] * chunks + ["answer"]


def merges(turns):
    return [turn for turn in turns if "\nNotes: " in turn.prompt]


@pytest.mark.parametrize(("task", "options"), TASKS, ids=[task for task, _ in TASKS])
def test_a_merge_leaves_out_the_notes_that_say_nothing(task, options):
    for seed in range(4):
        drawn = sample(task, options, seed)
        right = parallel_turns(PROFILE, WordTokenizer(), drawn, 100)
        turns = parallel_turns(PROFILE, WordTokenizer(), drawn, 100, Mistakes(random.Random(seed), (24, 24)))
        # what chunks and answer say, and what merges come to, stays as it is
        assert [turn for turn in turns if turn not in merges(turns)] == [
            turn for turn in right if turn not in merges(right)
        ]
        replies = [turn.reply for turn in merges(turns)]
        assert all(turn.reply in replies for turn in merges(right))
        for turn in merges(turns):
            notes, reply = turn.prompt.split("\nNotes: ")[1], "".join(text for text, _ in turn.reply)
            memory = turn.prompt.split("\nNotes: ")[0].split("\nMemory: ")[1]
            assert ": not yet" in notes
            said = re.search(r": (?!not yet)", notes.removesuffix("\nNew memory:")) or memory != "nothing yet"
            assert ("not yet" not in reply) == bool(said)


def test_a_note_among_mistakes_keeps_its_values_and_the_order_of_the_document():
    drawn = sample("niah_multiquery", {}, 2)
    [right] = merges(parallel_turns(PROFILE, WordTokenizer(), drawn, 100))
    values = re.findall(r"\d{5,}", right.prompt.split("\nNotes: ")[1])
    for seed in range(8):
        first, *_ = merges(parallel_turns(PROFILE, WordTokenizer(), drawn, 100, Mistakes(random.Random(seed), (0, 40))))
        assert re.findall(r"\d{5,}", first.prompt.split("\nNotes: ")[1]) == values


@pytest.mark.parametrize(("task", "options"), TASKS, ids=[task for task, _ in TASKS])
def test_notes_that_all_say_nothing_are_merged_once_before_there_is_a_memory(task, options):
    for seed in range(4):
        mistakes = Mistakes(random.Random(seed), (24, 24))
        turns = merges(parallel_turns(PROFILE, WordTokenizer(), sample(task, options, seed), 100, mistakes))
        silent = [turn for turn in turns if "not yet" in "".join(text for text, _ in turn.reply)]
        assert len(silent) == 1
        assert "\nMemory: nothing yet\n" in silent[0].prompt


def test_in_half_of_the_rounds_a_right_note_has_lines_without_a_value():
    notes, right = Slots((("a", ()), ("b", ()), ("c", ()))), Found([("b", ("7",))])
    made = [Mistakes(random.Random(seed), (3, 3))(notes, [right]) for seed in range(40)]
    told = [note.text for written in made for note in written if "7" in note.text]
    assert set(told) == {"- b: 7", "- a: not yet\n- b: 7", "- a: not yet\n- b: 7\n- c: not yet"}
    assert 12 <= told.count("- b: 7") <= 28


def test_no_mistakes_are_added_where_their_number_is_zero():
    drawn = sample("niah_multiquery", {}, 2)
    right = parallel_turns(PROFILE, WordTokenizer(), drawn, 100)
    assert parallel_turns(PROFILE, WordTokenizer(), drawn, 100, Mistakes(random.Random(1), (0, 0))) == right
