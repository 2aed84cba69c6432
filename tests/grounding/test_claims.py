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
        ("12500 EUR", ["a monthly fee of EUR 12,500.00"], True),
        ("12,500", ["a monthly fee of EUR 12,500.00"], True),
        ("EUR 12.500,00", ["a monthly fee of EUR 12,500.00"], True),
        ("12 500 EUR", ["a monthly fee of EUR 12,500.00"], True),
        ("125,000", ["a monthly fee of EUR 12,500.00"], False),
        ("EUR 3", ["The deposit is EUR 3 million."], False),
        ("EUR 3 million", ["The deposit is EUR 3 million."], True),
        ("EUR 3,000,000", ["The deposit is EUR 3 million."], True),
        ("3 million", ["The deposit is EUR 3."], False),
        ("The deposit is EUR 3 million", ["The deposit is EUR 3."], False),
        ("2026-01-01", ["It begins on 1 January 2026."], True),
        ("January 1st, 2026", ["It begins on 1.1.2026"], True),
        ("2026-01-02", ["It begins on 1 January 2026."], False),
        ("3 March 2024", ["on the 3rd of March in the year 2024"], True),
        ("3 March", ["on 3 March 2024"], True),
        ("at 10:30", ["at 10 or at 11:30"], False),
        ("at 10:30", ["It begins at 10:30."], True),
        ("0171 555 264", ["dial 0171 555 264"], True),
        ("0171 555 265", ["dial 0171 555 264"], False),
        ("5 %", ["a share of 5 per cent"], True),
        ("12 to 15 people", ["12-15 people"], True),
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
    assert held("12,500", ["Sum due: 12500"], question), "a number needs no word beside it"


@pytest.mark.parametrize(
    ("answer", "passage", "there"),
    [
        ("Yes", "The deposit is EUR 9 million.", True),
        ("Yes", "The deposit is EUR 3 million.", False),
        ("No", "The deposit is EUR 3 million.", True),
        ("No", "Service agreement between Alder GmbH and Birch Ltd.", False),
        ("Yes", "Service agreement between Alder GmbH and Birch Ltd.", False),
    ],
)
def test_yes_and_no_need_a_passage_about_the_question(answer: str, passage: str, there: bool) -> None:
    assert held(answer, [passage], "Is the deposit EUR 9 million?") is there
