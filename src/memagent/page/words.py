"""The words of a page: what an end and an outcome mean, to someone who has not read the manual."""

from __future__ import annotations

from memagent.core.types import Usage
from memagent.grounding.words import meaning
from memagent.journal import ReadingRecord
from memagent.page.view import QuestionView

# The tone (which colours it), and the sentence.
_ENDS = {
    "failed": ("bad", "The reading failed"),
    "interrupted": ("bad", "The reading was interrupted"),
    "running": ("plain", "The reading is still running"),
}
_OUTCOMES = {
    "kept": "written to the memory",
    "fitted": "too long; what fits was written to the memory",
    "full": "added to the memory, whose oldest lines were dropped",
    "unchanged": "said that nothing changed",
    "skipped": "skipped: nothing to note",
    "enough": "said that the memory is enough",
    "noted": "noted, to be merged into the memory",
    "searched": "searched for what to read next",
    "empty": "empty; the memory stays",
    "retry_long": "too long; asked again",
    "retry_empty": "empty; asked again",
    "retry_invalid": "does not have the form that was asked for; asked again",
    "invalid": "does not have the form that was asked for",
    "split": "too long for the window; its text was halved",
    "answered": "answered",
}
_ALIGNMENTS = {
    "exact": "word for word",
    "normalized": "word for word but for typesetting",
    "search": "the sentence with the words of the answer",
}


def status(question: QuestionView, record: ReadingRecord) -> tuple[str, str]:
    """The tone and the words for how far an answer can be trusted."""
    if question.answer:
        meant = meaning(question.verdict.status if question.verdict else None)
        return meant.tone, meant.sentence
    if record.status == "answered":
        return "bad", "The model gave an empty answer"
    return _ENDS.get(record.status, ("plain", record.status))


def outcome(name: str) -> str:
    return _OUTCOMES.get(name, name)


def alignment(kind: str, score: float) -> str:
    return _ALIGNMENTS.get(kind, f"nearly: {score:.0f} % agree")


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 turn", "2,345 turns"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def turns(first: int, last: int) -> str:
    """Turns numbered from 0, as people count them."""
    return f"Turn {first + 1:,}" if first == last else f"Turns {first + 1:,}–{last + 1:,}"


def share(value: float) -> str:
    return "100" if value >= 1 else f"{min(99.9, 100 * value):.1f}"


def tokens(usage: Usage) -> str:
    return f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out"
