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

_NOTHING = r"(?:no (?:\w+ ){0,3}(?:change|changes|update|updates|information|content|facts?)|nothing)"
_NO_CHANGE = re.compile(
    r"(?:the |my |this |previous |current |updated |new )*"
    r"(?:"
    r"no (?:further |new |relevant )*(?:change|changes|update|updates)(?: \w+){0,6}"
    r"|nothing (?:new |has |was |relevant |in this \w+ )*(?:changed|changes|to add|to update|added|new)(?: \w+){0,4}"
    r"|unchanged|same as (?:before|above|previous)(?: \w+){0,2}"
    r"|memory (?:remains|is|stays|was) (?:the same|unchanged|not (?:changed|updated))(?: \w+){0,6}"
    r"|(?:the |this )?(?:section|chunk|text|passage|article) (?:contains|has|provides|adds|does not contain)"
    r" (?:no|any|nothing)(?: \w+){0,8}"
    r"|keep (?:the )?(?:previous |current )?memory(?: \w+){0,4}"
    rf"|{_NOTHING} (?:new|relevant|needs?|is|was|found)(?: \w+){{0,6}}"
    r")",
    re.IGNORECASE,
)
_NO_CHANGE_CHARS = 240


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
    """True if every sentence of a short reply only says that nothing changed (English)."""
    if len(reply) > _NO_CHANGE_CHARS:
        return False
    sentences = [part.strip(" \t*_\"'()[]-:,;") for part in re.split(r"[.!?;\n]+", reply)]
    sentences = [part for part in sentences if part]
    return bool(sentences) and all(_NO_CHANGE.fullmatch(part) for part in sentences)


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
