"""Slabs of few shapes give the gradient and the counts of the batches that they are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memagent.errors import ConfigError, TrainingError
from memagent.training.config import SftConfig
from memagent.training.graphs import slabs
from memagent.training.model import new_model
from memagent.training.rows import make_batch, make_row
from memagent.training.run import Launch
from memagent.training.sft import Trainer, run


@pytest.fixture(scope="module")
def start(config: SftConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_model(config, tmp_path_factory.mktemp("new") / "start")


@pytest.mark.parametrize("reply_tokens", [0, 100])
def test_the_gradient_is_that_of_the_batches(config: SftConfig, start: Path, reply_tokens: int) -> None:
    found = []
    for graphs in (0, 600):
        plan = config.schedule.model_copy(update={"batches": 5, "reply_tokens": reply_tokens})
        trainer = Trainer(config.model_copy(update={"schedule": plan, "graphs": graphs}), start)
        batches = trainer.make_step(3)
        part = trainer.worker.backward([(name, batch, 1 / len(batches)) for name, batch in batches])
        found.append((part.tally, [value.grad for value in trainer.policy.parameters()]))
    (tally, gradients), (graphed, others) = found
    assert graphed.loss == pytest.approx(tally.loss, rel=1e-5)
    assert (graphed.right, graphed.total, graphed.rows, graphed.rows_right) == (
        tally.right,
        tally.total,
        tally.rows,
        tally.rows_right,
    )
    for gradient, other in zip(gradients, others, strict=True):
        assert gradient is not None
        assert torch.allclose(gradient, other, atol=1e-6)
    assert sum(float(gradient.abs().sum()) for gradient in gradients if gradient is not None) > 0


def test_rows_of_unlike_length_make_slabs_of_few_shapes_and_none_is_lost(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config, start)
    batches = [(batch, 1.0) for step in range(12) for _, batch in trainer.make_step(step)]
    made = list(slabs(batches, 600))
    assert len({(slab.ids.shape, slab.kind.shape) for slab in made}) <= 3
    assert sum(slab.rows for slab in made) == sum(len(batch.ids) for batch, _ in batches)
    assert all(slab.ids.size <= 600 or len(slab.ids) == 1 for slab in made)
    assert all(slab.rows == len(slab.ids) for slab in made[:-1])  # only the last one is filled up
    widths = [slab.ids.shape[1] for slab in made]
    assert widths == sorted(widths, reverse=True)
    assert sum(float(slab.share.sum()) for slab in made) == pytest.approx(len(batches), rel=1e-5)
    assert all(not slab.share[slab.rows :].any() for slab in made)


def test_a_long_reply_is_kept_whole_beside_short_ones() -> None:
    short, long = make_row([5] * 150, [6] * 3, [3] * 3, 2), make_row([5] * 20, [7] * 250, [3] * 250, 2)
    made = list(slabs([(make_batch([long, short], 0), 1.0), (make_batch([short] * 5, 0), 1.0)], 2048))
    assert sum(slab.rows for slab in made) == 7
    assert sum(int((slab.kind >= 0).sum()) for slab in made) == 251 + 6 * 4
    assert sum(float(slab.share.sum()) for slab in made) == pytest.approx(2)


def test_a_run_with_graphs_learns_what_one_without_does(config: SftConfig, tmp_path: Path) -> None:
    plan, weights = config.schedule.model_copy(update={"steps": 5}), []
    for graphs in (0, 600):
        trainer = run(config.model_copy(update={"schedule": plan, "graphs": graphs}), Launch(tmp_path / str(graphs)))
        weights.append(trainer.policy.state())
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=2e-3), name


def test_a_loss_that_is_not_a_number_stops_a_run_with_graphs(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config.model_copy(update={"graphs": 600}), start)
    with torch.no_grad():
        trainer.policy.causal.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="is nan at step 0"):
        trainer.train_step(trainer.make_step(0))


def test_graphs_are_refused_where_they_cannot_be(config: SftConfig, start: Path) -> None:
    lora = config.policy.lora.model_copy(update={"rank": 2})
    adapted = config.model_copy(update={"graphs": 600, "policy": config.policy.model_copy(update={"lora": lora})})
    with pytest.raises(ConfigError, match="`graphs` are for models of the kind lfm2 whose weights are all trained"):
        Trainer(adapted, start)
    again = config.model_copy(update={"graphs": 600, "policy": config.policy.model_copy(update={"checkpointing": True})})
    with pytest.raises(ConfigError, match="without checkpointing"):
        Trainer(again, start)
    with pytest.raises(ValueError, match="`graphs` are for one process with a GPU"):
        SftConfig(**config.model_dump() | {"graphs": 600, "processes": 2})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="passes are recorded on a GPU only")
def test_a_recorded_pass_adds_the_same_gradient_each_time(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config.model_copy(update={"graphs": 600}), start)
    batches, found = trainer.make_step(3), []
    for _ in range(3):
        trainer.worker.backward([(name, batch, 0.5) for name, batch in batches])
        found.append(torch.cat([value.grad.flatten() for value in trainer.policy.parameters() if value.grad is not None]))
    plain = Trainer(config, start)
    plain.worker.backward([(name, batch, 0.5) for name, batch in batches])
    expected = torch.cat([value.grad.flatten() for value in plain.policy.parameters() if value.grad is not None])
    assert float(expected.abs().sum()) > 0
    assert torch.allclose(found[0], expected, atol=1e-5)
    assert torch.allclose(found[1], 2 * found[0], atol=1e-5)
    assert torch.allclose(found[2], 3 * found[0], atol=1e-5)


def test_rows_that_are_right_in_every_token_are_counted(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config.model_copy(update={"graphs": 600}), start)
    [(name, batch), _] = trainer.make_step(3)
    with torch.no_grad():
        said = iter(trainer.policy.logits(batch).argmax(-1).tolist())
    target = [[next(said) if kind >= 0 else 0 for kind in kinds] for kinds in batch.kind]
    target[0][0] += 1
    part = trainer.worker.backward([(name, replace(batch, target=target), 1.0)])
    assert (part.tally.rows, part.tally.rows_right) == (len(batch.ids), len(batch.ids) - 1)


def test_a_step_leaves_gradients_where_they_were_recorded(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config.model_copy(update={"graphs": 600}), start)
    places = [value.grad.data_ptr() for value in trainer.policy.parameters() if value.grad is not None]
    trainer.train_step(trainer.make_step(0))
    gradients = [value.grad for value in trainer.policy.parameters() if value.grad is not None]
    assert [gradient.data_ptr() for gradient in gradients] == places
    assert len(places) == len(trainer.policy.parameters())
    assert not any(gradient.any() for gradient in gradients)
