"""What each reader shows, and that all of them are plans of one protocol."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memagent.driver import read
from memagent.errors import ConfigError, TooLongError
from memagent.evaluation.bm25 import ranked
from memagent.evaluation.readers import Comparison, fits, head_and_tail, prepare, retrieved
from memagent.models.open import Defaults, OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.settings import make_settings
from memagent.tasks.rope import Rope
from tests.helpers import WordTokenizer

FACT = "The code for amber-falcon is 4821973."
LINES = [f"Line {number} tells of the sea and of nothing else in particular." for number in range(300)]
TEXT = Rope(["\n".join([*LINES[:150], FACT, *LINES[150:]])])
QUESTION = "What is the code for amber-falcon?"


def opened(script=lambda turn: "noted", window=1000):
    return OpenModel(engine=ScriptedModel(script, window=window, tokenizer=WordTokenizer()), defaults=Defaults())


def settings(model, **options):
    values = {"profile": "default", "question_tokens": 20, "chunk_tokens": 100, "memory_tokens": 60, "answer_tokens": 20}
    return make_settings(model, model="scripted", **{**values, **options})


def reading(reader, script=lambda turn: "noted", comparison=None, text=TEXT, **options):
    model = opened(script)
    prepared = prepare(reader, text, QUESTION, settings(model, **options), model, comparison or Comparison())
    return prepared, read(prepared.plan, model.engine), model.engine.turns


def test_truncate_shows_head_and_tail_and_asks_once():
    prepared, _, turns = reading("truncate")
    [turn] = turns
    assert LINES[0] in turn.user
    assert LINES[-1] in turn.user
    assert FACT not in turn.user
    assert next(span.start for span in prepared.shown) == 0
    assert prepared.shown[-1].end == len(TEXT)


def test_retrieve_shows_what_matches_the_question():
    prepared, _, turns = reading("retrieve", comparison=Comparison(passages=4))
    [turn] = turns
    assert FACT in turn.user
    assert any(FACT in TEXT.read(span.start, span.end) for span in prepared.shown)
    assert [span.start for span in prepared.shown] == sorted(span.start for span in prepared.shown)


@pytest.mark.parametrize("reader", ["truncate", "retrieve"])
@pytest.mark.parametrize("direct", [True, False])
def test_excerpts_are_no_longer_than_what_a_memory_turn_shows(reader, direct):
    prepared, _, _ = reading(reader, comparison=Comparison(direct=direct, passages=2))
    room = 160 if direct else 100
    count = WordTokenizer().count(prepared.plan.text.read(0, len(prepared.plan.text)))
    assert room * 0.6 < count <= room
    assert prepared.plan.turns == (1 if direct else 2)


@pytest.mark.parametrize("reader", ["truncate", "retrieve"])
def test_a_short_document_is_shown_whole(reader):
    short = Rope([FACT + " Nothing else."])
    prepared, _, turns = reading(reader, text=short, comparison=Comparison(passages=4))
    assert str(short) in turns[0].user
    assert sum(map(len, prepared.shown)) == len(short)


def test_a_document_that_fits_is_shown_to_the_letter():
    short = Rope([" " + "\n".join(LINES[:7]) + "\n\n"])
    for reader in ("truncate", "retrieve", "whole"):
        for direct in (True, False):
            prepared, _, _ = reading(reader, text=short, comparison=Comparison(direct=direct, passages=2))
            assert str(prepared.plan.text) == str(short)


@given(st.integers(0, 299))
def test_a_retrieved_fact_is_never_cut(place):
    fact = "The code for amber-falcon, which everybody had forgotten long ago, is 4821973."
    text = Rope(["\n".join([*LINES[:place], fact, *LINES[place:]])])
    spans = retrieved(text, QUESTION, WordTokenizer(), 160, 4)
    assert any(fact in text.read(span.start, span.end) for span in spans)
    assert all(one.end < other.start for one, other in pairwise(spans))
    assert WordTokenizer().count("\n[…]\n".join(text.read(span.start, span.end).strip() for span in spans)) <= 160


def test_what_is_shown_stands_as_in_the_document():
    text = Rope(["\n".join(LINES) + "\n" + FACT + " "])
    for reader in ("truncate", "retrieve"):
        prepared, _, _ = reading(reader, text=text, comparison=Comparison(passages=2))
        assert str(prepared.plan.text).endswith(f"\n{FACT} ")  # to the last space


def test_whole_is_refused_where_it_does_not_fit():
    model = opened()
    for comparison in (Comparison(), Comparison(direct=False)):
        with pytest.raises(TooLongError, match="does not fit"):
            prepare("whole", TEXT, QUESTION, settings(model), model, comparison)
    short = Rope([" ".join(LINES[:8])])
    for comparison in (Comparison(), Comparison(direct=False)):
        _, _, turns = reading("whole", comparison=comparison, text=short)
        assert str(short) in turns[0].user


def test_refine_appends_and_forgets_the_oldest_lines():
    numbers = iter(range(10_000))
    _, transcript, turns = reading("refine", script=lambda turn: f"note {next(numbers)} of one and another kind")
    memories = [record.memory for record in transcript.records if record.kind == "update"]
    assert memories[1].startswith(memories[0])
    assert memories[2].startswith(memories[1])
    assert "note 0" not in memories[-1]
    assert memories[-1].splitlines()[-1].startswith(f"note {len(memories) - 1}")
    assert all(WordTokenizer().count(memory) <= 60 for memory in memories)
    assert transcript.records[-2].outcome == "fitted"
    assert memories[2] in turns[3].user


@pytest.mark.parametrize("rules", ["careful", "paper"])
def test_refine_keeps_its_notes_when_a_reply_is_empty(rules):
    replies = iter(["note one", "note two"])
    _, transcript, _ = reading(
        "refine", script=lambda turn: next(replies, "" if turn.kind == "update" else "x"), rules=rules
    )
    assert transcript.memory == "note one\nnote two"


def test_refine_does_not_repeat_a_line():
    _, transcript, _ = reading("refine", script=lambda turn: "the same note")
    assert transcript.memory == "the same note"


def test_refine_shows_an_empty_memory_where_the_profile_has_no_words_for_notes():
    _, _, turns = reading("refine", script=lambda turn: "something noted", profile="compact")
    assert all("Memory: nothing yet" in turn.user for turn in turns[:-1])
    assert "something noted" in turns[-1].user


def test_memory_reads_every_character():
    prepared, _, turns = reading("memory")
    assert prepared.shown is None
    sections = [re.search(r"<section>\n(.*)\n</section>", turn.user, re.S) for turn in turns[:-1]]
    assert "".join(match.group(1) for match in sections if match) == str(TEXT)


@given(st.integers(40, 400), st.integers(1, 300))
def test_head_and_tail_do_not_overlap_and_fit(room, lines):
    text = Rope(["\n".join(LINES[:lines])])
    assume(not fits(text, WordTokenizer(), room))
    spans = head_and_tail(text, WordTokenizer(), room)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    if len(spans) == 2:
        assert spans[0].end <= spans[1].start
        shown = sum(WordTokenizer().count(text.read(span.start, span.end).strip()) for span in spans)
        assert room * 0.5 < shown <= room


def test_ties_and_unknown_words_are_settled_by_place():
    passages = ["the sea", "the sky", "a gull", "an egg"]
    assert ranked(passages, "zebra") == [0, 1, 2, 3]
    assert ranked(passages, "gull") == [2, 0, 1, 3]
    assert ranked(passages, "") == [0, 1, 2, 3]
    assert ranked(["the", "of", "and"], "the") == [0, 1, 2]
    assert ranked(["大海很平静", "天空很蓝", "密码是四八二", "下雨了"], "密码是什么?")[0] == 2


def test_too_many_passages_for_the_window_are_refused():
    with pytest.raises(ConfigError, match="20 passages do not fit 100 tokens"):
        retrieved(TEXT, QUESTION, WordTokenizer(), 100, 20)
    with pytest.raises(ConfigError, match="at least 1"):
        Comparison(passages=0)
