"""How replies are handled: pure rules from a completion to a memory or an answer.

| the reply                                  | rules "careful" (default)                  | rules "paper"            |
|--------------------------------------------|--------------------------------------------|--------------------------|
| a memory within its budget                 | replaces the memory                        | the same                 |
| over the budget, or cut at the length limit| is asked for once more; then what fits     | what fits replaces the   |
|                                            | replaces the memory, up to its last whole  | memory                   |
|                                            | line or sentence                           |                          |
| empty (or reasoning only)                  | is asked for once more; then the memory    | the memory becomes empty |
|                                            | stays                                      |                          |
| prose such as "no change"                  | the memory stays                           | the prose is the memory  |
| an empty answer                            | is asked for once more; then it is empty   | an empty answer          |
| an answer cut at the length limit          | is the answer                              | the same                 |
| an answer without the form asked for       | is asked for once more, with what is wrong | the reading fails        |
|                                            | with it; then the reading fails            |                          |

Reasoning never enters a memory or an answer under either set of rules. These rules hold for every model; no model has
others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from memagent.core.prompts import AnswerFormat
from memagent.core.types import Completion, Tokenizer

Rules: TypeAlias = Literal["careful", "paper"]
Outcome: TypeAlias = Literal[
    "start",  # no turn yet
    "kept",  # the reply was written to the memory
    "fitted",  # the reply was too long; the part that fits was written to the memory
    "full",  # the reply was added to the memory, and its oldest lines were dropped
    "unchanged",  # the reply said that nothing changed; the memory stays
    "skipped",  # the reply was the fixed form for "no change"; the memory stays
    "enough",  # the reply said that the memory is enough; the answer is next
    "noted",  # the reply is a note, to be merged into the memory
    "searched",  # the reply is a query; what matches it is read next
    "empty",  # the reply was empty
    "retry_long",  # too long; the turn is repeated
    "retry_empty",  # empty; the turn is repeated
    "retry_invalid",  # the answer does not have the form that was asked for; the turn is repeated
    "invalid",  # nor does the second one: there is no answer
    "split",  # the prompt did not fit the window; its text was halved
    "answered",  # the reply is the answer
]

_THINK_OPEN = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_NEAR = 60  # characters beside a tag that are looked at
_BOXED = re.compile(r"\\boxed\s*\{")
_SENTENCE = re.compile(r"[.!?。！？][\"'”’)\]]*(?=\s|$)|\n")

# A reply says that nothing changed if all its words are in these lists, and at least one is negative and one topical or of
# mention. If it says of the text what the text does not mention, it may also contain words of the question.
_NEGATIVE = frozenset(
    "no not nothing unchanged same keep keeping kept none retain retained maintained irrelevant unrelated".split()
)
_TOPICAL = frozenset("change changes changed unchanged update updates updated memory nothing irrelevant".split())
# Said of a text alone; and of what it is about as well ("the plan includes").
_REPORT = frozenset("information info details facts mention mentions mentioned relevant related unrelated".split())
_MENTION = _REPORT | frozenset(
    "anything nothing contain contains contained provide provides provided discuss discusses discussed include includes"
    " included address addresses contribute contributes say says state states stated specify specifies specified indicate"
    " indicates refer refers irrelevant".split()
)
_TEXT = frozenset("section chunk text passage article document part".split())
_OPENING = frozenset("i it this there here nothing".split())
_FILLING = frozenset(
    "the my this that it there i a an any all so and as at to in from for of on about here above before is are was were has"
    " have been be do does did will need needs needed required necessary remain remains stay stays new further additional"
    " useful helpful previous current existing old stands found add adds added based question problem content answer"
    " answers answering help helps regarding concerning given see appear appears seem seems still valid therefore"
    " thus s".split()
)
_AROUND = " \n.!()[]<>*_\"'`"
_BARE = frozenset({"none", "n/a", "na", "nothing"})
_CONTRACTED = re.compile(r"n['’]t\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def reply_text(completion: Completion, shown: str, reasons: bool) -> tuple[str, bool]:
    """The reply without reasoning, stripped of outer white space, and whether this model's replies begin inside reasoning.

    Leading `<think>` blocks are removed; one that never closes leaves nothing. A closing tag alone means that the chat
    template opened the block: everything up to it is reasoning. If it stands next to the same word in `shown`, the text the
    model was given, it may be a quotation; then it is taken for reasoning only if this model is known to reason so
    (`reasons`).
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
    if closed and (reasons or not _quoted(text, closed, shown)):
        text, reasons = text[closed.end() :], True
    return text.strip(), reasons


def _quoted(reply: str, tag: re.Match[str], shown: str) -> bool:
    """Whether a tag has the same word before it, or after it, in a reply and in the text that the model was shown."""
    before, after = _beside(reply, tag)
    return any(
        (before != "" and before == one) or (after != "" and after == other)
        for one, other in (_beside(shown, found) for found in _THINK_CLOSE.finditer(shown))
    )


def _beside(text: str, tag: re.Match[str]) -> tuple[str, str]:
    """The words before and after a tag, or what of them is near; "": there is none."""
    before, after = text[max(0, tag.start() - _NEAR) : tag.start()].split(), text[tag.end() : tag.end() + _NEAR].split()
    return before[-1] if before else "", after[0] if after else ""


def says_no_change(reply: str, question: str = "", empty: str = "") -> bool:
    """Whether the reply only says that nothing changed (English), or repeats `empty`, the words for an empty memory.

    A reply may say in words of the question what it did not find. If it is not about a text, that may be the answer: "The
    plan includes no dental care".
    """
    if says(reply, empty) or reply.strip(" .()*_\"'").lower() in _BARE:
        return True
    words, asked = _words(reply), _words(question)
    if not (words & _NEGATIVE and words & (_TOPICAL | _MENTION)):
        return False
    known = _NEGATIVE | _TOPICAL | _MENTION | _TEXT | _FILLING
    if words & _MENTION and _is_of_text(reply, words, asked):
        known |= asked
    return words <= known


def _is_of_text(reply: str, words: set[str], asked: set[str]) -> bool:
    """Whether a reply speaks of the text that was shown, and not of what the question is about."""
    return bool(words & _TEXT or words & _REPORT - asked) or _WORD.findall(reply)[0].lower() in _OPENING


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(_CONTRACTED.sub(" not", text))}


# How many times an estimate may be too high. A server that counted fewer tokens than that counts none, or something else.
_MISJUDGED = 8


def over_budget(reply: str, completion: Completion, budget: int, tokenizer: Tokenizer) -> bool:
    """Whether the reply was cut at the length limit or has more than `budget` tokens.

    Where the tokenizer only estimates, the server's own count decides, if it has one that can be right; of what it counted,
    reasoning and lines that are no part of the memory have the share that they have in the estimate.
    """
    if completion.finish == "length":
        return True
    if tokenizer.exact:
        return tokenizer.count(reply) > budget
    written = tokenizer.count(completion.text.strip()) + tokenizer.count(completion.reasoning or "")
    if completion.completion_tokens * _MISJUDGED < written:
        return tokenizer.count(reply) > budget
    share = tokenizer.count(reply) / max(1, written)
    return completion.completion_tokens * share > budget + 1  # the end token counts as one


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


class AnswerForm(Protocol):
    """The form that an answer must have, such as JSON that follows a schema. Pure.

    `name` enters the plan's digest; `schema` says it to the model.
    """

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> str: ...

    def read(self, reply: str) -> str:
        """The answer in a reply, written the one way its form has. Raises ValueError that says what is wrong."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result of a memory update or of the last turn.

    text     the new memory or the answer; None: the memory stays, or the turn is repeated
    mistake  what is wrong with an answer, to be said when it is asked for again
    """

    outcome: Outcome
    text: str | None = None
    mistake: str = ""

    @property
    def retry(self) -> bool:
        return self.outcome in ("retry_long", "retry_empty", "retry_invalid")


def judge_answer(
    reply: str,
    *,
    answer_format: AnswerFormat,
    rules: Rules,
    retried: bool,
    form: AnswerForm | None = None,
    not_found: str = "",
    cut: str = "",
) -> Judgement:
    """Judges the reply to the last turn. `not_found` is the fixed reply that needs no form. `cut` says that the reply was
    cut off, and where; then that is the mistake."""
    if answer_format == "boxed":
        content = boxed(reply)
        reply = reply if content is None else content
    again = rules == "careful" and not retried
    if not reply:
        return Judgement(outcome="retry_empty") if again else Judgement(outcome="empty", text="")
    if form is None or says(reply, not_found):
        return Judgement(outcome="answered", text=reply)
    try:
        return Judgement(outcome="answered", text=form.read(reply))
    except ValueError as error:
        outcome: Outcome = "retry_invalid" if again else "invalid"
        return Judgement(outcome=outcome, text=None if again else "", mistake=cut or str(error))


def says(reply: str, form: str) -> bool:
    """Whether a reply is a fixed form such as "nothing new", ignoring case and surrounding punctuation."""
    return bool(form) and reply.strip(_AROUND).casefold() == form.strip(_AROUND).casefold()


def judge(
    reply: str,
    completion: Completion,
    *,
    question: str,
    empty: str,
    budget: int,
    tokenizer: Tokenizer,
    rules: Rules,
    retried: bool,
) -> Judgement:
    """Judges the reply to a memory update. `retried`: this is the second reply, so the turn is not repeated. `empty` is the
    text that stands for an empty memory in prompts: a reply that repeats it is no memory."""
    careful = rules == "careful"
    again = careful and not retried
    if not reply:
        return Judgement(outcome="retry_empty") if again else Judgement(outcome="empty", text=None if careful else "")
    if careful and says_no_change(reply, question, empty):
        return Judgement(outcome="unchanged")
    fitted = over_budget(reply, completion, budget, tokenizer)
    if fitted:
        if again:
            return Judgement(outcome="retry_long")
        reply = fit(reply, budget, tokenizer, careful)
    return Judgement(outcome="fitted" if fitted else "kept", text=reply)
