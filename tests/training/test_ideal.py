"""What a perfect reader writes, by hand and for every task it knows."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from memagent.core.chunking import chunk
from memagent.errors import TrainingError
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import FileTokenizer
from memagent.profiles import load_profile
from memagent.scoring import strict
from memagent.tasks.catalog import find
from memagent.tasks.haystack import Haystack
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Fact, Sample, generator
from memagent.tasks.task import Materials, Request
from memagent.tasks.words import shipped_words
from memagent.training.ideal import Chain, Slots, Variables, answer_pieces, first_notes, memory_pieces, memory_text
from memagent.training.reader_turns import memory_turns
from memagent.training.readings import draw_sample, false_notes

TOKENIZER = FileTokenizer.load(EMBEDDED)
MATERIALS = Materials(tokenizer=TOKENIZER, haystack=Haystack.shipped(), words=shipped_words("train"))
# Every task that a perfect reader knows, in its harder variants.
TASKS = [
    ("niah_single_1", {}),
    ("niah_single_3", {}),
    ("niah_multikey_1", {"keys": 6, "hard_negatives": True}),
    ("niah_multikey_2", {}),
    ("niah_multikey_3", {}),
    ("niah_multivalue", {"values": 4}),
    ("niah_multiquery", {"queries": 3}),
    ("vt", {"chains": 3, "hops": 4}),
    ("vt", {"chains": 2, "hops": 2, "haystack": "essay"}),
    ("updates", {"values": 4, "keys": 3}),
    ("multihop", {"hops": 4, "distractors": 3}),
    ("facts", {}),
    ("facts", {"others": 6, "attributes": 4}),
]


def fact(key: str, value: str) -> Fact:
    text = f"The code of {key} is {value}."
    return Fact(text=text, start=0, end=len(text), key=key, value=value)


@pytest.mark.parametrize(
    ("memory", "facts", "expected"),
    [
        ({}, [], "- a: not yet\n- b: not yet"),
        ({"a": "1"}, [], "- a: 1\n- b: not yet"),
        ({}, [fact("a", "2")], "- a: 2\n- b: not yet"),
        ({"a": "1"}, [fact("a", "2")], "- a: 2\n- b: not yet"),
        ({"a": "1"}, [fact("a", "2"), fact("a", "3")], "- a: 3\n- b: not yet"),
        ({"a": "1"}, [fact("b", "2"), fact("c", "9")], "- a: 1\n- b: 2"),
    ],
)
def test_slots_chunk_beats_memory_beats_nothing(memory: dict[str, str], facts: list[Fact], expected: str) -> None:
    notes = Slots(tuple((key, (memory[key],) if key in memory else ()) for key in ("a", "b")))
    assert memory_text(notes.after(facts)) == expected


def test_slots_of_many_values_collect_them_once() -> None:
    notes = Slots((("a", ()),), many=True).after([fact("a", "1"), fact("a", "2")]).after([fact("a", "1"), fact("b", "3")])
    assert memory_text(notes) == "- a: 1, 2"
    assert "".join(text for text, _ in answer_pieces(notes)) == " 1, 2"


def test_variables_follow_the_chain_and_nothing_else() -> None:
    notes = Variables("77").after([fact("77", "AB"), fact("CD", "EF")]).after([fact("AB", "GH"), fact("GH", "IJ")])
    assert memory_text(notes) == "- 77: AB, GH, IJ"
    assert notes.answer == ["AB", "GH", "IJ"]
    assert memory_text(Variables("77")) == "- 77: not yet"


def test_a_chain_names_its_next_step_and_ignores_later_ones() -> None:
    notes = Chain((("the author of X", "Ann"), ("the home of Ann", "Town")))
    assert memory_text(notes) == "- the author of X: not yet"
    assert memory_text(notes.after([fact("the home of Ann", "Town")])) == "- the author of X: not yet"
    first = notes.after([fact("the author of X", "Ann")])
    assert memory_text(first) == "- the author of X: Ann\n- the home of Ann: not yet"
    assert first.answer == ["not yet"]
    done = first.after([fact("the home of Ann", "Town")])
    assert memory_text(done) == "- the author of X: Ann\n- the home of Ann: Town"
    assert done.answer == ["Town"]


@pytest.mark.parametrize(("name", "options"), TASKS)
def test_a_perfect_reading_of_every_task_scores_one(name: str, options: dict[str, object]) -> None:
    for index in range(4):
        task = find(name)
        sample = task.sample(MATERIALS, Request(tokens=2048, seed=index, index=index), task.options(options))
        turns = memory_turns(load_profile("compact"), TOKENIZER, sample, 400)
        if turns[-1].what == "lost":  # a border of a chunk cuts a fact
            continue
        assert strict("".join(text for text, _ in turns[-1].reply), sample.answers, sample.mode) == 1
        assert len(turns) == len(list(chunk(sample.document, TOKENIZER, 400))) + 1
        for before, after in pairwise(turns):
            memory = "".join(text for text, _ in before.reply)
            assert f"Memory: {memory}\n" in after.prompt
            assert TOKENIZER.count(memory) <= 128


def test_turns_say_what_they_do() -> None:
    task = find("niah_single_2")
    sample = task.sample(MATERIALS, Request(tokens=2000, seed=5, index=0))
    names = [turn.what for turn in memory_turns(load_profile("compact"), TOKENIZER, sample, 200)]
    found = names.index("find")
    assert names == ["wait"] * found + ["find"] + ["keep"] * (len(names) - found - 2) + ["answer"]


@pytest.mark.parametrize("name", ["niah_single_1", "niah_single_3", "niah_multikey_2", "niah_multiquery"])
def test_a_false_value_stands_until_the_true_one_is_read(name: str) -> None:
    task = find(name)
    sample = task.sample(MATERIALS, Request(tokens=2048, seed=6, index=0))
    false = false_notes(random.Random(1), sample, MATERIALS.words)
    assert isinstance(false, Slots)
    ((key, value),) = [(key, values[0]) for key, values in false.lines if values]
    true = next(fact for fact in sample.facts if fact.key == key)
    assert value != true.value
    assert [len(part) for part in value.split("-")] == [len(part) for part in true.value.split("-")]
    turns = memory_turns(load_profile("compact"), TOKENIZER, sample, 400, false)
    assert f"Memory: {memory_text(false)}\n" in turns[0].prompt
    memories = ["".join(text for text, _ in turn.reply) for turn in turns[:-1]]
    found = next(n for n, place in enumerate(chunk(sample.document, TOKENIZER, 400)) if place.end >= true.end)
    assert [f"{key}: {value}" in memory for memory in memories] == [n < found for n in range(len(memories))]
    assert strict("".join(text for text, _ in turns[-1].reply), sample.answers, sample.mode) == 1


@pytest.mark.parametrize("name", ["niah_multivalue", "vt", "multihop"])
def test_nothing_false_is_noted_where_nothing_would_take_its_place(name: str) -> None:
    sample = find(name).sample(MATERIALS, Request(tokens=2048, seed=6, index=0))
    assert false_notes(random.Random(1), sample, MATERIALS.words) == first_notes(sample)


def test_nothing_false_is_noted_where_no_answer_stands_in_the_document() -> None:
    facts = find("facts")
    sample = facts.sample(MATERIALS, Request(tokens=2048, seed=6, index=0), facts.options({"absent": True}))
    assert false_notes(random.Random(1), sample, MATERIALS.words) == first_notes(sample)


def test_a_fact_that_no_chunk_shows_whole_is_lost() -> None:
    text = "The code for a-b is " + "long " * 200 + "12."
    sentence = Fact(text=text, start=0, end=len(text), key="a-b", value="12.")
    sample = Sample(
        id="x", task="niah_single_2", question="What is the code for a-b?", document=LazyText([text]), answers=("12.",),
        facts=(sentence,),
    )  # fmt: skip
    assert memory_turns(load_profile("compact"), TOKENIZER, sample, 50)[-1].what == "lost"


def test_a_task_nobody_knows_how_to_read_is_refused() -> None:
    sample = find("cwe").sample(MATERIALS, Request(tokens=2000, seed=5, index=0))
    with pytest.raises(TrainingError, match="no perfect reader is known for task 'cwe'; there is one for niah_single_1"):
        first_notes(sample)


def test_an_option_that_is_a_list_is_drawn_from() -> None:
    options = {"hops": [1, 3], "chains": 1}
    drawn = {draw_sample(generator(0, "x", n), "vt", options, MATERIALS, 400).meta["hops"] for n in range(20)}
    assert drawn == {1, 3}


def test_the_first_token_of_a_value_is_a_decision() -> None:
    pieces = memory_pieces(Slots((("a-b", ("12",)),)))
    assert pieces == [("-", "format"), (" a-b", "key"), (":", "format"), (" 12", "value")]
