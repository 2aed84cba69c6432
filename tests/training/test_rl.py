"""The reinforcement learning trainer on the shipped model: it updates, validates, survives a kill, stops when it must."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from memagent.errors import ConfigError, TrainingError
from memagent.evaluation.report.training import read_training_runs
from memagent.evaluation.runs import Run
from memagent.models.open import model_folder, open_model, read_defaults
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Sample
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import load_config
from memagent.training.inputs import Inputs
from memagent.training.model import load_model
from memagent.training.rl import Batch, Trainer, run, summary
from memagent.training.rl_config import RlConfig
from memagent.training.run import Launch, begun
from memagent.training.validation import cell_of

TEXT = "He came home late that evening. She had gone out, and nobody said a word about it.\n\n" * 60
CONFIG = """
seed = 7
start = "embedded"
steps = 3
save_every = 1
threads = 1
books = ["{book}"]

[log]
tensorboard = false

[rollout]
prompts = 2
group = 3
resample = 1
temperature = 1.7

[algorithm]
reward = "f1"
kl = 1e-3

[update]
updates = 2
rate = 1e-4
average = 0.5

[validation]
every = 2
task = [{{name = "four", task = "niah_multiquery", tokens = [500], samples = 2}}]

[[task]]
name = "four"
task = "niah_multiquery"
tokens = [500, 700]
options = {{keys = [4, 6]}}
"""


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rl")
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    path = folder / "config.toml"
    path.write_text(CONFIG.format(book=folder / "book.txt"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    command = [sys.executable, "-m", "memagent", "train", "rl", str(config_file), "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memagent report" in done.stderr
    return folder


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_batch_says_what_was_sampled_and_learnt(whole: Path) -> None:
    trained = [line["train"] for line in lines(whole) if "train" in line]
    assert len(trained) == 3
    for one in trained:
        assert one["groups"] in (2, 4)
        assert one["groups"] == 2 * (1 + one["resampled"])
        assert one["kept"] + one["no_signal"] <= one["groups"]
        assert one["updates"] == (2 if one["kept"] else 0)
        assert 0 <= one["reward"] <= 1
        assert one["reward"] == pytest.approx(one["reward/four"])
    assert sum(one["kept"] for one in trained) > 0
    timed = [json.loads(line) for line in (whole / "timing.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {"rollout", "update"} <= set(timed[1]["seconds"])


def test_two_processes_sample_and_learn_what_one_does(config_file: Path, tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        changes = [f"processes={processes}", "rollout.prompts=5", "rollout.resample=0", "algorithm.old_logprobs=recomputed"]
        trainer = Trainer(load_config(config_file, RlConfig, changes), tmp_path / str(processes))
        batches, steps = [], []
        for _ in range(2):  # the second one is sampled with weights that the first one moved
            batches.append(trainer.sample())
            steps += trainer.learn(batches[-1])
            trainer.step += 1
        trainer.helpers.close()
        found.append((batches, steps, trainer.policy.state()))
    (one, ours, weights), (two, theirs, others) = found
    answers = [[reading.answer for reading in batch.readings] for batch in one]
    assert answers == [[reading.answer for reading in batch.readings] for batch in two]
    assert [reading.sample.id for batch in one for reading in batch.readings] == [
        reading.sample.id for batch in two for reading in batch.readings
    ]
    assert ours
    assert [step.grad_norm for step in ours] == pytest.approx([step.grad_norm for step in theirs], rel=1e-3)
    # Four steps of AdamW move a weight by up to 4e-4; where its gradient is next to nothing, rounding decides how far.
    assert all(torch.allclose(weights[name], others[name], atol=2e-5) for name in weights)


def test_a_helper_is_sent_documents_without_the_book_that_they_share(config_file: Path, tmp_path: Path) -> None:
    class Two:
        processes, sent = 2, list[Any]()

        def each(self, do: Any, shares: list[Any]) -> list[Any]:
            self.sent += [sample for share in shares for _, _, sample in share.samples]
            return [do(trainer.worker, share) for share in shares]

    trainer = Trainer(load_config(config_file, RlConfig, ["rollout.resample=0"]), tmp_path)
    drawn = trainer.curriculum.draw(0, 0, 2)
    trainer.helpers = two = Two()  # type: ignore[assignment]
    groups = trainer.sample().groups
    assert [group.readings[0].sample for group in groups] == [sample for _, sample in drawn]
    assert all(sample.document.base for _, sample in drawn)
    assert not any(sample.document.base for sample in two.sent)


@pytest.mark.parametrize(("changes", "threads"), [([], 4), (["threads=0", "processes=3"], 2), (["processes=3"], 4)])
def test_processes_share_the_cores(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str], threads: int
) -> None:
    config, chosen = load_config(config_file, RlConfig, ["threads=4", *changes]), list[int]()
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    with pytest.raises(InterruptedError), begun(config, Launch(tmp_path), 1, _interrupted):
        pass
    assert chosen == [threads]


def _interrupted() -> Trainer:
    raise InterruptedError


def mean_ratio(trainer: Trainer, batch: Batch) -> float:
    steps = trainer.learn(batch)
    assert len(steps) == 1
    return steps[0].statistics.mean()["ratio"]


def test_the_first_update_of_a_batch_is_on_policy_at_any_temperature(config_file: Path, tmp_path: Path) -> None:
    trainer = Trainer(load_config(config_file, RlConfig, ["update.updates=1"]), tmp_path)
    assert trainer.config.rollout.temperature == 1.7
    assert mean_ratio(trainer, trainer.sample()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("old", ["sampled", "recomputed"])
def test_ratios_refer_to_the_sampling_or_to_the_weights_before_the_update(
    config_file: Path, tmp_path: Path, old: str
) -> None:
    changes = ["update.updates=1", f"algorithm.old_logprobs={old}"]
    trainer = Trainer(load_config(config_file, RlConfig, changes), tmp_path)
    batch = trainer.sample()
    with torch.no_grad():
        for weight in trainer.policy.parameters():
            weight.mul_(1.03)
    assert (abs(mean_ratio(trainer, batch) - 1) < 1e-5) == (old == "recomputed")


@pytest.mark.parametrize("credit", ["all", "final"])
def test_credit_goes_to_all_conversations_or_to_the_answers(
    config_file: Path, tmp_path: Path, credit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(load_config(config_file, RlConfig, [f"algorithm.credit={credit}"]), tmp_path)
    batch, seen = trainer.sample(), []
    step = trainer.updater.step
    monkeypatch.setattr(trainer.updater, "step", lambda rows, *rest: seen.extend(rows) or step(rows, *rest))
    trainer.learn(batch)
    kept = [reading.trajectory for group in batch.kept for reading in group.readings]
    talks = {one for each in kept for one in each.conversations}
    answers = {each.conversations[-1] for each in kept}
    assert len(talks) > len(answers)
    assert {(row.conversation.prompt, row.conversation.reply) for row in seen} == {
        (one.prompt, one.reply) for one in (talks if credit == "all" else answers)
    }


def test_validation_is_before_the_first_batch_and_after_the_last_and_can_be_reported(whole: Path) -> None:
    found = [line for line in lines(whole) if "validation" in line]
    assert [line["step"] for line in found] == [0, 2, 3]
    assert found[0]["validation"]["four@500"]["n"] == 2
    records = [placed.record for placed in Run.open(whole / "validation" / "000003" / "four").records()]
    assert len(records) == 2
    assert all("split" not in record.meta or record.meta["split"] == "eval" for record in records)


def memories(config_file: Path, folder: Path, *changes: str) -> list[list[str | None]]:
    """Of every reading of a validation, after each of its turns."""
    Trainer(load_config(config_file, RlConfig, changes), folder).validate()
    records = [placed.record for placed in Run.open(folder / "validation" / "000000" / "four").records()]
    return [[turn.memory for turn in record.turns] for record in records]


def test_validation_is_greedy_or_sampled_from_the_same_streams_each_time(config_file: Path, tmp_path: Path) -> None:
    hot = "validation.temperature=3"
    greedy = memories(config_file, tmp_path / "greedy")
    one, other = (memories(config_file, tmp_path / name, hot) for name in ("one", "other"))
    assert one == other != greedy
    assert memories(config_file, tmp_path / "narrow", hot, "validation.top_p=1e-6") == greedy


def test_the_weights_moved_and_the_checkpoint_reads_documents(whole: Path) -> None:
    opened = open_model(str(whole / "last"))
    assert opened.defaults.profile == "compact"
    start = open_model("embedded")
    one, other = (dict(each.engine.model.float().named_parameters()) for each in (opened, start))  # type: ignore[attr-defined]
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_part_is_named_as_a_file_of_the_run_can_be(config_file: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file.txt").write_text("mine")
    for name in (str(precious), "..", ".", "a/b", "", "a@b", "x" * 65):
        for part in ("validation.task.0.name", "task.0.name"):
            with pytest.raises(ConfigError, match=r"name: .*pattern"):
                load_config(config_file, RlConfig, [f"{part}={name}"])
    assert (precious / "file.txt").read_text() == "mine"
    load_config(config_file, RlConfig, ["validation.task.0.name=Two.hops_4-a"])


def test_a_run_that_another_process_is_at_is_left_alone(config_file: Path, tmp_path: Path) -> None:
    config = load_config(config_file, RlConfig, ["steps=1"])
    with begun(config, Launch(tmp_path / "run"), 1, lambda: Trainer(config, tmp_path / "run")) as first:
        first.trainer.helpers.close()
        samples = (tmp_path / "run" / "validation" / "four.jsonl").read_bytes()
        other = load_config(config_file, RlConfig, ["validation.seed=77"])
        made = []
        again = begun(other, Launch(tmp_path / "run", resume=True), 1, lambda: made.append(1))
        with pytest.raises(ConfigError, match="another process"), again:
            pass
        assert not made
        assert (tmp_path / "run" / "validation" / "four.jsonl").read_bytes() == samples


def test_weights_say_how_they_were_trained_to_read_if_their_start_did_not(config_file: Path, tmp_path: Path) -> None:
    start = tmp_path / "start"
    shutil.copytree(model_folder("embedded"), start)
    (start / "memagent.toml").unlink()
    sizes = {"question": 64, "chunk": 300, "memory": 80, "answer": 60}
    given = [f"rollout.{name}_tokens={size}" for name, size in sizes.items()]
    config = load_config(config_file, RlConfig, [f"start={start}", "rollout.profile=compact", *given])
    trainer = Trainer(config, tmp_path / "run")
    trainer.policy.save(tmp_path / "weights")
    defaults = read_defaults(tmp_path / "weights")
    assert (defaults.profile, defaults.budgets.model_dump(exclude_none=True)) == ("compact", {**sizes, "reasoning": 0})
    kept = Trainer(load_config(config_file, RlConfig), tmp_path / "other")
    kept.policy.save(tmp_path / "same")
    for folder in (model_folder("embedded"), tmp_path / "same"):
        assert (folder / "memagent.toml").read_text() == (model_folder("embedded") / "memagent.toml").read_text()


def test_retention_is_not_reported_where_nothing_was_noted(config_file: Path, tmp_path: Path) -> None:
    trainer = Trainer(load_config(config_file, RlConfig), tmp_path / "run")
    batch = trainer.sample()
    assert "retention" in summary(trainer, batch, [])
    batch.groups = [
        replace(one, readings=tuple(replace(reading, memories=[]) for reading in one.readings)) for one in batch.groups
    ]
    assert "retention" not in summary(trainer, batch, [])


def test_killed_and_resumed_equals_never_stopped(config_file: Path, whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memagent", "train", "rl", str(config_file), "-o", str(tmp_path), "-q"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (tmp_path / "checkpoints" / "000001").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode != 0
    assert "--resume" in again.stderr
    resume = [*command[:5], *command[6:], "--resume"]  # without CONFIG: the run's own is used
    subprocess.run(resume, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert lines(tmp_path) == lines(whole)


def test_helpers_end_when_their_trainer_is_killed_and_the_run_goes_on(config_file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memagent", "train", "rl", str(config_file), "-o", str(tmp_path), "-q"]
    process = subprocess.Popen([*command, "--set", "processes=3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (tmp_path / "checkpoints" / "000001").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while left := [child for child in children if _runs(int(child))]:
        assert time.monotonic() < deadline, f"{left} go on without their trainer"
        time.sleep(0.1)
    done = subprocess.run([*command[:5], *command[6:], "--resume"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path)[-1]["step"] == 3


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_validated_and_saved_is_the_average(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(config_file, RlConfig, ["update.average=0.5", "update.rate=1e-3", "update.warmup=0"])
    trainer, seen = Trainer(config, tmp_path), []

    def weights(of: Trainer) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in of.policy.state().items()}

    start = weights(trainer)
    assert len(trainer.learn(trainer.sample())) == 2
    now = weights(trainer)
    with trainer.average.in_place():
        kept = weights(trainer)
    name = next(name for name in now if "conv" in name)
    assert 0 < (kept[name] - start[name]).norm() < (now[name] - start[name]).norm()
    monkeypatch.setattr(trainer.validation, "run", lambda *_: seen.append(weights(trainer)))
    trainer.validate()
    torch.testing.assert_close(seen, [kept])
    trainer.save(tmp_path / "model")
    saved = dict(load_model(tmp_path / "model").named_parameters())
    torch.testing.assert_close({each: saved[each].data for each in kept}, kept)
    torch.testing.assert_close(weights(trainer), now)
    again = Trainer(config.model_copy(update={"update": config.update.model_copy(update={"weight_decay": 0.3})}), tmp_path)
    again.restore(trainer.state())
    assert {group["weight_decay"] for group in again.updater.optimizer.param_groups} == {0.3}
    with again.average.in_place():
        torch.testing.assert_close(weights(again), kept)


def test_groups_without_signal_are_left_out_and_counted(config_file: Path, tmp_path: Path) -> None:
    changes = ["rollout.temperature=0.001", "rollout.resample=1", "validation.task=[]"]
    trainer = Trainer(load_config(config_file, RlConfig, changes), tmp_path)
    batch = trainer.sample()
    assert (len(batch.groups), len(batch.kept), batch.resampled) == (4, 0, 1)
    before = trainer.policy.state()
    before = {name: value.clone() for name, value in before.items()}
    assert trainer.learn(batch) == []
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.state().items())
    trainer.step += 1
    said = summary(trainer, batch, [])
    assert (said["kept"], said["no_signal"], said["failed"], said["updates"]) == (0, 4, 0, 0)
    assert said["surplus"] == 0
    signal = tuple(
        replace(one, trajectory=replace(one.trajectory, reward=float(number)))
        for number, one in enumerate(batch.groups[0].readings)
    )
    groups = [replace(batch.groups[0], readings=signal)] * 3
    said = summary(trainer, replace(batch, groups=groups, kept=groups[:2]), [])
    assert (said["kept"], said["surplus"]) == (2, 1)


def test_no_better_score_for_long_enough_stops_the_run(config_file: Path, tmp_path: Path) -> None:
    changes = ["validation.patience=1", "validation.every=1", "update.rate=1e-12", "steps=3", "save_every=3"]
    out = tmp_path / "run"
    trainer = run(load_config(config_file, RlConfig, changes), Launch(out))
    assert trainer.step == 1
    assert Checkpoints(out).folder("last").name == "000001", "the last batch is not lost"
    [read] = read_training_runs([out])
    assert read.finished
    console = Console(file=io.StringIO(), width=200)
    assert run(load_config(config_file, RlConfig, changes), Launch(out, resume=True, console=console)).step == 1
    assert "no better score in 1 validations: the run ends here" in console.file.getvalue()  # type: ignore[attr-defined]
    assert run(load_config(config_file, RlConfig, [*changes, "validation.patience=2"]), Launch(out, resume=True)).step == 2
    [read] = read_training_runs([out])
    assert (read.step, read.ended, read.finished) == (2, 2, True)


def test_a_run_says_that_it_validates_on_questions_that_it_trains_on(config_file: Path, tmp_path: Path) -> None:
    for name, text in (("trained", "The code is 7."), ("held-out", "Now the code is 7.")):
        line = {"id": name, "question": "Which code?", "answers": ["7"], "document": text * 9, "meta": {"split": "train"}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    task = f"task=[{{name = 'given', file = '{tmp_path / 'trained.jsonl'}'}}]"
    held_out = f"validation.task=[{{name = 'held', file = '{tmp_path / 'held-out.jsonl'}'}}]"
    console = Console(file=io.StringIO(), width=200)
    config = load_config(config_file, RlConfig, [task, held_out, "steps=1", "rollout.resample=0", "validation.every=9"])
    run(config, Launch(tmp_path / "run", console=console))
    assert "held-out.jsonl have a question and an answer" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_that_needs_the_weights_of_its_start_does_not_go_on_from_others(config_file: Path, tmp_path: Path) -> None:
    start, out = tmp_path / "start", tmp_path / "run"
    shutil.copytree(model_folder("embedded"), start)
    common = [f"start={start}", "rollout.resample=0", "validation.every=9"]
    run(load_config(config_file, RlConfig, [*common, "steps=1"]), Launch(out))
    weights = start / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-2:] = b"\x00\x3c"
    weights.write_bytes(changed)
    with pytest.raises(TrainingError, match=r"is not the one that the run began with, and its adapters"):
        run(load_config(config_file, RlConfig, [*common, "steps=2"]), Launch(out, resume=True))
    assert Checkpoints(out).folder("last").name == "000001"

    weights.rename(start / "model-00001-of-00001.safetensors")
    with pytest.raises(TrainingError, match=r"is not the one that the run began with"):
        Inputs.of(out, load_config(config_file, RlConfig, common), resumed=True).check_start(str(start))
    (start / "model-00001-of-00001.safetensors").rename(weights)
    moved = [f"start={shutil.copytree(model_folder('embedded'), tmp_path / 'moved')}", *common[1:], "steps=1"]
    assert run(load_config(config_file, RlConfig, moved), Launch(out, resume=True)).step == 1, "the same, elsewhere"

    console = Console(file=io.StringIO(), width=200)
    free = load_config(config_file, RlConfig, [*common, "steps=2", "algorithm.kl=0"])
    assert run(free, Launch(out, resume=True, console=console)).step == 2, "its own weights are in the checkpoint"
    assert f"start: {weights.name} has changed since the run read it" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_wrong_model_is_an_error_in_one_line(config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nowhere"):
        Trainer(load_config(config_file, RlConfig, ["start=nowhere"]), tmp_path)


def test_a_task_can_have_a_reader_of_its_own(config_file: Path, tmp_path: Path) -> None:
    part = 'name = "{0}", task = "niah_single_2", tokens = [500, 700]'
    both = (
        f'task=[{{{part.format("one")}}}, {{{part.format("two")}, reader = "parallel", reader_options = {{rounds = 2}}}}]'
    )
    trainer = Trainer(load_config(config_file, RlConfig, ["rollout.reader=gated", both]), tmp_path / "run")
    kinds: dict[str, set[str]] = {"one": set(), "two": set()}
    for step in range(4):
        trainer.step = step
        for reading in trainer.sample().readings:
            talks = reading.trajectory.conversations
            prompts = [trainer.policy.tokenizer.decode(one.prompt) for one in talks]
            kinds[reading.name] |= {prompt.rpartition("\n")[2] for prompt in prompts}
    assert any("New memory, or nothing new:" in line for line in kinds["one"])
    assert any("Notes, or nothing new:" in line for line in kinds["two"])
    assert not any("Notes, or nothing new:" in line for line in kinds["one"])


def test_an_unknown_reader_of_a_task_is_an_error_before_anything_is_sampled(config_file: Path, tmp_path: Path) -> None:
    task = 'task=[{name = "one", task = "niah_single_2", tokens = [500, 700], reader = "speed"}]'
    held_out = 'validation.task=[{name = "one", task = "niah_single_2", tokens = [500], samples = 1, reader = "speed"}]'
    for change in (task, held_out):
        with pytest.raises(ConfigError, match="'speed'"):
            Trainer(load_config(config_file, RlConfig, [change]), tmp_path)


def test_held_out_samples_are_read_by_the_reader_of_their_part(config_file: Path, tmp_path: Path) -> None:
    one = 'task = "niah_single_2", tokens = [500], samples = 1'
    parts = f'validation.task=[{{name = "a", {one}}}, {{name = "b", {one}, reader = "gated"}}]'
    trainer = Trainer(load_config(config_file, RlConfig, [parts]), tmp_path)
    trainer.validate()
    readers = {name: Run.open(tmp_path / "validation/000000" / name).header["reader"] for name in ("a", "b")}
    assert readers == {"a": "memory", "b": "gated"}


def test_lengths_that_nobody_asked_for_share_a_cell() -> None:
    lengths = [*((tokens, {}) for tokens in (1000, 1001, 1030, 1100)), (1000, {"target": 1000})]
    samples = [
        Sample(
            id="s", task="t", document=LazyText(["x"]), question="q", answers=("a",), mode="all", tokens=tokens, meta=meta
        )
        for tokens, meta in lengths
    ]
    assert [cell_of("d", one) for one in samples] == ["d@1024", "d@1024", "d@1024", "d@2048", "d@1000"]


def test_a_question_that_is_too_long_begins_no_run_however_late_it_would_be_drawn(
    config_file: Path, tmp_path: Path
) -> None:
    lines = [
        {"id": f"s{n}", "question": "Which? " * (200 if n == 7 else 1), "document": f"It is {n}.", "answers": [str(n)]}
        for n in range(9)
    ]
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps({**line, "meta": {"split": "train"}}) + "\n" for line in lines), encoding="utf-8")
    rare = f'\n[[task]]\nname = "given"\nfile = "{path}"\nweight = 1e-9\n'
    (tmp_path / "config.toml").write_text(config_file.read_text(encoding="utf-8") + rare, encoding="utf-8")
    config = load_config(tmp_path / "config.toml", RlConfig)
    with pytest.raises(ConfigError, match=r"the question of sample s7 has .* tokens, the question budget is"):
        Trainer(config, tmp_path / "run")
    held_out = load_config(config_file, RlConfig, [f"validation.task=[{{name = 'given', file = '{path}'}}]"])
    with pytest.raises(ConfigError, match=r"the question of sample s7 has .* tokens, the question budget is"):
        Trainer(held_out, tmp_path / "other")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "other").exists()


def test_the_made_questions_of_a_run_fit_its_question_budget(config_file: Path, tmp_path: Path) -> None:
    def lengths(*changes: str) -> list[int]:
        trainer = Trainer(load_config(config_file, RlConfig, ["validation.task=[]", *changes]), tmp_path / "run")
        return [trainer.tokenizer.count(sample.question) for _, sample in trainer.curriculum.draw(0, 0, 30)]

    found = sorted(lengths())
    assert found[15] < found[-1]
    assert max(lengths(f"rollout.question_tokens={found[15]}")) <= found[15]


def test_a_made_question_that_is_too_long_for_a_validation_is_said_before_the_first_batch(
    config_file: Path, tmp_path: Path
) -> None:
    made = "{name = 'many', task = 'niah_multiquery', tokens = [900], samples = 2, options = {queries = 20, keys = 20}}"
    config = load_config(config_file, RlConfig, [f"validation.task=[{made}]", "rollout.question_tokens=60"])
    with pytest.raises(
        ConfigError, match=r"task 'many': the question of sample .* has [\d,]+ tokens, the question budget is"
    ):
        Trainer(config, tmp_path / "run")


def test_a_resumed_run_says_which_of_its_files_have_changed_and_forgets_scores_of_another_validation(
    config_file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "book.txt"
    book.write_text(TEXT, encoding="utf-8")
    run_folder = tmp_path / "run"
    common = [f"books=['{book}']", "validation.every=1", "rollout.resample=0"]

    def resumed(steps: int, *changes: str) -> tuple[Trainer, str]:
        console = Console(file=io.StringIO(), width=200)
        config = load_config(config_file, RlConfig, [*common, f"steps={steps}", *changes])
        made = run(config, Launch(run_folder, resume=True, console=console))
        return made, console.file.getvalue()  # type: ignore[attr-defined]

    first, said = resumed(1)
    best = (run_folder / "best").resolve().name
    first.best, first.waited = 2.0, 9  # no later score can be as good, and the run has waited for one
    Checkpoints(run_folder).save(1, first.save, {**first.state(), "scored": first.scored}, best=best == "000001")
    assert "changed" not in said

    same, said = resumed(2)
    assert same.best == 2.0
    assert "changed" not in said

    book.write_text(TEXT + TEXT, encoding="utf-8")
    other, said = resumed(3, "validation.seed=78", "validation.patience=5")
    assert f"{book} has changed" in said
    assert "validation has changed" in said
    assert (other.step, other.waited) == (3, 0)
    assert 0 <= other.best <= 1
    assert (run_folder / "best").resolve().name == "000003"
    assert resumed(3, "validation.seed=78")[1].count("has changed") == 0
    reads = ["validation.seed=78", "validation.patience=5", "rollout.memory_tokens=90"]
    assert "validation has changed" in resumed(4, *reads)[1]
