"""An engine that answers from a Python function or a list: for tests, examples and documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from memagent.core.types import Completion, Tokenizer, Turn
from memagent.models.tokenizers import ByteTokenizer


class ScriptedModel:
    """Replies from `script`: a function of the turn, or replies in order. A reply may be text, a Completion or an error.

    Every turn it was given is kept in `turns`. A list that has run out raises IndexError: a test that asks too often fails.
    """

    def __init__(
        self,
        script: Callable[[Turn], str | Completion | Exception] | Iterable[str | Completion | Exception],
        *,
        window: int | None = None,
        tokenizer: Tokenizer | None = None,
        name: str = "scripted",
    ) -> None:
        self._script = script if callable(script) else self._in_order(list(script))
        self.identity = name
        self.window = window
        self.overhead = 0
        self.lockstep = True
        self.concurrency = 8
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.turns: list[Turn] = []
        self._lock = Lock()

    @staticmethod
    def _in_order(replies: list[str | Completion | Exception]) -> Callable[[Turn], str | Completion | Exception]:
        remaining = iter(replies)

        def reply(turn: Turn) -> str | Completion | Exception:
            for value in remaining:
                return value
            raise IndexError(f"the script has {len(replies)} replies; turn {turn.id!r} asks for one more")

        return reply

    def generate(self, turns: Sequence[Turn]) -> list[Completion | Exception]:
        return [self._answer(turn) for turn in turns]

    async def agenerate(self, turn: Turn) -> Completion:
        result = self._answer(turn)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Nothing to release."""

    def _answer(self, turn: Turn) -> Completion | Exception:
        with self._lock:
            self.turns.append(turn)
            reply = self._script(turn)
        if not isinstance(reply, str):
            return reply
        return Completion(
            text=reply,
            prompt_tokens=self.tokenizer.count(turn.system + turn.user),
            completion_tokens=self.tokenizer.count(reply),
        )
