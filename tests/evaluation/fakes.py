"""Records of readings that never took place, with a known fate of their fact; and run folders made of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from memagent.core import Budgets, Profile, Span, Turn, make_reader, plan_reading
from memagent.driver import read
from memagent.evaluation.records import Record, RecordedTurn
from memagent.models.scripted import ScriptedModel
from memagent.scoring import scores
from memagent.tasks.files import SampleFile, sample_line
from memagent.tasks.lazy_text import LazyText
from memagent.tasks.samples import Fact, Sample
from tests.helpers import StringText, WordTokenizer

Fate = Literal["kept", "missed", "lost", "regained", "misread", "failed", "too_long", "not_shown", "split"]
WORDS = "the sea was grey and the ship went on under a low sky while old men told stories of whales nobody had seen".split()
TITLES = ["The log of the day is short.", "Weather as before.", "Nothing is said of codes here."]


def text_with_fact(rng: random.Random, characters: int, place: float, sentence: str) -> tuple[str, int]:
    """Prose of about that many characters with a sentence in it, and where the sentence begins."""
    words: list[str] = []
    size = 0
    while size < characters:
        words.append(rng.choice(WORDS))
        size += len(words[-1]) + 1
    text = " ".join(words)
    start = text.rfind(" ", 0, max(1, int(place * len(text)))) + 1
    return f"{text[:start]}{sentence} {text[start:]}", start


def make_sample(
    index: int,
    *,
    task: str = "niah_single_1",
    tokens: int = 4096,
    characters: int | None = None,
    place: float | None = None,
    **meta: Any,
) -> Sample:
    """A document with one needed fact, at a random place if none (0 to 1) is given."""
    rng = random.Random(f"{task}/{tokens}/{index}")
    value = str(rng.randrange(10**6, 10**7))
    sentence = f"The access code for amber-falcon-{index} is {value}."
    place = rng.random() if place is None else place
    text, start = text_with_fact(rng, characters or tokens * 4, place, sentence)
    fact = Fact(text=sentence, start=start, end=start + len(sentence), key=f"amber-falcon-{index}", value=value)
    return Sample(
        id=f"{task}-{tokens}-{index}",
        task=task,
        question=f"What is the access code for amber-falcon-{index}?",
        document=LazyText([text]),
        answers=(value,),
        facts=(fact,),
        tokens=tokens - rng.randrange(max(1, tokens // 200)),
        seed=7,
        meta={"target": tokens, **meta},
    )


def make_record(
    sample: Sample,
    fate: Fate = "kept",
    *,
    reader: str = "memory",
    turns: int = 8,
    attempt: int = 0,
    speed: float = 9e3,
) -> Record:
    """A reading of the sample that ends as `fate` says."""
    value, size = sample.answers[0], len(sample.document)
    answer = value if fate in ("kept", "regained") else "1234567"
    error, made, shown = None, (), None
    if fate in ("failed", "too_long"):
        answer, error = "", "the server hung up" if fate == "failed" else "the document has more tokens than the window"
    if reader in ("truncate", "retrieve", "direct"):
        shown = None if reader == "direct" else _excerpt(sample, fate)
        spans = shown or (Span(start=0, end=size),)
        made = (RecordedTurn(number=0, kind="answer", spans=spans, outcome="answered", memory=None, prompt_tokens=900),)
    elif fate != "too_long":
        made = tuple(_turns(sample, fate, turns))
    share = round(sample.tokens / speed / max(1, len(made)), 6)
    made = tuple(
        RecordedTurn(**{name: getattr(turn, name) for name in RecordedTurn.__slots__} | {"seconds": share}) for turn in made
    )
    return Record(
        sample=sample.id,
        attempt=attempt,
        task=sample.task,
        reader=reader,
        question=sample.question,
        answers=sample.answers,
        mode=sample.mode,
        tokens=sample.tokens,
        characters=size,
        facts=sample.facts,
        meta=sample.meta,
        status="answered" if error is None else "failed",
        answer=answer,
        error=error,
        error_kind=None if error is None else "too_long" if fate == "too_long" else "unavailable",
        scores=scores(answer, sample.answers, sample.mode),
        shown=shown,
        turns=() if fate == "too_long" else made,
        seconds=0.0 if fate == "too_long" else sample.tokens / speed,
        wall=sample.tokens / speed * 1.1,
    )


def _excerpt(sample: Sample, fate: Fate) -> tuple[Span, ...]:
    fact, size = sample.facts[0], len(sample.document)
    if fate == "not_shown":
        return (Span(start=0, end=max(0, min(400, fact.start))),)
    if fate == "split":
        return (Span(start=0, end=fact.start + 5), Span(start=fact.start + 5, end=size))
    return (Span(start=max(0, fact.start - 200), end=min(size, fact.end + 200)),)


def _borders(sample: Sample, fate: Fate, turns: int) -> list[int]:
    """Chunk borders; only the fate "split" has one inside the fact."""
    fact, size = sample.facts[0], len(sample.document)
    borders = [round(size * number / turns) for number in range(turns + 1)]
    near = min(range(1, turns), key=lambda number: abs(borders[number] - fact.start)) if turns > 1 else 0
    borders = [fact.end if fact.start < border < fact.end else border for border in borders]
    if fate == "split":
        borders[near] = fact.start + 10
    return borders


def _turns(sample: Sample, fate: Fate, turns: int) -> Iterable[RecordedTurn]:
    fact, value, borders = sample.facts[0], sample.answers[0], _borders(sample, fate, turns)
    note = f"amber-falcon: {value}"
    memory, since = "", 0
    for number in range(turns):
        span = Span(start=borders[number], end=borders[number + 1])
        new, outcome = memory, "unchanged"
        if span.start < fact.end and fact.start < span.end:
            since = number
            new, outcome = (TITLES[number % 3] if fate in ("missed", "split") else f"{note}\n{TITLES[0]}"), "kept"
        elif memory and fate in ("lost", "regained") and number == since + 1:
            new, outcome = "The code for amber-falcon was given above.", "fitted"
        elif memory and fate == "regained" and number == since + 2:
            new, outcome = f"{note}\nThe ship sails on.", "kept"
        elif number % 3 == 0:
            new, outcome = f"{memory.splitlines()[0] if memory else 'So far'}\n{TITLES[number % 2]} Page {number}.", "kept"
        yield RecordedTurn(
            number=number,
            kind="update",
            spans=(span,),
            outcome=outcome,
            memory=None if new == memory else new,
            prompt_tokens=700,
            completion_tokens=20 + len(new) // 4,
        )
        memory = new
        if fate == "failed" and number == turns // 2:
            return
    yield RecordedTurn(
        number=turns, kind="answer", spans=(), outcome="answered", memory=None, prompt_tokens=100, completion_tokens=8
    )


def driven_record(
    text: str,
    question: str,
    facts: Sequence[Fact],
    script: Callable[[Turn], str],
    *,
    answers: tuple[str, ...],
    chunk: int = 20,
) -> Record:
    """A record of a reading that the real driver made with a scripted model, in chunks of so many words."""
    engine = ScriptedModel(script, tokenizer=WordTokenizer())
    profile = Profile(
        name="test", version=1, update="{question}\n{memory}\n---\n{chunk}", answer="{question}\n{memory}", empty_memory=""
    )
    budgets = Budgets(question=50, chunk=chunk, memory=30, answer=20)
    plan = plan_reading(
        StringText(text), question, reader=make_reader(), tokenizer=engine.tokenizer, profile=profile, budgets=budgets
    )
    transcript = read(plan, engine)
    turns, memory = [], ""
    for record in transcript.records:
        turns.append(
            RecordedTurn(
                number=record.number,
                kind=record.kind,
                spans=record.spans,
                outcome=record.outcome,
                memory=None if record.memory == memory else record.memory,
            )
        )
        memory = record.memory
    return Record(
        sample="driven",
        attempt=0,
        task="custom",
        reader="memory",
        question=question,
        answers=answers,
        mode="any",
        tokens=plan.tokens,
        characters=len(text),
        facts=tuple(facts),
        meta={},
        status="answered",
        answer=transcript.answer,
        scores=scores(transcript.answer, answers),
        turns=tuple(turns),
    )


def write_samples(path: Path, samples: Sequence[Sample]) -> Path:
    """A sample file."""
    path.write_text("".join(f"{sample_line(sample, None)}\n" for sample in samples), encoding="utf-8")
    return path


def write_run(
    folder: Path,
    records: Iterable[Record],
    *,
    reader: str = "memory",
    file: Path | None = None,
    count: int | None = None,
    finished: bool = True,
    **header: Any,
) -> Path:
    """A run folder over the sample `file`. `count` is the number of samples, if not all of them have been read."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record.to_json(), ensure_ascii=True) for record in records]
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    values = {
        "schema": "memagent.run",
        "version": 1,
        "model": "embedded: 2.6M parameters, sha256:0123456789ab",
        "reader": reader,
        "settings": {
            "model": "embedded",
            "identity": "embedded: 2.6M parameters, sha256:0123456789ab",
            "window": 1024,
            "profile": {"name": "compact", "version": 1, "update": "a\ntemplate"},
            "budgets": {"question": 64, "chunk": 640, "memory": 128, "answer": 32},
            "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 5},
            "rules": "careful",
            "direct": False,
        },
        "attempts": 1,
        "samples": {
            "path": str(file or folder.parent / "samples.jsonl"),
            "sha256": SampleFile.open(file).sha256 if file else "ab" * 32,
            "count": len(lines) if count is None else count,
        },
        "versions": {"python": "3.11.0", "memagent": "0.1.0"},
        "machine": {"system": "Linux", "architecture": "x86_64", "cores": 2},
        "command": "memagent eval samples.jsonl --reader memory -o run",
        "started": "2026-11-21T00:00:00Z",
        "finished": "2026-11-21T01:00:00Z" if finished else None,
    }
    (folder / "run.json").write_text(json.dumps(values | header), encoding="utf-8")
    return folder
