from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memagent.core import Span
from memagent.evaluation.diagnosis import diagnose, stands_in
from memagent.evaluation.records import RecordedTurn
from memagent.evaluation.tally import STEPS, Tally
from memagent.tasks.samples import Fact
from tests.evaluation.fakes import driven_record, make_record, make_sample

SAMPLE = make_sample(0, tokens=1000, place=0.3)


def turn(number, start, end, memory, outcome="kept"):
    return RecordedTurn(number=number, kind="update", spans=(Span(start=start, end=end),), outcome=outcome, memory=memory)


ANSWER = RecordedTurn(number=9, kind="answer", spans=(), outcome="answered", memory=None)


def reading(*turns, facts=None, **changes):
    """A reading of a document of 100 characters whose fact stands at 30 to 40."""
    fact = Fact(text="x" * 10, start=30, end=40, key="amber", value="4821973")
    record = replace(make_record(SAMPLE), facts=(fact,) if facts is None else facts, characters=100, turns=(*turns, ANSWER))
    return replace(record, **changes)


def trace(*turns, **changes):
    return diagnose(reading(*turns, **changes)).traces[0]


@pytest.mark.parametrize(
    ("value", "memory", "found"),
    [
        ("4821973", "amber: 4821973.", True),
        ("4821973", "code=4821973", True),
        ("12", "4123", False),
        ("12", "4123 and 12", True),
        ("no", "unknown", False),
        ("The Whale", "a WHALE", True),
        ("Simon and Garfunkel", "Simon and\nGarfunkel", True),
        ("Simon and Garfunkel", "Garfunkel and Simon", False),
        ("O'Brien", "o’brien", True),
        ("ﬁsh", "Fish", True),
        ("北京", "他住在北京市", True),
        ("", "anything", False),
        ("!", "anything!", False),
        ("x", "", False),
        ("12", "12,345", False),
        ("12", "12.5", False),
        ("12", "0.12", False),
        ("345", "12,345", False),
        ("12", "12,5", False),
        ("12", "1.2.12 or so", False),
        ("12", "12. 5", True),
        ("12", "12, 345", True),
        ("12", "It was 12.", True),
        ("12 ships", "0.12 ships", False),
        ("12 ships", "of 12 ships.", True),
        ("12.5", "x=12.5,", True),
        ("1234567", "1,234,567", True),
        ("1,234,567", "1234567.", True),
        ("1,234 ships", "the 1234 ships", True),
        ("4821973", "4821973,1234567", True),
        ("1234567", "4821973,1234567", True),
        ("example", "an.example.org", True),
    ],
)
def test_values_are_found_by_whole_words(value, memory, found):
    assert stands_in(value, memory) == found


def test_kept_to_the_end():
    found = trace(turn(0, 0, 25, "nothing"), turn(1, 25, 50, "amber 4821973"), turn(2, 50, 100, None))
    assert (found.shown, found.whole, found.gains, found.losses, found.held) == (1, True, (1,), (), 1)
    assert found.at_end
    assert not found.missed
    assert not found.drifted


def test_a_fact_is_seen_by_a_note_and_kept_by_the_merge_which_shows_none():
    noted = [replace(turn(number, start, start + 35, None, "noted"), kind="note") for number, start in enumerate((0, 35))]
    merged = RecordedTurn(number=2, kind="merge", spans=(Span(start=0, end=70),), outcome="kept", memory="amber 4821973")
    found = trace(*noted, merged)
    assert (found.shown, found.whole, found.gains) == (0, False, (2,))
    assert diagnose(reading(*noted, merged)).updates


def test_shown_and_never_kept():
    found = trace(turn(0, 0, 50, "nothing"), turn(1, 50, 100, "still nothing"))
    assert (found.shown, found.missed, found.at_end, found.held) == (0, True, False, 0)


def test_kept_and_lost_and_kept_again():
    memories = ["4821973", None, "gone", None, "4821973!", "gone again"]
    found = trace(*(turn(number, 20 * number, 100, memory) for number, memory in enumerate(memories)))
    assert (found.gains, found.losses, found.held) == ((0, 4), (2, 5), 1)
    assert found.drifted


def test_a_value_in_the_memory_before_it_was_shown_is_chance():
    found = trace(turn(0, 0, 20, "4821973"), turn(1, 20, 25, "gone"), turn(2, 25, 100, "nothing"))
    assert (found.gains, found.losses, found.missed) == ((), (), True)
    found = trace(turn(0, 0, 20, "4821973"), turn(1, 20, 100, None))
    assert found.gains == (1,)


def test_a_turn_that_is_asked_again_is_no_update():
    found = trace(
        turn(0, 0, 50, None, "retry_long"), turn(1, 0, 50, "4821973", "fitted"), turn(2, 50, 100, None, "unchanged")
    )
    assert (found.shown, found.gains, found.held) == (0, (1,), 1)
    diagnosis = diagnose(reading(turn(0, 0, 50, None, "retry_long"), turn(1, 0, 50, "4821973", "fitted")))
    assert diagnosis.outcomes == {"retry_long": 1, "fitted": 1, "answered": 1}


def test_a_direct_answer_that_was_asked_again_still_showed_everything():
    once = RecordedTurn(number=0, kind="answer", spans=(Span(start=0, end=100),), outcome="retry_empty", memory=None)
    again = replace(once, number=1, outcome="answered")
    diagnosis = diagnose(replace(reading(), turns=(once, again)))
    assert (diagnosis.verdict, diagnosis.coverage) == ("answer", 1)
    assert diagnose(reading(turn(0, 0, 20, "x"))).verdict == "not_shown", "an answer after updates shows the memory"


def test_a_full_memory_of_append_is_no_overflow():
    tally = Tally()
    tally.add(diagnose(reading(turn(0, 0, 50, "x", "full"), turn(1, 50, 99, "y", "retry_long"), reader="append")), 0)
    assert (tally.overflow, tally.full, tally.turns) == (1, 1, 3)
    tally = Tally()
    tally.add(diagnose(reading(turn(0, 0, 50, "x", "fitted"))), 0)
    assert (tally.overflow, tally.full) == (1, 0)


def test_a_fact_cut_by_a_border_is_split_unless_it_is_kept():
    cut = (turn(0, 0, 35, "nothing"), turn(1, 35, 100, "nothing"))
    assert (trace(*cut).shown, trace(*cut).whole, diagnose(reading(*cut)).verdict) == (0, False, "split")
    kept = diagnose(reading(turn(0, 0, 35, "nothing"), turn(1, 35, 100, "4821973")))
    assert kept.verdict == "answer"


def test_of_a_cut_fact_without_a_value_nothing_is_claimed():
    unknown = Fact(text="x" * 20, start=25, end=45)
    cut = reading(turn(0, 0, 35, "A was American"), turn(1, 35, 100, "A was American"), facts=(unknown,))
    assert diagnose(cut).verdict == "unknown"


@pytest.mark.parametrize(
    ("fate", "verdict"),
    [
        ("missed", "missed"),
        ("lost", "lost"),
        ("misread", "answer"),
        ("regained", "answer"),
        ("split", "split"),
        ("failed", "failed"),
        ("too_long", "failed"),
    ],
)
def test_a_wrong_answer_is_classified(fate, verdict):
    assert diagnose(make_record(SAMPLE, fate)).verdict == verdict


@pytest.mark.parametrize(
    ("reader", "fate", "verdict", "coverage"),
    [
        ("truncate", "not_shown", "not_shown", 0),
        ("retrieve", "misread", "answer", 1),
        ("retrieve", "split", "split", 0),
        ("direct", "misread", "answer", 1),
    ],
)
def test_readers_of_one_prompt(reader, fate, verdict, coverage):
    diagnosis = diagnose(make_record(SAMPLE, fate, reader=reader))
    assert (diagnosis.verdict, diagnosis.coverage, diagnosis.filler) == (verdict, coverage, None)


def test_an_excerpt_that_went_through_the_memory_tells_missed_from_misread():
    covered = {"shown": (Span(start=0, end=60),), "reader": "truncate"}
    assert diagnose(reading(turn(0, 0, 60, "nothing"), **covered)).verdict == "missed"
    assert diagnose(reading(turn(0, 0, 60, "4821973"), **covered)).verdict == "answer"


def test_of_several_facts_the_earliest_stage_is_named():
    shown = Fact(text="x" * 10, start=30, end=40, value="4821973")
    late = Fact(text="x" * 5, start=80, end=85, value="111")
    unneeded = Fact(text="x" * 5, start=60, end=65, value="222", needed=False)
    turns = (turn(0, 0, 50, "4821973"), turn(1, 50, 70, "gone"))
    assert diagnose(reading(*turns, facts=(shown, unneeded, late))).verdict == "not_shown"
    assert diagnose(reading(*turns, turn(2, 70, 100, "x"), facts=(shown, unneeded, late))).verdict == "missed"
    assert diagnose(reading(*turns, turn(2, 70, 100, "111"), facts=(shown, unneeded, late))).verdict == "lost"
    assert diagnose(reading(*turns, turn(2, 70, 100, "111 4821973"), facts=(shown, unneeded, late))).verdict == "answer"


def test_without_known_values_nothing_is_claimed():
    nameless = Fact(text="x" * 10, start=30, end=40)
    assert diagnose(reading(turn(0, 0, 100, "x"), facts=(nameless,))).verdict == "unknown"
    assert diagnose(reading(turn(0, 0, 20, "x"), facts=(nameless,))).verdict == "not_shown"
    assert diagnose(reading(turn(0, 0, 100, "x"), facts=())).verdict == "unknown"


def test_filler_is_what_neither_question_nor_facts_say():
    fact = Fact(text="the amber code is 4821973", start=30, end=40, value="4821973")
    diagnosis = diagnose(reading(turn(0, 0, 100, "amber 4821973 whales sing"), question="Which code?", facts=(fact,)))
    assert diagnosis.filler == 0.5
    assert diagnose(reading(turn(0, 0, 100, None), facts=(fact,))).filler is None


def test_a_reading_by_the_real_driver():
    words = ["word"] * 100
    words[50:50] = "The code for amber is 4821973 .".split()
    text = " ".join(words)
    start = text.index("The code")
    fact = Fact(text="The code for amber is 4821973 .", start=start, end=start + 31, key="amber", value="4821973")

    def script(turn):
        _, memory, *chunk = turn.user.split("\n", 2)
        if turn.kind == "answer":
            return memory
        seen = re.search(r"amber is (\d+)", chunk[0])
        if turn.id == "chunk-5":
            return "forgotten"
        return seen[1] if seen else memory or "nothing yet"

    record = driven_record(text, "What is the code?", [fact], script, answers=("4821973",))
    diagnosis = diagnose(record)
    [found] = diagnosis.traces
    assert found.whole
    assert found.shown is not None
    assert found.gains == (found.shown,)
    assert found.losses == (4,)
    assert found.held == 3 - found.shown
    assert diagnosis.verdict == "lost"
    assert record.scores["strict"] == 0


def test_a_tally_by_hand():
    tally = Tally()
    for fate in ("kept", "lost", "regained", "missed", "split", "misread", "failed", "too_long"):
        record = make_record(SAMPLE, fate)
        tally.add(diagnose(record), record.scores["strict"])
    assert (tally.readings, tally.failed) == (8, 2)
    assert dict(tally.wrong) == {"lost": 1, "missed": 1, "split": 1, "answer": 1, "failed": 2}
    assert (tally.missed, tally.cut, tally.drifted, tally.regained) == (2, 1, 1, 1)
    retention = tally.retention
    assert retention.steps == tally.held_steps + tally.lost_steps
    assert tally.lost_steps == 2
    assert retention.p == pytest.approx(tally.held_steps / retention.steps)
    assert retention.interval.low < retention.p < retention.interval.high
    assert retention.far == pytest.approx(retention.p**STEPS)
    assert Tally().retention is None
    assert Tally().filler is None


def test_accuracy_where_everything_was_shown():
    tally = Tally()
    for fate in ("kept", "misread", "not_shown", "not_shown", "too_long"):
        record = make_record(SAMPLE, fate, reader="retrieve")
        tally.add(diagnose(record), record.scores["strict"])
    assert tally.coverage == 0.5
    assert tally.right_when_covered == [1, 0]
