"""What a reply means: pure rules from a completion to a memory or an answer.

| the reply                                  | rules "careful" (default)                  | rules "paper"            |
|--------------------------------------------|--------------------------------------------|--------------------------|
| a memory within its budget                 | replaces the memory                        | the same                 |
| over the budget, or cut at the length limit| asked once more, shorter; then what fits,  | what fits replaces the   |
|                                            | up to its last whole line or sentence      | memory                   |
| empty (or reasoning only)                  | asked once more; then the memory stays     | the memory becomes empty |
| prose such as "no change"                  | the memory stays                           | the prose is the memory  |
| empty answer                               | asked once more; then an empty answer      | an empty answer          |

Reasoning never enters a memory or an answer under either set of rules.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from memagent.core.types import Completion, Tokenizer

Rules: TypeAlias = Literal["careful", "paper"]
Outcome: TypeAlias = Literal[
    "start",  # no turn yet
    "kept",  # the reply replaced the memory
    "fitted",  # the reply was too long; what fits replaced the memory
    "unchanged",  # the reply said that nothing changes; the memory stays
    "empty",  # the reply was empty
    "retry_long",  # too long; the turn is asked again
    "retry_empty",  # empty; the turn is asked again
    "split",  # the prompt did not fit the window; the chunk was halved
    "answered",  # the reply is the answer
]

_THINK_OPEN = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{")
_SENTENCE = re.compile(r"[.!?。！？][\"'”’)\]]*(?=\s|$)|\n")

# A reply in none but these words, one of the negative and one of the topical among them, says that nothing changed.
_NEGATIVE = frozenset("no not nothing unchanged same keep keeping none".split())
_TOPICAL = frozenset(
    "change changes changed unchanged update updates updated information info details facts memory nothing".split()
)
_FILLING = frozenset(
    "the my this that it there i a any all so and as at to in from for of here above before is are was were has have been"
    " be do does need needs needed required necessary remain remains stay stays new relevant further additional useful"
    " helpful previous current existing old section chunk text passage article document part contain contains provide"
    " provides provided found add adds added question problem content".split()
)
_WORD = re.compile(r"[^\W_]+")


def reply_text(completion: Completion, shown: str) -> str:
    """The reply without reasoning, stripped of outer white space.

    A leading `<think>` block is removed; one that never closes leaves nothing. A closing tag alone means that the chat
    template opened the block: everything up to it is reasoning, unless the tag stands in `shown`, the text the model was
    given, where it may simply have been quoted.
    """
    text = completion.text
    if opened := _THINK_OPEN.match(text):
        closed = _THINK_CLOSE.search(text, opened.end())
        return text[closed.end() :].strip() if closed else ""
    closed = _THINK_CLOSE.search(text)
    if closed and not _THINK_CLOSE.search(shown):
        text = text[closed.end() :]
    return text.strip()


def says_no_change(reply: str) -> bool:
    """True if the reply says that nothing changed, and nothing else (English)."""
    words = {word.lower() for word in _WORD.findall(reply)}
    known = _NEGATIVE | _TOPICAL | _FILLING
    return bool(words & _NEGATIVE) and bool(words & _TOPICAL) and words <= known


def over_budget(reply: str, completion: Completion, budget: int, tokenizer: Tokenizer) -> bool:
    """True if the reply was cut at the length limit or holds more than `budget` tokens.

    Where the tokenizer only estimates, the server's own count decides, unless reasoning is part of it.
    """
    if completion.finish == "length":
        return True
    if tokenizer.exact:
        return tokenizer.count(reply) > budget
    reasoned = completion.reasoning or reply != completion.text.strip()
    return not reasoned and completion.completion_tokens > budget + 1  # the end token counts as one


def fit(reply: str, budget: int, tokenizer: Tokenizer, whole_lines: bool) -> str:
    """The longest beginning of `reply` within `budget` tokens; with `whole_lines`, back to a line or sentence end.

    Text after the last sentence end is dropped only if at least half of what fits remains.
    """
    fitted = reply
    while tokenizer.count(fitted) > budget:
        ends = tokenizer.ends(fitted)
        cut = ends[budget - 1] if len(ends) > budget else len(fitted) - 1
        fitted = fitted[: min(cut, len(fitted) - 1)].rstrip()
    if whole_lines:
        stops = [match.end() for match in _SENTENCE.finditer(fitted)]
        if stops and stops[-1] * 2 >= len(fitted):
            fitted = fitted[: stops[-1]]
    return fitted.strip()


def boxed(reply: str) -> str | None:
    r"""The content of the last `\boxed{…}` with balanced braces, or None."""
    for match in reversed(list(_BOXED.finditer(reply))):
        depth = 1
        for place in range(match.end(), len(reply)):
            depth += {"{": 1, "}": -1}.get(reply[place], 0)
            if not depth:
                return reply[match.end() : place].strip()
    return None
