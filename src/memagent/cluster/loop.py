"""A reading as verl's agent loop: the protocol drives the turns, every conversation becomes a row, and the reward of the
answer stands in the last one.

The stock reward managers would decode the answer from a padded row, and cut it when it is the shorter one; so the reward is
set here, by the scorer that the small trainer uses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from memagent.cluster.documents import Documents
from memagent.cluster.served import served_model
from memagent.cluster.settings import experiment_of
from memagent.core import Tokenizer
from memagent.driver import Transcript, aread
from memagent.evaluation.runner import own_stream
from memagent.models.open import OpenModel
from memagent.scoring import SCORERS
from memagent.settings import Settings, make_plan
from memagent.suite_scoring import meant, own_score
from memagent.tasks.samples import Sample
from memagent.training.credit import Credit
from memagent.training.rl_config import RlConfig
from memagent.training.rollout import Reading, as_reading, retention, rounds_of, settings_by_name, with_stream


class Room:
    """What the readings of a process share: documents, model, and how they are read."""

    def __init__(self, config: RlConfig, out: Path, client: Any) -> None:
        folder = Path(config.start)
        self.config = config
        # A server for the CPU gives every reading a random stream; vLLM is faster without.
        self.opened: OpenModel = served_model(folder, client, seeded=config.cluster.device == "cpu")
        self.documents = Documents(config, self.opened, out / "validation")
        self.sampled = settings_by_name(config, self.opened, config.rollout, config.task)
        self.held_out = settings_by_name(config, self.opened, config.validation, config.validation.task)


class ReadingLoop(AgentLoopBase):
    """One reading of one document."""

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> list[AgentLoopOutput]:
        """The rows of a reading, its conversations in order. A reading that fails while training raises its ModelError:
        verl then marks the group. In validation it is a row without tokens that scores 0: failures are counted."""
        room = _room(OmegaConf.to_yaml(self.data_config.memagent), self.server_manager)
        document, version = str(fields["document"]), int(fields["global_steps"]) - 1
        name, sample = room.documents.load(document)
        if document.startswith("validation/"):
            return [await _held_out(room, room.held_out[name], sample, version)]
        _, step, attempt, place = document.split("/")
        settings = room.sampled[name]
        plan = make_plan(sample.document, sample.question, settings, room.opened)
        seed = f"{room.config.seed}/{step}/{attempt}"
        transcript = await aread(with_stream(plan, seed, int(place), int(fields["session_id"])), room.opened.engine)
        reading = as_reading(name, sample, transcript, room.config.algorithm, rounds_of(settings))
        return rows_of(reading, room.config.algorithm.credit, version, room.opened.engine.tokenizer)


def rows_of(reading: Reading, credit: Credit, version: int, tokenizer: Tokenizer) -> list[AgentLoopOutput]:
    """One row for each conversation that is trained on. `version`: number of updates in the weights that sampled it."""
    kept, total = retention([reading])
    conversations = reading.trajectory.conversations
    rows = [
        _row(one.prompt, one.reply, one.logprobs, version)
        for one in (conversations if credit == "all" else conversations[-1:])
    ]
    rows[-1].reward_score = reading.trajectory.reward
    rows[-1].extra_fields["reward_extra_info"] = {}
    rows[-1].extra_fields["reading"] = {
        "name": reading.name,
        "reward": reading.trajectory.reward,
        "kept": kept,
        "total": total,
        "memory_tokens": tokenizer.count(reading.memories[-1]) if reading.memories else None,
        "truncated": reading.truncated,
        "skipped": reading.skipped,
        "tokens": sum(len(one.prompt) + len(one.reply) for one in conversations),
    }
    return rows


async def _held_out(room: Room, settings: Settings, sample: Sample, version: int) -> AgentLoopOutput:
    """The answer of a reading of a held-out sample, scored by every scorer."""
    try:
        plan = make_plan(sample.document, sample.question, own_stream(settings, sample.id, 0), room.opened)
        transcript: Transcript | None = await aread(plan, room.opened.engine)
    except Exception:  # whatever ends a reading here, it is a reading that failed: verl would leave it out of the mean
        logging.getLogger(__name__).exception("a held-out reading failed")
        transcript = None
    answer = transcript.answer if transcript else ""
    chosen = meant(room.config.validation.score, sample.scorer)
    score = own_score(chosen, answer, sample.answers, sample.mode, sample.meta)
    scores = {name: scorer(answer, sample.answers, sample.mode) for name, scorer in SCORERS.items()}
    if transcript is None:
        score, scores = 0.0, dict.fromkeys(scores, 0.0)
        row = _row((0,), (0,), (0.0,), version, mask=0)  # verl wants a token
    else:
        last = transcript.records[-1].completion
        row = _row(last.prompt_ids or (), last.token_ids or (), last.logprobs or (), version)
    row.reward_score = score
    row.extra_fields["reward_extra_info"] = scores | {"failed": float(transcript is None)}
    return row


def _row(
    prompt: Sequence[int], reply: Sequence[int], logprobs: Sequence[float], version: int, mask: int = 1
) -> AgentLoopOutput:
    return AgentLoopOutput(
        prompt_ids=list(prompt),
        response_ids=list(reply),
        response_mask=[mask] * len(reply),
        response_logprobs=list(logprobs),
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields={"min_global_steps": version, "max_global_steps": version},
    )


@lru_cache(maxsize=1)
def _room(travelling: str, client: Any) -> Room:
    config, out = experiment_of(OmegaConf.create({"memagent": OmegaConf.create(travelling)}))
    return Room(config, out, client)
