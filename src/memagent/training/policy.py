"""The policy: a causal language model that is sampled from, scored and trained.

Shapes: N rows, T tokens, R reply tokens, K tokens that are scored, V vocabulary. Rows are padded on the right: what a
causal model gives at a token does not depend on what follows, so no mask is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from memagent.errors import MissingExtraError, TrainingError
from memagent.models.ends import reach, reply_hidden
from memagent.models.families import open_family
from memagent.models.local import quiet
from memagent.models.open import read_defaults
from memagent.training.config import LoraConfig, PolicyConfig
from memagent.training.model import BESIDE_WEIGHTS, load_model
from memagent.training.rows import Batch


class Policy:
    """The weights and the tokenizer of a folder, computed with as `config` says.

    `reference`: the weights of the start are kept, to be compared with. `temperature` is that of the sampling: it is part
    of what is scored. Raises TrainingError if there is no model to open.
    """

    def __init__(self, folder: Path, config: PolicyConfig, *, reference: bool = False, temperature: float = 1.0) -> None:
        self._temperature = temperature
        self.device = device_of(config)
        self.bf16 = config.bf16
        self.tokenizer: Any = open_tokenizer(folder)
        self._beside = {name: (folder / name).read_bytes() for name in BESIDE_WEIGHTS if (folder / name).is_file()}
        causal: Any = load_model(folder)
        self.causal: Any = causal.to(self.device, getattr(torch, config.dtype)).eval()
        self.adapter: Any = None
        if config.lora.rank:
            self.adapter = _adapt(self.causal, config.lora)
        if (family := open_family(read_defaults(folder).family)) is not None:
            family.prepare(self.causal)
        fast = self.adapter is None and not config.checkpointing
        self._reach = reach(self.causal) if fast else None  # of the forward pass that computes replies only
        self._checkpointed: list[Any] = []  # layers
        if config.checkpointing:
            self.causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.causal.enable_input_require_grads()
            self._checkpointed = _without_dropout(self.causal)
        # With adapters the reference is the same model without them; otherwise a frozen copy.
        self._reference = copy.deepcopy(self.causal).requires_grad_(False) if reference and self.adapter is None else None

    def reads_as(self, settings: str) -> None:
        """What memagent.toml says in folders of these weights, unless that of the start says something."""
        self._beside.setdefault("memagent.toml", settings.encode())

    @property
    def window(self) -> int | None:
        """The tokens that the model computes with at once, if its configuration says so."""
        window: int | None = getattr(self.causal.config, "max_position_embeddings", None)
        return window

    @property
    def computes_ends(self) -> bool:
        """Whether there is a forward pass that computes replies only (`memagent.models.ends`)."""
        return self._reach is not None

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that are trained."""
        return [value for _, value in self.named_parameters()]

    def named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The same with their names."""
        return [(name, value) for name, value in self.causal.named_parameters() if value.requires_grad]

    def score(self, batch: Batch, *, entropy: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities [N, R] of the replies' tokens, and the entropy of what could have stood there, in nats.

        Where there is no token both are 0. `entropy`: with a gradient; otherwise it is only looked at.
        """
        return self._score(self.causal, batch, entropy)

    @torch.no_grad()
    def score_reference(self, batch: Batch) -> Tensor:
        """The log-probabilities [N, R] under the weights that training started from."""
        if self.adapter is not None:
            with self.adapter.disable_adapter():
                return self._score(self.causal, batch, False)[0]
        assert self._reference is not None, "the policy was opened without a reference"
        return self._score(self._reference, batch, False)[0]

    @contextmanager
    def training(self) -> Iterator[None]:
        """Activation checkpointing works in the training mode of a layer only; sampling needs the other."""
        for layer in self._checkpointed:
            layer.training = True  # and nothing inside it
        try:
            yield
        finally:
            self.causal.eval()

    def logits(self, batch: Batch) -> Tensor:
        """Logits [K, V] at the tokens before those of the replies, row by row."""
        return self._logits(self.causal, batch)

    def _logits(self, model: Any, batch: Batch) -> Tensor:
        ids_NT = torch.tensor(batch.ids, device=self.device)
        at_NR = torch.tensor(batch.at, device=self.device)
        keep_NR = torch.tensor(batch.kind, device=self.device) >= 0
        with self.computing():
            if self._reach is not None and int(at_NR.min()) >= self._reach:
                hidden_NRD = reply_hidden(model, ids_NT, at_NR)
                return functional.linear(hidden_NRD[keep_NR], model.lm_head.weight).float()
            # The stock forward with all it does to its logits, from the earliest reply on.
            first = int(at_NR.min())
            logits_NSV = model(input_ids=ids_NT, use_cache=False, logits_to_keep=ids_NT.shape[1] - first).logits
            picked_KV: Tensor = logits_NSV[keep_NR.nonzero()[:, 0], (at_NR - first)[keep_NR]].float()
            return picked_KV

    def _score(self, model: Any, batch: Batch, entropy: bool) -> tuple[Tensor, Tensor]:
        keep_NR = torch.tensor(batch.kind, device=self.device) >= 0
        target_K = torch.tensor(batch.target, device=self.device)[keep_NR]
        logits_KV = self._logits(model, batch) / self._temperature
        total_K = logits_KV.logsumexp(-1)
        logprob_K = logits_KV.gather(1, target_K[:, None])[:, 0] - total_K
        with nullcontext() if entropy else torch.no_grad():
            entropy_K = total_K - (functional.softmax(logits_KV, dim=-1) * logits_KV).sum(-1)
        zeros_NR = torch.zeros(keep_NR.shape, device=self.device)
        return zeros_NR.masked_scatter(keep_NR, logprob_K), zeros_NR.masked_scatter(keep_NR, entropy_K)

    def computing(self) -> AbstractContextManager[Any]:
        """The precision that training computes in: to be sampled from as it is scored."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    def state(self) -> dict[str, Tensor]:
        """The trained parameters by name: what an exact resume needs."""
        return {name: value.detach().cpu() for name, value in self.named_parameters()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Takes trained parameters back. Raises TrainingError if they are another model's."""
        mine = dict(self.named_parameters())
        if set(mine) != set(state) or any(mine[name].shape != value.shape for name, value in state.items()):
            raise TrainingError("the checkpoint does not fit this configuration: it holds other parameters")
        with torch.no_grad():
            for name, value in mine.items():
                value.copy_(state[name])

    def save(self, folder: Path) -> None:
        """Writes a folder that transformers opens: adapters merged into the weights, the tokenizer's files as they were.
        They are merged and written in float32: bfloat16 would round most of a small update away.

        Raises TrainingError for weights that are not numbers.
        """
        if broken := next((name for name, value in self.named_parameters() if not torch.isfinite(value).all()), None):
            raise TrainingError(
                f"{broken} holds weights that are not numbers, and nothing was saved: go on from the last checkpoint with a"
                " lower rate"
            )
        folder.mkdir(parents=True, exist_ok=True)
        model = self.causal
        if self.adapter is not None:
            model = copy.deepcopy(self.adapter).to("cpu", torch.float32).merge_and_unload()
        with quiet():
            model.save_pretrained(folder)
        for name, content in self._beside.items():
            (folder / name).write_bytes(content)


def _without_dropout(causal: Any) -> list[Any]:
    """The layers whose activations can be computed twice. Their own dropout is off: what is scored must be what was
    sampled. Raises TrainingError for a model that has none."""
    layers = [part for part in causal.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise TrainingError(f"{type(causal).__name__} cannot compute activations twice: set policy.checkpointing = false")
    for layer in layers:
        for name, value in vars(layer).items():
            if "dropout" in name and isinstance(value, float):
                setattr(layer, name, 0.0)
    return layers


def device_of(config: PolicyConfig) -> torch.device:
    """Where a policy is computed with. Raises TrainingError if this machine has no such device."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch has no class of its own for it
        reason = str(error).splitlines()[0]
        raise TrainingError(f"policy.device: {config.device!r} cannot be used here ({reason}): use 'auto'") from error
    return device


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder. Raises TrainingError."""
    if not (folder / "config.json").is_file():
        raise TrainingError(
            f"no model in {folder}: `start` is a Hugging Face folder with config.json, weights and tokenizer"
        )
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
        raise TrainingError(f"the tokenizer in {folder} cannot be opened: {error}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise TrainingError(f"the model in {folder} has no fast tokenizer (tokenizer.json)")
    return tokenizer


def _adapt(model: Any, lora: LoraConfig) -> Any:
    """Puts adapters (arXiv 2106.09685) into the model, in place. The handle returned switches them off and merges them."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("LoRA", "train") from error
    targets: Any = list(lora.targets) or "all-linear"
    config = peft.LoraConfig(r=lora.rank, lora_alpha=cast(int, lora.alpha), target_modules=targets, task_type="CAUSAL_LM")
    with torch.random.fork_rng(devices=[]):  # adapters begin alike in every run, and in every process of one
        torch.manual_seed(0)
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
            layers = sorted({name.rpartition(".")[2] for name in linear})
            raise TrainingError(
                f"policy.lora.targets: {targets!r} cannot be adapted ({error}): use some of {', '.join(layers)}"
            ) from error
