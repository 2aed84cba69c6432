"""The scorers of evaluation suites: their rules by example, and what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.suite_scoring import SUITE_SCORERS, own_score
from memagent.suite_scoring.overlap import _common_length

META: dict[str, Any] = {"prefix": "aB3x", "labels": ["garden", "office", "no"], "answer_type": "ANSWER_TYPE.NUMERIC"}


def score(name: str, answer: str, *accepted: str, **meta: Any) -> float:
    return own_score(name, answer, accepted, "any", META | meta)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("B", 1), ("(B)", 1), ("B.", 1), ("**B**", 1), ("B) The seller", 1), ("The seller", 1), ("the SELLER.", 1),
        (" B\n\nC", 1),
        ("The correct answer is (B)", 1), ("The correct answer is B", 1), ("I think. The answer to it is: B.", 1),
        ("Answer: B", 1), ("the correct option is: The seller, as said", 1), ("I read. Answer:\n**B**", 1),
        ("", 0), ("A", 0), ("The correct answer is (A)", 0), ("Bad luck", 0), ("the answer is Because", 0), ("BC", 0),
        ("b", 1),
    ],
)  # fmt: skip
def test_choice(answer: str, right: float) -> None:
    assert score("choice", answer, "B", "The seller") == right


def test_mrcr_needs_the_prefix_and_compares_the_rest() -> None:
    assert score("mrcr", "aB3xThe tide", "aB3xThe tide") == 1
    assert score("mrcr", "The tide", "aB3xThe tide") == 0
    assert score("mrcr", "aB3xThe ti", "aB3xThe tide") == pytest.approx(2 * 6 / 14)
    with pytest.raises(ValueError, match=r"needs meta\.prefix, of the type str, not None"):
        own_score("mrcr", "x", ["x"], "any", {})


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Final Answer: [a, b]", 1), ("I walk.\nFinal Answer: [b, a, a]\n", 1), ("Final Answer: [a]", 2 / 3), ("[a, b]", 0),
        ("Final Answer: [a, b]\nThat is all.", 0), ("Final Answer: []", 0), ("Final Answer: [A, b, c, d]", 1 / 3),
    ],
)  # fmt: skip
def test_graphwalks_is_f1_of_the_last_line(answer: str, right: float) -> None:
    assert score("graphwalks", answer, "Final Answer: [a, b]") == pytest.approx(right)


def test_graphwalks_knows_empty_answers() -> None:
    assert score("graphwalks", "Final Answer: []", "Final Answer: []") == 1
    assert score("graphwalks", "Final Answer: [a]", "Final Answer: []") == 0
    assert score("graphwalks", "none", "Final Answer: []") == 0


@pytest.mark.parametrize(
    ("answer", "target", "right"),
    [
        ("The garden.", "garden", 1), ("GARDEN", "garden", 1), ("Not the office, the garden", "garden", 0),
        ("The garden. Not the office.", "garden", 1), ("the office", "garden", 0), ("Unknown garden", "garden", 0),
        ("office and garden", "garden,office", 1), ("the garden", "garden,office", 0), ("", "garden", 0),
    ],
)  # fmt: skip
def test_babilong_wants_no_other_label_in_the_first_sentence(answer: str, target: str, right: float) -> None:
    assert score("babilong", answer, target) == right


@pytest.mark.parametrize(
    ("answer", "gold", "kind", "right"),
    [
        ("Label: spam", "spam", "LABEL", 1), ("**Answer: [spam]**", "spam", "LABEL", 1),
        ("It is surely ham, not spam", "spam", "LABEL", 1),
        ("Answer: ham", "spam", "LABEL", 0), ("Answer: 12", "12", "NUMERIC", 1), ("Answer: 14", "12", "NUMERIC", 0.75**2),
        ("Answer: many", "12", "NUMERIC", 0), ("9" * 30, "12", "NUMERIC", 0), ("User: 44", "44", "USER", 1),
        ("Date: Jan 5, 2023", "2023-01-05", "DATE", 1), ("Date: 2023-01-05", "2023-01-05", "DATE", 1),
        ("Date: 2023-01-06", "2023-01-05", "DATE", 0), ("Date: soon", "2023-01-05", "DATE", 0),
        ("Answer: ham is more common than spam", "more common than", "COMPARISON", 1),
        ("Answer: ham is less common than spam", "more common than", "COMPARISON", 0), ("", "12", "NUMERIC", 0),
    ],
)  # fmt: skip
def test_oolong(answer: str, gold: str, kind: str, right: float) -> None:
    assert score("oolong", answer, gold, answer_type=f"ANSWER_TYPE.{kind}") == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        (r"So \boxed{42}.", "42", 1), (r"\boxed{\text{41}}", "42", 0.75), ("42", "42", 1), ("forty", "42", 0),
        (r"\boxed{\text{Shield, Fire Bolt}}", "Fire Bolt, Shield", 1), ("Shield, Sleep", "Fire Bolt, Shield", 0.5),
        ("Shield", "Fire Bolt, Shield", 0),
        (r"\boxed{ADA}", "Ada", 1), ("", "Ada", 0),
    ],
)  # fmt: skip
def test_oolong_real(answer: str, gold: str, right: float) -> None:
    assert score("oolong_real", answer, gold) == right


def test_locomo_by_hand() -> None:
    assert score("locomo_f1", "on 8 May, 2023", "8 May 2023") == pytest.approx(2 * 3 / 7)
    assert score("locomo_f1", "the kettle and a lamp", "kettles, lamps") == 1
    assert score("locomo_parts", "two lamps, a hat", "a kettle, two lamps") == pytest.approx(0.5)
    assert score("locomo_parts", "", "a kettle, two lamps") == 0


@pytest.mark.parametrize("answer", ["Not mentioned.", "No information available", "not in the document", "I don’t know."])
def test_abstentions(answer: str) -> None:
    assert score("abstention", answer, "You did not mention this") == 1
    assert score("abstention", "a hamster", "You did not mention this") == 0


@pytest.mark.parametrize(
    ("name", "answer", "accepted", "right"),
    [
        ("substring", "It is Yuki.", "Yuki", 1), ("substring", "yuki", "Yuki", 0),
        ("word", "It is the Oil Man: he", "OIL MAN", 1), ("word", "Oilman", "OIL MAN", 0),
        ("word", 'value: "a-1".', "a-1", 1),
        ("word", "a-12", "a-1", 0), ("first_number", "It is 71432, not 5", "71432", 1),
        ("first_number", "5 or 71432", "71432", 0),
        ("first_number", "000123", "00123", 0), ("first_number", "12.50", "12.5", 1), ("first_number", "-41", "-41", 1),
        ("first_number", "41", "-41", 0), ("first_number", "none", "1", 0), ("last_number", "f(2) is -7.", "-7", 1),
        ("last_number", "it is 7", "-7", 0), ("last_number", "-7 it is", "-7", 0),
        ("leading_numbers", "[3, -1, 11]", "3, -1, 11", 1),
        ("leading_numbers", "3, 2, 11", "3, -1, 11", 1 / 3), ("f1_characters", "是大回。", "大回", 0.8),
        ("rouge_l", "The boat sails home", "A boat goes home", 0.5), ("rouge_l", "!!!", "A boat", 0),
    ],
)  # fmt: skip
def test_simple_rules(name: str, answer: str, accepted: str, right: float) -> None:
    assert score(name, answer, accepted) == pytest.approx(right)


def test_the_general_scorers_can_be_named_too() -> None:
    assert own_score("ruler", "code 12", ["12", "13"], "all", {}) == 0.5
    with pytest.raises(ValueError, match=r"no scorer 'bleu'; known: strict, .*, rouge_l"):
        own_score("bleu", "x", ["x"], "any", {})


words = st.lists(st.sampled_from("red whale boat sea garden office 12 7 no B".split()), min_size=1, max_size=6).map(
    " ".join
)


@pytest.mark.parametrize("name", SUITE_SCORERS)
@given(answer=st.text(max_size=40) | words, accepted=st.lists(words | st.text(max_size=20), min_size=1, max_size=3))
def test_a_score_is_between_0_and_1_and_the_order_of_alternatives_does_not_matter(
    name: str, answer: str, accepted: list[str]
) -> None:
    assert 0 <= score(name, answer, *accepted) <= 1 + 1e-12
    assert score(name, answer, *accepted) == pytest.approx(score(name, answer, *reversed(accepted)))
    assert score(name, "", *words_only(accepted)) == 0
    with pytest.raises(ValueError, match=r"no accepted answers"):
        score(name, answer)


def words_only(accepted: list[str]) -> list[str]:
    return [one for one in accepted if any(character.isalnum() for character in one)] or ["whale"]


def table_length(first: str, second: str) -> int:
    row = [0] * (len(second) + 1)
    for one in first:
        before, row = row, [0]
        for place, other in enumerate(second):
            row.append(before[place] + 1 if one == other else max(before[place + 1], row[place]))
    return row[-1]


@given(st.text("abc", max_size=40), st.text("abc", max_size=40))
def test_the_longest_common_subsequence_is_that_of_the_table(first: str, second: str) -> None:
    assert _common_length(first, second) == table_length(first, second) == _common_length(second, first)


@given(st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=8), st.randoms(use_true_random=False))
def test_graphwalks_does_not_depend_on_the_order_of_nodes(nodes: list[str], rng: Any) -> None:
    mixed = rng.sample(nodes, len(nodes))
    assert score("graphwalks", f"Final Answer: [{', '.join(mixed)}]", f"Final Answer: [{', '.join(nodes)}]") == 1
