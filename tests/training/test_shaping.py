"""Rewards besides the answer's score, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from memagent import from_text
from memagent.core import Budgets, make_reader, plan_reading
from memagent.driver import read
from memagent.models.scripted import ScriptedModel
from memagent.tasks.samples import Fact, Sample
from memagent.training.rl_config import AlgorithmConfig
from memagent.training.shaping import SHAPINGS, fewer_rounds, noted, right_skips, shaped, turn_rewards
from tests import test_laws
from tests.helpers import WordTokenizer

FACT = "amber is 12."
TEXT = " ".join(["filler"] * 30 + FACT.split() + ["filler"] * 60)
START = TEXT.index(FACT)


def sample():
    fact = Fact(text=FACT, start=START, end=START + len(FACT), key="amber", value="12", needed=True)
    return Sample(
        id="a-1", task="a", document=from_text(TEXT), question="what is amber?", answers=("12",), mode="all", facts=(fact,)
    )


def transcript(reader, script, **options):
    plan = plan_reading(
        from_text(TEXT),
        "what is amber?",
        reader=make_reader(reader, options),
        tokenizer=WordTokenizer(),
        profile=test_laws.WORDING,
        budgets=Budgets(question=8, chunk=20, memory=8, answer=8),
    )
    assert len(plan.chunks) == 5
    return read(plan, ScriptedModel(script))


def right(turn):
    if turn.kind == "answer":
        return "12"
    return FACT if FACT in turn.user.partition(" C ")[2] else "nothing new"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        (right, 1.0),
        (lambda turn: "nothing new" if turn.kind == "update" else "12", 2 * 4 / 5 - 1),
        (lambda turn: "noted", 2 * 1 / 5 - 1),
    ],
)
def test_a_gate_is_right_where_it_skips_chunks_without_a_needed_fact(script, value):
    assert right_skips(transcript("gated", script), sample(), 1.0, 1) == pytest.approx(value)


def test_fewer_rounds_count_only_for_right_answers():
    two = transcript("parallel", right)  # the second round brings nothing new
    assert fewer_rounds(two, sample(), 1.0, 3) == 0.5
    assert fewer_rounds(two, sample(), 0.5, 3) == 0.0
    one = transcript("parallel", lambda turn: "12" if turn.kind == "answer" else "nothing new")
    assert fewer_rounds(one, sample(), 1.0, 3) == 1.0
    assert fewer_rounds(one, sample(), 1.0, 1) == 0.0
    assert fewer_rounds(transcript("memory", right), sample(), 1.0, 3) == 0.0


def test_the_reward_is_the_score_and_the_weighted_sum():
    done = transcript("gated", right)
    assert shaped(done, sample(), 1.0, {}, 1) == 1.0
    assert shaped(done, sample(), 1.0, {"right_skips": 0.2}, 1) == pytest.approx(1.2)
    assert shaped(done, replace(sample(), facts=()), 0.0, {"right_skips": 0.5}, 1) == pytest.approx(0.5 * (2 * 4 / 5 - 1))
    with pytest.raises(ValidationError, match="no reward shaping 'bonus': use fewer_rounds, right_skips"):
        AlgorithmConfig(shaping={"bonus": 1.0})
    assert set(SHAPINGS) == {"fewer_rounds", "right_skips"}


def test_a_turn_is_rewarded_for_what_it_notes_and_pays_for_what_it_loses():
    def forgets(turn):
        if turn.kind == "answer":
            return "12"
        return FACT if FACT in turn.user.partition(" C ")[2] else "nothing yet"

    keeps, loses = (transcript("memory", script) for script in (right_then_kept, forgets))
    assert noted(keeps, sample()) == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert noted(loses, sample()) == [0.0, 1.0, -1.0, 0.0, 0.0, 0.0]
    assert noted(loses, replace(sample(), facts=())) == [0.0] * 6
    assert turn_rewards(loses, sample(), {"noted": 0.5}) == (0.0, 0.5, -0.5, 0.0, 0.0, 0.0)
    assert turn_rewards(loses, sample(), {}) == ()


def right_then_kept(turn):
    if turn.kind == "answer":
        return "12"
    return FACT if FACT in turn.user else "nothing yet"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"turns": {"bonus": 0.1}}, "no reward of turns 'bonus': use noted"),
        ({"turns": {"noted": 1.5}}, "shares of the credit, above 0 and at most 1 together"),
        ({"turns": {"noted": 0.0}}, "shares of the credit"),
        ({"turns": {"noted": 0.1}, "credit": "final"}, 'credit = "final" leaves them out: use "all"'),
    ],
)
def test_rewards_of_turns_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        AlgorithmConfig(**given)
