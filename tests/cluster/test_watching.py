"""What a run on verl is stopped for: silence, processes that die, a cluster without room, a gradient that explodes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from rich.console import Console

from memagent.cluster import run as watched
from memagent.cluster.trainer import ReadingTrainer
from memagent.errors import ConfigError, TrainingError
from memagent.files import locked
from memagent.training.rl_config import RlConfig
from memagent.training.run import Launch
from tests.cluster.conftest import HELD_OUT

Experiment = Callable[..., RlConfig]


class Controller:
    """Ray with one controller on it. `answers` are what it says of itself, one at each look: seconds since anything was
    finished and the last batch; or None, when it does not answer. After the last it is done, and `end` is raised."""

    exceptions = ray.exceptions
    now = 0.0

    def __init__(self, *answers: tuple[float, int] | None, end: Exception | None = None) -> None:
        self.answers: Iterator[tuple[float, int] | None] = iter(answers)
        self.left = len(answers)
        self.end, self.killed = end, False
        self.idle = SimpleNamespace(remote=lambda: "idle")

    def wait(self, waiting: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self.now += timeout
        return ([], waiting) if self.left else (waiting, [])

    def get(self, what: str, timeout: float = 0.0) -> Any:
        if what == "done":
            if self.end is not None:
                raise self.end
            return None
        self.left -= 1
        answer = next(self.answers)
        if answer is None:
            self.now += timeout
            raise GetTimeoutError
        return answer

    def kill(self, runner: Any) -> None:
        assert runner is self
        self.killed = True


def watch(controller: Controller, patch: pytest.MonkeyPatch, out: Path, limit: float) -> str:
    """What the console shows of a run that is watched to its end."""
    patch.setattr(watched, "ray", controller)
    patch.setattr(watched, "time", SimpleNamespace(monotonic=lambda: controller.now))
    shown = StringIO()
    launch = Launch(out, console=Console(file=shown, width=200))
    watched._watched(controller, "done", limit, launch, 0)
    return shown.getvalue()


def test_a_controller_that_does_not_answer_is_killed_at_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    controller = Controller((0.0, 3), *[None] * 20)
    with pytest.raises(TrainingError, match=r"nothing was finished for 2\d\d s, the limit .* is 200 s: .* after batch 3"):
        watch(controller, monkeypatch, tmp_path, 200)
    assert controller.killed
    assert controller.now < 300


def test_a_controller_that_answers_and_does_nothing_is_killed_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    controller = Controller((90.0, 1), (199.0, 1), (201.0, 1), (300.0, 1))
    with pytest.raises(TrainingError, match="nothing was finished for 201 s"):
        watch(controller, monkeypatch, tmp_path, 200)
    assert controller.left == 1


def test_silence_is_counted_from_the_last_thing_that_was_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    controller = Controller((150.0, 1), None, (1.0, 2))
    with pytest.raises(TrainingError, match="nothing was finished for 212 s"):
        watch(controller, monkeypatch, tmp_path, 200)


def test_a_controller_that_is_busy_for_a_while_is_let_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watch(Controller((0.0, 1), None, None, (1.0, 2), None, None, (1.0, 3)), monkeypatch, tmp_path, 200)


def test_every_batch_is_shown_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logged: list[dict[str, Any]] = [{"step": step, "train": {"reward": step / 10, "kept": 4}} for step in (1, 2, 3)]
    logged.insert(1, {"step": 1, "validation": {}})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in logged))
    expected = [f"batch {step}: reward 0.{step}, kept 4" for step in (1, 2, 3)]
    # The last was logged when the controller had told of the one before; or it ended before it was asked again.
    for told in ([(0.0, 0), (0.0, 2), (0.0, 2)], [(0.0, 0)]):
        assert watch(Controller(*told), monkeypatch, tmp_path, 200).splitlines() == expected


def test_a_line_that_is_half_written_is_not_shown_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "train": {"reward": 0.5}}\n{"step": 2, "tr')
    shown = watch(Controller((0.0, 2)), monkeypatch, tmp_path, 200)
    assert shown.splitlines() == ["batch 1: reward 0.5"]


@pytest.mark.parametrize(
    ("logged", "step", "owed"),
    [
        ([(0, "validation"), (3, "train"), (3, "validation")], 3, False),
        ([(0, "validation"), (3, "train")], 3, True),  # stopped between the checkpoint and the validation
        ([(0, "validation"), (4, "train")], 4, False),  # none was due
        ([(3, "validation"), (5, "train")], 5, True),  # the last batch
        ([(3, "validation"), (5, "train"), (5, "validation")], 5, False),
    ],
)
def test_a_validation_that_was_due_at_a_stop_is_made_up_for(
    experiment: Experiment, tmp_path: Path, logged: list[tuple[int, str]], step: int, owed: bool
) -> None:
    text = "".join(json.dumps({"step": number, kind: {}}) + "\n" for number, kind in logged)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 3, "valid')
    config = experiment("qwen2", HELD_OUT, "validation.every=3", "steps=5")
    assert watched._owes_validation(config, tmp_path, step) is owed


def test_how_to_go_on_is_said_also_when_the_note_of_a_checkpoint_is_broken(tmp_path: Path) -> None:
    assert watched._way_on(tmp_path).startswith("to go on from the start")
    (tmp_path / "checkpoints" / "global_step_4" / "actor").mkdir(parents=True)
    note = tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt"
    note.write_text("4")
    assert watched._way_on(tmp_path) == (
        f"to go on from its last checkpoint: memagent train rl -o {tmp_path} --resume --engine verl"
    )
    note.write_text("")
    assert "write the number of a complete one into it (there are: global_step_4)" in watched._way_on(tmp_path)


def test_a_second_process_cannot_go_on_with_a_run_that_lives(experiment: Experiment, tmp_path: Path) -> None:
    config, run = experiment("qwen2"), tmp_path / "run"
    for step in (1, 2):
        (run / "checkpoints" / f"global_step_{step}" / "actor").mkdir(parents=True)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")  # it is writing the second
    (run / "config.toml").write_text("its own")
    before = sorted(run.rglob("*"))
    with locked(run), pytest.raises(ConfigError, match="another process is at the run in"):
        watched.run(config, Launch(run, resume=True, source="another"))
    assert sorted(run.rglob("*")) == before
    assert (run / "config.toml").read_text() == "its own"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (RayTaskError("run", "Traceback", TrainingError("the gradient's norm is nan")), "the gradient's norm is nan"),
        (RayActorError(), "a process of the run has died"),
    ],
)
def test_how_a_run_ended_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: Exception, said: str) -> None:
    with pytest.raises(TrainingError, match=said) as caught:
        watch(Controller((0.0, 1), end=end), monkeypatch, tmp_path, 200)
    assert "\n" not in str(caught.value)


def cluster(patch: pytest.MonkeyPatch, *machines: dict[str, float]) -> None:
    """Ray on such machines, with nothing running."""

    def no_actor(name: str, namespace: str) -> None:
        raise ValueError("Failed to look up actor")

    total = {name: sum(one.get(name, 0.0) for one in machines) for name in {*chain(*machines)}}
    patch.setattr(ray, "cluster_resources", lambda: total)
    patch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": one} for one in machines] + [{"Alive": False}])
    patch.setattr(ray, "get_actor", no_actor)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"CPU": 13.0, "GPU": 2.0}, "has 13 CPUs, the run needs 15 .* --num-cpus"),
        ({"CPU": 64.0}, "has 0 GPUs, the run needs 2 .* --num-gpus"),
        ({"CPU": 64.0, "GPU": 1.0}, "has 1 GPUs, the run needs 2"),
    ],
)
def test_a_cluster_without_room_is_refused(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment, there: dict[str, float], said: str
) -> None:
    cluster(monkeypatch, there)
    with pytest.raises(TrainingError, match=said):
        watched._check_room(experiment("qwen2", "cluster.devices=2"))


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        (
            [{"CPU": 12.0, "GPU": 1.0}, {"CPU": 12.0, "GPU": 1.0}],
            "0 of the Ray cluster's 2 machines have 2 GPUs and 6 CPUs",
        ),
        ([{"CPU": 4.0, "GPU": 2.0}, {"CPU": 20.0}], "0 of the Ray cluster's 2 machines"),
        ([{"CPU": 20.0, "GPU": 2.0}], ""),
    ],
)
def test_learners_of_a_machine_need_room_on_one_machine(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment, machines: list[dict[str, float]], said: str
) -> None:
    cluster(monkeypatch, *machines)
    config = experiment("qwen2", "cluster.devices=2")
    if said:
        with pytest.raises(TrainingError, match=said):
            watched._check_room(config)
    else:
        watched._check_room(config)


def test_a_cluster_with_another_run_on_it_is_refused(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    config = experiment("qwen2", "cluster.devices=2")

    def no_queue(name: str, namespace: str) -> None:
        assert (name, namespace) == ("TransferQueueController", "transfer_queue")
        raise ValueError("Failed to look up actor")

    cluster(monkeypatch, {"CPU": 15.0, "GPU": 2.0})
    monkeypatch.setattr(ray, "get_actor", no_queue)
    watched._check_room(config)
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: object())
    with pytest.raises(TrainingError, match="another run is under way on this Ray cluster"):
        watched._check_room(config)


@pytest.mark.parametrize("norm", [math.nan, math.inf, 7.6])
def test_a_gradient_that_is_no_number_or_explodes_stops_the_run(experiment: Experiment, norm: float) -> None:
    trainer: Any = SimpleNamespace(experiment=experiment("qwen2", "update.explode=7.5"))
    ReadingTrainer._check(trainer, 7.5)
    with pytest.raises(TrainingError, match=rf"the gradient's norm is {norm:.4g}, the limit \(update.explode\) is 7.5"):
        ReadingTrainer._check(trainer, norm)
