"""A run on verl and Ray, watched: it ends with the last batch, with an error, or because nothing has moved for too long."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf

from memagent.cluster.environment import environment
from memagent.cluster.layout import cpus_needed, cpus_of_learners
from memagent.cluster.served import served_model
from memagent.cluster.settings import verl_config
from memagent.errors import ConfigError, TrainingError
from memagent.files import atomic_file, locked, writing
from memagent.models.open import OpenModel, model_folder
from memagent.ray_cluster import connected, last_line
from memagent.training.checkpoints import verl_shards, verl_step
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import check_questions, curriculum_of, settings_by_name
from memagent.training.run import Launch
from memagent.training.validation import make_held_out

_POLL = 2.0  # seconds between two looks at the run
_SHOWN = ("reward", "kept", "loss", "grad_norm", "kl", "retention")


class Runner:
    """The run's controller, in a process of its own: verl's trainer, and where it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved, self._step = time.monotonic(), 0

    def run(self, config: DictConfig) -> None:
        """Trains to the last batch."""
        import transfer_queue as tq
        from verl.trainer.ppo.v1 import AgentLoopManagerTQ

        from memagent.cluster.trainer import ReadingTrainer

        if config.trainer.device == "cpu":
            from memagent.cluster import inprocess

            inprocess.register_rollout()
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        try:
            trainer = ReadingTrainer(config, self._report)
            trainer.init()
            manager = AgentLoopManagerTQ.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=None,
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            self._report(trainer.global_steps)
            trainer.fit(manager)
        finally:
            tq.close()

    def idle(self) -> tuple[float, int]:
        """Seconds since anything was finished, and the number of the last batch or validation."""
        with self._lock:
            return time.monotonic() - self._moved, self._step

    def _report(self, step: int | None) -> None:
        with self._lock:
            self._moved, self._step = time.monotonic(), self._step if step is None else step


def run(config: RlConfig, launch: Launch) -> None:
    """Trains on verl, to the last batch or `launch.stop_after`. Raises ConfigError before anything is started, and
    TrainingError when a process dies or nothing moves for `cluster.watchdog` seconds."""
    settings = verl_config(config, launch.out)
    if launch.stop_after is not None:
        settings.trainer.total_training_steps = min(config.steps, launch.stop_after)
    opened = served_model(model_folder(config.start))
    curriculum_of(config, opened)  # what cannot be read is said here
    with writing(launch.out):
        launch.out.mkdir(parents=True, exist_ok=True)
    with locked(launch.out):
        begun = _begun(config, launch)
        _hold_out(config, launch.out / "validation", opened)
        settings.trainer.resume_mode = "disable" if begun is None else "auto"
        settings.trainer.val_before_train &= begun is None or _owes_validation(config, launch.out, begun)
        with _ray(config):
            _write(launch, begun)
            _train(settings, config, launch, begun)


def _hold_out(config: RlConfig, folder: Path, opened: OpenModel) -> None:
    """Makes the held-out samples, which the processes of the run read. Raises ConfigError for a question that is over its
    budget, made or of a file."""
    held_out = make_held_out(config.validation, folder, opened.engine.tokenizer)
    read_by = settings_by_name(config, opened, config.validation, config.validation.task)
    check_questions(((name, sample) for name, samples in held_out.items() for sample in samples), read_by, opened)


def _write(launch: Launch, begun: int | None) -> None:
    """Writes the configuration. Removes the checkpoints that verl no longer tracks after a stop."""
    if begun is not None:
        for path in (launch.out / "checkpoints").glob("global_step_*"):
            if path.name != f"global_step_{begun}":
                shutil.rmtree(path)
    if launch.source:
        with atomic_file(launch.out / "config.toml") as file:
            file.write(launch.source)


def _train(settings: DictConfig, config: RlConfig, launch: Launch, begun: int | None) -> None:
    """The run, on the Ray that this process is connected to."""
    runner = ray.remote(Runner).options(num_cpus=0, max_concurrency=2).remote()
    try:
        _watched(runner, runner.run.remote(settings), config.cluster.watchdog, launch, begun or 0)
    except TrainingError as error:
        raise TrainingError(f"{error}; {_way_on(launch.out)}") from error


def _way_on(out: Path) -> str:
    """How to resume a run that was stopped."""
    try:
        step = verl_step(out)
    except TrainingError as broken:  # the disk was full when verl noted it
        return str(broken)
    since = "from the start, no checkpoint is there" if step is None else "from its last checkpoint"
    return f"to go on {since}: memagent train rl -o {out} --resume --engine verl"


def _begun(config: RlConfig, launch: Launch) -> int | None:
    """The batch that the run goes on from."""
    step = verl_step(launch.out) if launch.resume else None
    if step is None:
        return None
    layout = verl_shards(launch.out, step) / "fsdp_config.json"
    learners = json.loads(layout.read_text())["world_size"] if layout.is_file() else config.cluster.learners
    if learners != config.cluster.learners:
        raise ConfigError(
            f"the checkpoint of {launch.out} is that of {learners} learners, the configuration has"
            f" {config.cluster.learners} (cluster.nodes × cluster.devices): resume with as many"
        )
    return step


def _owes_validation(config: RlConfig, out: Path, step: int) -> bool:
    """Whether the run was stopped between a checkpoint and the validation that was due there: verl saves first."""
    if step % config.validation.every and step < config.steps:
        return False
    return not any(one["step"] == step and "validation" in one for one in _logged(out))


def _watched(runner: Any, done: Any, limit: float, launch: Launch, shown: int) -> None:
    """Waits for the run. Idle time also counts while the controller does not answer."""
    heard, idle, step = time.monotonic(), 0.0, shown
    while True:
        ready, _ = ray.wait([done], timeout=_POLL)
        if ready:
            _show(launch, shown)
            try:
                ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise TrainingError(_cause(error)) from error
            except ray.exceptions.RayError as error:
                raise TrainingError(f"a process of the run has died: {last_line(error)}") from error
            return
        with suppress(ray.exceptions.RayError):  # it is busy, or it has died: then `done` says so
            idle, step = ray.get(runner.idle.remote(), timeout=60)
            heard = time.monotonic()
        idle_now = idle + time.monotonic() - heard
        if step > shown:
            shown = _show(launch, shown)
        if idle_now > limit:
            ray.kill(runner)
            raise TrainingError(
                f"nothing was finished for {idle_now:.0f} s, the limit (cluster.watchdog) is {limit:.0f} s: the run was"
                f" stopped after batch {step}. The logs of the processes are in Ray's session folder"
            )


def _show(launch: Launch, after: int) -> int:
    """Prints what the controller has logged of the batches after `after`. Returns the number of the last one shown."""
    if launch.console is None:
        return after
    for logged in _logged(launch.out):
        if logged["step"] > after and "train" in logged:
            values = logged["train"]
            told = ", ".join(f"{name} {values[name]:.4g}" for name in _SHOWN if name in values)
            launch.console.print(f"batch {logged['step']}: {told}")
            after = logged["step"]
    return after


def _logged(out: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl; not the one that is being written, or that a killed controller has left half."""
    metrics = out / "metrics.jsonl"
    if metrics.is_file():
        yield from map(json.loads, metrics.read_text(encoding="utf-8").rpartition("\n")[0].splitlines())


@contextmanager
def _ray(config: RlConfig) -> Iterator[None]:
    """A connection to the cluster of `cluster.address`, or a Ray of this run's own, which ends with it."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    cluster, options = config.cluster, dict[str, Any]()
    if not cluster.address and cluster.device == "cpu":  # as many places as there are processes, however many cores
        options = {"num_gpus": cluster.devices, "num_cpus": cpus_needed(config)}
    address = cluster.address or "local"  # not one that somebody else has left running
    variables = get_ppo_ray_runtime_env()["env_vars"] | environment(cluster.device)
    with connected(address, variables, TrainingError, "leave `cluster.address` out", **options):
        _check_room(config)
        yield


def _check_room(config: RlConfig) -> None:
    """Raises TrainingError if the cluster cannot hold the run, which would wait for room, or holds another."""
    cluster, there = config.cluster, ray.cluster_resources()
    for name, needed in (("CPU", cpus_needed(config)), ("GPU", cluster.learners)):
        if there.get(name, 0) < needed:
            raise TrainingError(
                f"the Ray cluster has {there.get(name, 0):.0f} {name}s, the run needs {needed} (cluster.nodes, devices,"
                f" readers): add machines, ask for less, or start Ray with --num-{name.lower()}s"
            )
    each = {"GPU": cluster.devices, "CPU": cpus_of_learners(cluster.devices)}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    roomy = [one for one in machines if all(one.get(name, 0) >= needed for name, needed in each.items())]
    if len(roomy) < cluster.nodes:
        raise TrainingError(
            f"{len(roomy)} of the Ray cluster's {len(machines)} machines have {each['GPU']} GPUs and {each['CPU']} CPUs,"
            f" the run needs {cluster.nodes} such (cluster.nodes, devices)"
        )
    with suppress(ValueError):
        ray.get_actor("TransferQueueController", namespace="transfer_queue")
        raise TrainingError("another run is under way on this Ray cluster, and verl keeps one queue for all: use another")


def _cause(error: ray.exceptions.RayTaskError) -> str:
    """The last line of what a process raised."""
    cause: Any = error
    while getattr(cause, "cause", None) is not None and cause.cause is not cause:
        cause = cause.cause
    return last_line(cause)
