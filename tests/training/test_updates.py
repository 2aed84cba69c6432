"""Single turns: their prompts, and facts that are where they claim to be."""

from __future__ import annotations

from memagent.profiles import load_profile
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Fact, generator
from memagent.tasks.words import shipped_words
from memagent.training.ideal import Slots, visible
from memagent.training.reader_turns import answer_prompt, memory_turn
from memagent.training.updates import (
    Exercise,
    Recipe,
    draw_exercise,
    partial_match,
    plant_all,
    rewrap,
)

HAYSTACK = Haystack(["He came home late. She had gone out.\n\nNobody said a word about it. " * 200])


def fact(key: str, value: str, start: int = 0) -> Fact:
    text = f"The code of {key} is {value}."
    return Fact(text=text, start=start, end=start + len(text), key=key, value=value)


def test_a_fact_that_is_cut_is_not_visible() -> None:
    text = "It rained. The code of a is 12. It rained."
    one = fact("a", "12", start=11)
    value_end = text.index("12") + 2
    assert visible([one], text, 0, len(text)) == [one]
    assert visible([one], text, 0, value_end) == [one]
    assert visible([one], text, 0, value_end - 1) == []
    assert visible([one], text, text.index("a is"), len(text)) == [one]
    assert visible([one], text, text.index("a is") + 1, len(text)) == []


def test_prompts_hold_question_memory_and_chunk_in_the_wording_of_the_profile() -> None:
    profile = load_profile("compact")
    exercise = Exercise(question="What is the code of a?", notes=Slots((("a", ("1",)),)), first=False)
    turn = memory_turn(profile, exercise, "It rained.", [])
    assert turn.prompt == "Question: What is the code of a?\nMemory: - a: 1\nText: It rained.\nNew memory:"
    assert answer_prompt(profile, exercise) == "Question: What is the code of a?\nMemory: - a: 1\nAnswer:"
    first = Exercise(question="What is the code of a?", notes=Slots((("a", ()),)), first=True)
    assert f"Memory: {profile.empty_memory}\n" in memory_turn(profile, first, "It rained.", []).prompt


def test_planted_facts_are_where_they_claim_for_any_wrapping() -> None:
    for index in range(50):
        rng = generator(0, "plant", index)
        recipe = Recipe(tokens=(100, 100), asked=(1, 4), distractors=(0, 4))
        exercise, facts = draw_exercise(rng, recipe, shipped_words("train"))
        text, planted = plant_all(rng, HAYSTACK, facts, 1500)
        assert len(planted) == len(facts)
        for one in planted:
            assert text[one.start : one.end] == one.text
        assert all(key in exercise.question for key, _ in exercise.notes.lines)


def test_a_chunk_can_hold_a_word_of_an_asked_key() -> None:
    sentences = [f"Somebody spoke of the {noun} again, and went away. " for noun in shipped_words("train").nouns]
    haystack, keys = Haystack(["".join(sentences)]), ["calm-zebra", "shy harbor"]
    for share, least, most in ((0.0, 0, 0), (1.0, 40, 40), (0.5, 8, 32)):
        rng, recipe = generator(1, "near", 0), Recipe(tokens=(100, 100), partial_matches=share)
        words = [partial_match(rng, recipe, keys) for _ in range(40)]
        assert least <= sum(word != "" for word in words) <= most
        assert {*words} <= {"", "calm", "zebra", "shy", "harbor"}
    rng = generator(1, "near", 1)
    word = shipped_words("train").nouns[2000]
    assert all(f" {word} " in plant_all(rng, haystack, [], 400, f" {word} ")[0].replace("\n", " ") for _ in range(40))
    assert sum(f" {word} " in plant_all(rng, haystack, [], 400)[0].replace("\n", " ") for _ in range(40)) < 5
    assert len(plant_all(rng, haystack, [], 400, "no such word")[0]) >= 400


def test_wrapping_changes_white_space_only() -> None:
    text = "One two three.\nFour five.\n\nSix seven eight nine ten eleven twelve thirteen fourteen fifteen."
    for index in range(30):
        assert rewrap(generator(0, "wrap", index), text).split() == text.split()
