"""What an answer claims, and whether passages hold it."""

from __future__ import annotations

import sys

import pytest

from memagent.grounding.claims import claims, held, touches
from memagent.grounding.fields import Field, Passage, states


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
        ("192.168.0.1", ["listens at 192.168.0.1:8080"], True),
        ("10:30", ["Open 10:30-11:00"], True),
        ("4.5.1", ["openssl 4.5.1-2"], True),
        ("1.5.2020", ["vom 1.5.2020-6.5.2020"], True),
        ("Matthew 5:3", ["Matthew 5:3-12"], True),
        ("On 1 March 2025", ["The contract was signed 1 March 2025."], True),
        ("Since 1 March 2025", ["Member from 1 March 2025"], True),
        ("on 12 May 1990", ["12/5/1990"], True),
        ("May 5, 2020 at 10:00", ["5 May 2020, 10:00"], True),
        ("3 million", ["population: 3,000,000"], True),
        ("12.5 thousand", ["12500"], True),
        ("4.5 billion", ["4,500 million"], True),
        ("The company raised 2.5 million dollars in funding", ["The company raised $2.5m in funding"], True),
        ("Revenue was 3,250 million dollars", ["Revenue (in millions of dollars): 3,250"], True),
        ("2 million to 3 million people", ["between 2 and 3 million people"], True),
        ("The budget was 3 million dollars", ["a $3-million budget in dollars"], True),
        ("between 2 and 3 million people", ["from 2 million to 3 million people"], True),
        ("Python 3.10", ["Python 3.1"], False),
        ("section 4.10", ["section 4.1"], False),
        ("$1,500", ["1.5 litres"], False),
        ("In week 3 120 patients were treated", ["120 patients were treated in week 3"], True),
        ("EUR 12,50", ["EUR 12.50"], True),
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


@pytest.mark.parametrize(
    ("question", "passage"),
    [
        ("Does she have more than 3 children?", "She has 5 children."),
        ("Did revenue grow by more than 10%?", "Revenue grew 12%"),
        ("Does the lease end after 2024?", "The lease ends on 1 March 2025."),
        ("他是在北京出生的吗？", "他出生在北京"),
    ],
)
def test_yes_to_a_comparison_needs_no_number_of_the_question(question: str, passage: str) -> None:
    assert held("Yes", [passage], question)


def test_words_that_every_question_has_are_not_what_it_is_about() -> None:
    assert not held("Yes", ["Alder GmbH will pay with this card."], "Will the lease come with a garage?")
    assert held("Yes", ["There is a garage."], "Will the lease come with a garage?")


def test_a_number_may_be_without_the_scale_that_the_question_has() -> None:
    passage = "About 3 million people live there"
    assert held("3", [passage], "How many million people live there?")
    assert not held("3", [passage], "How many people live there?")


def test_many_numbers_and_dates_take_time_that_grows_with_their_number() -> None:
    def looked_at(lines: int) -> int:
        text, calls = "2024-03-01 10:30:05 INFO request 17 took 3.5 ms\n" * lines, 0

        def count(frame: object, event: str, _: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            assert states(Field(pointer="/x", value=17), Passage(text))
            assert held("at 17", [text])
        finally:
            sys.setprofile(None)
        return calls

    assert looked_at(400) < 5 * looked_at(100)
