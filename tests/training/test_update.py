"""An optimizer step: the same for every budget of a micro-batch, in the right direction, none at all if it fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memagent.core import Sampling
from memagent.errors import TrainingError
from memagent.models.sampler import Row, sample
from memagent.training.config import PolicyConfig
from memagent.training.credit import Conversation, CreditedRow, merge, weigh
from memagent.training.loss import Objective
from memagent.training.policy import Policy
from memagent.training.rl_config import UpdateConfig
from memagent.training.update import Learner, Step, Updater, micro_batches
from tests.training.tiny import as_batch, credited, make_folder

LENGTHS = ((9, 3), (21, 7), (6, 1), (40, 12), (33, 2), (9, 3), (11, 5))
FULL = Objective(dual_clip=3.0, kl=0.05, entropy=0.01)


pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_folder(tmp_path_factory.mktemp(kind), kind) for kind in ("lfm2", "llama")}


@pytest.fixture
def folder(folders: dict[str, Path]) -> Path:
    return folders["llama"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def opened(
    folder: Path, objective: Objective = FULL, failures: Path = Path("unused"), **config: Any
) -> tuple[Policy, Updater]:
    policy = Policy(folder, PolicyConfig(device="cpu"), reference=objective.kl > 0)
    return policy, Updater(Learner(policy, objective), UpdateConfig(**{"rate": 1e-3, **config}), failures)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.state().items()}


def gradient_of_step(
    folder: Path, rows: Sequence[CreditedRow], old: Sequence[torch.Tensor] | None, batch_tokens: int
) -> tuple[Step, torch.Tensor]:
    """A step of plain gradient descent, so that the change of the weights is the gradient; nothing is clipped."""
    policy, updater = opened(folder, batch_tokens=batch_tokens, clip=1e9)
    updater.optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)  # type: ignore[assignment]
    with torch.no_grad():
        for value in policy.parameters():
            value.mul_(1.02)  # away from the reference, so that the penalty has a gradient
    before = torch.cat([value.detach().flatten().clone() for value in policy.parameters()])
    step = updater.step(rows, 1.0, old)
    after = torch.cat([value.detach().flatten() for value in policy.parameters()])
    return step, before - after


@pytest.mark.parametrize("kind", ["lfm2", "llama"])
def test_loss_and_gradient_of_a_step_do_not_depend_on_the_size_of_micro_batches(
    kind: str, folders: dict[str, Path]
) -> None:
    rows = credited(LENGTHS)
    old = opened(folders[kind])[1].recompute(rows)
    whole, gradient = gradient_of_step(folders[kind], rows, old, 100_000)
    assert gradient.norm() > 0.01
    for batch_tokens in (64, 100, 160):
        assert len(micro_batches(rows, batch_tokens, 0)) > 1
        step, other = gradient_of_step(folders[kind], rows, old, batch_tokens)
        assert step.loss == pytest.approx(whole.loss, abs=1e-5)
        assert step.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)
        torch.testing.assert_close(other, gradient, atol=1e-5, rtol=1e-5)
        assert step.statistics.tokens == whole.statistics.tokens == sum(reply for _, reply in LENGTHS)
        assert step.statistics.mean() == pytest.approx(whole.statistics.mean(), abs=1e-5)


class Two:
    """Two processes that are one: what each of them is given is computed here."""

    processes = 2

    def __init__(self, learner: Learner) -> None:
        self.learner, self.shares = learner, list[Any]()

    def each(self, do: Any, shares: Sequence[Any]) -> list[Any]:
        self.shares.append(shares)
        return [do(self.learner, share) for share in shares]

    def gather(self, count: int) -> None:
        assert count == len(self.shares[-1]) - 1


def test_rows_that_would_be_one_micro_batch_are_work_for_every_process(folder: Path) -> None:
    rows, policy = credited(LENGTHS), opened(folder)[0]
    learner = Learner(policy, FULL)
    two: Any = Two(learner)
    updater = Updater(learner, UpdateConfig(rate=1e-3, batch_tokens=100_000), Path("unused"), two)
    known = updater.recompute(rows)
    torch.testing.assert_close(known, opened(folder)[1].recompute(rows))
    step = updater.step(rows, 1e-3, known)
    assert step.loss == pytest.approx(opened(folder)[1].step(rows, 1e-3, known).loss, abs=1e-5)
    assert len(two.shares) == 2
    for shares in two.shares:
        tokens = [sum(micro.batch.tokens for micro in share) for share in shares]
        assert len(tokens) == 2
        assert max(tokens) < 2 * min(tokens)
        assert sum(len(micro.rows) for share in shares for micro in share) == len(rows)


def test_the_order_of_rows_does_not_change_a_step(folder: Path) -> None:
    rows = credited(LENGTHS)
    _, gradient = gradient_of_step(folder, rows, None, 100)
    _, other = gradient_of_step(folder, rows[::-1], None, 100)
    torch.testing.assert_close(other, gradient, atol=1e-5, rtol=1e-5)


def test_merged_rows_give_the_step_of_the_rows_they_stand_for(folder: Path) -> None:
    rows = credited([(9, 3), (21, 7)])
    again = [replace(rows[0], up=0.0, down=-0.3), replace(rows[0], up=0.2, down=0.0), *rows]
    expanded, merged = weigh(again), weigh(merge(again))
    assert [row.count for row in merged] == [3, 1]
    step, gradient = gradient_of_step(folder, expanded, None, 1000)
    merged_step, merged_gradient = gradient_of_step(folder, merged, None, 1000)
    assert merged_step.loss == pytest.approx(step.loss, abs=1e-5)
    torch.testing.assert_close(merged_gradient, gradient, atol=1e-5, rtol=1e-5)
    assert merged_step.statistics.tokens == step.statistics.tokens
    assert merged_step.tokens < step.tokens


def test_micro_batches_keep_every_row_once_within_the_budget() -> None:
    rows = credited(LENGTHS)
    made = micro_batches(rows, 100, 0)
    assert sorted(id(row) for members, _ in made for row in members) == sorted(map(id, rows))
    for members, batch in made:
        assert batch.tokens <= 100 or len(members) == 1
        for row, ids, kinds in zip(members, batch.ids, batch.kind, strict=True):
            whole = [*row.conversation.prompt, *row.conversation.reply]
            assert ids == whole + [0] * (len(ids) - len(whole))
            assert sum(kind >= 0 for kind in kinds) == len(row.conversation.reply)


def logprob_of(policy: Policy, one: Conversation) -> float:
    with torch.no_grad():
        return float(policy.score(as_batch([one]))[0].sum())


@pytest.mark.parametrize("kind", ["lfm2", "llama"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_step_makes_a_reply_likelier_if_its_advantage_is_positive_else_less_likely(
    advantage: float, kind: str, folders: dict[str, Path]
) -> None:
    policy, updater = opened(folders[kind], Objective())
    rows = credited([(12, 6)], advantages=[advantage])
    before = logprob_of(policy, rows[0].conversation)
    updater.step(rows, 1e-3, updater.recompute(rows))
    change = logprob_of(policy, rows[0].conversation) - before
    assert change * advantage > 0.01


def test_good_replies_gain_on_bad_ones_in_the_same_step(folder: Path) -> None:
    policy, updater = opened(folder, Objective())
    rows = credited([(12, 6), (12, 6)], advantages=[0.5, -0.5])
    before = [logprob_of(policy, row.conversation) for row in rows]
    updater.step(rows, 1e-3, updater.recompute(rows))
    good, bad = (logprob_of(policy, row.conversation) - value for row, value in zip(rows, before, strict=True))
    assert good > 0 > bad


def test_recomputed_log_probabilities_are_the_policys_own_in_the_order_of_the_rows(folder: Path) -> None:
    policy, updater = opened(folder, batch_tokens=64)
    rows = credited(LENGTHS)
    for row, found in zip(rows, updater.recompute(rows), strict=True):
        assert len(found) == len(row.conversation.reply)
        assert not found.requires_grad
        assert float(found.sum()) == pytest.approx(logprob_of(policy, row.conversation), abs=1e-3)


def test_the_first_step_has_ratio_one_with_recomputed_log_probabilities(folder: Path) -> None:
    _, updater = opened(folder, Objective())
    rows = credited(LENGTHS)
    statistics = updater.step(rows, 1e-3, updater.recompute(rows)).statistics.mean()
    assert statistics["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert statistics["clip_high"] == statistics["clip_low"] == 0


def test_the_second_step_on_the_same_rows_has_another_ratio(folder: Path) -> None:
    _, updater = opened(folder, Objective())
    rows = credited(LENGTHS, advantages=[1.0])
    old = updater.recompute(rows)
    updater.step(rows, 1e-3, old)
    assert updater.step(rows, 1e-3, old).statistics.mean()["ratio"] > 1.001


def sampled(policy: Policy) -> list[CreditedRow]:
    """Replies drawn from the policy, as the sampler recorded them."""
    lengths = [(20, 1), (20, 1), (31, 1), (7, 1)]
    rows = [
        Row(prompt=row.conversation.prompt, max_tokens=8, sampling=Sampling(temperature=1.0, seed=number))
        for number, row in enumerate(credited(lengths))
    ]
    sample(policy.causal, rows, stop_ids=frozenset({3}), pad_id=0)
    found = [Conversation(tuple(row.prompt), tuple(row.ids), tuple(row.logprobs)) for row in rows]
    return weigh([CreditedRow(one, up=1.0, down=0.0) for one in found])


@pytest.mark.parametrize("kind", ["lfm2", "llama"])
def test_the_first_steps_ratio_is_one_for_what_the_sampler_recorded_in_float32(kind: str, folders: dict[str, Path]) -> None:
    policy, updater = opened(folders[kind], Objective())
    rows = sampled(policy)
    for row, found in zip(rows, updater.recompute(rows), strict=True):
        ratio = torch.exp(found - torch.tensor(row.conversation.logprobs))
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-4, rtol=0)
    assert updater.step(rows, 1e-3).statistics.mean()["ratio"] == pytest.approx(1.0, abs=1e-4)


def test_the_penalty_is_nothing_where_training_begins_and_grows_as_it_goes_on(folder: Path) -> None:
    _, updater = opened(folder, Objective(kl=0.1))
    rows = credited(LENGTHS)
    first = updater.step(rows, 1e-2, updater.recompute(rows)).statistics.mean()["kl"]
    second = updater.step(rows, 1e-2, updater.recompute(rows)).statistics.mean()["kl"]
    assert first == pytest.approx(0.0, abs=1e-6)
    assert second > 1e-3


def test_a_penalty_alone_pulls_the_policy_back_to_where_it_began(folder: Path) -> None:
    policy, updater = opened(folder, Objective(kl=1.0), weight_decay=0.0)
    with torch.no_grad():
        for value in policy.parameters():
            value.add_(0.02 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
    rows = credited(LENGTHS, advantages=[0.0])
    found = [updater.step(rows, 3e-4, updater.recompute(rows)).statistics.mean()["kl"] for _ in range(12)]
    assert found[-1] < 0.5 * found[0]


def test_the_rate_rises_over_the_warm_up_and_then_stays() -> None:
    config = UpdateConfig(rate=0.5, warmup=4)
    assert [config.rate_at(batch) for batch in range(7)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])
    assert UpdateConfig(rate=0.5).rate_at(0) == 0.5


def test_a_step_moves_the_weights_in_proportion_to_the_rate(folder: Path) -> None:
    moved = []
    for rate in (1e-4, 2e-4):
        policy, updater = opened(folder, Objective(), weight_decay=0.0)
        before, rows = weights(policy), credited(LENGTHS)
        updater.step(rows, rate, updater.recompute(rows))
        moved.append(max(float((value - before[name]).abs().max()) for name, value in policy.state().items()))
    assert moved[0] == pytest.approx(1e-4, rel=0.01)  # Adam's first step is the rate
    assert moved[1] == pytest.approx(2e-4, rel=0.01)


def test_gradients_do_not_pile_up_from_step_to_step(folder: Path) -> None:
    policy, updater = opened(folder, Objective())
    rows = credited(LENGTHS)
    old = updater.recompute(rows)
    norms = [updater.step(rows, 1e-12, old).grad_norm for _ in range(3)]
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-3)
    assert all(value.grad is None for value in policy.parameters())


def test_the_norm_is_reported_as_it_was_before_clipping(folder: Path) -> None:
    rows = credited(LENGTHS)
    free, held = (opened(folder, Objective(), clip=clip)[1].step(rows, 1e-3) for clip in (1e9, 1e-3))
    assert free.grad_norm == pytest.approx(held.grad_norm, rel=1e-5)
    assert free.grad_norm > 1e-3


def broken(rows: Sequence[CreditedRow], value: float) -> list[CreditedRow]:
    """The rows, of which the shortest, which is computed last, has a log-probability that cannot be."""
    middle = min(range(len(rows)), key=lambda place: len(rows[place].conversation.prompt))
    one = rows[middle].conversation
    bad = replace(rows[middle], conversation=replace(one, logprobs=(value,) * len(one.reply)), up=1.0, down=0.0)
    return [*rows[:middle], bad, *rows[middle + 1 :]]


def fails(folder: Path, failures: Path, rows: Sequence[CreditedRow], message: str, **config: Any) -> None:
    policy, updater = opened(folder, Objective(), failures, **config)
    before, optimizer = weights(policy), updater.optimizer.state_dict()
    with pytest.raises(TrainingError, match=message) as failure:
        updater.step(rows, 1e-3)
    assert str(failures) in str(failure.value)
    assert "update.rate" in str(failure.value)
    assert all(torch.equal(value, before[name]) for name, value in policy.state().items())
    assert updater.optimizer.state_dict() == optimizer
    saved = torch.load(failures, weights_only=True)
    assert [row["prompt"] for row in saved["rows"]] == [list(row.conversation.prompt) for row in rows]
    assert [row["reply"] for row in saved["rows"]] == [list(row.conversation.reply) for row in rows]
    assert [row["up"] for row in saved["rows"]] == [row.up for row in rows]
    assert [row["down"] for row in saved["rows"]] == [row.down for row in rows]
    recorded = [tuple(map(str, row["logprobs"])) for row in saved["rows"]]
    assert recorded == [tuple(map(str, row.conversation.logprobs)) for row in rows]
    assert saved["parameters"].keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in saved["parameters"].items())


@pytest.mark.parametrize("batch_tokens", [64, 10_000])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_batch(
    batch_tokens: int, folder: Path, tmp_path: Path
) -> None:
    rows = broken(credited(LENGTHS), math.nan)
    fails(folder, tmp_path / "run" / "failed.pt", rows, "the loss is", batch_tokens=batch_tokens)


def test_a_gradient_that_explodes_stops_the_run_and_keeps_the_batch(folder: Path, tmp_path: Path) -> None:
    fails(folder, tmp_path / "failed.pt", credited(LENGTHS), "update.explode", explode=1e-6)


def test_a_gradient_that_is_no_number_stops_the_run_and_keeps_the_batch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(policy: Policy, *arguments: Any, **options: Any) -> Any:
        logprob, entropy = score(policy, *arguments, **options)
        # The value stays, the gradient is 0 / 0: as at a place where a model takes the root of nothing.
        return logprob + 0 * (logprob - logprob).abs().sqrt(), entropy

    score = Policy.score
    monkeypatch.setattr(Policy, "score", poisoned)
    fails(folder, tmp_path / "failed.pt", credited(LENGTHS), "norm is nan")


def test_after_a_failure_the_policy_is_out_of_training_mode(folder: Path, tmp_path: Path) -> None:
    policy = Policy(folder, PolicyConfig(device="cpu", checkpointing=True))
    updater = Updater(Learner(policy, Objective()), UpdateConfig(), tmp_path / "failed.pt")
    with pytest.raises(TrainingError):
        updater.step(broken(credited(LENGTHS), math.nan), 1e-3)
    assert not policy.causal.training


def test_a_failed_step_leaves_no_gradient_behind(folder: Path, tmp_path: Path) -> None:
    policy, updater = opened(folder, Objective(), tmp_path / "failed.pt", batch_tokens=64)
    with pytest.raises(TrainingError):
        updater.step(broken(credited(LENGTHS), math.nan), 1e-3)
    assert all(value.grad is None for value in policy.parameters())


def test_a_failure_is_reported_even_if_the_batch_cannot_be_saved(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    _, updater = opened(folder, Objective(), tmp_path / "failed.pt")
    with pytest.raises(TrainingError, match="the loss is nan"):
        updater.step(broken(credited(LENGTHS), math.nan), 1e-3)
