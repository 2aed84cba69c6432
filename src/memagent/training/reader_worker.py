"""The policy as one process computes with it in reinforcement learning: as it reads, and as it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memagent.models.families import open_family
from memagent.models.local import LocalEngine
from memagent.models.open import OpenModel, model_folder, narrowed, read_defaults
from memagent.tasks.samples import Sample
from memagent.training.policy import Policy
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import Group, roll_out, settings_by_name
from memagent.training.update import Learner


@dataclass(frozen=True, slots=True)
class Rollout:
    """Samples to be read for a batch: each has its number in the whole batch, and the name of its part of the mix."""

    step: int
    seed: str
    samples: Sequence[tuple[int, str, Sample]]


class ReaderWorker(Learner):
    """Opens the policy that a configuration starts from. Raises what `Policy` raises."""

    def __init__(self, config: RlConfig) -> None:
        start, reference = model_folder(config.start), config.algorithm.kl > 0
        policy = Policy(start, config.policy, reference=reference, temperature=config.rollout.temperature)
        super().__init__(policy, config.algorithm.objective)
        self._config, self._defaults = config, read_defaults(start)

    def opened(self, step: int, *, record: bool = False) -> OpenModel:
        """The policy as an engine that readings run on."""
        engine = LocalEngine.hosting(
            self.policy.causal,
            self.policy.tokenizer,
            name="policy",
            version=f"batch {step}",
            batch_tokens=self._config.rollout.batch_tokens,
            record_prompts=record,
            family=open_family(self._defaults.family),
            speculate=self._defaults.speculate,
        )
        return narrowed(engine, self._defaults)

    def roll_out(self, share: Rollout) -> list[Group]:
        """A group of readings for each sample."""
        chosen = self._config.rollout
        opened = self.opened(share.step, record=True)
        settings = settings_by_name(self._config, opened, chosen, self._config.task)
        with self.policy.computing():
            return roll_out(
                [(name, sample) for _, name, sample in share.samples],
                chosen.group,
                opened,
                settings,
                self._config.algorithm,
                share.seed,
                [number for number, _, _ in share.samples],
            )
