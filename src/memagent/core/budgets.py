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


def budgets_for(window: int | None, template: int, repeats: int = 0) -> Budgets:
    """Budgets for a window of `window` tokens: the paper's if they fit, otherwise scaled down in proportion.

    A window that is not known (None) is taken to be the paper's 8192. A larger window is not used up: the paper's
    proportions were what the method was trained with. `template` are the tokens of wording, and `repeats` says how often
    a turn shows the question again. Raises ConfigError for a window too small to read in.
    """
    budgets = Budgets()
    need = (1 + repeats) * budgets.question + budgets.chunk + 2 * budgets.memory + template
    window = PAPER_WINDOW if window is None else window
    if need <= window:
        return budgets
    room = window - template
    part = room // (8 + repeats)
    chunk = room - (3 + repeats) * part
    budgets_fit = chunk >= MIN_CHUNK_TOKENS and part >= 8
    if not budgets_fit:
        raise ConfigError(f"a window of {window} tokens is too small: the prompt wording alone takes {template}")
    return Budgets(question=part, memory=part, answer=part, chunk=min(5000, chunk))


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
