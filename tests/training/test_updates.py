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


def drawn(**given) -> list[tuple[Exercise, list[tuple[str, str, str]]]]:
    recipe = Recipe(tokens=(100, 100), asked=(1, 3), **given)
    return [draw_exercise(generator(7, "careless", index), recipe, shipped_words("train")) for index in range(400)]


def test_a_coin_decides_what_a_careless_reader_keeps_and_replaces() -> None:
    kept, replaced = [], []
    for exercise, facts in drawn(kept=0.8, stated=1.0, quiet=0.4, fresh=0.0, forgotten=0.6, outdated=0.3):
        stated = {key: value for _, key, value in facts}
        text, planted = plant_all(generator(7, "text", 0), HAYSTACK, facts, 600)
        after = dict(exercise.notes.after(visible(planted, text, 0, len(text))).lines)
        for key, held in exercise.notes.lines:
            assert after[key] in ((), held, (stated.get(key),))
            if held and key in stated:
                assert after[key]
                replaced.append(after[key] != held)
            elif held:
                kept.append(after[key] == held)
            elif key in stated:  # what is found is noted, always
                assert after[key] == (stated[key],)
    assert len(kept) > 300
    assert len(replaced) > 50
    assert 0.34 < sum(kept) / len(kept) < 0.46
    assert 0.58 < sum(replaced) / len(replaced) < 0.82


def test_a_reader_that_keeps_everything_draws_what_it_always_drew() -> None:
    for (ours, facts), (careless, others) in zip(drawn(), drawn(forgotten=1.0, outdated=1.0), strict=True):
        assert facts == others
        assert ours.question == careless.question
        assert ours.notes.lines == careless.notes.lines


def test_changing_facts_are_asked_and_stated_in_the_words_of_their_task() -> None:
    said = drawn(changes=1.0, stated=1.0, kept=1.0, fresh=0.0, quiet=0.0, distractors=(0, 0))
    for exercise, facts in said:
        ((key, held),) = exercise.notes.lines
        assert exercise.question.endswith(f"for {key} now, after all changes?")
        assert held
        assert [about for _, about, _ in facts] == [key]
    assert (
        sum("changed" in sentence or "now" in sentence or "new" in sentence for exercise, [(sentence, _, _)] in said) > 100
    )


def test_wrapping_changes_white_space_only() -> None:
    text = "One two three.\nFour five.\n\nSix seven eight nine ten eleven twelve thirteen fourteen fifteen."
    for index in range(30):
        assert rewrap(generator(0, "wrap", index), text).split() == text.split()
