"""What readers share that show one excerpt of the document, or all of it, in one prompt.

A model that was only trained to update a memory cannot answer from a text. With `through_memory` it is shown the excerpt as
one chunk instead, and answers from the memory that it makes of it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from memagent.core.budgets import JOIN_SLACK
from memagent.core.chunking import Cutter
from memagent.core.readers.chunkwise import ChunkState, Spans, check_window, read
from memagent.core.readers.memory import MemoryReader
from memagent.core.reading import Plan, whole
from memagent.core.types import Span, Text, Tokenizer
from memagent.errors import ConfigError, TooLongError

# More characters than that for each token are no text that a tokenizer was made for.
TOKEN_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcerptReader(MemoryReader):
    """One prompt, or with `through_memory` one memory update and the answer. A subclass chooses the excerpt."""

    grows: ClassVar[bool] = False

    through_memory: bool = False

    @abstractmethod
    def chosen(self, plan: Plan, room: int, cutter: Cutter) -> Spans:
        """What is shown of a document of more than `room` tokens: spans in order that with the marks between them fit."""

    def prepare(self, plan: Plan, window: int | None, overhead: int, cutter: Cutter) -> Plan:
        room = self.room(plan)
        excerpt = None if self.takes_all(plan, room) else self.chosen(plan, room, cutter)
        tokens = plan.tokenizer.count(read(plan.text, excerpt or (Span(start=0, end=len(plan.text)),)))
        return self.checked(replace(plan, excerpt=excerpt, chunks=whole(plan.text, tokens)), window, overhead)

    def takes_all(self, plan: Plan, room: int) -> bool:
        """Whether all of the document is shown."""
        return fits(plan.text, plan.tokenizer, room)

    def room(self, plan: Plan) -> int:
        """Tokens of the document that may be shown: as many as chunk and memory of an update together, or as its chunk."""
        return plan.budgets.chunk + (0 if self.through_memory else plan.budgets.memory)

    def checked(self, plan: Plan, window: int | None, overhead: int) -> Plan:
        """The plan, if what it shows fits the window. Raises ConfigError or TooLongError."""
        if self.through_memory:
            check_window(plan, window, overhead)
        else:
            check_prompt(plan, window, overhead)
        return plan

    def parts(self, plan: Plan) -> int:
        return len(plan.chunks) if self.through_memory else 0

    def answer_prompt(self, plan: Plan, state: ChunkState) -> str:
        if self.through_memory:
            return super(ExcerptReader, self).answer_prompt(plan, state)
        return plan.prompt("direct", document=read(plan.text, self.answer_spans(plan)))

    def answer_spans(self, plan: Plan) -> Spans:
        return () if self.through_memory else plan.shown(0)


def check_prompt(plan: Plan, window: int | None, overhead: int) -> None:
    """Raises ConfigError if the profile cannot ask for an answer from a text, TooLongError if the prompt does not fit."""
    if not plan.profile.direct:
        raise ConfigError(
            f"the profile {plan.profile.name!r} has no wording for an answer from a text ('direct'): use another reader"
        )
    shown = plan.profile.system + plan.prompt("direct", document="") + plan.note(True, 9999)
    wording = plan.tokenizer.count(shown) + plan.answer_note
    need = plan.tokens + wording + overhead + JOIN_SLACK + plan.budgets.answer_tokens
    if window is not None and need > window:
        raise TooLongError(
            f"the document does not fit the window whole: {plan.tokens} tokens + {need - plan.tokens} of wording and answer"
            f" = {need}, the window is {window}: use the reader 'memory'"
        )


def fits(text: Text, tokenizer: Tokenizer, room: int) -> bool:
    """Whether the whole text has at most `room` tokens. A text that is certainly longer is not tokenized."""
    return len(text) <= room * TOKEN_CHARS and tokenizer.count(text.read(0, len(text))) <= room
