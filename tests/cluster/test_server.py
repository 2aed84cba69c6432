"""The rollout server for the CPU, in this process: requests that come together, new weights, requests that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from memagent.cluster.inprocess import Server
from memagent.core import Sampling
from memagent.models.local import LocalEngine
from memagent.models.sampler import Row
from tests.training.tiny import make_folder

PROMPTS = [[5, 6, 7], [9] * 20, [11, 12], [5, 6, 7]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("served"), "qwen2")


def ask(server: Server, prompts: list[list[int]], **changes: Any) -> list[Any]:
    """All at once, as a batch of readings asks."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 9, **changes}

    async def gathered() -> list[Any]:
        requests = [
            server.generate(str(number), prompt, {"seed": 40 + number, **sampling}) for number, prompt in enumerate(prompts)
        ]
        return await asyncio.gather(*requests, return_exceptions=True)

    return asyncio.run(gathered())


def weights(server: Server) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in server._engine.model.named_parameters()}


def test_requests_that_come_together_are_each_answered_as_alone(folder: Path) -> None:
    engine = LocalEngine(folder, device="cpu", dtype="float32")
    for output, (number, prompt) in zip(ask(Server(str(folder)), PROMPTS), enumerate(PROMPTS), strict=True):
        drawn = Sampling(temperature=1.0, seed=40 + number)
        [alone] = engine.complete([Row(prompt=prompt, max_tokens=9, sampling=drawn)])
        assert tuple(output.token_ids) == alone.token_ids
        assert output.log_probs == pytest.approx(alone.logprobs, abs=1e-5)


def test_requests_share_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, sizes = Server(str(folder)), []
    complete = server._engine.complete
    monkeypatch.setattr(server._engine, "complete", lambda rows: (sizes.append(len(rows)), complete(rows))[1])
    ask(server, PROMPTS)
    assert sizes == [4]


def test_new_weights_are_sampled_from_and_named(folder: Path) -> None:
    server = Server(str(folder))
    [before] = ask(server, PROMPTS[:1], temperature=0.0)
    new = {name: torch.randn_like(value) for name, value in weights(server).items()}
    asyncio.run(server.update_weights(new, 7))
    [after] = ask(server, PROMPTS[:1], temperature=0.0)
    assert after.log_probs != pytest.approx(before.log_probs, abs=1e-3)
    assert (before.extra_fields, after.extra_fields) == ({"global_steps": None}, {"global_steps": 7})
    assert all(torch.equal(value, new[name]) for name, value in weights(server).items())


@pytest.mark.parametrize("wrong", ["missing", "unknown"])
def test_weights_of_another_model_are_refused_whole(folder: Path, wrong: str) -> None:
    server = Server(str(folder))
    before = weights(server)
    new = {name: value + 1 for name, value in before.items()}
    if wrong == "missing":
        new.pop("model.norm.weight")
    else:
        new["model.layers.9.weight"] = torch.zeros(2)
    with pytest.raises(ValueError, match="not this model's: .*" + ("norm" if wrong == "missing" else "layers.9")):
        asyncio.run(server.update_weights(new, 7))
    assert all(torch.equal(value, before[name]) for name, value in weights(server).items())


def test_whoever_waited_is_told_of_a_failure_and_the_server_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(str(folder))
    complete = server._engine.complete

    def broken(rows: Any) -> Any:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(server._engine, "complete", broken)
    assert [str(one) for one in ask(server, PROMPTS)] == ["no memory left"] * 4
    monkeypatch.setattr(server._engine, "complete", complete)
    assert all(len(one.token_ids) == len(one.log_probs) > 0 for one in ask(server, PROMPTS))
