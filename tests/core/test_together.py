"""Several questions in one reading: what is asked, what is answered, and that every reader can do it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import memagent
from memagent.core import Budgets, Completion, advance, make_reader, pending, plan_reading, start, turn
from memagent.core.readers.together import TogetherReader, list_of
from memagent.driver import read
from memagent.errors import ConfigError, JournalError, ModelReplyError
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.ranking import bm25
from tests import test_laws
from tests.core import test_reading
from tests.helpers import StringText, WordTokenizer

QUESTIONS = ("where is word7?", "what is word9?", "who is word30?")
PROFILE = replace(test_reading.PROFILE, together="Answer these.\n{questions}")
READERS = ("memory", "gated", "parallel", "search", "reread", "recall", "direct", "retrieve", "truncate", "append")


def plan(name="memory", words=400, questions=QUESTIONS):
    inner = make_reader(name, {"passages": 2} if name == "retrieve" else {})
    return plan_reading(
        StringText(" ".join(f"word{n}" for n in range(words))),
        "Answer these.\n1. where is word7?\n2. what is word9?\n3. who is word30?",
        reader=TogetherReader(reader=inner, questions=questions, reads_as=name),
        tokenizer=WordTokenizer(),
        profile=test_laws.WORDING,
        budgets=Budgets(question=20, chunk=80, memory=12, answer=8),
        ranker=bm25,
    )


def driven(a_plan, choose, reply):
    state, records = start(a_plan), []
    while ids := list(pending(a_plan, state)):
        shown = turn(a_plan, state, choose(ids))
        state = advance(a_plan, state, shown.id, Completion(text=reply(shown)))
        records.append(shown)
    return state, records


def about(shown):
    """A reply that depends on the turn alone; the answers name their question."""
    if shown.kind == "answer":
        return next(question for question in QUESTIONS if question in shown.user)
    return f"note {len(shown.user) % 7}"


def test_the_document_is_read_once_and_each_question_answered_from_the_memory():
    a_plan = plan()
    state, turns = driven(a_plan, lambda ids: ids[0], about)
    assert [one.id for one in turns] == [
        "chunk-1", "chunk-2", "chunk-3", "chunk-4", "chunk-5", "chunk-6",
        "question-1/answer", "question-2/answer", "question-3/answer",
    ]  # fmt: skip
    assert len(turns) == a_plan.turns
    state_then, to_come = start(a_plan), a_plan.turns
    for shown in turns:
        assert a_plan.reader.left(a_plan, state_then) == to_come
        state_then, to_come = advance(a_plan, state_then, shown.id, Completion(text=about(shown))), to_come - 1
    assert all(question in turns[0].user for question in QUESTIONS)
    assert [question in turns[-1].user for question in QUESTIONS] == [False, False, True]
    assert state.answers == QUESTIONS
    assert state.answer == "1. where is word7?\n2. what is word9?\n3. who is word30?"


@pytest.mark.parametrize("name", READERS)
def test_every_reader_reads_together_in_any_order_and_survives_json(name):
    a_plan = plan(name, words=70 if name == "direct" else 400)
    expected, turns = driven(a_plan, lambda ids: ids[0], about)
    assert expected.answers == QUESTIONS
    assert len(turns) <= a_plan.turns
    found, _ = driven(a_plan, random.Random(3).choice, about)
    assert found == expected
    state = start(a_plan)
    while ids := list(pending(a_plan, state)):
        assert a_plan.reader.left(a_plan, state) >= 1
        assert a_plan.reader.load(state.to_json()) == state
        state = advance(a_plan, state, ids[-1], Completion(text=about(turn(a_plan, state, ids[-1]))))
    assert a_plan.reader.load(state.to_json()) == state == expected


def test_a_text_that_every_answer_shows_counts_once_for_each():
    assert plan().reader.shown(plan()) == plan().tokens
    direct = plan("direct", words=70)
    assert direct.reader.shown(direct) == 3 * direct.tokens


def test_an_empty_answer_to_one_question_is_asked_again_and_does_not_hold_up_the_others():
    engine = ScriptedModel(lambda shown: "" if "word9" in shown.user and shown.kind == "answer" else about(shown))
    transcript = read(plan(), engine)
    assert transcript.state.answers == (QUESTIONS[0], "", QUESTIONS[2])
    assert [one.id for one in engine.turns].count("question-2/answer~2") == 1


def test_what_one_question_has_no_answer_to_is_asked_again_alone(tmp_path):
    def model(silent):
        def reply(shown):
            made = script(shown)
            return "" if silent and made == "Ann" else made

        return OpenModel(engine=(engine := ScriptedModel(reply)), name="scripted"), engine

    (path := tmp_path / "log.txt").write_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        options = {"model": model(True)[0], "journal": journal, **OPTIONS}
        first, second = memagent.read_many(path, ["what is the code?", "who is the captain?"], **options)
        assert (first.answer, first.error, second.answer) == ("4821973", None, "")
        assert "empty answer" in second.error
        assert journal.show(first.id).status == "failed"
        opened, engine = model(False)
        again = memagent.resume_many(first.id, model=opened, journal=journal)
        assert [one.answer for one in again] == ["4821973", "Ann"]
        assert [one.kind for one in engine.turns].count("answer") == 1, "the other one is kept"
        assert journal.show(first.id).status == "answered"


def test_what_is_not_pending_is_refused():
    a_plan = plan()
    state, _ = driven(a_plan, lambda ids: ids[0], lambda shown: "" if shown.kind == "answer" else "x")
    again = a_plan.reader.reopen(a_plan, state)
    assert len(list(pending(a_plan, again))) == 3
    for id in ("answer", "question-4/answer", "question-0/answer", "question-x/answer"):
        with pytest.raises(ValueError, match="not pending"):
            advance(a_plan, again, id, Completion(text="x"))


def test_budgets_too_small_for_so_many_questions_are_refused_with_the_sum():
    budgets = Budgets(question=12, chunk=200, memory=100, answer=8)

    def asked(questions, profile=PROFILE, **changes):
        return list_of(questions, profile, replace(budgets, **changes), WordTokenizer())

    assert asked(["why?", "how?"]) == "Answer these.\n1. why?\n2. how?"
    with pytest.raises(ConfigError, match=r"3 questions together have 14 tokens \(3 \+ 3 \+ 3 and wording\), .* is 12"):
        asked(QUESTIONS)
    with pytest.raises(ConfigError, match="memory of 60 tokens is too small for 2 sections of at least 32 tokens = 64"):
        asked(["why?", "how?"], memory=60)
    with pytest.raises(ConfigError, match="at least 2 questions"):
        asked(["why?"])
    with pytest.raises(ConfigError, match="question 2 is empty"):
        asked(["why?", " "])
    with pytest.raises(ConfigError, match="template 'together' is empty"):
        asked(["why?", "how?"], profile=test_reading.PROFILE)


TEXT = "The code for amber-falcon is 4821973. " + "Nothing else happened. " * 60 + "The captain is Ann."
OPTIONS = {"chunk_tokens": 300, "memory_tokens": 100, "together": True}


def script(shown):
    facts = [fact for fact in ("The code for amber-falcon is 4821973.", "The captain is Ann.") if fact in shown.user]
    if shown.kind == "answer":
        asked = shown.user.partition("<question>")[2].partition("</question>")[0]
        return "4821973" if "code" in asked else "Ann" if "captain" in asked else ""
    return "\n".join(facts) or "nothing"


def dying():
    """The script, interrupted in its fourth turn."""
    calls = iter(range(1000))

    def reply(shown):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return script(shown)

    return reply


def opened(reply=script):
    return OpenModel(engine=ScriptedModel(reply))


def test_read_many_gives_a_result_for_each_question_and_counts_the_cost_once(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        questions = ["What is the code?", "Who is the captain?", "What else?"]
        code, captain, other = memagent.read_many(
            memagent.from_text(TEXT), questions, model=opened(), journal=journal, **OPTIONS
        )
        assert (code.answer, captain.answer) == ("4821973", "Ann")
        assert "amber-falcon" in code.quotes[0].cited_text
        assert "captain" in captain.quotes[0].cited_text
        assert isinstance(other.cause, ModelReplyError)
        assert code.id == captain.id == other.id
        assert (captain.usage.calls, other.usage.calls) == (0, 0)
        assert code.usage.calls == code.turns == journal.show(code.id).turns
        assert [one.question for one in (code, captain, other)] == questions


def test_a_reading_of_several_questions_is_resumed_for_all_of_them(tmp_path):
    document = memagent.from_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        questions = ["What is the code?", "Who is the captain?"]
        with pytest.raises(KeyboardInterrupt):
            memagent.read_many(document, questions, model=opened(dying()), journal=journal, **OPTIONS)
        [record] = journal.list()
        assert record.turns == 3
        engine = opened()
        results = memagent.resume_many(record.id, document, journal=journal, model=engine)
        assert [one.answer for one in results] == ["4821973", "Ann"]
        asked = [turn for turn in engine.engine.turns if turn.kind != "verify"]
        assert len(asked) == results[0].turns - 3
        assert [(one.turns_resumed, one.turns > 0) for one in results] == [
            (3, True),
            (0, False),
        ]  # counted once, as turns are
        with pytest.raises(JournalError, match="answers 2 questions: resume it with resume_many"):
            memagent.resume(record.id, document, journal=journal, model=opened())


def test_a_question_with_an_address_in_it_is_resumed_as_it_was_asked(tmp_path):
    questions = ["What is at https://example.org/x?code=SAVE10 and what is the code?", "Who is the captain?"]
    document = memagent.from_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        with pytest.raises(KeyboardInterrupt):
            memagent.read_many(document, questions, model=opened(dying()), journal=journal, **OPTIONS)
        results = memagent.resume_many(journal.list()[0].id, document, journal=journal, model=opened())
        assert [one.answer for one in results] == ["4821973", "Ann"]


def test_the_end_of_a_reading_for_several_questions_is_that_of_the_document():
    options = {**OPTIONS, "reader": "gated", "reader_options": {"exit": True}, "profile": "default"}
    with pytest.raises(ConfigError, match="leave out --exit"):
        memagent.read_many(memagent.from_text(TEXT), ["the code?", "the captain?"], model=opened(), **options)
