"""What was found out about a served model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

# What a server does with a prompt that is longer than its window.
TooLong: TypeAlias = Literal["refused", "cut", "taken", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """So many turns at the same time, and how many of them ended in a second."""

    concurrency: int
    turns_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortReading:
    """The turns of a short reading, one after the other.

    prompt, reply  mean tokens of a turn
    seconds        mean seconds of a turn
    kept           the share of the words of a new memory that the old memory had, from 0 to 1; None without two memories
    drafted        tokens that the server guessed for speculative decoding, of which it `accepted` so many; None if it does
                   not say
    """

    turns: int
    prompt: float
    reply: float
    seconds: float
    kept: float | None
    drafted: int | None
    accepted: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a served model does, and how fast.

    kind            "vllm", "llamacpp", "sglang", "ollama", or what it calls itself; "" if it does not say
    window          tokens of the longest prompt + reply; None if unknown
    slots           requests that it works on at once, where it says
    counting        what tokens are counted with; `exact` is False for an estimate
    counted         tokens that we count in a prompt, and `reported` those that the server reports for it; 0: it does not
    request         seconds of a prompt of a word
    prefill         tokens of a prompt a second; None if it is too fast to tell
    decode          tokens of a reply a second; None if replies were too short to tell
    prefix_cache    whether a prompt that was just sent is faster the second time; None if prompts are too fast to tell
    repeats         whether sampling with a seed gives the same reply twice; None if the model says the same anyway, or
                    the server takes no seeds
    too_long        what happens to a prompt longer than the window
    """

    model: str
    base_url: str
    kind: str
    window: int | None
    slots: int | None
    counting: str
    exact: bool
    counted: int
    reported: int
    request: float
    prefill: float | None
    decode: float | None
    prefix_cache: bool | None
    repeats: bool | None
    too_long: TooLong
    reading: ShortReading
    levels: tuple[Level, ...]

    @property
    def decoding(self) -> float | None:
        """The share of a turn's time that is spent on the reply; None if it could not be told."""
        if self.decode is None:
            return None
        return min(1.0, self.reading.reply / self.decode / self.reading.seconds)

    @property
    def best(self) -> Level:
        """The lowest level within 5 % of the fastest."""
        most = max(level.turns_per_second for level in self.levels)
        return next(level for level in self.levels if level.turns_per_second >= 0.95 * most)
