"""A whole reading over HTTP: what goes wrong on the way does not change what is read."""

from __future__ import annotations

import random

import memagent
from memagent.models.open import OpenModel
from memagent.models.openai_compatible import OpenAIEngine
from memagent.models.retrying import Backoff
from tests.faults import Fault, FaultServer, Messages

DOCUMENT = " ".join(f"The key of room {number} is {number * 7919 % 10_007}." for number in range(400))
FAULTS = [
    Fault("status", status=500),
    Fault("status", status=429, headers={"Retry-After": "0"}),
    Fault("reset"),
    Fault("drop"),
    Fault("malformed"),
    Fault("no_choices"),
    Fault("null"),
    Fault("drip", seconds=0.05),
]


def last_numbers(messages: Messages) -> str:
    """A memory that depends on everything read so far, through the memory before it."""
    words = messages[-1]["content"].split()
    return f"{sum(map(ord, messages[-1]['content']))} {' '.join(words[-12:-6])}"


def one_in_three(number: int) -> Fault | None:
    chance = random.Random(number)
    return chance.choice(FAULTS) if chance.random() < 1 / 3 else None


def read(server: FaultServer) -> memagent.Reading:
    backoff = Backoff(base=0.005, limit=0.01)
    with OpenAIEngine("scripted", server.url, window=2000, retries=10, backoff=backoff) as engine:
        return memagent.read(memagent.from_text(DOCUMENT), "Which key?", model=OpenModel(engine=engine))


def test_a_reading_through_faults_is_the_clean_reading() -> None:
    with FaultServer(last_numbers) as server:
        clean = read(server)
        turns = len(server.requests)
    with FaultServer(last_numbers, faults=one_in_three) as server:
        rough = read(server)
        assert len(server.requests) > turns > 5
    assert (rough.answer, rough.memory) == (clean.answer, clean.memory)
    assert rough.answer


def test_a_window_smaller_than_thought_is_met_by_splitting() -> None:
    with FaultServer(last_numbers, context=900) as server:
        assert read(server).answer
        longest = max(len(request["messages"][-1]["content"].split()) for request in server.requests)
    assert longest > 400
