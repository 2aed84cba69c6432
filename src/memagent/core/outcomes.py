"""What a reply means: pure rules from a completion to a memory or an answer.

| the reply                                  | rules "careful" (default)                  | rules "paper"            |
|--------------------------------------------|--------------------------------------------|--------------------------|
| a memory within its budget                 | replaces the memory                        | the same                 |
| over the budget, or cut at the length limit| asked once more, shorter; then what fits,  | what fits replaces the   |
|                                            | up to its last whole line or sentence      | memory                   |
| too long by a loop at its end              | the same, but the loop counts once, and is | what fits replaces the   |
|                                            | a first memory if it has a profile's form  | memory                   |
| empty (or reasoning only)                  | asked once more; then the memory stays     | the memory becomes empty |
| prose such as "no change"                  | the memory stays                           | the prose is the memory  |
| not of the form that the profile asks for  | the memory stays                           | the reply is the memory  |
| empty answer                               | asked once more; then an empty answer      | an empty answer          |
| an answer cut at the length limit          | is the answer                              | the same                 |

Reasoning never enters a memory or an answer under either set of rules.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from memagent.core.types import Completion, Tokenizer

Rules: TypeAlias = Literal["careful", "paper"]
Write: TypeAlias = Literal["overwrite", "append"]
Outcome: TypeAlias = Literal[
    "start",  # no turn yet
    "kept",  # the reply replaced the memory
    "fitted",  # the reply was too long; what fits replaced the memory
    "unchanged",  # the reply said that nothing changes; the memory stays
    "malformed",  # the reply had not the form of a memory; the memory stays
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

# A reply in none but these words, one of the negative and one of the topical among them, says that nothing changed. Where
# it says what the text does not mention, the words of the question are allowed as well.
_NEGATIVE = frozenset("no not nothing unchanged same keep keeping kept none retain retained maintained irrelevant".split())
_TOPICAL = frozenset("change changes changed unchanged update updates updated memory nothing irrelevant".split())
_MENTION = frozenset(
    "information info details facts anything nothing mention mentions mentioned contain contains contained provide provides"
    " provided discuss discusses discussed include includes included address addresses relevant".split()
)
_FILLING = frozenset(
    "the my this that it there i a an any all so and as at to in from for of on about here above before is are was were has"
    " have been be do does did will need needs needed required necessary remain remains stay stays new further additional"
    " useful helpful previous current existing section chunk text passage article document part found add adds added based"
    " question problem content answer therefore thus".split()
)
_BARE = frozenset({"none", "n/a", "na", "nothing"})
_WORD = re.compile(r"[^\W_]+")
_WORD_GOES_ON = re.compile(r"(?<=\w)\w*")
_LINE_GOES_ON = re.compile(r"(?<=[^\n]).*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def reply_text(completion: Completion, shown: str, reasons: bool) -> tuple[str, bool]:
    """The reply without reasoning, stripped of outer white space, and whether this model's replies begin inside reasoning.

    Leading `<think>` blocks are removed; one that never closes leaves nothing. A closing tag alone means that the chat
    template opened the block: everything up to it is reasoning. Where the tag also stands in `shown`, the text the model
    was given, it may be a quotation; then it is taken for reasoning only if this model is known to reason so (`reasons`).
    Lone surrogates, which no request could carry, are replaced.
    """
    text = _SURROGATE.sub("\ufffd", completion.text)
    led = False
    while opened := _THINK_OPEN.match(text):
        closed = _THINK_CLOSE.search(text, opened.end())
        if closed is None:
            return "", reasons
        text, led = text[closed.end() :], True
    closed = None if led else _THINK_CLOSE.search(text)
    if closed and (reasons or not _THINK_CLOSE.search(shown)):
        text, reasons = text[closed.end() :], True
    return text.strip(), reasons


def says_no_change(reply: str, question: str = "") -> bool:
    """True if the reply says that nothing changed, and nothing else (English)."""
    if reply.strip(" .()*_\"'").lower() in _BARE:
        return True
    words = _words(reply)
    if not words & _NEGATIVE:
        return False
    known = _NEGATIVE | _TOPICAL | _MENTION | _FILLING
    if words & _MENTION:
        return words <= known | _words(question)
    return bool(words & _TOPICAL) and words <= known


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


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


def has_form(memory: str, line: str) -> bool:
    """True if every line of the memory matches the regular expression `line` in full; "" is matched by any."""
    return not line or all(re.fullmatch(line, one) for one in memory.splitlines())


def without_loop(reply: str) -> str:
    """The reply with a loop at its end once, up to the end of a line or word: "- a: 1, 2, 2, 2, 2, " is "- a: 1, 2".

    A loop comes at least three times and is a quarter of the reply; without one, the reply is returned as it is.
    """
    size = len(reply)
    for period in range(1, size // 3 + 1):
        if reply[size - 2 * period :] != reply[size - 3 * period : size - period]:
            continue
        start = size - 3 * period
        while start and reply[start - 1] == reply[start - 1 + period]:
            start -= 1
        if 4 * (size - start) >= size:
            end = start + period
            begun = _LINE_GOES_ON if "\n" in reply[start:end] else _WORD_GOES_ON
            rest = begun.match(reply, end, end + period)
            return reply[: end + (len(rest[0]) % period if rest else 0)].rstrip()
    return reply


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


def appended(memory: str, reply: str) -> str:
    """The memory with the lines of a reply behind it; a line that stands there already is not repeated."""
    lines = memory.splitlines()
    return "\n".join([*lines, *(line for line in dict.fromkeys(reply.splitlines()) if line.strip() and line not in lines)])


def newest(memory: str, budget: int, tokenizer: Tokenizer) -> str:
    """The last whole lines of a memory that fit `budget` tokens; if not even one does, what fits of the last."""
    lines = memory.splitlines()
    kept: list[str] = []
    while lines and tokenizer.count("\n".join([lines[-1], *kept])) <= budget:
        kept.insert(0, lines.pop())
    return "\n".join(kept) or fit(lines[-1] if lines else "", budget, tokenizer, whole_lines=False)


def boxed(reply: str) -> str | None:
    r"""The content of the last `\boxed{…}` with balanced braces, or None."""
    for match in reversed(list(_BOXED.finditer(reply))):
        depth = 1
        for place in range(match.end(), len(reply)):
            depth += {"{": 1, "}": -1}.get(reply[place], 0)
            if not depth:
                return reply[match.end() : place].strip()
    return None
