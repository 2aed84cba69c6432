"""The laws that every registered reader keeps, whoever drives it and wherever it is stopped."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent import from_text
from memagent.core import (
    Budgets,
    Completion,
    Sampling,
    Span,
    advance,
    cut,
    make_reader,
    pending,
    plan_reading,
    split,
    start,
    turn,
)
from memagent.core.budgets import template_tokens
from memagent.core.readers import READERS
from memagent.core.readers.chunkwise import memory_tokens
from memagent.core.reading import MISTAKE_TOKENS
from memagent.core.spans import merged
from memagent.driver import TurnRecord, aread, read, read_batch, run
from memagent.entries import turn_entry
from memagent.errors import ConfigError, ContextTooLongError, ModelUnavailableError, TooLongError
from memagent.journal import Journal
from memagent.models.scripted import ScriptedModel
from memagent.ranking import bm25
from memagent.result import Ledger
from memagent.session import restore
from tests.core.test_reading import PROFILE
from tests.helpers import WordTokenizer
from tests.rounds import RoundsReader

NAMES = sorted([*READERS, "rounds"])
DOCUMENT = " ".join(f"word{n}." if n % 9 == 8 else f"word{n}" for n in range(400))
EXCERPTS = ("direct", "truncate", "retrieve")


WORDING = replace(
    PROFILE,
    gated="Q {question} M {memory} C {chunk} or {nothing}{exit}",
    exit=" or {enough}",
    round="Q {question} M {memory} C {chunk} notes or {nothing}",
    merge="Q {question} M {memory} N {notes}",
    query="Q {question} M {memory} query or {enough}",
    judge="Q {question} M {memory} asked {asked} or {enough}",
    recall="Q {question} M {memory} R {recalled} C {chunk} or {wanted}",
    structured="{question} as {schema}",
    invalid=" wrong: {mistake}",
)


# Every template that shows the question shows it again at its end.
TWICE = replace(
    WORDING,
    **{
        field.name: f"{wording} {{question}}"
        for field in fields(WORDING)
        if "{question}" in str(wording := getattr(WORDING, field.name))
    },
)


def plan(name, question="where is word7?", budgets=None, form=None, profile=WORDING, **options):
    """A reading of a document of 400 tokens; `direct` reads one that fits."""
    text = DOCUMENT if name != "direct" else DOCUMENT[:400]
    room = {"passages": 2} if name == "retrieve" else {}
    return plan_reading(
        from_text(text),
        question,
        reader=RoundsReader() if name == "rounds" else make_reader(name, {**room, **options}),
        tokenizer=WordTokenizer(),
        profile=profile,
        budgets=budgets or Budgets(question=8, chunk=30 if name == "parallel" else 80, memory=12, answer=8),
        sampling=Sampling(temperature=1.0, seed=4),
        ranker=bm25,
        form=form,
    )


def variants():
    for name in NAMES:
        yield pytest.param(name, {}, id=name)
        if name == "gated":
            yield pytest.param(name, {"exit": True}, id="gated-exit")
        if name in EXCERPTS:
            yield pytest.param(name, {"through_memory": True}, id=f"{name}-through-memory")


every_reader = pytest.mark.parametrize(("name", "options"), list(variants()))


def think(turn):
    """A reply that is a pure function of the turn: sometimes empty, too long, or a prompt that does not fit."""
    digest = hashlib.sha256(f"{turn.id}{turn.user}{turn.sampling.seed}".encode()).digest()
    if turn.kind == "update" and sum(map(len, turn.spans)) > 300:
        return ContextTooLongError("too long")
    if turn.kind == "merge" and turn.user.count("\n") > 3:
        return ContextTooLongError("too many notes")
    if digest[0] % 5 == 0:
        return Completion(text="")
    if digest[0] % 5 == 1 and turn.kind != "answer":
        return Completion(text="Nothing new." if digest[2] % 3 else "enough")
    if digest[0] % 5 == 2 and turn.kind == "update":
        return Completion(text=f"{digest.hex()[:4]}\nrecall: {digest.hex()[4:6]}")
    return Completion(text=" ".join(digest.hex()[2 * n : 2 * n + 6] for n in range(1 + digest[1] % 15)))


def driven(a_plan, choose, state=None, stop=None):
    """Turns answered in the order that `choose` decides, one at a time: (state, records)."""
    state, records, splits = state or start(a_plan), [], []
    while ids := list(pending(a_plan, state)):
        if stop is not None and len(records) == stop:
            break
        assert len(set(ids)) == len(ids)
        shown = turn(a_plan, state, choose(ids))
        result = think(shown)
        if isinstance(result, ContextTooLongError):
            state = split(a_plan, state, shown.id)
            splits.append(shown.id)
            continue
        number, state = state.turns, advance(a_plan, state, shown.id, result)
        records.append(
            TurnRecord(
                number=number, id=shown.id, kind=shown.kind, spans=shown.spans, completion=result, state=state,
                snapshot=state.settled, splits=tuple(splits),
            )
        )  # fmt: skip
        splits = []
    return state, records


@every_reader
@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_order_of_completions_does_not_matter(name, options, seed):
    a_plan = plan(name, **options)
    expected, records = driven(a_plan, lambda ids: ids[0])
    found, others = driven(a_plan, random.Random(seed).choice)
    assert found == expected
    assert expected.finished
    assert {(one.id, one.spans, one.completion) for one in others} == {
        (one.id, one.spans, one.completion) for one in records
    }


@every_reader
def test_an_id_names_one_turn(name, options):
    _, records = driven(plan(name, **options), lambda ids: ids[-1])
    assert len({one.id for one in records}) == len(records)


@every_reader
@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_pending_turn_stays_as_it_is_until_it_is_answered(name, options, seed):
    a_plan, draw = plan(name, **options), random.Random(seed)
    state = start(a_plan)
    while ids := list(pending(a_plan, state)):
        shown = {id: turn(a_plan, state, id) for id in ids}
        chosen = draw.choice(ids)
        result = think(shown[chosen])
        if isinstance(result, ContextTooLongError):
            state = split(a_plan, state, chosen)
        else:
            state = advance(a_plan, state, chosen, result)
        for id in set(ids) - {chosen} if not state.finished else ():
            assert turn(a_plan, state, id) == shown[id]


@every_reader
def test_what_is_not_pending_is_refused(name, options):
    a_plan = plan(name, **options)
    with pytest.raises(ValueError, match="not pending"):
        advance(a_plan, start(a_plan), "nonsense", Completion(text="x"))
    finished, _ = driven(a_plan, lambda ids: ids[0])
    with pytest.raises(ValueError, match="finished"):
        advance(a_plan, finished, "answer", Completion(text="x"))


@every_reader
def test_the_spans_cover_what_was_promised(name, options):
    a_plan = plan(name, **options)
    _, records = driven(a_plan, lambda ids: ids[0])
    shown = tuple(merged(span for one in records for span in one.spans))
    promised = tuple(merged(a_plan.excerpt or (one.span for one in a_plan.chunks)))
    if name == "search" or options.get("exit"):
        assert tuple(merged([*shown, *promised])) == promised
    else:
        assert shown == promised
    if name not in (*EXCERPTS[1:], "search") and not options.get("exit"):
        [everything] = shown
        assert (everything.start, everything.end) == (0, len(a_plan.text))


@every_reader
def test_the_drivers_agree(name, options):
    expected, _ = driven(plan(name, **options), lambda ids: ids[0])

    def engine(lockstep):
        model = ScriptedModel(think)
        model.lockstep = lockstep
        return model

    assert read(plan(name, **options), engine(True)).state == expected
    assert asyncio.run(aread(plan(name, **options), engine(False))).state == expected
    several = [plan(name, **options), plan("memory"), plan(name, **options)]
    for results in (read_batch(several, engine(True)), run(several, engine(False))):
        assert [results[0].state, results[2].state] == [expected, expected]


@every_reader
@given(seed=st.integers(0, 1000), part=st.floats(0, 1))
@settings(max_examples=10, deadline=None)
def test_a_reading_stopped_after_any_turns_and_resumed_from_the_journal_ends_the_same(name, options, seed, part):
    a_plan = plan(name, **options)
    expected, records = driven(a_plan, random.Random(seed).choice)
    stop = round(part * len(records))
    with TemporaryDirectory() as folder, Journal.open(Path(folder) / "journal.sqlite3") as journal:
        id = journal.start(question="?", settings={}, document={}, plan_digest=a_plan.digest())
        _, before = driven(a_plan, random.Random(seed).choice, stop=stop)
        journal.append_many((id, turn_entry(one)) for one in before)
        restored = restore(journal, id, a_plan)
        assert restored.ledger.turns == len(before)
        state, after = driven(a_plan, random.Random(seed + 1).choice, restored.state)
        journal.append_many((id, turn_entry(one)) for one in after)  # no turn is asked twice
        assert replace(state, turns=0) == replace(expected, turns=0)
        assert {one.id for one in (*before, *after)} == {one.id for one in records}
        assert restore(journal, id, a_plan).state.answer == expected.answer or not expected.answer


@every_reader
def test_an_empty_answer_is_asked_again_under_a_new_id(name, options):
    a_plan = plan(name, **options)

    def silent(shown):
        return "" if shown.kind == "answer" else "noted"

    ended = read(a_plan, ScriptedModel(silent))
    assert ended.state.answer == ""
    if name != "rounds":  # which only exists here, and may ask as it likes
        again = a_plan.reader.reopen(a_plan, ended.state)
        [id] = pending(a_plan, again)
        assert id not in {one.id for one in ended.records}
        assert advance(a_plan, again, id, Completion(text="here")).answer == "here"


class Shouted:
    """An answer in capital letters, of which a model is told what is wrong at length."""

    name, schema = "shouted", "CAPITALS"

    def read(self, reply):
        if not reply.isupper():
            raise ValueError("no capitals " * 200)
        return reply.strip(" .")


@every_reader
@pytest.mark.parametrize("replies", [["YES."], ["yes", "YES."], ["yes", "no", "YES."], ["", "yes"], ["not found"]])
def test_an_answer_without_its_form_is_asked_for_once_more(name, options, replies):
    if name == "rounds":  # which only exists here, and has no form
        return
    a_plan, left = plan(name, form=Shouted(), **options), iter(replies)
    engine = ScriptedModel(lambda shown: next(left) if shown.kind == "answer" else "noted")
    ended = read(a_plan, engine).state
    asked = [shown for shown in engine.turns if shown.kind == "answer"]
    fine = replies in (["YES."], ["yes", "YES."], ["not found"])
    assert (ended.answer, ended.outcome) == ((replies[-1].strip("."), "answered") if fine else ("", "invalid"))
    assert len(asked) == (1 if replies in (["YES."], ["not found"]) else 2)
    assert "wrong" not in asked[0].user
    assert "as CAPITALS" in asked[0].user
    if replies[0] == "yes":
        assert asked[1].user.endswith(" wrong: " + ("no capitals " * (MISTAKE_TOKENS // 2)).strip())
    assert type(ended).from_json(ended.to_json()) == ended


def test_the_form_of_the_answer_is_part_of_the_plan():
    assert plan("memory").digest() == plan("memory", form=None).digest() != plan("memory", form=Shouted()).digest()


def test_a_server_has_as_many_turns_of_a_reading_under_way_as_it_has_use_for():
    a_plan, most, flying = plan("rounds"), [], 0

    class Slow(ScriptedModel):
        async def agenerate(self, turn):
            nonlocal flying
            flying += 1
            most.append(flying)
            await asyncio.sleep(0.001)
            flying -= 1
            return Completion(text="x")

    engine = Slow([])
    engine.concurrency = 3
    asyncio.run(aread(a_plan, engine))
    assert max(most) == 3


def test_turns_that_ended_beside_one_that_failed_are_not_lost():
    def failing(shown):
        return ModelUnavailableError("gone") if shown.spans and shown.spans[0].start == 0 else Completion(text="x")

    for lockstep in (True, False):
        engine, heard = ScriptedModel(failing), []
        engine.lockstep = lockstep
        [result] = run([plan("rounds")], engine, observer=heard.extend)
        assert isinstance(result, ModelUnavailableError)
        assert heard


@every_reader
@pytest.mark.parametrize(
    "profile", [WORDING, TWICE, replace(WORDING, query="")], ids=["usual", "question-twice", "without-queries"]
)
@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_what_is_planned_left_and_shown_are_upper_bounds_and_every_prompt_fits(name, options, profile, seed):
    """For replies as long as they may be, and a question that is as long as it may be."""
    draw = random.Random(seed)
    budgets = Budgets(question=draw.choice([8, 50]), chunk=80, memory=draw.choice([8, 30]), answer=draw.choice([8, 200]))
    question = " ".join(f"why{n}" for n in range(budgets.question))
    a_plan = plan(name, question=question, budgets=budgets, profile=profile, **options) if name != "rounds" else None
    if a_plan is None:
        return  # which only exists here, and promises nothing
    window = next(size for size in range(10_000) if fits(a_plan, size))
    tokenizer, state, prompts, left = a_plan.tokenizer, start(a_plan), [], []
    while ids := list(pending(a_plan, state)):
        shown = turn(a_plan, state, draw.choice(ids))
        left.append(a_plan.reader.left(a_plan, state))
        prompts.append(tokenizer.count(f"{shown.system} {shown.user}"))
        assert prompts[-1] + shown.max_tokens <= window
        reply = " ".join(f"w{draw.random()}" for _ in range(shown.max_tokens))
        if name == "recall":
            reply += "\nrecall: w0"
        state = advance(a_plan, state, shown.id, Completion(text=reply))
    assert all(said >= len(left) - place for place, said in enumerate(left))
    assert len(left) <= a_plan.turns
    asked = tokenizer.count(question)
    wording = template_tokens(a_plan.profile, tokenizer, 0, a_plan.reader.templates, question=asked)
    each = wording + asked + memory_tokens(a_plan)
    assert sum(prompts) <= a_plan.turns * each + a_plan.reader.shown(a_plan)


@every_reader
@pytest.mark.parametrize("form", [None, Shouted()], ids=["text", "form"])
def test_an_answer_that_is_asked_again_fits_the_least_window_that_was_accepted(name, options, form):
    if name == "rounds":  # which only exists here, and checks no window
        return
    again = replace(WORDING, retry=" Reply once more and keep within {limit} of the tokens.")
    a_plan = replace(plan(name, form=form, **options), profile=again)
    window = next(size for size in range(2000) if fits(a_plan, size))
    wrong = "" if form is None else "no"
    engine = ScriptedModel(lambda shown: wrong if shown.kind == "answer" else "w " * shown.max_tokens)
    read(a_plan.reader.prepare(a_plan, window, 0, cut), engine)
    sizes = [a_plan.tokenizer.count(one.user) + one.max_tokens for one in engine.turns if one.kind == "answer"]
    assert (len(sizes), max(sizes) <= window) == (2, True)


def fits(a_plan, window):
    try:
        a_plan.reader.prepare(a_plan, window, 0, cut)
    except (ConfigError, TooLongError):
        return False
    return True


def test_reasoning_in_a_reply_is_no_note_that_a_line_is_traced_to():
    follower = Ledger()
    spans = [(Span(start=place, end=place + 10),) for place in (0, 10)]
    thought = {"text": "<think>amber is 12, does it say so?</think>cobalt is 34"}
    follower.add(0, "note", spans[0], "noted", "", thought)
    follower.add(1, "note", spans[1], "noted", "", {"text": "amber is 12"})
    follower.add(2, "merge", (*spans[0], *spans[1]), "kept", "amber is 12", {"text": "amber is 12"})
    assert [one.spans for one in follower.origins] == [spans[1]]


@every_reader
def test_a_reading_that_ends_with_an_empty_answer_time_and_again_is_resumed_every_time(name, options, tmp_path):
    a_plan = plan(name, **options)
    if name == "rounds":  # which only exists here, and may ask as it likes
        return

    def silent(shown):
        return "" if shown.kind == "answer" else f"noted {shown.id}"

    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        id = journal.start(question="?", settings={}, document={}, plan_digest=a_plan.digest())
        for _ in range(3):
            state = restore(journal, id, a_plan).state
            ended = read(a_plan, ScriptedModel(silent), state=state)
            journal.append_many((id, turn_entry(one)) for one in ended.records)
        assert restore(journal, id, a_plan).state.answer is None


def test_splits_are_stored_by_name_so_that_a_journal_does_not_grow_with_their_number_squared():
    def small(shown):
        too_long = shown.kind == "note" and sum(map(len, shown.spans)) > 150
        return ContextTooLongError("too long") if too_long else f"noted {shown.id}"

    a_plan = plan("parallel")
    ended = read(a_plan, ScriptedModel(small))
    stored = [turn_entry(one) for one in ended.records]
    assert sum(len(one.splits) for one in stored) >= len(a_plan.chunks)
    assert sum(one.state is not None for one in stored) <= 4  # the ends of the rounds and the answer
