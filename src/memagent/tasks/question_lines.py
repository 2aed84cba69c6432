"""The records of published question files, field by field, and what they say about questions and passages.

Every record turns itself into `Found` questions: passages by value, gold ones by their place among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from memagent.scoring import Mode, normalize
from memagent.tasks.passages import Passage, stands_in

Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
TitledText = tuple[str, str | list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A question as a record states it. `gold` numbers the passages of `context`; `related` is a source they share."""

    id: str
    text: str
    answers: tuple[str, ...]
    mode: Mode = "any"
    context: tuple[Passage, ...]
    gold: tuple[int, ...]
    values: tuple[str, ...]
    related: tuple[Passage, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")


class SquadAnswer(_Record):
    """One accepted answer."""

    text: Filled


class SquadQuestion(_Record):
    """A question about one passage; `is_impossible` as in SQuAD 2.0."""

    id: str | int = ""
    question: Filled
    answers: list[SquadAnswer] = []
    is_impossible: bool = False


class SquadParagraph(_Record):
    """A passage and its questions."""

    context: Filled
    qas: list[SquadQuestion] = []


class SquadArticle(_Record):
    """The passages of one article. They go without its title, as in RULER: it is the same for all of them."""

    title: str = ""
    paragraphs: list[SquadParagraph]

    def found(self, notes: Counter[str]) -> Iterator[Found]:
        """The answerable questions; the others are counted."""
        passages = tuple(Passage(title="", text=paragraph.context) for paragraph in self.paragraphs)
        for passage, paragraph in zip(passages, self.paragraphs, strict=True):
            for asked in paragraph.qas:
                answers = readable(answer.text for answer in asked.answers)
                if asked.is_impossible or not asked.answers:
                    notes["unanswerable questions left out"] += 1
                elif not answers:
                    notes["questions left out whose answers are empty once normalized"] += 1
                else:
                    yield Found(
                        id=str(asked.id),
                        text=asked.question,
                        answers=answers,
                        context=(passage,),
                        gold=(0,),
                        values=(next((answer for answer in answers if stands_in(answer, passage.text)), ""),),
                        related=passages,
                        meta={"source": self.title} if self.title else {},
                    )


class SquadFile(_Record):
    """The official SQuAD form, versions 1.1 and 2.0."""

    data: list[SquadArticle]


class HopStep(_Record):
    """A step of MuSiQue's decomposition: its answer is what the passage yields."""

    answer: str | int | float = ""
    paragraph_support_idx: int | None = None


class MusiqueParagraph(_Record):
    """A passage as MuSiQue gives it."""

    title: str = ""
    paragraph_text: Filled
    is_supporting: bool = False


class MultihopQuestion(_Record):
    """HotpotQA, 2WikiMultihopQA and MuSiQue, in their official forms and as lines with `gold_titles` or `gold_idx`."""

    id: str | int = Field("", validation_alias=AliasChoices("id", "_id"))
    question: Filled
    answer: Filled
    answer_aliases: list[str] = []
    answerable: bool = True
    split: str = ""
    type: str = ""
    level: str = ""
    context: list[TitledText] = []
    paragraphs: list[MusiqueParagraph] = []
    supporting_facts: list[tuple[str, int]] = []
    gold_titles: list[str] = []
    gold_idx: list[int] = []
    question_decomposition: list[HopStep] = []

    @model_validator(mode="after")
    def _gold_is_known(self) -> MultihopQuestion:
        if not self.context and not self.paragraphs:
            raise ValueError("the passages are missing: context or paragraphs")
        titles = {passage.title for passage in self.passages()}
        named = {"supporting_facts": [title for title, _ in self.supporting_facts], "gold_titles": self.gold_titles}
        for name, wanted in named.items():
            if missing := [title for title in wanted if title.strip() not in titles]:
                raise ValueError(f"{name} names {missing[0]!r}, which is not a title of the context")
        if wrong := [place for place in self.gold_idx if not 0 <= place < len(self.passages())]:
            raise ValueError(f"gold_idx has {wrong[0]}, but the record has {len(self.passages())} passages")
        if self.answerable and not self.gold():
            raise ValueError("no passage is marked as needed by supporting_facts, gold_titles, gold_idx or is_supporting")
        return self

    def passages(self) -> list[Passage]:
        """The passages given with the question."""
        own = [Passage(title=title.strip(), text=_joined(text)) for title, text in self.context]
        return own + [Passage(title=given.title.strip(), text=given.paragraph_text) for given in self.paragraphs]

    def gold(self) -> list[int]:
        """Places of the needed passages among `passages`, each once."""
        places = self.gold_idx or [place for place, given in enumerate(self.paragraphs) if given.is_supporting]
        if not places:
            titles = [passage.title for passage in self.passages()]
            named = self.gold_titles or [title for title, _ in self.supporting_facts]
            places = [titles.index(title.strip()) for title in named]
        return list(dict.fromkeys(places))

    def found(self, notes: Counter[str]) -> Iterator[Found]:
        """The question, if it has an answer that a scorer can read; otherwise it is counted."""
        answers = readable([self.answer, *self.answer_aliases])
        if not self.answerable:
            notes["unanswerable questions left out"] += 1
        elif not answers:
            notes["questions left out whose answers are empty once normalized"] += 1
        else:
            context, gold = tuple(self.passages()), tuple(self.gold())
            steps = len(self.question_decomposition)
            meta = {"question_split": self.split, "type": self.type, "level": self.level, "hops": steps}
            yield Found(
                id=str(self.id),
                text=self.question,
                answers=answers,
                context=context,
                gold=gold,
                values=tuple(self._value(place, context, gold, answers) for place in gold),
                meta={key: value for key, value in meta.items() if value},
            )

    def _value(self, place: int, context: tuple[Passage, ...], gold: tuple[int, ...], answers: tuple[str, ...]) -> str:
        """What a memory that kept a needed passage must hold. In this order: what the file says that the step yields; the
        answer, if it stands there; the title of another needed passage that it names, or else its own, if the question
        does not name that already; nothing."""
        for step in self.question_decomposition:
            if step.paragraph_support_idx == place and step.answer != "":
                return str(step.answer)
        passage = context[place]
        whole = f"{passage.title}\n{passage.text}"
        if normalize(answers[0]) not in ("yes", "no"):
            for answer in answers:
                if stands_in(answer, whole):
                    return answer
        others = [_plain(context[other].title) for other in gold if other != place]
        named = [title for title in others if stands_in(title, passage.text)]
        for title in [*named, _plain(passage.title)]:
            if title and not stands_in(title, self.question):
                return title
        return ""


def readable(answers: Iterable[str]) -> tuple[str, ...]:
    """Those that are not empty to a scorer, each once."""
    return tuple(dict.fromkeys(answer.strip() for answer in answers if normalize(answer)))


def _joined(text: str | list[str]) -> str:
    """HotpotQA's sentences carry their own spaces; those of 2WikiMultihopQA do not."""
    if isinstance(text, str):
        return text.strip()
    glued = any(sentence[:1].isspace() or sentence[-1:].isspace() for sentence in text)
    return ("" if glued else " ").join(text).strip()


def _plain(title: str) -> str:
    """A title without what tells it from another one: "Mercury (planet)" is "Mercury" in a text."""
    return title.rsplit(" (", 1)[0] if title.endswith(")") else title
