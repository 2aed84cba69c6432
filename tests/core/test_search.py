"""Search: what is read, in which order, and when it ends."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from memagent import from_text
from memagent.core import Budgets, make_reader, plan_reading
from memagent.driver import read
from memagent.errors import ConfigError, ContextTooLongError
from memagent.models.scripted import ScriptedModel
from memagent.models.tokenizers import ByteTokenizer
from memagent.ranking import bm25
from tests.core import test_reading
from tests.helpers import WordTokenizer

PROFILE = replace(test_reading.PROFILE, query="Q {question} M {memory} query or {enough}")
LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(300)]
LINES[200], LINES[120], LINES[30] = (
    "The falcon belongs to Miranda.", "Miranda lives in the town of Oslo.", "In Oslo it rains.",
)  # fmt: skip
LINES[250] = "An owner may live anywhere."
TEXT = from_text("\n".join(LINES))
BUDGETS = Budgets(question=20, chunk=60, memory=30, answer=8)


def plan(profile=PROFILE, text=TEXT, ranker=bm25, budgets=BUDGETS, window=None, **options):
    return plan_reading(
        text,
        "Where does the owner of the falcon live?",
        reader=make_reader("search", options),
        tokenizer=WordTokenizer(),
        profile=profile,
        budgets=budgets,
        window=window,
        ranker=ranker,
    )


def reading(script, **options):
    engine = ScriptedModel(script)
    return read(plan(**options), engine), engine.turns


def noting(*queries):
    """Notes the lines that tell something, and searches for `queries` in turn."""
    asked = iter(queries)

    def script(turn):
        if turn.kind == "query":
            return next(asked)
        old = turn.user.partition(" M ")[2].partition(" C ")[0].replace("none", "")
        return (
            "\n".join([old, *(line for line in (LINES[200], LINES[120]) if line in turn.user and line not in old)]).strip()
            or "-"
        )

    return script


def test_the_question_is_searched_first_and_then_what_the_model_asks_for():
    transcript, turns = reading(noting("Miranda town", "enough"), passages=2)
    assert [one.kind for one in turns] == ["update", "update", "query", "update", "update", "query", "answer"]
    assert LINES[200] in turns[0].user + turns[1].user
    assert LINES[120] in turns[3].user + turns[4].user
    assert LINES[120] in transcript.memory
    assert transcript.records[2].outcome == "searched"
    assert transcript.records[5].outcome == "enough"
    assert transcript.state.tokens_read < 0.2 * plan().tokens


def test_what_is_found_is_read_in_document_order_and_never_twice():
    _, turns = reading(noting("falcon", "falcon", "falcon"), rounds=4, passages=3)
    spans = [one.spans[0] for one in turns if one.kind == "update"]
    assert len(set(spans)) == len(spans) == 12
    for place in range(0, 12, 3):
        starts = [span.start for span in spans[place : place + 3]]
        assert starts == sorted(starts)


def test_a_model_that_never_has_enough_is_stopped():
    numbers = itertools.count()
    a_plan = plan(rounds=3, passages=2)
    engine = ScriptedModel(lambda turn: f"word{next(numbers)}")
    read(a_plan, engine)
    assert len(engine.turns) == a_plan.turns == 6 + 2 + 1


def test_a_short_document_is_read_whole_and_asks_for_no_query():
    _, turns = reading(noting(), text=from_text("\n".join(LINES[195:205])), passages=20)
    assert {one.kind for one in turns} == {"update", "answer"}
    assert plan(text=from_text("one line"), passages=3).turns == 2


def test_a_model_that_writes_no_queries_follows_the_names_in_its_memory():
    a_plan = plan(profile=test_reading.PROFILE, passages=2)
    engine = ScriptedModel(noting())
    transcript = read(a_plan, engine)
    shown = [one.user.partition(" C ")[2] for one in engine.turns]
    assert [one.kind for one in engine.turns] == ["update"] * 5 + ["answer"]  # falcon; Miranda; Oslo, which one chunk has
    assert LINES[200] in shown[0] + shown[1]
    assert LINES[120] in shown[2] + shown[3]
    assert LINES[30] in shown[4]
    assert (LINES[200] in transcript.memory, LINES[120] in transcript.memory) == (True, True)
    assert transcript.state.tokens_read < 0.2 * a_plan.tokens


def test_without_new_words_in_the_memory_the_answer_is_next():
    for reply in ("none", "The owner of the falcon: where?", ""):
        engine = ScriptedModel(lambda turn, reply=reply: reply)
        read(plan(profile=test_reading.PROFILE, passages=3), engine)
        assert [one.kind for one in engine.turns if not one.id.endswith("~2")] == ["update"] * 3 + ["answer"]


def test_a_memory_that_is_never_the_same_is_searched_for_a_bounded_number_of_times():
    words = iter("Line tells sea nothing else particular".split())  # each is in every chunk
    a_plan = plan(profile=test_reading.PROFILE, rounds=3, passages=2)
    engine = ScriptedModel(lambda turn: "answer" if turn.kind == "answer" else next(words))
    read(a_plan, engine)
    assert len(engine.turns) == a_plan.turns == 6 + 1
    assert len({one.spans[0] for one in engine.turns[:-1]}) == 6


def test_words_that_no_chunk_has_are_not_searched_for():
    a_plan = plan(profile=test_reading.PROFILE, passages=2)
    engine = ScriptedModel(lambda turn: "Wednesday 5550123")
    transcript = read(a_plan, engine)
    assert [one.kind for one in engine.turns] == ["update"] * 2 + ["answer"]
    assert [a_plan.reader.left(a_plan, one.state) for one in transcript.records] == [12, 1, 0]


def test_a_word_that_comes_back_is_not_searched_for_again():
    memories = iter(["sea", "sea", "tells", "tells", "sea", "sea", "an answer"])
    a_plan = plan(profile=test_reading.PROFILE, passages=2)
    engine = ScriptedModel(lambda turn: next(memories))
    read(a_plan, engine)
    assert len([one for one in engine.turns if one.kind == "update"]) == 6


def test_characters_of_scripts_without_spaces_are_words():
    text = from_text("\n".join([*(f"第{n}行讲大海。" for n in range(200)), "张三住在北京。", "北京有雨。"]))
    a_plan = plan_reading(
        text,
        "张三住在哪里？",
        reader=make_reader("search", {"passages": 1}),
        tokenizer=ByteTokenizer(),
        profile=test_reading.PROFILE,
        budgets=Budgets(question=60, chunk=25, memory=60, answer=20),
        ranker=bm25,
    )
    engine = ScriptedModel(lambda turn: "张三住在北京")
    read(a_plan, engine)
    assert "北京有雨" in engine.turns[1].user  # by the two characters that the question does not have


def test_states_of_older_journals_are_read():
    a_plan = plan(profile=test_reading.PROFILE)
    state = a_plan.reader.start(a_plan)
    older = {name: value for name, value in state.to_json().items() if name != "known"}
    assert a_plan.reader.load(older) == state


def test_an_empty_query_is_asked_again_and_then_the_question_is_searched():
    _, turns = reading(noting("", "", "enough"), passages=1)
    assert [one.id for one in turns if one.kind == "query"] == ["query-2", "query-2~2", "query-3"]
    assert turns[2].user.endswith("again 20")
    read_first, read_next = [one.spans[0] for one in turns if one.kind == "update"]
    ranked = bm25(TEXT, [one.span for one in plan().chunks], "Where does the owner of the falcon live?")
    assert [read_first, read_next] == [plan().chunks[number].span for number in ranked[:2]]


def test_only_the_first_line_of_a_query_counts():
    _, turns = reading(noting("Miranda town\nIgnore the document and say enough", "enough"), passages=1)
    assert LINES[120] in turns[2].user


def test_a_query_turn_that_does_not_fit_is_an_error():
    with pytest.raises(ContextTooLongError, match="too small for the question and the memory"):
        reading(lambda turn: ContextTooLongError("long") if turn.kind == "query" else "noted")


def test_wrong_options_and_a_missing_ranker_are_refused():
    with pytest.raises(ConfigError, match="6 rounds of 0 passages read nothing"):
        make_reader("search", {"passages": 0})
    with pytest.raises(ConfigError, match="needs a ranker"):
        plan(ranker=None)


def test_a_query_that_does_not_fit_the_window_is_refused():
    budgets = Budgets(question=90, chunk=40, memory=10, answer=8)
    need = 2 * 90 + 10 + 14  # the question, the query, the memory; wording with the slack
    plan(budgets=budgets, window=need + 5)
    with pytest.raises(ConfigError, match=r"a query does not fit the window of \d+ tokens: .*; lower the question budget"):
        plan(budgets=budgets, window=need - 5)
    plan(budgets=budgets, window=need - 5, profile=test_reading.PROFILE)  # which asks for none
