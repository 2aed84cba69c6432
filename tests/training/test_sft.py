"""The trainer: it learns, it survives being killed, it stops when the loss is not a number."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from memagent.errors import ConfigError, MemagentError, TrainingError
from memagent.tasks.words import shipped_words
from memagent.training import sft
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import SftConfig
from memagent.training.metrics import Tally
from memagent.training.model import load_model, new_model
from memagent.training.policy import Policy
from memagent.training.rows import Batch
from memagent.training.run import Launch
from memagent.training.sft import Trainer, batch_loss, run, validate


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def start(config: SftConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_model(config, tmp_path_factory.mktemp("new") / "start")


@pytest.fixture(scope="module")
def whole(config: SftConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(config, Launch(folder))
    return folder


def test_the_loss_falls(whole: Path) -> None:
    losses = [line["train"]["loss"] for line in lines(whole) if "train" in line]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_validation_reports_every_mixture(whole: Path) -> None:
    reports = [line["validation"] for line in lines(whole) if "validation" in line]
    assert len(reports) == 2
    assert set(reports[0]) == {"dense", "answer", "echo", "vt", "mean"}
    assert {"loss", "value", "row"} <= set(reports[0]["dense"])


def test_killed_and_resumed_equals_never_stopped(config_file: Path, whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memagent", "train", "sft", str(config_file), "-o", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_text(encoding="utf-8").count("\n") < 10:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert lines(tmp_path) == lines(whole)


def test_a_run_resumed_between_two_lines_of_its_metrics_logs_what_it_would_have(
    config: SftConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = config.schedule.model_copy(update={"steps": 6})
    often = config.model_copy(update={"schedule": plan, "log_every": 3, "save_every": 4, "validate_every": 99})
    run(often, Launch(tmp_path / "whole"))
    step = Trainer.train_step

    def killed(trainer: Trainer, batches: list[tuple[str, Batch]]) -> Tally:
        if trainer.step == 5:
            raise KeyboardInterrupt
        return step(trainer, batches)

    monkeypatch.setattr(Trainer, "train_step", killed)
    with pytest.raises(KeyboardInterrupt):
        run(often, Launch(tmp_path / "stopped"))
    monkeypatch.undo()
    run(often, Launch(tmp_path / "stopped", resume=True))
    assert lines(tmp_path / "stopped") == lines(tmp_path / "whole")


def test_a_loss_that_is_not_a_number_stops_the_run(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config, start)
    with torch.no_grad():
        trainer.policy.causal.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match="is nan at step 0"):
        trainer.train_step(trainer.make_step(0))


@pytest.mark.parametrize("rank", [0, 4], ids=["weights", "adapters"])
def test_two_processes_learn_what_one_does(config: SftConfig, start: Path, rank: int) -> None:
    found = []
    lora = config.policy.lora.model_copy(update={"rank": rank})
    for processes in (1, 2):
        changes = {
            "schedule": config.schedule.model_copy(update={"batches": 3}),
            "policy": config.policy.model_copy(update={"lora": lora}),
            "processes": processes,
        }
        trainer = Trainer(config.model_copy(update=changes), start)
        tallies = [trainer.train_step(trainer.make_step(step)) for step in range(3)]
        trainer.helpers.close()
        found.append(([tally.summary() for tally in tallies], trainer.policy.state(), trainer.tokens))
    (one, weights, tokens), (two, others, as_many) = found
    assert [summary["loss"] for summary in one] == pytest.approx([summary["loss"] for summary in two], rel=1e-3)
    assert tokens == as_many
    assert all(torch.allclose(weights[name], others[name], atol=1e-4) for name in weights)


def test_what_is_validated_and_saved_is_the_average(
    config: SftConfig, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, seen = Trainer(config, start), []
    for step in range(3):
        trainer.train_step(trainer.make_step(step))
    now = {name: value.clone() for name, value in trainer.policy.state().items()}
    with trainer.average.in_place():
        kept = {name: value.clone() for name, value in trainer.policy.state().items()}
    assert any(not torch.equal(kept[name], now[name]) for name in now)

    def loss(policy: Policy, batch: Batch) -> tuple[torch.Tensor, Tally]:
        seen.append({name: value.clone() for name, value in policy.state().items()})
        return batch_loss(policy, batch)

    monkeypatch.setattr(sft, "batch_loss", loss)
    validate(trainer)
    torch.testing.assert_close(seen, [kept] * len(seen))
    trainer.save(tmp_path / "model")
    saved = dict(load_model(tmp_path / "model").named_parameters())
    torch.testing.assert_close({name: saved[name].data for name in kept}, kept)
    torch.testing.assert_close(trainer.policy.state(), now)


def test_a_token_counts_the_same_in_every_batch_if_the_loss_is_divided_by_a_fixed_number(
    config: SftConfig, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def norm(reply_tokens: int) -> tuple[float, int]:
        schedule = config.schedule.model_copy(update={"reply_tokens": reply_tokens, "clip": 1e9})
        trainer, norms = Trainer(config.model_copy(update={"schedule": schedule}), start), []
        monkeypatch.setattr(trainer.optimizer, "step", lambda rate: norms.append(gradient(trainer)))
        [batch] = trainer.make_step(0)[:1]
        tally = trainer.train_step([batch])
        return norms[0], sum(tally.total)

    def gradient(trainer: Trainer) -> float:
        return sum(float((one.grad**2).sum()) for one in trainer.policy.parameters() if one.grad is not None) ** 0.5

    (mean, tokens), (fixed, _) = norm(0), norm(7)
    assert tokens > 7
    assert fixed == pytest.approx(mean * tokens / 7, rel=1e-4)


def test_a_checkpoint_of_another_model_is_refused(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config, start)
    state = trainer.state()
    state["parameters"] = {"wrong": torch.zeros(1)}
    with pytest.raises(TrainingError, match="does not fit"):
        trainer.restore(state)


def test_scores_of_other_books_do_not_count(config: SftConfig, tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.txt"
    held_out.write_text(config.validation_books[0].read_text(encoding="utf-8"), encoding="utf-8")
    plan = config.schedule.model_copy(update={"steps": 4})
    mine = config.model_copy(update={"validation_books": [held_out], "validate_every": 1, "schedule": plan})
    first = run(mine, Launch(tmp_path / "run", stop_after=1))
    first.best = 2.0
    Checkpoints(tmp_path / "run").save(1, first.save, {**first.state(), "scored": first.scored}, best=True)
    assert run(mine, Launch(tmp_path / "run", resume=True, stop_after=2)).best == 2.0
    held_out.write_text("Another book. It says something else, and it says it twice.\n" * 200, encoding="utf-8")
    assert 0 <= run(mine, Launch(tmp_path / "run", resume=True, stop_after=3)).best <= 1


def test_the_data_of_a_step_does_not_depend_on_the_past(config: SftConfig, start: Path) -> None:
    one, other = Trainer(config, start), Trainer(config, start)
    assert one.make_step(7) == other.make_step(7)
    assert one.make_step(7) != other.make_step(8)


def test_a_run_that_could_not_begin_leaves_nothing_that_counts(config: SftConfig, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(MemagentError, match="nowhere"):
        run(config.model_copy(update={"books": [Path("nowhere")], "seed": 99}), Launch(tmp_path))
    run(config, Launch(tmp_path, stop_after=1))
    assert lines(tmp_path)[0] == lines(whole)[0]


def test_words_made_of_pieces_are_for_training_alone(config: SftConfig, start: Path) -> None:
    trainer = Trainer(config.model_copy(update={"subword_words": 0.5}), start)
    words = trainer.make_step.opened().materials.words
    for listed, drawn in zip(astuple(shipped_words("train")), astuple(words), strict=True):
        assert len(drawn) == 2 * len(listed)
    assert trainer.held_out.materials.words == shipped_words("eval")


def test_rows_that_the_model_to_go_on_from_cannot_hold_begin_no_run(config: SftConfig, whole: Path, tmp_path: Path) -> None:
    first, *others = config.mixture
    longer = [first.model_copy(update={"tokens": (120, 999)}), *others]
    again = config.model_copy(update={"start": str(whole / "last"), "model": None, "tokenizer": None, "mixture": longer})
    with pytest.raises(ConfigError, match="mixture 'dense' has rows of 999 tokens, and the window is 320"):
        run(again, Launch(tmp_path / "run"))
    [reading] = config.reading
    chunks = {"reading": [reading.model_copy(update={"chunk": (60, 310)})], "mixture": config.mixture}
    with pytest.raises(ConfigError, match=r"has chunks, with their wording, of 3\d\d tokens, and the window is 320"):
        run(again.model_copy(update=chunks), Launch(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("slower", "said"), [(76.4, True), (1.1, False)])
def test_a_run_says_that_the_processor_has_no_bfloat16(
    config: SftConfig, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower: float, said: bool
) -> None:
    monkeypatch.setattr("memagent.training.run.slower_in_bf16", lambda policy: slower)
    screen = Console(file=io.StringIO(), width=200)
    run(config, Launch(tmp_path / "run", stop_after=1, console=screen))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    expected = "this processor takes 76 times as long for bfloat16 as for float32: set policy.bf16=false"
    assert (expected in shown) is said
    assert ("bfloat16" in shown) is said


def test_a_run_goes_on_from_any_model_folder(config: SftConfig, whole: Path, tmp_path: Path) -> None:
    further = config.model_copy(update={"model": None, "tokenizer": None, "start": str((whole / "best").resolve())})
    run(further, Launch(tmp_path, stop_after=2))
    losses = [line["train"]["loss"] for line in lines(tmp_path) if "train" in line]
    first = next(line["train"]["loss"] for line in lines(whole) if "train" in line)
    assert losses[0] < 0.9 * first
    assert (tmp_path / "best" / "memagent.toml").read_text() == (whole / "best" / "memagent.toml").read_text()


def test_of_scores_that_are_equal_the_lower_loss_is_better(config: SftConfig, start: Path, monkeypatch) -> None:
    trainer, log = Trainer(config, start), type("Log", (), {"metrics": lambda *_: None})()
    found = iter([(0.0, 8.3), (0.0, 8.2), (0.0, 8.25), (0.5, 9.0), (0.5, 9.0)])

    def scores(_: Trainer) -> dict[str, dict[str, float]]:
        row, loss = next(found)
        return {"a": {"row": row, "loss": loss - 0.1}, "b": {"row": row, "loss": loss + 0.1}, "mean": {"row": row}}

    monkeypatch.setattr(sft, "validate", scores)
    assert [sft._validated(trainer, log) for _ in range(5)] == [True, True, False, True, False]
    assert (trainer.best, trainer.best_loss) == (0.5, 9.0)
    again = Trainer(config, start)
    again.restore(trainer.state())
    assert (again.best, again.best_loss) == (0.5, 9.0)
