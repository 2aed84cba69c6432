"""verl's workers, with what Multi-Conv DAPO's schedule needs: a rate for each batch."""

from __future__ import annotations

from typing import Any

from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker


class RatedLearner(TrainingWorker):
    """A learner whose optimizer takes the rate that comes with the data: verl's schedules count steps, ours batches."""

    def train_batch(self, data: Any) -> Any:
        rate = tu.get(data, key="rate", default=None)
        if rate is not None:
            for group in self.engine.optimizer.param_groups:
                group["lr"] = rate
        return super().train_batch(data)


class ReadingWorker(ActorRolloutRefWorker):
    """Learner, reference and rollout of one accelerator (or, on the CPU, of one process)."""

    actor_worker_cls = RatedLearner

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        from verl.utils.device import get_device_name

        if get_device_name() == "cpu":
            from memagent.cluster import inprocess
            from memagent.cluster.cpu import join_group, register_learner

            join_group()
            register_learner()
            inprocess.register_rollout()
        super().init_model()
