"""Rewards besides the score of the answer. All are off by default.

Some judge a reading, for readers that decide how much they read or write: each is a pure function of a finished reading and
its score, and is added to the reward with a weight (`algorithm.shaping`).

    fewer_rounds   (K − k) / (K − 1) for an answer that is right, where k of at most K rounds were read; PI-Mem
                   (arXiv 2608.03048) gives it the weight 0.2
    right_skips    the share of chunks that the gate treated right, from −1 to 1: skipped without a needed fact, written to
                   with one. GRU-Mem (arXiv 2602.10560) rewards each turn so by evidence labels; here it is one number for a
                   reading, which its advantage then credits to every turn

Others judge each turn, from labels of the evidence that tasks made here have; together they get a share of the credit
(`algorithm.turns`, see `memagent.training.credit`).

    noted          the share of the needed facts that stand in the memory after the turn, less that before it: a potential
                   (Ng et al. 1999), whose sum over a reading is what its last memory holds. 0 for the answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from memagent.core.readers.parallel import RoundState
from memagent.driver import Transcript, TurnRecord
from memagent.evaluation.diagnosis import stands_in
from memagent.tasks.samples import Sample

Shaping: TypeAlias = Callable[[Transcript, Sample, float, int], float]
TurnReward: TypeAlias = Callable[[Transcript, Sample], list[float]]


def fewer_rounds(transcript: Transcript, sample: Sample, score: float, rounds: int) -> float:
    """(K − k) / (K − 1) for a right answer of a reading in rounds, else 0. `rounds` is K."""
    if not isinstance(transcript.state, RoundState) or score < 1 or rounds < 2:
        return 0.0
    read = {record.id.partition("/")[0] for record in transcript.records if record.kind == "note"}
    return (rounds - len(read)) / (rounds - 1)


def right_skips(transcript: Transcript, sample: Sample, score: float, rounds: int) -> float:
    """The mean over the chunks of +1 where the gate was right and −1 where it was wrong; 0 for a reader without gates."""
    needed = [(fact.start, fact.end) for fact in sample.facts if fact.needed]
    gates = [record for record in transcript.records if record.kind == "update" and record.outcome in _GATED]

    def shows(record: TurnRecord) -> bool:
        return any(span.start <= start and end <= span.end for start, end in needed for span in record.spans)

    right = sum((record.outcome == "skipped") != shows(record) for record in gates)
    return 2.0 * right / len(gates) - 1.0 if gates else 0.0


# What a gate decided; a reply that was asked again, or did not fit, decided nothing.
_GATED = frozenset({"skipped", "unchanged", "kept", "fitted", "enough"})

SHAPINGS: Mapping[str, Shaping] = {"fewer_rounds": fewer_rounds, "right_skips": right_skips}


def shaped(transcript: Transcript, sample: Sample, score: float, weights: Mapping[str, float], rounds: int) -> float:
    """The reward: the score of the answer and the weighted sum of what is named. `rounds` is how many there may be."""
    return score + sum(weight * SHAPINGS[name](transcript, sample, score, rounds) for name, weight in weights.items())


def noted(transcript: Transcript, sample: Sample) -> list[float]:
    """By how much each turn raised the share of needed values that stand in the memory; 0 for a sample without labels."""
    values = {fact.value for fact in sample.facts if fact.needed and fact.value}
    memories = ["", *(record.memory for record in transcript.records)]
    shares = [sum(holds(memory, value) for value in values) / len(values) if values else 0.0 for memory in memories]
    return [after - before for before, after in pairwise(shares)]


@lru_cache(maxsize=1 << 16)
def holds(memory: str, value: str) -> bool:
    """Whether a memory has the words of a value."""
    return stands_in(value, memory)


TURN_REWARDS: Mapping[str, TurnReward] = {"noted": noted}


def turn_rewards(transcript: Transcript, sample: Sample, weights: Mapping[str, float]) -> tuple[float, ...]:
    """The weighted sum of what is named, for each turn; () if nothing is."""
    columns = [[weight * value for value in TURN_REWARDS[name](transcript, sample)] for name, weight in weights.items()]
    return tuple(map(sum, zip(*columns, strict=True)))
