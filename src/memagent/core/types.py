"""The values of the protocol, and the ports (Protocols) through which the outside world is handed in.

Everything here is frozen and holds no resource. Offsets are always characters (Unicode code points) into the document's
text, half open: [start, end). Token counts are those of the tokenizer handed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol, TypeAlias, runtime_checkable

# update: may change the memory · note: one of many that are merged later · merge: notes into one note or the memory ·
# query: what to look for next · answer: ends the reading · verify: checks the answer, after the reading
TurnKind: TypeAlias = Literal["update", "note", "merge", "query", "answer", "verify"]
Finish: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Characters [start, end) of a document."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. temperature 0 is greedy. `seed` makes a whole reading repeatable where the engine can."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None

    def own(self, text: str) -> Sampling:
        """The same sampling with a seed of its own, which is a function of `text`."""
        return replace(self, seed=int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One conversation to generate: what an engine receives. Complete in itself: no history, no handle.

    `id` names the turn within its reading, whatever the order in which turns are answered. `spans` are the characters of
    the document that it shows, or that the notes it shows were taken from, in order (none for an answer from the memory).
    `draft` is a good guess at the reply, such as the memory as it stands: an engine may use it for speculative decoding.
    `tokens` is the sum of its parts' tokens as the reading's tokenizer counts each, where that is known at little cost:
    those of `user`, or a few more, because tokens may join where parts meet. 0: unknown.
    """

    id: str
    kind: TurnKind
    user: str
    system: str = ""
    max_tokens: int
    sampling: Sampling = Sampling()
    spans: tuple[Span, ...] = ()
    draft: str = ""
    tokens: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation in chat form: an optional system message, then the user message."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, {"role": "user", "content": self.user}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine returned for one turn.

    `text` is the reply. `reasoning` is thinking that the server delivered in a field of its own. `tokens` and `logprobs`
    (one per generated token, end token included) are present where the engine knows them exactly: training needs them.
    """

    text: str
    finish: Finish = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning: str = ""
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was asked of a model: calls, tokens, and seconds spent waiting for the engine."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})


def usage_of(completions: Iterable[Completion]) -> Usage:
    """What completions cost in all."""
    total = Usage()
    for one in completions:
        total += Usage(
            calls=1,
            prompt_tokens=one.prompt_tokens,
            completion_tokens=one.completion_tokens,
            cached_tokens=one.cached_tokens,
            seconds=one.seconds,
        )
    return total


class Text(Protocol):
    """A document's text, readable by character offsets without holding all of it in memory."""

    def __len__(self) -> int:
        """Length in characters."""
        ...

    def read(self, start: int, end: int) -> str:
        """Characters [start, end). Offsets past the end are clipped, as in slicing."""
        ...


class Tokenizer(Protocol):
    """Counts and locates tokens, in any thread. `exact` is False where counts are an upper estimate.

    One that has `at_once`, a number, is asked by so many threads at once when a document is cut; others by one a core. One
    whose `words_apart` is true has no token that reaches over the space between two words, alone or in a longer text.
    """

    @property
    def name(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    def count(self, text: str) -> int:
        """How many tokens `text` is on its own, without special tokens."""
        ...

    def ends(self, text: str) -> Sequence[int]:
        """For each token, the character offset just after it: non-decreasing, the last one is len(text)."""
        ...


# Characters of scripts that have no spaces between words (Thai, Japanese, Chinese), for a class of a pattern.
UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"


class Ranker(Protocol):
    """Ranks passages of a text against a query. Readers that search a document are handed one.

    A reader may ask about the same passages many times, so an implementation is free to keep an index of them.
    """

    def __call__(self, text: Text, passages: Sequence[Span], query: str) -> list[int]:
        """The numbers of the passages, best first; of equal ones, the earlier first."""
        ...


class Batch(Protocol):
    """Turns that an engine works on together. More may be added while others are under way.

    A turn that failed has its exception in its place, whatever it is.
    """

    def add(self, key: Hashable, turn: Turn) -> None:
        """One more turn, under a name of the caller's. `step` may be under way in another thread."""
        ...

    def discard(self, key: Hashable) -> None:
        """Gives up a turn: nothing comes of it, unless it has ended by now. As `add`, from any thread."""
        ...

    @property
    def idle(self) -> bool:
        """Whether no turn is under way; others may wait."""
        ...

    def step(self) -> list[tuple[Hashable, Completion | Exception]]:
        """Goes on until a turn ends, and returns those that have ended, each once; nothing if there is none."""
        ...


@runtime_checkable
class Batching(Protocol):
    """An engine in process that may take turns while it works on others (continuous batching)."""

    def batch(self) -> Batch | None:
        """An empty batch; None if all turns of a call have to be there when it begins."""
        ...


@runtime_checkable
class Engine(Protocol):
    """A way to reach a model. An engine is given turns and gives back completions; it knows nothing of readings.

    `identity` names model and weights, without secrets: a journal compares it on resume. `window` is the longest prompt +
    reply in tokens (None: unknown). `overhead` is the number of tokens the engine's chat form adds around a message.
    `lockstep` says how turns are best run: True, many in one `generate` call or one `Batch` (in process); False, each on
    its own with `agenerate` (a server, which batches what it has in flight). `concurrency` is how many turns of one reading
    are worth having under way at once.
    """

    @property
    def identity(self) -> str: ...

    @property
    def window(self) -> int | None: ...

    @property
    def overhead(self) -> int: ...

    @property
    def lockstep(self) -> bool: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        """Answers independent turns, in order. A turn that failed yields its exception in place, never a short list."""
        ...

    async def agenerate(self, turn: Turn) -> Completion:
        """Answers one turn; many may be in flight. Raises a ModelError."""
        ...

    def close(self) -> None: ...
