"""Reading again: what the model asks for, what is read for it, and when it ends."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from memagent.core import Budgets, make_reader, start
from memagent.driver import read
from memagent.errors import ConfigError, ContextTooLongError
from memagent.models.scripted import ScriptedModel
from tests.core import test_reading
from tests.helpers import WordTokenizer, next_turn, replied

PROFILE = replace(
    test_reading.PROFILE,
    judge="Q {question} M {memory} asked {asked} or {enough}",
    merge="Q {question} M {memory} N {notes}",
)
BUDGETS = Budgets(question=6, chunk=16, memory=10, answer=8)


def plan(profile=PROFILE, budgets=BUDGETS, **options):
    return test_reading.plan(profile=profile, budgets=budgets, reader=make_reader("reread", options))


def reading(judgements, merged="merged", **options):
    """A finished reading whose updates name the question they were read for, and the turns that were asked for it."""
    asked = iter(judgements)

    def script(turn):
        if turn.kind == "query":
            return next(asked)
        if turn.kind == "merge":
            return merged
        return "done" if turn.kind == "answer" else f"for {turn.user.partition('Q ')[2].partition(' M')[0]}"

    engine = ScriptedModel(script)
    return read(plan(**options), engine), engine.turns


def test_a_memory_that_is_enough_is_answered_from():
    transcript, turns = reading(["Enough."])
    assert [one.id for one in turns] == ["chunk-1", "chunk-2", "chunk-3", "judge-1", "answer"]
    assert turns[3].user == "Q why? M for why? asked - or enough"
    assert transcript.memory == "for why?"


def test_the_document_is_read_again_for_what_the_model_asks_and_the_findings_are_merged():
    transcript, turns = reading(["Who is Ann?", "enough"])
    assert [one.id for one in turns][3:] == [
        "judge-1", "reread-1/chunk-1", "reread-1/chunk-2", "reread-1/chunk-3", "merge-1", "judge-2", "answer",
    ]  # fmt: skip
    assert turns[4].user.startswith("Q Who is Ann? M none C w0")
    assert [one.kind for one in turns[4:8]] == ["note", "note", "note", "merge"]
    assert turns[7].user == "Q why? M for why? N Who is Ann?\nfor Who is Ann?"
    assert turns[8].user == "Q why? M merged asked Who is Ann? or enough"
    assert turns[9].user == "Q why? M merged A"
    assert [one.memory for one in transcript.records[3:7]] == ["for why?"] * 4
    assert transcript.state.tokens_read == plan().tokens


def test_a_model_that_never_has_enough_is_stopped():
    numbers = itertools.count()
    _, turns = reading((f"what is {n}?" for n in numbers), rereads=3)
    assert len(turns) == plan(rereads=3).turns == 3 + 3 * 5 + 1


@pytest.mark.parametrize("again", ["why?", "Why?", "Who is Ann?"])
def test_a_question_that_was_asked_before_ends_the_reading(again):
    _, turns = reading(["Who is Ann?", again] if again == "Who is Ann?" else [again])
    assert turns[-2].kind == "query"


def test_an_empty_judgement_is_asked_again_and_then_means_enough():
    _, turns = reading(["", ""])
    assert [one.id for one in turns][3:] == ["judge-1", "judge-1~2", "answer"]
    assert turns[4].user.endswith("again 6")


def test_a_merge_without_a_reply_keeps_both():
    transcript, turns = reading(["Who?", "enough"], merged="")
    assert [one.id for one in turns if one.kind == "merge"] == ["merge-1", "merge-1~2"]
    assert transcript.memory == "for why?\nfor Who?"


def test_nothing_found_needs_no_merge():
    def script(turn):
        if turn.kind == "query":
            return "Who is Ann?" if "asked -" in turn.user else "enough"
        return "nothing new" if turn.kind == "note" else "noted"

    engine = ScriptedModel(script)
    read(plan(), engine)
    assert "merge" not in {one.kind for one in engine.turns}


def test_without_rereads_it_is_the_reader_memory():
    _, turns = reading([], rereads=0)
    assert [one.id for one in turns] == ["chunk-1", "chunk-2", "chunk-3", "answer"]


def test_budgets_and_wording_are_checked_before_the_first_turn():
    with pytest.raises(ConfigError, match=r"does not hold a question and a memory to merge: 8 \+ 10 = 18"):
        plan(budgets=replace(BUDGETS, question=8))
    with pytest.raises(ConfigError, match="template 'judge' is empty"):
        plan(profile=replace(PROFILE, judge=""))
    with pytest.raises(ConfigError, match="read again -1 times"):
        make_reader("reread", {"rereads": -1})


def test_a_judgement_that_does_not_fit_is_an_error():
    with pytest.raises(ContextTooLongError, match="the question and the memory"):
        read(plan(), ScriptedModel(lambda turn: ContextTooLongError("long") if turn.kind == "query" else "noted"))


def test_a_document_without_text_is_answered_at_once():
    engine = ScriptedModel(["nothing there"])
    a_plan = test_reading.plan(text="", profile=PROFILE, budgets=BUDGETS, reader=make_reader("reread"))
    assert read(a_plan, engine).answer == "nothing there"


def test_of_many_questions_those_that_fit_the_window_are_shown():
    long = [f"{n} and five more words here" for n in range(9)]
    _, turns = reading(long, rereads=9)
    judges = [one.user for one in turns if one.kind == "query"]
    room = BUDGETS.chunk + BUDGETS.memory - BUDGETS.question
    assert all(WordTokenizer().count(one.partition("asked ")[2].removesuffix(" or enough")) <= room for one in judges)
    assert f"asked {long[5]}\n{long[6]}\n{long[7]} or enough" in judges[8]


def test_the_turns_that_are_left_are_never_more_than_was_said():
    a_plan = plan()
    state, said = start(a_plan), []
    for questions in itertools.repeat(iter(["one?", "two?"])):
        if state.finished:
            break
        said.append(a_plan.reader.left(a_plan, state))
        kind = next_turn(a_plan, state).kind
        state = replied(a_plan, state, next(questions) if kind == "query" else "words")
    assert said == list(range(len(said), 0, -1)) == list(range(a_plan.turns, 0, -1))
