"""The policy as verl serves it: turns as token ids in, exact token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from ray.exceptions import RayError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from memagent.core import Completion, Turn
from memagent.errors import ContextTooLongError, ModelError, ModelReplyError, ModelUnavailableError
from memagent.models.chat import ChatFormat, stop_ids
from memagent.models.open import OpenModel, narrowed, read_defaults
from memagent.models.tokenizers import FileTokenizer


class ServedEngine:
    """Turns of readings for the rollout servers of a run. `client` is verl's: it knows which server has room.

    Without a client it counts and cuts, and cannot generate.
    """

    lockstep = False
    concurrency = 8

    def __init__(self, folder: Path, client: Any = None, *, seeded: bool = False) -> None:
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
            raise ModelError(f"the model in {folder} cannot be opened: {error}") from error
        if not getattr(self._tokenizer, "is_fast", False):
            raise ModelError(f"the model in {folder} has no fast tokenizer (tokenizer.json)")
        known, tokens = config.vocab_size, self._tokenizer.vocab_size  # without added tokens, which nothing may ever use
        if tokens > known:
            raise ModelError(
                f"{folder}: the tokenizer has {tokens} tokens, the model knows {known}: they do not belong together"
            )
        self._chat = ChatFormat(self._tokenizer)
        self._client, self._seeded = client, seeded
        self._stop = _stop_ids(folder, config, self._tokenizer)
        self.tokenizer = FileTokenizer(self._tokenizer.backend_tokenizer, name="policy")
        self.window: int | None = getattr(config, "max_position_embeddings", None)
        self.overhead = self._chat.overhead
        self.identity = f"verl:{folder.name}"

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        """Not supported: each reading is driven on its own."""
        raise ModelError("a policy that verl serves generates with `agenerate` only")

    async def agenerate(self, turn: Turn) -> Completion:
        """One turn. Raises ContextTooLongError for a prompt that leaves no room, ModelReplyError for a broken reply, and
        ModelUnavailableError when no server answers."""
        prompt = self._chat.encode(turn.messages)
        if self.window is not None and len(prompt) + turn.max_tokens > self.window:
            raise ContextTooLongError(
                f"{len(prompt)} prompt tokens + {turn.max_tokens} to generate exceed the window of {self.window}"
            )
        try:
            output = await self._client.generate(
                request_id=uuid4().hex, prompt_ids=prompt, sampling_params=self._sampling(turn)
            )
        except (RayError, RuntimeError, ValueError) as error:  # the server has died, there is none, it refuses the prompt
            raise ModelUnavailableError(f"the rollout server did not answer: {error}") from error
        ids = tuple(output.token_ids)
        if not ids or output.log_probs is None or len(output.log_probs) != len(ids):
            raise ModelReplyError(
                f"the rollout server gave {len(ids)} tokens and {len(output.log_probs or ())} log-probabilities"
                f" (stopped: {output.stop_reason})"
            )
        return Completion(
            text=self._tokenizer.decode(ids, skip_special_tokens=True),
            finish="stop" if ids[-1] in self._stop else "length",
            prompt_tokens=len(prompt),
            completion_tokens=len(ids),
            prompt_ids=tuple(prompt),
            token_ids=ids,
            logprobs=tuple(output.log_probs),
        )

    def close(self) -> None: ...

    def _sampling(self, turn: Turn) -> dict[str, Any]:
        """Memories and answers have budgets of their own, so the limit goes with every request."""
        chosen: dict[str, Any] = {
            "temperature": turn.sampling.temperature,
            "top_p": turn.sampling.top_p,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": turn.max_tokens,
            "stop_token_ids": sorted(self._stop),
        }
        return chosen | ({"seed": turn.sampling.seed} if self._seeded else {})


def served_model(folder: Path, client: Any = None, *, seeded: bool = False) -> OpenModel:
    """The policy with the window and the defaults of its folder's memagent.toml."""
    return narrowed(ServedEngine(folder, client, seeded=seeded), read_defaults(folder))


def _stop_ids(folder: Path, config: Any, tokenizer: Any) -> frozenset[int]:
    try:
        configured = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
    except OSError:  # the folder has no generation_config.json
        configured = config.eos_token_id
    return stop_ids(configured, tokenizer)
