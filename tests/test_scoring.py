from __future__ import annotations

import pytest

from memagent.scoring import normalize, strict


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
    ],
)
def test_any(answer, accepted, score):
    assert strict(answer, accepted) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [("1, 2, 3", 1), ("3; 2\n1", 1), ("1 and 2", 2 / 3), ("4", 0), ("", 0), ("1, 1, 1", 1 / 3), ("1, 2, 3, 4", 1)],
)
def test_all_gives_the_fraction_found(answer, score):
    assert strict(answer, ["1", "2", "3"], "all") == pytest.approx(score)


@pytest.mark.parametrize("gold", ["Simon and Garfunkel", "1,000", "a; b", "x\ny"])
def test_a_gold_answer_with_separators_scores_one(gold):
    assert strict(gold, [gold], "all") == 1
    assert strict(f"first, {gold}, last", [gold], "all") == 1
    assert strict("", [gold], "all") == 0


def test_no_accepted_answer_is_a_mistake():
    with pytest.raises(ValueError, match="no accepted answer"):
        strict("x", [])


def test_normalisation():
    assert normalize("  The Quick—ﬁsh, a Fox! ") == "quick—fish fox"
