"""What an answer claims, and whether passages hold it."""

from __future__ import annotations

import pytest

from memagent.grounding.claims import claims, held, touches


@pytest.mark.parametrize(
    ("answer", "items"),
    [
        ("4821973", ["4821973"]),
        ("The fee is EUR 12,500.00.", ["The fee is EUR 12,500.00."]),
        ("111, 222, and 333", ["111", "222", "333"]),
        ("Ann and Bob", ["Ann", "Bob"]),
        ("- Ann: 12\n- Bob: 13\n", ["Ann: 12", "Bob: 13"]),
        ("1. Ann\n2) Bob\n(3) Ann", ["Ann", "Bob"]),
        ("It began in 2024. It ends in 2027.", ["It began in 2024.", "It ends in 2027."]),
        ("The party that gives notice, in writing, may leave", ["The party that gives notice, in writing, may leave"]),
        ("A; B; C", ["A", "B", "C"]),
        ("始于2024年。止于2027年！", ["始于2024年。", "止于2027年！"]),
        ("他说「好。」就走了。", ["他说「好。」就走了。"]),
        ("", []),
    ],
)
def test_an_answer_is_taken_apart_where_it_lists(answer: str, items: list[str]) -> None:
    assert list(claims(answer)) == items


@pytest.mark.parametrize(
    ("claim", "passages", "there"),
    [
        ("4821973", ["The code is 4821973."], True),
        ("4821973", ["The code is 48219735."], False),
        ("4821973", [], False),
        ("EUR 12,500.00", ["a monthly fee of EUR 12,500.00"], True),
        ("EUR 12,600.00", ["a monthly fee of EUR 12,500.00"], False),
        ("The term ends on 28 February 2027.", ["This Agreement ends on\n28 February 2027"], True),
        ("The term ends on 28 February 2028.", ["This Agreement ends on\n28 February 2027"], False),
        ("500", ["a monthly fee of EUR 12,500.00"], False),
        ("12", ["a monthly fee of EUR 12,500.00"], False),
        ("3", ["version 3.5"], False),
        ("3", ["in room 3."], True),
        ("Bob", ["The captain is Ann."], False),
        ("Captain Ann", ["The captain\nis Ann."], True),
        ("It was raining", ["It was raining"], True),
        ("heavy rain throughout", ["a clear and sunny afternoon"], False),
        ("三年間", ["契約期間は三年間とする"], True),
        ("五年間だけ", ["契約期間は三年間とする"], False),
        ("yes", ["Either party may terminate."], True),
        ("yes", [], False),
    ],
)
def test_a_claim_is_held_by_passages_with_its_numbers_and_most_of_its_words(
    claim: str, passages: list[str], there: bool
) -> None:
    assert held(claim, passages) is there


def test_words_of_the_question_prove_nothing() -> None:
    question = "Who is the captain of the ship?"
    assert not held("The captain of the ship is Bob", ["The captain of the ship is Ann"], question)
    assert held("The captain of the ship is Ann", ["The captain of the ship is Ann"], question)
    assert not held("Bob", ["Alice signed the deed."], "Did Alice or Bob sign?")
    assert not touches("Bob is the captain", "The captain sleeps", question)
    assert touches("Bob is the captain", "Bob sleeps", question)
    assert touches("Yes.", "anything", question)
