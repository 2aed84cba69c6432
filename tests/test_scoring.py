from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.scoring import SCORERS, all_required, contains, f1, normalize, released, ruler, scores, strict


@pytest.mark.parametrize(
    ("answer", "accepted", "score"),
    [
        ("4821973", ["4821973"], 1),
        ("The  Pequod.", ["pequod"], 1),
        ("Ahab", ["Ishmael", "Ahab"], 1),
        ("the", ["Paris is the capital"], 0),
        ("unknown", ["no"], 0),
        ("it is 4821973", ["4821973"], 0),
        ("", ["x"], 0),
        ("!!!", ["x"], 0),
        ("!!!", ["the"], 0),
    ],
)
def test_any(answer, accepted, score):
    assert strict(answer, accepted) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("1, 2, 3", 1),
        ("3; 2\n1", 1),
        ("1 and 2", 2 / 3),
        ("1 AND 2", 2 / 3),
        ("1，2、3", 1),
        ("1. 1\n2. 2\n3. 3", 1),
        (" (1) 3\n(2) 2\n(3) 1", 1),
        ("1) 4\n2) 5", 0),
        ("These:\n1. 3\n2. 2\n3. 1", 1),
        ("(2) 3", 0),
        ("1.\n2.\n3.", 1),
        ("4", 0),
        ("", 0),
        ("1, 1, 1", 1 / 3),
        ("1, 2, 3, 4", 1),
        ("12, 3", 1 / 3),
    ],
)
def test_all_gives_the_fraction_found(answer, score):
    assert strict(answer, ["1", "2", "3"], "all") == pytest.approx(score)
    assert all_required(answer, ["1", "2", "3"], "all") == (score == 1)


def test_a_number_before_a_value_is_left_out_only_where_it_counts():
    telephones = ["(215) 555-0488", "(212) 555-0101"]
    assert strict("\n".join(telephones), telephones, "all") == 1
    assert strict("1. FC Union", ["1 FC Union"], "all") == 1


@pytest.mark.parametrize("gold", ["Simon and Garfunkel", "1,000", "a; b", "x\ny"])
def test_a_gold_answer_with_separators_scores_one(gold):
    for scorer in (strict, f1):
        assert scorer(gold, [gold], "all") == 1
        assert scorer("", [gold], "all") == 0
    assert strict(f"first, {gold}, last", [gold], "all") == 1
    assert 0.5 <= f1(f"first, {gold}, last", [gold], "all") < 0.7, "two items that nobody asked for"


def test_only_f1_counts_what_is_listed_besides():
    required = [f"town {number}" for number in range(10)]
    everything = ", ".join(f"Town {number}" for number in range(40))
    assert strict(everything, required, "all") == all_required(everything, required, "all") == 1
    assert f1(everything, required, "all") == pytest.approx(0.4)
    assert f1("town 1, town 1", required, "all") == f1("town 1", required, "all") == pytest.approx(2 / 11)
    assert f1("town", required, "all") == 0


@pytest.mark.parametrize("gold", ["and", "the", "?", ", ,"])
def test_what_normalises_to_nothing_is_never_found(gold):
    for name, mode in (("strict", "any"), ("strict", "all"), ("contains", "any"), ("f1", "any"), ("f1", "all")):
        assert SCORERS[name]("", [gold], mode) == SCORERS[name]("...", [gold], mode) == 0


@pytest.mark.parametrize(
    ("answer", "accepted", "score"),
    [
        ("It is the Pequod, a whaler.", ["Pequod"], 1),
        ("unknown", ["no"], 0),
        ("4821973", ["482"], 0),
        ("New York City", ["York New"], 0),
        ("York, or New York", ["New York"], 1),
    ],
)
def test_contains_looks_for_whole_words_side_by_side(answer, accepted, score):
    assert contains(answer, accepted) == score


def test_contains_all_gives_the_fraction():
    assert contains("I read 12 and then 345.", ["12", "345", "6"], "all") == pytest.approx(2 / 3)


def test_f1_by_hand():
    assert f1("the ship Pequod", ["Pequod"]) == pytest.approx(2 / 3)
    assert f1("red red whale", ["red whale"]) == pytest.approx(0.8)
    assert f1("a ship", ["boat", "old ship"]) == pytest.approx(2 / 3)
    assert f1("The whale, boat", ["whale", "boat", "sea"], "all") == pytest.approx(0.8)
    assert f1("red whale, boat", ["whale", "boat", "sea"], "all") == pytest.approx(0.4)


def test_ruler_finds_substrings_in_any_case():
    assert ruler("code 4123, PARIS", ["12", "paris", "x"], "all") == pytest.approx(2 / 3)
    assert ruler("code 4123", ["x", "12"], "any") == 1


def test_the_released_metric_keeps_its_traps():
    assert released("Par", ["Paris"]) == released("unknown", ["no"]) == released("the", ["Paris"]) == 1
    assert released("Lutetia", ["Paris", "Lutetia"]) == 0, "the released code looks at the first answer only"
    assert released("12", ["123", "12"], "all") == 0.5
    assert released("", ["Paris"]) == released(" \n", ["Paris"]) == 0


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("mode", ["any", "all"])
def test_no_accepted_answer_is_a_mistake(name, mode):
    with pytest.raises(ValueError, match="no accepted answer"):
        SCORERS[name]("x", [], mode)


def test_normalisation():
    assert normalize("  The Quick—ﬁsh, a Fox! ") == "quick—fish fox"
    assert (normalize("1.5"), normalize("-5")) == ("15", "5"), "as SQuAD's does"


def test_scores_has_every_scorer_by_its_name():
    assert scores("1, 2", ["1", "2", "3"], "all") == {
        "strict": pytest.approx(2 / 3),
        "contains": pytest.approx(2 / 3),
        "f1": pytest.approx(0.8),
        "all_required": 0,
        "ruler": pytest.approx(2 / 3),
        "released": pytest.approx(2 / 3),
    }


def findable(text: str) -> bool:
    """It has something besides articles, punctuation and separators, as every task requires of its answers."""
    return bool(text.strip()) and strict(text, [text], "all") == 1 == strict(text, [text])


texts = st.text(max_size=30) | st.sampled_from(["the", "and", "a, b", "Σ", "1,000", "Simon and Garfunkel", "no", "ΑΣ"])
modes = st.sampled_from(["any", "all"])
accepted_answers = st.lists(texts.filter(findable), min_size=1, max_size=4)


@given(texts, accepted_answers, modes)
def test_scores_are_between_zero_and_one(answer, accepted, mode):
    assert all(0 <= score <= 1 for score in scores(answer, accepted, mode).values())


@given(accepted_answers, modes)
def test_gold_scores_one_and_nothing_scores_zero(accepted, mode):
    gold = accepted[0] if mode == "any" else ", ".join(accepted)
    assert set(scores(gold, accepted, mode).values()) == {1.0}
    assert set(scores("", accepted, mode).values()) == {0.0}


@given(texts, accepted_answers, modes)
def test_stricter_scorers_never_give_more(answer, accepted, mode):
    given = scores(answer, accepted, mode)
    assert given["all_required"] <= given["strict"]
    if mode == "any":
        assert given["strict"] <= given["f1"] + 1e-9
        assert given["strict"] <= given["contains"]


@given(texts, accepted_answers, modes, st.randoms())
def test_the_order_of_accepted_answers_does_not_matter(answer, accepted, mode, rng):
    shuffled = rng.sample(accepted, len(accepted))
    for name in set(SCORERS) - {"released"}:
        assert SCORERS[name](answer, accepted, mode) == pytest.approx(SCORERS[name](answer, shuffled, mode))


@pytest.mark.parametrize(
    "answer", ["“Schindler’s List”", "Schindler's List.", "«schindlers list»", "（Schindler’s List）。"]
)
def test_punctuation_of_every_kind_costs_nothing(answer):
    assert strict(answer, ["Schindler's List"]) == 1
