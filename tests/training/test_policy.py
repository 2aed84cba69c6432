"""The policy says of a reply what the stock model says, trains what it should, and survives being written and read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from memagent.core import Sampling
from memagent.errors import TrainingError
from memagent.models.sampler import Row, sample
from memagent.training.config import LoraConfig, PolicyConfig
from memagent.training.credit import Conversation
from memagent.training.policy import Policy, _without_dropout
from tests.training.tiny import as_batch, conversation, make_folder

KINDS = ("lfm2", "llama", "qwen2")
LENGTHS = ((9, 3), (21, 7), (6, 1), (15, 7), (33, 2))  # tokens of prompt and reply


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_folder(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def talks(lengths: Sequence[tuple[int, int]] = LENGTHS, seed: int = 0) -> list[Conversation]:
    rng = random.Random(seed)
    return [conversation(rng, prompt, reply) for prompt, reply in lengths]


def stock(folder: Path) -> Any:
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def backward(value: Tensor) -> None:
    value.backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def said(model: Any, one: Conversation) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies at a reply's tokens: the stock forward of this conversation alone, its own loop."""
    logits = model(torch.tensor([[*one.prompt, *one.reply]])).logits[0].double()
    logprobs, entropies = [], []
    for step, token in enumerate(one.reply):
        p = torch.softmax(logits[len(one.prompt) - 1 + step], -1)
        logprobs.append(p[token].log())
        entropies.append(-(p * p.log()).sum())
    return torch.stack(logprobs), torch.stack(entropies)


def assert_scores_as(policy: Policy, model: Any, conversations: Sequence[Conversation], *, tolerance: float = 1e-4) -> None:
    with torch.no_grad():
        logprob, entropy = policy.score(as_batch(conversations))
    for row, one in enumerate(conversations):
        expected, expected_entropy = said(model, one)
        count = len(one.reply)
        torch.testing.assert_close(logprob[row, :count].double(), expected, atol=tolerance, rtol=0)
        torch.testing.assert_close(entropy[row, :count].double(), expected_entropy, atol=tolerance, rtol=0)
        assert not logprob[row, count:].any()
        assert not entropy[row, count:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_ragged_rows_are_those_of_the_stock_model_for_each_alone(kind: str, folders: dict[str, Path]) -> None:
    assert_scores_as(Policy(folders[kind], PolicyConfig(device="cpu")), stock(folders[kind]), talks())


@pytest.mark.parametrize("layers", [["full_attention", "conv", "conv"], ["conv", "conv", "full_attention"]])
def test_the_place_of_attention_in_an_lfm2_does_not_matter(layers: list[str], tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "lfm2", layer_types=layers)
    assert_scores_as(Policy(folder, PolicyConfig(device="cpu")), stock(folder), talks())


def test_an_lfm2_with_fewer_heads_for_keys_is_scored_as_the_stock_model_does(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "lfm2", num_key_value_heads=2)
    assert_scores_as(Policy(folder, PolicyConfig(device="cpu")), stock(folder), talks())


def test_a_prompt_shorter_than_the_reach_of_the_convolutions_is_scored_as_the_stock_model_does(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "lfm2", layer_types=["full_attention", "conv", "conv"])
    assert_scores_as(Policy(folder, PolicyConfig(device="cpu")), stock(folder), talks([(1, 4), (2, 3)]))


def test_an_lfm2_with_biases_in_its_convolutions_is_scored_as_the_stock_model_does(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "lfm2", conv_bias=True, initializer_range=0.3)
    model = stock(folder)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.fill_(0.5)
    model.save_pretrained(folder)
    assert_scores_as(Policy(folder, PolicyConfig(device="cpu")), model, talks())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_stock_model(kind: str, folders: dict[str, Path]) -> None:
    policy, model, one = Policy(folders[kind], PolicyConfig(device="cpu")), stock(folders[kind]), talks([(12, 5)])[0]
    backward(policy.score(as_batch([one, *talks([(20, 2)], seed=1)]))[0][0].sum())
    logits = model(torch.tensor([[*one.prompt, *one.reply]])).logits[0, len(one.prompt) - 1 : -1]
    backward(logits.log_softmax(-1)[range(len(one.reply)), list(one.reply)].sum())
    mine, theirs = dict(policy.causal.named_parameters()), dict(model.named_parameters())
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        grad = mine[name].grad
        assert torch.allclose(grad, value.grad, atol=2e-4, rtol=1e-3), name


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_has_a_gradient_only_if_asked_for(kind: str, folders: dict[str, Path]) -> None:
    policy, batch = Policy(folders[kind], PolicyConfig(device="cpu")), as_batch(talks())
    assert not policy.score(batch)[1].requires_grad
    entropy = policy.score(batch, entropy=True)[1]
    backward(entropy.sum())
    grads = [value.grad for value in policy.parameters() if value.grad is not None]
    assert any(grad.abs().sum() > 0 for grad in grads)


@pytest.mark.parametrize("kind", KINDS)
def test_activation_checkpointing_does_not_change_scores_or_gradients(kind: str, folders: dict[str, Path]) -> None:
    batch, found = as_batch(talks()), []
    for checkpointing in (False, True):
        policy = Policy(folders[kind], PolicyConfig(device="cpu", checkpointing=checkpointing))
        with policy.training():
            logprob, _ = policy.score(batch)
            backward(logprob.sum())
        assert not policy.causal.training
        found.append((logprob.detach(), {name: value.grad for name, value in policy.causal.named_parameters()}))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-4, rtol=0)
    for name, value in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], value, atol=1e-3, rtol=1e-3)


def test_nothing_is_dropped_while_activations_are_computed_twice(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "qwen2", attention_dropout=0.5)
    policy = Policy(folder, PolicyConfig(device="cpu", checkpointing=True))
    with policy.training():
        assert_scores_as(policy, stock(folder), talks())


def test_layers_that_are_computed_twice_drop_nothing_of_their_own() -> None:
    shape = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 20}
    model: Any = transformers.OPTForCausalLM(transformers.OPTConfig(**shape, word_embed_proj_dim=16, dropout=0.5))
    layers = _without_dropout(model)
    assert [layer.dropout for layer in layers] == [0.0, 0.0]
    with pytest.raises(TrainingError, match="Linear cannot compute activations twice"):
        _without_dropout(torch.nn.Linear(2, 2))


def test_checkpointing_really_runs_the_layers_again(folders: dict[str, Path]) -> None:
    policy, calls = Policy(folders["llama"], PolicyConfig(device="cpu", checkpointing=True)), []
    policy.causal.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    with policy.training():
        backward(policy.score(as_batch(talks()))[0].sum())
    assert len(calls) == 2


def test_the_reference_stays_where_training_began(folders: dict[str, Path]) -> None:
    policy, conversations = Policy(folders["llama"], PolicyConfig(device="cpu"), reference=True), talks()
    with torch.no_grad():
        for value in policy.parameters():
            value.add_(0.1)
    reference, model = policy.score_reference(as_batch(conversations)), stock(folders["llama"])
    assert not reference.requires_grad
    assert_close_rows(reference, [said(model, one)[0] for one in conversations])
    assert (policy.score(as_batch(conversations))[0] - reference).abs().max() > 0.1


def assert_close_rows(found: Tensor, expected: Sequence[Tensor]) -> None:
    for row, values in zip(found, expected, strict=True):
        torch.testing.assert_close(row[: len(values)].double(), values, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_opens_in_transformers_and_scores_as_the_policy(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    policy = Policy(folders[kind], PolicyConfig(device="cpu"))
    with torch.no_grad():
        for value in policy.parameters():
            value.mul_(1.1)
    policy.save(tmp_path / "saved")
    assert_scores_as(policy, stock(tmp_path / "saved"), talks())
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.get_vocab() == policy.tokenizer.get_vocab()
    assert again.chat_template == policy.tokenizer.chat_template
    for name in ("tokenizer.json", "tokenizer_config.json", "memagent.toml"):
        assert (tmp_path / "saved" / name).read_bytes() == (folders[kind] / name).read_bytes()
    assert "memagent_rows" not in (tmp_path / "saved" / "config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_restored_to_the_bit_from_its_folder(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    policy = Policy(folders[kind], PolicyConfig(device="cpu"))
    with torch.no_grad():
        for value in policy.parameters():
            value.mul_(1.1)
    policy.save(tmp_path)
    assert_same(Policy(tmp_path, PolicyConfig(device="cpu")), policy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_restored_to_the_bit_from_its_state(kind: str, folders: dict[str, Path]) -> None:
    policy = Policy(folders[kind], PolicyConfig(device="cpu"))
    with torch.no_grad():
        for value in policy.parameters():
            value.mul_(1.1)
    fresh = Policy(folders[kind], PolicyConfig(device="cpu"))
    fresh.restore(policy.state())
    assert_same(fresh, policy)


def assert_same(one: Policy, other: Policy) -> None:
    mine, theirs = one.state(), other.state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    batch = as_batch(talks())
    assert torch.equal(one.score(batch)[0], other.score(batch)[0])


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_the_parameters_of_another_model_are_refused_and_nothing_is_changed(change: str, folders: dict[str, Path]) -> None:
    policy = Policy(folders["llama"], PolicyConfig(device="cpu"))
    before = {name: value.clone() for name, value in policy.state().items()}
    given = {name: value + 1 for name, value in before.items()}
    last = list(given)[-1]
    if change == "extra":
        given["another"] = torch.zeros(1)
    elif change == "missing":
        del given[last]
    else:
        given[last] = torch.zeros(3, 3)
    with pytest.raises(TrainingError, match="does not fit this configuration"):
        policy.restore(given)
    assert all(torch.equal(value, before[name]) for name, value in policy.state().items())


class TestLora:
    """Adapters in place of all weights."""

    @pytest.fixture(autouse=True)
    def _peft(self) -> None:
        pytest.importorskip("peft", reason="adapters need the package peft (memagent[train])")

    @staticmethod
    def opened(folder: Path, *, moved: bool = True) -> Policy:
        """A policy with adapters. `moved`: they are not at their start, where they add nothing."""
        torch.manual_seed(5)
        policy = Policy(folder, PolicyConfig(device="cpu", lora=LoraConfig(rank=2, alpha=4.0)), reference=True)
        if moved:
            with torch.no_grad():
                for value in policy.parameters():
                    value.normal_(0, 0.2)
        return policy

    @pytest.mark.parametrize("kind", KINDS)
    def test_adapters_begin_as_the_model_they_are_put_on(self, kind: str, folders: dict[str, Path]) -> None:
        assert_scores_as(self.opened(folders[kind], moved=False), stock(folders[kind]), talks())

    @pytest.mark.parametrize("kind", KINDS)
    def test_only_adapters_are_trained(self, kind: str, folders: dict[str, Path]) -> None:
        policy = self.opened(folders[kind])
        names = list(policy.state())
        assert names
        assert all("lora_" in name for name in names)
        before = {name: value.clone() for name, value in policy.causal.named_parameters()}
        backward(policy.score(as_batch(talks()))[0].sum())
        torch.optim.SGD(policy.parameters(), lr=0.1).step()
        changed = {name for name, value in policy.causal.named_parameters() if not torch.equal(value, before[name])}
        assert changed == set(names)

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_reference_is_the_model_without_adapters(self, kind: str, folders: dict[str, Path]) -> None:
        policy, conversations, model = self.opened(folders[kind]), talks(), stock(folders[kind])
        batch = as_batch(conversations)
        before = policy.score(batch)[0]
        reference = policy.score_reference(batch)
        assert_close_rows(reference, [said(model, one)[0] for one in conversations])
        assert (before - reference).abs().max() > 0.01
        after = policy.score(batch)[0]
        assert torch.equal(before, after)
        assert after.requires_grad

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_saved_is_a_plain_model_with_the_adapters_in_its_weights(
        self, kind: str, folders: dict[str, Path], tmp_path: Path
    ) -> None:
        policy = self.opened(folders[kind])
        before = {name: value.clone() for name, value in policy.state().items()}
        policy.save(tmp_path)
        assert not list(tmp_path.glob("adapter*"))
        model = stock(tmp_path)
        assert not any("lora" in name for name, _ in model.named_parameters())
        assert_scores_as(policy, model, talks())
        after = policy.state()
        assert after.keys() == before.keys()
        assert all(torch.equal(value, before[name]) for name, value in after.items())

    def test_small_adapters_over_weights_in_bfloat16_are_not_rounded_away(
        self, folders: dict[str, Path], tmp_path: Path
    ) -> None:
        policy = Policy(folders["llama"], PolicyConfig(device="cpu", dtype="bfloat16", lora=LoraConfig(rank=2)))
        with torch.no_grad():
            for name, value in policy.named_parameters():
                if "lora_B" in name:
                    value.normal_(std=1e-4, generator=torch.Generator().manual_seed(1))
        policy.save(tmp_path)
        saved, base = stock(tmp_path).state_dict(), stock(folders["llama"]).bfloat16().float().state_dict()
        parts = {name.removeprefix("base_model.model."): value for name, value in policy.state().items()}
        adapted = [name.removesuffix(".lora_A.default.weight") for name in parts if "lora_A" in name]
        assert adapted
        config = policy.adapter.peft_config["default"]
        for name in adapted:
            a, b = parts[f"{name}.lora_A.default.weight"], parts[f"{name}.lora_B.default.weight"]
            delta = config.lora_alpha / config.r * b.float() @ a.float()
            torch.testing.assert_close(saved[f"{name}.weight"] - base[f"{name}.weight"], delta, atol=1e-7, rtol=1e-2)

    def test_adapters_are_restored_to_the_bit_from_the_state(self, folders: dict[str, Path]) -> None:
        policy, fresh = self.opened(folders["llama"]), self.opened(folders["llama"], moved=False)
        fresh.restore(policy.state())
        assert_same(fresh, policy)

    def test_adapters_go_where_they_are_told(self, folders: dict[str, Path]) -> None:
        policy = Policy(folders["llama"], PolicyConfig(device="cpu", lora=LoraConfig(rank=2, targets=("q_proj",))))
        assert policy.state()
        assert all(".q_proj." in name for name in policy.state())
        nowhere = PolicyConfig(device="cpu", lora=LoraConfig(rank=2, targets=("nope",)))
        with pytest.raises(TrainingError, match=r"policy\.lora\.targets: \['nope'\] .*use some of down_proj, gate_proj"):
            Policy(folders["llama"], nowhere)

    def test_checkpointing_gives_adapters_the_same_gradients(self, folders: dict[str, Path]) -> None:
        found = []
        for checkpointing in (False, True):
            torch.manual_seed(5)
            policy = Policy(
                folders["llama"], PolicyConfig(device="cpu", lora=LoraConfig(rank=2), checkpointing=checkpointing)
            )
            with policy.training():
                backward(policy.score(as_batch(talks()))[0].sum())
            found.append([value.grad for value in policy.parameters()])
        assert any(grad is not None and grad.abs().sum() > 0 for grad in found[0])
        torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=str(tmp_path)):
        Policy(tmp_path, PolicyConfig(device="cpu"))


def test_a_device_that_is_not_here_is_named(folders: dict[str, Path]) -> None:
    with pytest.raises(TrainingError, match=r"policy\.device: 'cuda:99' cannot be used here"):
        Policy(folders["llama"], PolicyConfig(device="cuda:99"))


def test_weights_that_are_not_numbers_are_not_saved(folders: dict[str, Path], tmp_path: Path) -> None:
    policy = Policy(folders["llama"], PolicyConfig(device="cpu"))
    with torch.no_grad():
        policy.parameters()[1][0] = torch.inf
    with pytest.raises(TrainingError, match="holds weights that are not numbers, and nothing was saved"):
        policy.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    stock(folders["llama"]).save_pretrained(tmp_path)
    with pytest.raises(TrainingError, match="tokenizer") as failure:
        Policy(tmp_path, PolicyConfig(device="cpu"))
    assert str(tmp_path) in str(failure.value)


def test_a_tokenizer_without_a_model_is_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folders["llama"] / name).read_bytes())
    with pytest.raises(TrainingError, match="no model in") as failure:
        Policy(tmp_path, PolicyConfig(device="cpu"))
    assert str(tmp_path) in str(failure.value)


def test_products_in_bfloat16_score_about_as_float32_over_weights_of_float32(folders: dict[str, Path]) -> None:
    for kind in KINDS:
        exact, rough = (
            Policy(folders[kind], PolicyConfig(device="cpu")),
            Policy(folders[kind], PolicyConfig(device="cpu", bf16=True)),
        )
        batch = as_batch(talks())
        with torch.no_grad():
            assert (exact.score(batch)[0] - rough.score(batch)[0]).abs().max() < 0.5
        assert all(value.dtype == torch.float32 for value in rough.parameters())
        assert rough.score(batch)[0].dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, {"checkpointing": True}, {"lora": LoraConfig(rank=2)}])
def test_a_policy_scores_a_sampled_reply_as_it_was_recorded(
    changes: dict[str, Any], kind: str, folders: dict[str, Path]
) -> None:
    if "lora" in changes:
        pytest.importorskip("peft", reason="adapters need the package peft (memagent[train])")
    assert recorded_error(Policy(folders[kind], PolicyConfig(device="cpu", **changes))) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_with_products_in_bfloat16_can_be_sampled_from(kind: str, folders: dict[str, Path]) -> None:
    assert recorded_error(Policy(folders[kind], PolicyConfig(device="cpu", bf16=True))) < 0.5


def recorded_error(policy: Policy) -> float:
    """How far the recorded log-probabilities of sampled replies are from the policy's score, at most."""
    prompts = [one.prompt for one in talks([(20, 1), (20, 1), (31, 1), (7, 1)])]
    samplings = [Sampling(temperature=1.0, seed=number) for number in range(4)]
    rows = [Row(prompt=one, max_tokens=6, sampling=how) for one, how in zip(prompts, samplings, strict=True)]
    with policy.computing():
        sample(policy.causal, rows, stop_ids=frozenset({3}), pad_id=0)
    found = [Conversation(tuple(row.prompt), tuple(row.ids), tuple(row.logprobs)) for row in rows]
    with torch.no_grad():
        logprob, _ = policy.score(as_batch(found))
    pairs = zip(logprob, found, strict=True)
    return max(float((row[: len(one.reply)] - torch.tensor(one.logprobs)).abs().max()) for row, one in pairs)
