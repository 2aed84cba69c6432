"""In-process models: a folder of weights on transformers, on a CPU or one GPU, in batches."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Self

from memagent.core.types import Completion, Turn
from memagent.errors import ContextTooLongError, MissingExtraError, ModelError
from memagent.models.families import Family
from memagent.models.native import configure
from memagent.models.tokenizers import FileTokenizer

configure()
try:
    import torch
    import transformers

    from memagent.models.beginnings import grouped
    from memagent.models.chat import ChatFormat, stop_ids
    from memagent.models.continuous import ContinuousBatch
    from memagent.models.kinds import takes_drafts, takes_gaps, takes_rows
    from memagent.models.lookup import Lookup
    from memagent.models.sampler import Row, out_of_memory, sample
    from memagent.models.speculation import check_drafts
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise MissingExtraError("an in-process model", "local") from error

log = logging.getLogger("memagent.models")

# Prompt tokens generated together: bounds the memory of activations and cache. More is slower on a CPU
# (docs/results/failed-experiments.md).
BATCH_TOKENS = 65_536
BATCH_TOKENS_CPU = 32_768
# Turns of one reading that are generated in one call: more make no batch larger, and are lost together if it is killed.
TURNS_AT_ONCE = 64
# While transformers opens a model, it changes how torch makes tensors, for all threads: another thread that opens one
# meanwhile gets tensors without data.
_OPENING = RLock()
# Where transformers advises to install faster kernels, once for each, when a model first computes.
_KERNELS = logging.getLogger("transformers.integrations.hub_kernels")


class LocalEngine:
    """Runs a Hugging Face causal language model folder. Completions carry exact token ids and log-probabilities.

    device          "auto" (a GPU if available), or any torch device
    dtype           the name of a torch dtype, or "auto": bfloat16 on a GPU and on processors with native support (about
                    twice as fast), otherwise float32. In bfloat16, a turn alone and in a batch may get different replies if
                    the model is undecided between two tokens
    record_prompts  adds the prompt's token ids to completions; training needs them, long readings should not keep them
    speculate       first checks in one pass whether the reply repeats the memory; this is faster if most replies do, and
                    does not change replies (docs/decisions/0016)
    family          extends the engine for a family of models

    While a memory is written, what follows its last tokens in the old one is guessed and checked, where the model allows
    that (docs/decisions/0024). Raises ModelError if the folder is not a usable model.
    """

    _speculate = _looks_up = _continuous = False
    _family: Family | None = None

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_tokens: int | None = None,
        record_prompts: bool = False,
        name: str | None = None,
        family: Family | None = None,
        speculate: bool = False,
    ) -> None:
        folder = Path(folder)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        with _Fingerprint(folder) as fingerprint:
            tokenizer, model = _load(folder, device, dtype)
            version = fingerprint.hex()
        if family is not None:
            family.prepare(model)
        self._family = family
        self._speculate = speculate and takes_drafts(model.config)
        self._looks_up = takes_gaps(model.config)
        self._continuous = takes_rows(model.config) and not self._speculate
        self._host(model, tokenizer, name or folder.name, version, batch_tokens, record_prompts)

    @classmethod
    def hosting(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        version: str,
        batch_tokens: int | None = None,
        record_prompts: bool = True,
        family: Family | None = None,
        speculate: bool = False,
    ) -> LocalEngine:
        """An engine on a model and a fast tokenizer of transformers that are already in memory: a policy in training.

        The model is prepared for its `family` already. `version` stands in for the fingerprint of a folder; give a new one
        when the weights change.
        """
        engine = cls.__new__(cls)
        engine._family, engine._speculate = family, speculate and takes_drafts(model.config)
        engine._host(model, tokenizer, name, version, batch_tokens, record_prompts)
        return engine

    def _host(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        version: str,
        batch_tokens: int | None,
        record_prompts: bool,
    ) -> None:
        self.model, self._hf_tokenizer = model, tokenizer
        self._chat = ChatFormat(tokenizer)
        self.tokenizer = FileTokenizer(tokenizer.backend_tokenizer, name=name)
        self.window: int | None = getattr(model.config, "max_position_embeddings", None)
        self.overhead = self._chat.overhead
        self.lockstep = True
        self.concurrency = TURNS_AT_ONCE
        self.identity = f"{name}@{version}"
        self._shares = takes_gaps(model.config)
        self.stop_ids = stop_ids(self.model.generation_config.eos_token_id, self._hf_tokenizer)
        self.pad_id = self._hf_tokenizer.pad_token_id or 0
        self.batch_tokens = batch_tokens or (BATCH_TOKENS_CPU if self.model.device.type == "cpu" else BATCH_TOKENS)
        self._record_prompts = record_prompts
        self.lock = Lock()

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        """Generates for all turns, in batches of similar length within the token budget of a batch."""
        began = time.perf_counter()
        rows = [self.row(turn) for turn in turns]
        encoding = (time.perf_counter() - began) / max(1, len(turns))
        results = iter(self.complete([row for row in rows if isinstance(row, Row)], encoding))
        return [next(results) if isinstance(row, Row) else row for row in rows]

    def batch(self) -> ContinuousBatch | None:
        """Turns that are generated together, and that others may join; None where the model does not take that, or whole
        drafts are checked first, or a policy is in training (`hosting`)."""
        return ContinuousBatch(self) if self._continuous else None

    def row(self, turn: Turn) -> Row | ContextTooLongError:
        """A turn as token ids, with what may be guessed of its reply; or why it does not fit the window."""
        prompt = self._chat.encode(turn.messages)
        if self.window is not None and len(prompt) + turn.max_tokens > self.window:
            return ContextTooLongError(
                f"{len(prompt)} prompt tokens + {turn.max_tokens} to generate exceed the window of {self.window}"
            )
        row = Row(prompt=prompt, max_tokens=turn.max_tokens, sampling=turn.sampling)
        self._draft(turn, row)
        return row

    def complete(self, rows: Sequence[Row], encoding: float = 0.0) -> list[Completion | ModelError]:
        """Generates for prompts of token ids, failures in place. A completion's `seconds` are its share of the call, and
        `encoding`."""
        lost = set[int]()
        with self.lock:
            began = time.perf_counter()
            for batch in self._batches([row for row in rows if row.draft]):
                self._in_parts(check_drafts, batch)  # a draft only saves time: what there is no memory for is generated
            for batch in self._batches([row for row in rows if not row.done]):
                lost |= {id(row) for row in self._in_parts(sample, batch)}
            seconds = encoding + (time.perf_counter() - began) / max(1, len(rows))
        return [self.too_much(row) if id(row) in lost else self.completion(row, seconds) for row in rows]

    def _in_parts(self, work: Callable[..., None], batch: list[Row]) -> list[Row]:
        """Does something with the rows of a batch, in halves, quarters and so on if memory runs out; the next batches are
        smaller from then on. Returns the rows that there is no memory for, each alone."""
        parts, lost = [batch], list[Row]()
        while parts:
            part = parts.pop()
            if self._done(work, part):
                continue
            if len(part) == 1:
                lost += part
                continue
            half = self.halve(part)
            # What was done before memory ran out stays: a row goes on from there.
            parts += [part[half:], part[:half]]
        return lost

    def halve(self, rows: Sequence[Row]) -> int:
        """Half of the rows, for which memory ran out. From now on, no more tokens are generated at once than these take."""
        half = (len(rows) + 1) // 2
        self.batch_tokens = min(self.batch_tokens, half * max(row.places for row in rows))
        log.warning("out of memory with %d prompts at once: going on with %d", len(rows), half)
        return half

    @staticmethod
    def too_much(row: Row) -> ModelError:
        """There is no memory for a row, alone."""
        return ModelError(
            f"out of memory with one prompt of {len(row.prompt)} tokens and {row.max_tokens} to generate: use smaller"
            " chunks or a smaller memory"
        )

    def _done(self, work: Callable[..., None], part: Sequence[Row]) -> bool:
        """Whether there was memory for it."""
        left = [row for row in part if not (row.ids if work is check_drafts else row.done)]
        try:
            if left:
                work(self.model, left, stop_ids=self.stop_ids, pad_id=self.pad_id)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            return False
        return True

    def _draft(self, turn: Turn, row: Row) -> None:
        if not turn.draft or not (self._speculate or self._looks_up):
            return
        ids = self._chat.encode_reply(self._family.written(turn.draft) if self._family else turn.draft)
        if (end := self._hf_tokenizer.eos_token_id) in self.stop_ids:
            ids = [*ids, end]
        if self._looks_up:
            row.lookup = Lookup(ids)
        if self._speculate:
            row.draft = ids[: turn.max_tokens]

    async def agenerate(self, turn: Turn) -> Completion:
        [result] = await asyncio.to_thread(self.generate, [turn])
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Releases the weights."""
        self.model = None

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        batch: list[Row] = []
        widest = 0
        for row in self._in_order(rows):
            widest = max(widest, row.places)
            if batch and (len(batch) + 1) * widest > self.batch_tokens:
                yield batch
                batch, widest = [], row.places
            batch.append(row)
        if batch:
            yield batch

    def _in_order(self, rows: Sequence[Row]) -> list[Row]:
        """Equal prompts together, and those that begin alike where that is of use; else short ones before long ones."""
        ordered = sorted(rows, key=lambda row: (len(row.prompt), row.prompt))
        if not self._shares:
            return ordered
        groups = grouped(prompts := list(dict.fromkeys(tuple(row.prompt) for row in ordered)))
        groups.sort(key=lambda group: max(len(prompts[index]) for index in group.members))
        place = {prompts[index]: number for number, group in enumerate(groups) for index in group.members}
        return sorted(ordered, key=lambda row: place[tuple(row.prompt)])

    def completion(self, row: Row, seconds: float) -> Completion:
        """What a turn is given for a row that is done."""
        return Completion(
            text=self._hf_tokenizer.decode(row.ids, skip_special_tokens=True),
            finish=row.finish,
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.ids),
            prompt_ids=tuple(row.prompt) if self._record_prompts else None,
            token_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            seconds=seconds,
        )


def _load(folder: Path, device: str, dtype: str) -> tuple[Any, Any]:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json")
    kind = _fast_dtype(device) if dtype == "auto" else dtype
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, dtype=getattr(torch, kind)
            )
            model.to(torch.device(device))
    except Exception as error:  # whatever is wrong with a folder, transformers raises its own kind of it
        raise ModelError(f"cannot open the model in {folder}: {error}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"the model in {folder} has no fast tokenizer (tokenizer.json)")
    return tokenizer, model.eval()


def _fast_dtype(device: str) -> str:
    if device.startswith("cuda"):
        return "bfloat16"
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    native = able.get("avx512_bf16") or able.get("amx_bf16")
    return "bfloat16" if native else "float32"


@contextmanager
def quiet() -> Iterator[None]:
    """Hides progress bars and advice while a model is opened or saved, by one thread at a time.

    Advice on kernels comes later, and is hidden from then on.
    """
    log = transformers.utils.logging
    with _OPENING:
        _KERNELS.addFilter(_is_no_advice)  # one that is there already is not added again
        bars, verbosity = log.is_progress_bar_enabled(), log.get_verbosity()
        log.disable_progress_bar()
        log.set_verbosity_error()
        try:
            yield
        finally:
            log.set_verbosity(verbosity)
            if bars:
                log.enable_progress_bar()


def _is_no_advice(record: logging.LogRecord) -> bool:
    return "is falling back to its reference" not in record.getMessage()


class _Fingerprint:
    """Twelve hex digits that change when configuration, tokenizer or weights do. All bytes count, because training may
    leave most of them as they are: the files are read while the model is loaded, several at a time."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for kind in _FILES for path in folder.glob(kind))
        self._pool = ThreadPoolExecutor(thread_name_prefix="memagent-fingerprint")
        self._parts = [(path.name, self._pool.submit(_digest, path)) for path in paths]

    def hex(self) -> str:
        return hashlib.sha256(json.dumps([[name, part.result()] for name, part in self._parts]).encode()).hexdigest()[:12]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)  # of a model that could not be loaded


_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.safetensors", "*.bin")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
