"""Rewards become advantages, advantages become rows, and equal rows become one without changing the loss."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from memagent.training.credit import (
    Aggregate,
    Conversation,
    CreditedRow,
    Trajectory,
    advantages,
    credits,
    expand,
    has_signal,
    merge,
    parts,
    turns_have_signal,
    weigh,
)
from memagent.training.loss import Objective, Statistics, Weights, policy_loss


def talk(prompt: int, reply: int, token: int = 5) -> Conversation:
    return Conversation((token,) * prompt, (token,) * reply, (-0.5,) * reply)


def reading(conversations: int, reward: float) -> Trajectory:
    return Trajectory(tuple(talk(number + 1, 2) for number in range(conversations)), reward)


def test_an_advantage_is_the_reward_minus_the_mean_of_its_group() -> None:
    # (1 + 0 + 0.5 + 0.5) / 4 = 0.5
    assert advantages([1.0, 0.0, 0.5, 0.5]) == [0.5, -0.5, 0.0, 0.0]


def test_an_advantage_is_divided_by_the_standard_deviation_of_its_group_if_asked_for() -> None:
    # mean 0.75; deviations 0.25 three times and -0.75; variance (3 * 0.0625 + 0.5625) / 4 = 0.1875
    deviation = math.sqrt(0.1875)
    expected = [0.25 / deviation, 0.25 / deviation, 0.25 / deviation, -0.75 / deviation]
    assert advantages([1.0, 1.0, 1.0, 0.0], "std") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_equal_rewards_give_no_advantage_even_when_divided_by_their_deviation(reward: float) -> None:
    assert advantages([reward] * 3, "std") == pytest.approx([0.0] * 3, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=16))
def test_the_advantages_of_a_group_add_up_to_nothing_and_keep_the_order_of_its_rewards(rewards: list[float]) -> None:
    values = advantages(rewards)
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-9)
    first = values[0], rewards[0]
    assert [value - first[0] for value in values] == pytest.approx([reward - first[1] for reward in rewards], abs=1e-9)


def test_a_reading_with_more_conversations_does_not_weigh_more_in_the_mean_of_its_group() -> None:
    group = [reading(9, 1.0), reading(1, 0.0)]
    rows = expand(group, credits(group))
    # Over rows the mean reward would be 0.9, and the advantages 0.1 and -0.9.
    assert [row.up for row in rows] == [0.5] * 9 + [0.0]
    assert [row.down for row in rows] == [0.0] * 9 + [-0.5]


def test_every_conversation_of_a_reading_gets_its_advantage_in_order() -> None:
    group = [reading(3, 1.0), reading(2, 0.0)]
    rows = expand(group, credits(group))
    assert [row.conversation for row in rows] == [*group[0].conversations, *group[1].conversations]
    assert all(row.count == 1 for row in rows)


def test_final_credit_trains_on_the_answers_alone() -> None:
    group = [reading(3, 1.0), reading(2, 0.0)]
    rows = expand(group, credits(group), "final")
    assert [row.conversation for row in rows] == [group[0].conversations[-1], group[1].conversations[-1]]
    assert [(row.up, row.down) for row in rows] == [(0.5, 0.0), (0.0, -0.5)]


def test_there_must_be_an_advantage_for_every_reading() -> None:
    with pytest.raises(ValueError, match="zip"):
        expand([reading(1, 1.0), reading(1, 0.0)], [[0.5]])
    with pytest.raises(ValueError, match="zip"):
        expand([reading(2, 1.0)], [[0.5]])


def judged(reward: float, *turns: float) -> Trajectory:
    return replace(reading(len(turns), reward), turns=turns)


def test_turns_that_are_judged_get_their_share_beside_the_readings() -> None:
    # Rewards 1 and 0: A = +-0.5. Turn 0: 0.25, 0.0, mean 0.125. Turn 1: 0.0 and 0.125, mean 0.0625. Turn 2: one reading.
    group = [judged(1.0, 0.25, 0.0, 0.0), judged(0.0, 0.0, 0.125)]
    assert credits(group, turns=0.5) == [[0.375, 0.1875, 0.25], [-0.375, -0.1875]]
    assert credits([reading(3, 1.0), reading(2, 0.0)]) == [[0.5] * 3, [-0.5] * 2]


@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), min_size=2, max_size=6), st.floats(0, 1))
def test_the_credit_of_each_turn_adds_up_to_that_of_the_readings_that_have_it(
    turns: list[list[float]], share: float
) -> None:
    group = [judged(float(number % 2), *one) for number, one in enumerate(turns)]
    found, outcome = credits(group, turns=share), credits([replace(one, turns=()) for one in group])
    for number in range(max(map(len, turns))):
        have = [place for place, one in enumerate(turns) if number < len(one)]
        expected = (1 - share) * math.fsum(outcome[place][number] for place in have)
        assert math.fsum(found[place][number] for place in have) == pytest.approx(expected, abs=1e-9)


def test_a_group_of_equal_answers_has_a_signal_if_a_turn_differs() -> None:
    assert turns_have_signal([judged(0.0, 0.2, 0.0), judged(0.0, 0.2, 0.1)])
    assert not turns_have_signal([judged(0.0, 0.2, 0.0), judged(1.0, 0.2)])
    assert not turns_have_signal([reading(2, 0.0), reading(2, 1.0)])


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([0.0, 0.0], False), ([1.0, 1.0, 1.0], False), ([0.0, 1.0], True), ([0.5, 0.5, 0.25], True), ([1.0], False)],
)
def test_a_group_has_a_signal_if_its_rewards_differ(rewards: list[float], expected: bool) -> None:
    assert has_signal(rewards) is expected


def test_rewards_that_differ_by_rounding_alone_are_no_signal() -> None:
    assert not has_signal([0.1 + 0.2, 0.3])


def test_in_a_token_mean_every_token_of_the_update_has_the_same_share() -> None:
    # 2 tokens, and 5 tokens in 3 equal conversations: 1 / (2 + 15)
    rows = [CreditedRow(talk(1, 2), 1.0, 0.0), CreditedRow(talk(1, 5), 1.0, 0.0, count=3)]
    assert [row.share for row in weigh(rows)] == pytest.approx([1 / 17, 1 / 17])


def test_in_a_sequence_mean_every_conversation_has_the_same_share() -> None:
    # 4 conversations: 1/4 each, spread over its 2 or 5 tokens
    rows = [CreditedRow(talk(1, 2), 1.0, 0.0), CreditedRow(talk(1, 5), 1.0, 0.0, count=3)]
    assert [row.share for row in weigh(rows, "sequence")] == pytest.approx([1 / 8, 1 / 20])


@pytest.mark.parametrize("aggregate", ["token", "sequence"])
def test_the_shares_of_all_tokens_add_up_to_one(aggregate: Aggregate) -> None:
    rows = [CreditedRow(talk(1, size), 1.0, 0.0, count=size % 3 + 1) for size in range(1, 9)]
    total = sum(row.count * len(row.conversation.reply) * row.share for row in weigh(rows, aggregate))
    assert total == pytest.approx(1.0)


def test_nothing_to_weigh_is_nothing() -> None:
    assert weigh([]) == []


def test_equal_conversations_become_one_row_and_others_stay_apart() -> None:
    one, longer, other = talk(1, 2), talk(1, 3), talk(1, 2, token=6)
    rows = [
        CreditedRow(one, 0.5, 0.0),
        CreditedRow(longer, 0.5, 0.0),
        CreditedRow(one, 0.0, -0.25),
        CreditedRow(other, 0.0, -0.25),
        CreditedRow(one, 0.5, 0.0),
    ]
    assert merge(rows) == [
        CreditedRow(one, 1.0, -0.25, count=3),
        CreditedRow(longer, 0.5, 0.0),
        CreditedRow(other, 0.0, -0.25),
    ]


def test_a_prompt_and_its_reply_are_not_confused_with_another_cut_of_the_same_tokens() -> None:
    rows = [CreditedRow(talk(1, 3), 0.5, 0.0), CreditedRow(talk(2, 2), 0.5, 0.0)]
    assert merge(rows) == rows


def evaluated(
    rows: Sequence[CreditedRow], objective: Objective, seed: int
) -> tuple[float, dict[tuple[int, ...], list[float]], Statistics]:
    """The loss of rows, its gradient by reply with those of equal replies added up, and the statistics.

    What a model would say of a reply is drawn from the reply itself, so that equal conversations are scored alike.
    """
    width = max(len(row.conversation.reply) for row in rows)

    def table(name: str, low: float, high: float) -> Tensor:
        values = torch.zeros(len(rows), width, dtype=torch.float64)
        for place, row in enumerate(rows):
            rng = random.Random(f"{seed}{name}{row.conversation.reply}")
            for step in range(len(row.conversation.reply)):
                values[place, step] = rng.uniform(low, high)
        return values

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)[:, None]

    old = table("old", -3.0, -0.1)
    logprob = (old + table("new", -1.5, 1.5)).requires_grad_()
    entropy = table("entropy", 0.0, 3.0).requires_grad_()
    lengths = torch.tensor([len(row.conversation.reply) for row in rows])
    weights = Weights(
        mask_NR=torch.arange(width) < lengths[:, None],
        up_N1=column([row.up for row in rows]),
        down_N1=column([row.down for row in rows]),
        count_N1=column([float(row.count) for row in rows]),
        share_N1=column([row.share for row in rows]),
    )
    reference = old + table("reference", -1.0, 1.0) if objective.kl else None
    statistics = Statistics()
    loss = policy_loss(objective, weights, logprob, old, entropy, reference, statistics)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprob.grad is not None
    gradients: dict[tuple[int, ...], list[float]] = {}
    for row, by_logprob in zip(rows, logprob.grad.tolist(), strict=True):
        known = gradients.setdefault(row.conversation.reply, [0.0] * width)
        gradients[row.conversation.reply] = [a + b for a, b in zip(known, by_logprob, strict=True)]
    return loss.item(), gradients, statistics


@given(
    chosen=st.lists(st.tuples(st.integers(0, 4), st.floats(-1, 1)), min_size=1, max_size=20),
    objective=st.builds(
        Objective,
        clip_low=st.sampled_from([0.1, 0.2, 0.9]),
        clip_high=st.sampled_from([0.1, 0.28, 2.0]),
        dual_clip=st.sampled_from([0.0, 1.5, 3.0]),
        kl=st.sampled_from([0.0, 1e-3, 0.5]),
        entropy=st.sampled_from([0.0, 0.01, 1.0]),
    ),
    aggregate=st.sampled_from(["token", "sequence"]),
    seed=st.integers(0, 1000),
)
def test_merged_rows_have_the_loss_and_the_gradient_of_the_rows_they_stand_for(
    chosen: list[tuple[int, float]], objective: Objective, aggregate: Aggregate, seed: int
) -> None:
    talks = [talk(2, size + 1, token=7 + size) for size in range(5)]
    rows = [CreditedRow(talks[which], up=max(value, 0.0), down=min(value, 0.0)) for which, value in chosen]
    loss, gradients, statistics = evaluated(weigh(rows, aggregate), objective, seed)
    merged = weigh(merge(rows), aggregate)
    assert len(merged) == len({which for which, _ in chosen})
    merged_loss, merged_gradients, merged_statistics = evaluated(merged, objective, seed)
    assert merged_loss == pytest.approx(loss, abs=1e-6)
    assert merged_gradients.keys() == gradients.keys()
    for reply, values in gradients.items():
        assert merged_gradients[reply][: len(reply)] == pytest.approx(values[: len(reply)], abs=1e-6)
    assert merged_statistics.tokens == statistics.tokens
    for name in ("ratio", "kl", "entropy"):
        assert merged_statistics.mean()[name] == pytest.approx(statistics.mean()[name], abs=1e-5)


def test_merged_rows_have_the_share_of_clipped_tokens_of_the_rows_they_stand_for() -> None:
    rows = [CreditedRow(talk(2, 60), up=1.0, down=0.0), CreditedRow(talk(2, 60), up=0.0, down=-1.0)]
    _, _, statistics = evaluated(weigh(rows), Objective(), 0)
    _, _, merged = evaluated(weigh(merge(rows)), Objective(), 0)
    assert merged.mean() == pytest.approx(statistics.mean())


@given(st.integers(0, 60), st.integers(1, 12))
def test_parts_are_contiguous_disjoint_cover_everything_and_have_like_sizes(count: int, number: int) -> None:
    made = parts([reading(1, 0.0)] * count, number)
    assert [place for start, end in made for place in range(start, end)] == list(range(count))
    sizes = [end - start for start, end in made]
    assert len(made) == min(number, count)
    assert not sizes or (min(sizes) >= 1 and max(sizes) - min(sizes) <= 1)


def test_parts_are_counted_in_readings_however_many_conversations_they_have() -> None:
    assert parts([reading(50, 0.0), reading(1, 0.0), reading(1, 0.0), reading(1, 0.0)], 2) == [(0, 2), (2, 4)]


@pytest.mark.parametrize(("reply", "logprobs"), [((), ()), ((4, 5), (-1.0,)), ((4,), (-1.0, -1.0))])
def test_a_conversation_has_a_log_probability_for_every_token_of_its_reply(
    reply: tuple[int, ...], logprobs: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="log-probabilities"):
        Conversation((4,), reply, logprobs)
