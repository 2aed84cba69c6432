"""A run: any trainer, with its log and its checkpoints, begun or resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from rich.console import Console

from memagent.errors import TrainingError
from memagent.files import locked, writing
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import SftConfig
from memagent.training.inputs import Inputs
from memagent.training.log import RunLog
from memagent.training.products import slower_in_bf16
from memagent.training.rl_config import RlConfig

_TOO_SLOW = 2.0  # times as long in bfloat16 as in float32


class Trainer(Protocol):
    """What a run needs of a trainer to save and restore it. `step` counts from 0; `best` is -1 before a validation."""

    step: int
    best: float

    @property
    def scored(self) -> str:
        """What validations score, in one word: `best` counts only among scores of the same. It reads files: ask once."""
        ...

    def forget_scores(self) -> None:
        """The next validation is the first that counts."""
        ...

    def save(self, folder: Path) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Launch:
    """How a run is started: its folder, whether it goes on from the last checkpoint there, the step to stop after, where
    its metrics are shown, and `source`, as in RunLog."""

    out: Path
    resume: bool = False
    stop_after: int | None = None
    console: Console | None = None
    source: str = ""


T = TypeVar("T", bound=Trainer)


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """A run under way, to the step `last`."""

    trainer: T
    log: RunLog
    checkpoints: Checkpoints
    resumed: bool
    last: int
    scored: str

    @property
    def ended(self) -> bool:
        return self.trainer.step >= self.last

    def is_due(self, every: int) -> bool:
        """Whether it is time for what is done every so many steps, and at the end."""
        return self.trainer.step % every == 0 or self.ended

    def save(self, *, best: bool) -> None:
        """Writes a checkpoint of where the trainer is. Raises OutputError."""
        state = {**self.trainer.state(), "scored": self.scored}
        self.checkpoints.save(self.trainer.step, self.trainer.save, state, best=best)


@contextmanager
def begun(config: SftConfig | RlConfig, launch: Launch, steps: int, make: Callable[[], T]) -> Iterator[Run[T]]:
    """The run of the trainer that `make` makes, of `steps` steps as a whole. The log is opened when the trainer is: a run
    that cannot begin leaves metrics and configuration as they were. Raises TrainingError, what RunLog raises, and
    ConfigError when another process is at the run."""
    if threads := config.threads or (config.processes > 1 and max(1, (os.cpu_count() or 1) // config.processes)):
        torch.set_num_threads(threads)
    torch.manual_seed(config.seed)
    checkpoints = Checkpoints(launch.out)
    with ExitStack() as held:
        if there := launch.out.is_dir():  # making a trainer writes samples there, which another process may be reading
            held.enter_context(locked(launch.out))
        trainer = make()
        if not there:
            with writing(launch.out):
                launch.out.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(launch.out))
        resumed = launch.resume and checkpoints.exist()
        scored, inputs = trainer.scored, Inputs.of(launch.out, config, resumed=resumed)
        before: str | None = scored
        if resumed:
            state = checkpoints.load()
            if config.start and config.keeps_start:
                inputs.check_start(config.start)
            _restore(trainer, state)
            before = state.get("scored", scored)  # versions before this one did not note it
        log = RunLog(
            launch.out,
            step=trainer.step if resumed else -1,
            console=launch.console,
            tensorboard=config.log.tensorboard,
            wandb=config.log.wandb,
            config=config.model_dump(mode="json"),
            source=launch.source,
        )
        held.enter_context(log)
        inputs.write(launch.out)
        for path in inputs.changed:
            log.say(f"{path} has changed since the run read it: from step {trainer.step} on, it is read as it is now")
        if (slower := slower_in_bf16(config.policy)) >= _TOO_SLOW:
            log.say(f"this processor takes {slower:.0f} times as long for bfloat16 as for float32: set policy.bf16=false")
        if before != scored:
            trainer.forget_scores()
            if before is not None:  # as it is where a run has taken over the weights of another
                log.say("validation has changed: the next one is the best, whatever the scores before it")
        yield Run(trainer, log, checkpoints, resumed, min(steps, launch.stop_after or steps), scored)


def _restore(trainer: Trainer, state: dict[str, Any]) -> None:
    try:
        trainer.restore(state)
    except TrainingError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError) as error:  # torch has no class of its own for it
        raise TrainingError(
            f"the checkpoint does not fit this configuration, or another version wrote it: {error}. Begin a new run"
        ) from error
