"""Which documents a batch reads: a function of seed, step and attempt, and never one that is kept for evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memagent.errors import TaskError, TrainingError
from memagent.models.tokenizers import ByteTokenizer
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Sample
from memagent.tasks.words import split_of
from memagent.training.curriculum import Curriculum
from memagent.training.rl_config import TaskMix, ValidationTask
from memagent.training.validation import asked_in_both

BOOK = "He came home late that evening. She had gone out, and nobody said a word about it.\n\n" * 40
NEEDLES: dict[str, Any] = {"task": "niah_multikey_1", "tokens": (900, 1200)}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("books") / "book.txt"
    path.write_text(BOOK, encoding="utf-8")
    return path


def mix(name: str, **values: Any) -> TaskMix:
    return TaskMix(name=name, **values)


def curriculum(
    parts: Sequence[TaskMix], book: Path | None = None, *, seed: int = 0, steps: int = 100, question_tokens: int = 1000
) -> Curriculum:
    return Curriculum(parts, [book] if book else [], ByteTokenizer(), seed, steps, question_tokens=question_tokens)


def written(path: Path, number: int = 3, **meta: Any) -> Path:
    """A sample file of small documents."""
    lines = [
        {"id": f"{path.stem}-{n}", "question": "Which?", "document": f"It is {n}.", "answers": [str(n)], "meta": meta}
        for n in range(number)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def texts(drawn: Sequence[tuple[str, Sample]]) -> list[tuple[str, str, str, str]]:
    return [(name, sample.id, sample.question, str(sample.document)) for name, sample in drawn]


def test_a_question_that_is_too_long_is_made_again(book: Path) -> None:
    part = mix("needles", **NEEDLES)
    lengths = [len(sample.question) for _, sample in curriculum([part], book).draw(0, 0, 40)]
    middle = sorted(lengths)[20]
    assert min(lengths) < middle < max(lengths)
    fitting = curriculum([part], book, question_tokens=middle)
    drawn = fitting.draw(0, 0, 40)
    assert all(len(sample.question) <= middle for _, sample in drawn)
    assert texts(drawn) == texts(fitting.draw(0, 0, 40))


def test_documents_are_the_same_whether_or_not_a_longer_question_would_fit(book: Path) -> None:
    part = mix("needles", **NEEDLES)
    drawn = curriculum([part], book).draw(3, 0, 8)
    longest = max(len(sample.question) for _, sample in drawn)
    assert texts(drawn) == texts(curriculum([part], book, question_tokens=longest).draw(3, 0, 8))


def test_questions_that_never_fit_are_refused_with_the_limit(book: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"task 'needles': 32 questions in a row have more than 5 tokens.*question_tokens"
    ):
        curriculum([mix("needles", **NEEDLES)], book, question_tokens=5).draw(0, 0, 1)


def test_facts_are_hidden_in_generated_text_and_asked_for_in_the_wordings_of_training() -> None:
    drawn = curriculum([mix("facts", task="facts", tokens=(1500, 2000))], Path("generated:log")).draw(1, 0, 4)
    for _, sample in drawn:
        assert sample.meta["wordings"] == "train"
        assert any(level in str(sample.document) for level in ("INFO", "WARN", "DEBUG", "ERROR", "info:", "<notice>"))


def test_a_batch_is_a_function_of_seed_step_and_attempt_alone(book: Path, tmp_path: Path) -> None:
    parts = [mix("made", **NEEDLES), mix("file", file=written(tmp_path / "given.jsonl"))]
    used, fresh = curriculum(parts, book), curriculum(parts, book)
    for step in range(3):  # what was drawn before makes no difference
        used.draw(step, 0, 5)
    assert texts(used.draw(7, 1, 6)) == texts(fresh.draw(7, 1, 6)) == texts(fresh.draw(7, 1, 6))


@pytest.mark.parametrize(("seed", "step", "attempt"), [(1, 7, 0), (0, 8, 0), (0, 7, 1)])
def test_another_seed_step_or_attempt_is_another_batch(seed: int, step: int, attempt: int, book: Path) -> None:
    parts = [mix("made", **NEEDLES)]
    first = {str(sample.document) for _, sample in curriculum(parts, book).draw(7, 0, 4)}
    other = {str(sample.document) for _, sample in curriculum(parts, book, seed=seed).draw(step, attempt, 4)}
    assert len(first) == len(other) == 4
    assert not first & other


def test_samples_of_a_batch_have_ids_of_their_own_that_say_where_they_come_from(book: Path, tmp_path: Path) -> None:
    parts = [mix("made", **NEEDLES), mix("file", file=written(tmp_path / "given.jsonl", 1))]
    drawn = curriculum(parts, book).draw(4, 2, 8)
    assert {name for name, _ in drawn} == {"made", "file"}
    assert [sample.id for _, sample in drawn] == [f"{name}-4-2-{number}" for number, (name, _) in enumerate(drawn)]


def test_documents_have_the_lengths_that_were_asked_for(book: Path) -> None:
    drawn = [sample for step in range(4) for _, sample in curriculum([mix("made", **NEEDLES)], book).draw(step, 0, 6)]
    lengths = [sample.tokens for sample in drawn]
    assert all(700 < length <= 1200 for length in lengths)
    assert len(set(lengths)) > 6


def counted(made: Curriculum, step: int, count: int = 400) -> Counter[str]:
    return Counter(name for name, _ in made.draw(step, 0, count))


@pytest.mark.parametrize(("step", "share"), [(0, 0.0), (25, 0.25), (50, 0.5), (75, 0.5), (99, 0.5)])
def test_a_part_is_drawn_with_its_weight_at_the_progress_of_the_run(step: int, share: float, tmp_path: Path) -> None:
    # 0 of 1, then 0.5 of 1.5 + 0.5 at a quarter, then 1 of 1 + 1 from the half on.
    parts = [
        mix("one", file=written(tmp_path / "one.jsonl"), weight=[(0.0, 1.0), (0.25, 1.5), (0.5, 1.0)]),
        mix("two", file=written(tmp_path / "two.jsonl"), weight=[(0.0, 0.0), (0.5, 1.0)]),
    ]
    found = counted(curriculum(parts), step)
    assert found["two"] / 400 == pytest.approx(share, abs=0.07)
    if not share:
        assert found["two"] == 0


def test_a_step_at_which_all_weights_are_nothing_is_an_error_that_names_it(tmp_path: Path) -> None:
    parts = [mix("one", file=written(tmp_path / "one.jsonl"), weight=[(0.0, 1.0), (0.5, 0.0)])]
    made = curriculum(parts)
    assert len(made.draw(49, 0, 2)) == 2
    with pytest.raises(TrainingError, match="at step 50"):
        made.draw(50, 0, 2)


def test_an_option_that_is_a_list_means_one_of_these(book: Path) -> None:
    made = curriculum([mix("made", **NEEDLES, options={"values": [1, 3], "wordings": "one"})], book)
    found = Counter(len(sample.answers) for step in range(5) for _, sample in made.draw(step, 0, 8))
    assert set(found) == {1, 3}
    assert min(found.values()) > 5


def test_an_option_that_is_no_list_is_what_it_says(book: Path) -> None:
    made = curriculum([mix("made", **NEEDLES, options={"values": 3})], book)
    assert {len(sample.answers) for _, sample in made.draw(0, 0, 8)} == {3}


def test_every_sample_of_a_file_is_drawn_and_no_other(tmp_path: Path) -> None:
    made = curriculum([mix("file", file=written(tmp_path / "given.jsonl", 4))])
    found = {str(sample.document) for _, sample in made.draw(0, 0, 80)}
    assert found == {f"It is {n}." for n in range(4)}


def test_a_mix_of_files_needs_no_book(tmp_path: Path) -> None:
    made = curriculum([mix("file", file=written(tmp_path / "given.jsonl", split="train"))])
    [(name, sample)] = made.draw(0, 0, 1)
    assert name == "file"
    assert sample.answers[0] in str(sample.document)


def test_samples_that_are_kept_for_evaluation_are_refused_with_the_file_and_the_way_out(tmp_path: Path) -> None:
    path = written(tmp_path / "held-out.jsonl", split="eval")
    with pytest.raises(TrainingError) as error:
        curriculum([mix("file", file=path)])
    assert str(path) in str(error.value)
    assert "held-out-0" in str(error.value)
    assert "memagent synth --split train" in str(error.value)


def test_what_is_validated_on_is_not_trained_on(tmp_path: Path) -> None:
    trained = mix("file", file=written(tmp_path / "trained.jsonl", split="train"))

    def notices(document: str, question: str, answers: list[str]) -> list[str]:
        path = tmp_path / "held-out.jsonl"
        lines = [
            {"id": "a", "question": question, "document": document, "answers": answers},
            {"id": "b", "question": "Who?", "document": "It is 1.", "answers": ["1"]},
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return asked_in_both([trained], [ValidationTask(name="held-out", file=path)])

    assert notices("It is 1.", "Which?", ["9"]) == [], "a question of a form has another answer in each document"
    assert notices("It is 7.", "Which?", ["7"]) == []
    [said] = notices("Now it is 1.", "  which? ", ["1"])
    assert said.startswith(f"1 of 2 samples of {tmp_path / 'held-out.jsonl'} have a question and an answer that are")
    with pytest.raises(TrainingError, match=r"held-out\.jsonl: sample a is trained on: validate on other samples"):
        notices("It is 1.", "Which?", ["1"])
    assert asked_in_both([mix("made", **NEEDLES)], [ValidationTask(name="held-out", file=tmp_path / "no.jsonl")]) == []


def test_wordings_that_are_kept_for_evaluation_are_not_trained_on(tmp_path: Path) -> None:
    path = written(tmp_path / "held-out.jsonl", split="train", wordings="eval")
    with pytest.raises(TrainingError, match=r"held-out-0 is worded in a way that is kept for evaluation"):
        curriculum([mix("file", file=path)])
    curriculum([mix("file", file=written(tmp_path / "fine.jsonl", split="train", wordings="train"))])
    for wordings in ("eval", ["train", "eval"]):
        with pytest.raises(ValidationError, match="the wordings 'eval' are kept for evaluation"):
            mix("made", task="facts", tokens=[500, 700], options={"wordings": wordings})
    mix("made", task="facts", tokens=[500, 700], options={"wordings": ["train", "split"]})
    ValidationTask(name="held-out", task="facts", tokens=(500,), options={"wordings": "eval"})


def test_one_sample_that_is_kept_for_evaluation_is_enough(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "good.jsonl", split="train"), written(tmp_path / "bad.jsonl", 1, split="eval")
    good.write_text(good.read_text(encoding="utf-8") + bad.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(TrainingError, match="bad-0"):
        curriculum([mix("file", file=good)])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"missing\.jsonl"):
        curriculum([mix("file", file=tmp_path / "missing.jsonl")])


def test_made_samples_are_of_the_words_of_training(book: Path) -> None:
    drawn = curriculum([mix("made", **NEEDLES, options={"key": "pair"})], book).draw(0, 0, 6)
    words = {word for _, sample in drawn for fact in sample.facts for word in fact.key.split("-")}
    assert len(words) > 10
    assert {split_of(word) for word in words} == {"train"}


def test_a_question_that_its_file_keeps_for_evaluation_is_refused(tmp_path: Path) -> None:
    curriculum([mix("file", file=written(tmp_path / "fine.jsonl", split="train", question_split="train"))])
    for kept in ("dev", "test", "validation"):
        path = written(tmp_path / f"{kept}.jsonl", split="train", question_split=kept)
        with pytest.raises(TrainingError, match=rf"{kept}-0 asks a question that its file keeps for evaluation \({kept}\)"):
            curriculum([mix("file", file=path)])


def test_the_book_of_evaluation_is_refused_as_a_book_and_as_documents(tmp_path: Path) -> None:
    whale = Haystack.shipped().text
    for name, text in (
        ("whale", whale),
        ("wrapped", "\r\n".join(whale.split())),
        ("later", BOOK * 400 + whale),
        ("first", whale + BOOK * 400),
    ):
        path = tmp_path / f"{name}.txt"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(TaskError, match=rf"{name}\.txt is \*Moby-Dick\*, in which memagent evaluates"):
            curriculum([mix("made", **NEEDLES)], path)
    documents = ["A letter. " * 100, whale[300_000:304_000] + " The code is 12. " + whale[304_000:309_000]]
    lines = [{"question": "Which?", "document": one, "answers": ["12"], "meta": {"split": "train"}} for one in documents]
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"the document of sample line-2 is of \*Moby-Dick\*"):
        curriculum([mix("file", file=path)])
