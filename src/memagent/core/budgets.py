"""Divides the window into budgets, and checks before the first call that a reading fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from memagent.core.chunking import MIN_CHUNK_TOKENS
from memagent.core.prompts import Profile
from memagent.core.types import Tokenizer
from memagent.errors import ConfigError

# Tokens that joining fields to a template may add to separate counts.
JOIN_SLACK = 8
PAPER_WINDOW = 8192
_CHUNK_SHARES = 5  # of a window of eight, as in the paper
_LEAST_CHUNK = 5  # thirds of a memory, before the memory gets smaller as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Largest number of tokens of each part. Defaults: the paper's 8K window (arXiv 2507.02259: 1024 + 5000 + 1024 + 1024).

    `reasoning` is added to what the model may generate, for models that think before they reply; it never enters the
    memory.
    """

    question: int = 1024
    chunk: int = 5000
    memory: int = 1024
    answer: int = 1024
    reasoning: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"the {name} budget ({name}_tokens) is {value!r}; it must be an int, a number of tokens")
            least = {"chunk": MIN_CHUNK_TOKENS, "reasoning": 0}.get(name, 1)
            if value < least:
                raise ConfigError(f"the {name} budget is {value} tokens; it must be at least {least}")

    @property
    def update_tokens(self) -> int:
        """The maximum number of tokens of a memory update."""
        return self.memory + self.reasoning

    @property
    def answer_tokens(self) -> int:
        """The maximum number of tokens of the answer."""
        return self.answer + self.reasoning


def template_tokens(
    profile: Profile,
    tokenizer: Tokenizer,
    overhead: int,
    templates: Iterable[str] = ("update", "note", "answer"),
    *,
    question: int = 0,
) -> int:
    """Tokens of wording around the fields, in the longest turn of a reading, chat form included.

    `templates` are those that the reader shows; one that the profile does not have counts nothing. Where a template shows
    the question, of `question` tokens, more than once, the repetitions count as wording.
    """
    note = profile.render("retry", limit=9999)
    longest = max(
        tokenizer.count(profile.system + profile.wording(template) + note) + profile.repeats(template) * question
        for template in templates
    )
    return longest + overhead + JOIN_SLACK


def budgets_for(window: int | None, template: int, repeats: int = 0, **given: int | None) -> Budgets:
    """Budgets for a window of `window` tokens: the paper's if they fit, otherwise scaled down in proportion.

    Those that are `given` by name replace what they would be. If they then take too much of a window that is known, the
    chunk gives way, and if that does not do, all that were not given.

    A window that is not known (None) is taken to be the paper's 8192. A larger window is not used up: the paper's
    proportions were what the method was trained with. `template` are the tokens of wording, and `repeats` says how often
    a turn shows the question again. Raises ConfigError for a window too small to read in.
    """
    fixed = {name: value for name, value in given.items() if value is not None}
    usual = replace(_scaled(PAPER_WINDOW if window is None else window, template, repeats), **fixed)
    if window is None or max(_turns(usual, template, repeats)) <= window:
        return usual
    for part in range(max(usual.question, usual.memory), 7, -1):
        small = {name: min(part, getattr(usual, name)) for name in ("question", "memory", "answer")}
        least = replace(usual, **{"chunk": max(part * _LEAST_CHUNK // 3, MIN_CHUNK_TOKENS), **small, **fixed})
        if max(_turns(least, template, repeats)) <= window:
            update, _ = _turns(least, template, repeats)
            return least if "chunk" in fixed else replace(least, chunk=min(usual.chunk, least.chunk + window - update))
    return usual  # it does not fit: the check before the first call says so


def _scaled(window: int, template: int, repeats: int) -> Budgets:
    budgets = Budgets()
    if max(_turns(budgets, template, repeats)) <= window:
        return budgets
    room = window - template
    part = room // (3 + repeats + _CHUNK_SHARES)
    chunk = room - (3 + repeats) * part
    budgets_fit = chunk >= MIN_CHUNK_TOKENS and part >= 8
    if not budgets_fit:
        raise ConfigError(f"a window of {window} tokens is too small: the prompt wording alone takes {template}")
    return Budgets(question=part, memory=part, answer=part, chunk=min(budgets.chunk, chunk))


def _turns(budgets: Budgets, template: int, repeats: int) -> tuple[int, int]:
    """Tokens of the longest memory update, and of the answer's turn."""
    shown = template + (1 + repeats) * budgets.question + budgets.memory
    return shown + budgets.chunk + budgets.update_tokens, shown + budgets.answer_tokens


def check_budgets(budgets: Budgets, template: int, window: int | None, answer_note: int = 0) -> None:
    """Raises ConfigError if the longest turn does not fit the window, with the sum and the budget to lower.

    `answer_note` are tokens of wording that only the answer's prompt may have.
    """
    if window is None:
        return
    update = template + budgets.question + budgets.memory + budgets.chunk + budgets.update_tokens
    answer = template + answer_note + budgets.question + budgets.memory + budgets.answer_tokens
    if max(update, answer) <= window:
        return
    reasoning = f" + {budgets.reasoning} reasoning" if budgets.reasoning else ""
    if update >= answer:
        parts = (
            f"{template} wording + {budgets.question} question + {budgets.memory} memory + {budgets.chunk} chunk"
            f" + {budgets.memory} new memory{reasoning} = {update}"
        )
        excess = update - window
        spare = {"chunk": budgets.chunk - excess, "memory": budgets.memory - (excess + 1) // 2}  # the memory is there twice
        hint = _hint(spare | {"reasoning": budgets.reasoning - excess})
    else:
        parts = (
            f"{template + answer_note} wording + {budgets.question} question + {budgets.memory} memory"
            f" + {budgets.answer} answer{reasoning} = {answer}"
        )
        hint = _hint({"answer": budgets.answer - (answer - window), "reasoning": budgets.reasoning - (answer - window)})
    raise ConfigError(f"the reading does not fit the window of {window} tokens: {parts}; {hint}")


def _hint(spare: Mapping[str, int]) -> str:
    """What to lower: the first budget that can make room alone. `spare` is what each would be lowered to."""
    least = {"chunk": MIN_CHUNK_TOKENS, "memory": 1, "answer": 1, "reasoning": 0}
    enough = next((name for name, tokens in spare.items() if tokens >= least[name]), None)
    return "lower several of the budgets" if enough is None else f"lower the {enough} to {spare[enough]} tokens"


def with_overrides(budgets: Budgets, **overrides: int | None) -> Budgets:
    """The budgets, replaced by the values that are not None."""
    return replace(budgets, **{name: value for name, value in overrides.items() if value is not None})
