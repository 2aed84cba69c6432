"""The small trainer and verl's engine: the same advantages, and the same loss and gradient on the same rows."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memagent.training.credit import CreditedRow, Trajectory, advantages, credits, expand, weigh
from memagent.training.policy import Policy
from memagent.training.rl_config import RlConfig
from memagent.training.update import Learner, Updater
from tests.cluster.learner import free_port, make_learner, one_step
from tests.training.tiny import conversation

LENGTHS = [(40, 12), (33, 7), (50, 20), (21, 5), (44, 9), (60, 1)]


def _rows(seed: int, aggregate: Any = "token") -> list[CreditedRow]:
    rng = random.Random(seed)
    parts = [Trajectory((conversation(rng, *lengths),), rng.random()) for lengths in LENGTHS]
    return weigh(expand(parts, credits(parts)), aggregate)


def _ours(config: RlConfig, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Steps of the small trainer, and what it was given: the log-probabilities that were "sampled", and the reference's."""
    start = Path(config.start)
    policy = Policy(start, config.policy, reference=True)
    updater = Updater(Learner(policy, config.algorithm.objective), config.update, start / "failed.pt")
    torch.manual_seed(1)
    steps = []
    for seed in seeds:
        rows = _rows(seed, config.algorithm.aggregate)
        old = [value + 0.3 * torch.randn_like(value) for value in updater.recompute(rows)]
        trained = policy.causal
        policy.causal = policy._reference
        reference = updater.recompute(rows)
        policy.causal = trained
        done = updater.step(rows, 1e-2, old)
        steps.append({"old": old, "reference": reference, "loss": done.loss, "norm": done.grad_norm})
    return steps


@pytest.mark.parametrize(("kind", "packed"), [("qwen2", True), ("qwen2", False), ("lfm2", False)])
@pytest.mark.parametrize("budget", [150, 4000])
@pytest.mark.parametrize("aggregate", ["token", "sequence"])
def test_two_steps_have_the_same_loss_and_gradient(
    experiment: Callable[..., RlConfig], kind: str, packed: bool, budget: int, aggregate: str
) -> None:
    changes = (f"algorithm.aggregate={aggregate}", "algorithm.entropy=0.01", "algorithm.dual_clip=1.5")
    config = experiment(kind, *changes)
    seeds = (1, 2)
    expected = _ours(config, seeds)
    learner = make_learner(config, budget, packed=packed)
    for seed, step in zip(seeds, expected, strict=True):
        rows = _rows(seed, config.algorithm.aggregate)
        loss, norm = one_step(learner, rows, step["old"], step["reference"], 1e-2, len(rows))
        assert loss == pytest.approx(step["loss"], rel=1e-4, abs=1e-6)
        assert norm == pytest.approx(step["norm"], rel=1e-4)
    assert expected[0]["loss"] != pytest.approx(expected[1]["loss"], rel=1e-2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("parts", "apart"), [(4, 0.0), (5, 1e-7)])
def test_the_advantages_are_the_same(seed: int, parts: int, apart: float) -> None:
    """To the last bit where float32 holds the rewards (0, 1 and quarters); verl's are of that type."""
    from tensordict import TensorDict
    from verl import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    rng = random.Random(seed)
    keys, rewards, lengths, groups = [], [], [], []
    expected = []
    for group in range(3):
        scores = [rng.randint(0, parts) / parts for _ in range(8)]
        for member, (score, value) in enumerate(zip(scores, advantages(scores), strict=True)):
            for turn in range(rng.randint(1, 4)):
                keys.append(f"{group}_{member}_{turn}")
                rewards.append(score)
                lengths.append(rng.randint(1, 6))
                groups.append(str(group))
                expected.append(value)
    order = rng.sample(range(len(keys)), len(keys))  # as rows come, not as readings went
    mask_NT = torch.zeros(len(keys), 6)
    score_NT = torch.zeros(len(keys), 6)
    for place, row in enumerate(order):
        mask_NT[place, : lengths[row]] = 1
        score_NT[place, lengths[row] - 1] = rewards[row]
    data = DataProto(
        batch=TensorDict({"response_mask": mask_NT, "token_level_rewards": score_NT}, batch_size=len(keys)),
        non_tensor_batch={"uid": np.array([groups[row] for row in order], dtype=object)},
    )
    result = compute_advantage_for_multi_trajectories(
        data, [keys[row] for row in order], "grpo", norm_adv_by_std_in_grpo=False
    )
    for place, row in enumerate(order):
        found_T, wanted_T = result.batch["advantages"][place], mask_NT[place] * torch.tensor(expected[row])
        assert torch.allclose(found_T, wanted_T, rtol=0, atol=apart)


def test_two_learners_have_the_loss_and_gradient_of_one(experiment: Callable[..., RlConfig], tmp_path: Path) -> None:
    config = experiment("qwen2", "algorithm.entropy=0.01")
    expected = _ours(config, (1,))[0]
    given = {
        "config": config.model_dump(mode="json"),
        "old": [value.tolist() for value in expected["old"]],
        "reference": [value.tolist() for value in expected["reference"]],
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    shared = os.environ | {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.test_equality", str(tmp_path / "given.json")],
            env=shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err[-2000:]
        found = json.loads(out.splitlines()[-1])
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4, abs=1e-6)
        assert found["norm"] == pytest.approx(expected["norm"], rel=1e-4)


def _rank(given: dict[str, Any]) -> dict[str, float]:
    """One of two learners: every second row is its own."""
    config = RlConfig.model_validate(given["config"])
    learner = make_learner(config, 150, packed=True)
    rank = int(os.environ["RANK"])
    rows = _rows(1)
    loss, norm = one_step(
        learner, rows[rank::2], given["old"][rank::2], given["reference"][rank::2], 1e-2, everywhere=len(rows)
    )
    return {"loss": loss, "norm": norm}


if __name__ == "__main__":
    from memagent.cluster.environment import prepare

    prepare("cpu")
    print(json.dumps(_rank(json.loads(Path(sys.argv[1]).read_text()))))
