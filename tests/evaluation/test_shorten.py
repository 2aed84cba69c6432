"""Short samples of long readings: the model goes through the same memories in a document of a few chunks."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.errors import ConfigError, ModelRefusedError, TaskError
from memagent.evaluation.runs import Run
from memagent.evaluation.shorten import in_words, write_short
from memagent.profiles import load_profile
from memagent.tasks.files import SampleFile
from tests.evaluation.test_runner import an_evaluation, run
from tests.helpers import WordTokenizer

# Every line fills half a chunk, so that chunks begin and end at the same lines in the short document.
LINE = "Line {} tells " + "of the sea " * 14
TRUE = "The code for k is 77. " + "of the sea " * 14


def tempted(turn):
    """Notes the first sentence that speaks of a code, and holds on to it: the right one if nothing else came before."""
    memory = re.search(r"NOTED: (.*)", turn.user)
    if turn.kind == "answer":
        return memory[1].split()[-1].rstrip(".") if memory else "not found"
    if memory is None and (found := re.search(r"The code[^.]*\.", turn.user)):
        return f"NOTED: {found[0]}"
    return memory[0] if memory else "nothing yet seen"


def hashed(turn):
    """A memory that changes at about one chunk of four, to a function of itself and the chunk."""
    if turn.kind == "answer":
        return "77"
    chunk = re.findall(r"Line (\d+)|for k is (\d+)", turn.user)
    memory = re.search(r"STATE (\w+)", turn.user)
    digest = hashlib.sha256(f"{memory and memory[1]}{chunk}".encode()).hexdigest()
    if memory and int(digest[:2], 16) % 4:
        return memory[0]
    return f"STATE {digest[:8]}"


def a_file(path, documents, stated="The code for k is 77.", **fields):
    rows = []
    for number, lines in enumerate(documents):
        text = "\n".join(lines)
        start = text.index(stated)
        fact = {"text": stated, "start": start, "end": start + len(stated), "key": "k", "value": "77"}
        rows.append(
            {
                "id": f"s{number}",
                "task": "codes",
                "question": "What is the code for k?",
                "answers": ["77"],
                "facts": [fact],
                "document": text,
                **fields,
            }
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SampleFile.open(path)


def with_lines(count, **at):
    """`count` lines of filler, some of them replaced: `l7="…"`."""
    lines = [LINE.format(number) for number in range(count)]
    for name, line in at.items():
        lines[int(name[1:])] = line
    return lines


FALSE = "The code of honour is 12. " + "of the sea " * 14


@pytest.fixture
def misled(tmp_path):
    """Three readings: one misled by a sentence before the fact, one right, one misled right after it begins."""
    documents = [with_lines(40, l9=FALSE, l31=TRUE), with_lines(40, l9=TRUE, l31=FALSE), with_lines(40, l0=FALSE, l20=TRUE)]
    file = a_file(tmp_path / "long.jsonl", documents, meta={"target": 4000, "split": "train", "depth": 0.5}, tokens=4000)
    run(an_evaluation(file, tempted), tmp_path / "run")
    return tmp_path


def memories(folder):
    return {
        one.record.sample: (
            [turn.memory for turn in one.record.turns if turn.memory is not None],
            one.record.answer,
            one.record.meta,
        )
        for one in Run.open(folder).records()
    }


def test_wrong_readings_become_short_samples_that_mislead_in_the_same_way(misled):
    counts = write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert counts == (2, {"right": 1})
    short = SampleFile.open(misled / "short.jsonl")
    run(an_evaluation(short, tempted), misled / "again")
    first, again = memories(misled / "run"), memories(misled / "again")
    assert len(again) == 2
    for held, answer, meta in again.values():
        assert meta["shortened"]["of"] > 15
        assert meta["shortened"]["chunks"] <= 4
        assert (held, answer) == first[meta["shortened"]["sample"]][:2]
        assert answer == "12"


def test_a_short_sample_keeps_its_question_its_facts_and_its_split_and_counts_its_own_length(misled):
    write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    for sample in SampleFile.open(misled / "short.jsonl"):  # opening checks that facts are at their places
        assert [fact.text for fact in sample.facts] == ["The code for k is 77."]
        assert sample.question == "What is the code for k?"
        assert sample.meta["split"] == "train"
        assert not {"target", "depth"} & sample.meta.keys()
        assert sample.tokens == WordTokenizer().count(str(sample.document)) < 400


def test_right_readings_are_shortened_on_request(misled):
    counts = write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=True)
    assert counts == (3, {})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=12, max_size=60, unique=True), st.data())
def test_the_memories_are_the_same_whatever_the_model_does(tmp_path_factory, numbers, data):
    folder = tmp_path_factory.mktemp("law")
    lines = [LINE.format(number) for number in numbers]
    lines[data.draw(st.integers(0, len(lines) - 1))] = TRUE
    file = a_file(folder / "long.jsonl", [lines])
    budgets = {"chunk_tokens": 50}  # one line each
    run(an_evaluation(file, hashed, budgets=budgets), folder / "run")
    write_short([folder / "run"], [], folder / "short.jsonl", WordTokenizer(), most=100, right=True)
    run(an_evaluation(SampleFile.open(folder / "short.jsonl"), hashed, budgets=budgets), folder / "again")
    ((before, *_),) = memories(folder / "run").values()
    ((after, *_),) = memories(folder / "again").values()
    assert after == before


def test_readings_of_more_chunks_than_allowed_are_left_out_and_counted(misled):
    counts = write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=2, right=True)
    written, out = counts
    assert out["long"] >= 1
    assert written + out["long"] == 3
    assert in_words(out) == f"{out['long']} that need more chunks"


def test_nothing_to_write_is_an_error_that_counts_and_leaves_the_old_file(misled):
    short = misled / "short.jsonl"
    write_short([misled / "run"], [], short, WordTokenizer(), most=8, right=False)
    before = short.read_bytes()
    with pytest.raises(ConfigError, match=r"nothing to write. Readings left out: 1 right, 2 that need more chunks"):
        write_short([misled / "run"], [], short, WordTokenizer(), most=1, right=False)
    assert short.read_bytes() == before


def test_a_failed_reading_is_counted_and_not_shortened(tmp_path):
    file = a_file(tmp_path / "long.jsonl", [with_lines(40, l20=TRUE), with_lines(40, l0=FALSE, l20=TRUE)])

    def failing(turn):
        if "Line 12 " in turn.user and "honour" not in turn.user:
            raise ModelRefusedError("no")
        return tempted(turn)

    run(an_evaluation(file, failing, lockstep=False), tmp_path / "run")
    counts = write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=True)
    assert counts == (1, {"failed": 1})


def test_a_reading_that_ended_before_a_needed_fact_is_counted_and_not_shortened(tmp_path):
    file = a_file(tmp_path / "long.jsonl", [with_lines(40, l0=FALSE, l30=TRUE)])

    def enough(turn):
        return tempted(turn) if turn.kind == "answer" else f"{tempted(turn)}\n{load_profile('default').enough}"

    run(an_evaluation(file, enough, reader="gated", exit=True), tmp_path / "run")
    (record,) = [one.record for one in Run.open(tmp_path / "run").records()]
    assert len(record.turns) < 5
    with pytest.raises(ConfigError, match="Readings left out: 1 ended before a needed fact"):
        write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=50, right=True)


def test_a_reader_that_passes_on_more_than_the_memory_is_refused(tmp_path):
    file = a_file(tmp_path / "long.jsonl", [with_lines(40, l20=TRUE)])
    run(an_evaluation(file, tempted, budgets={"memory_tokens": 40}, reader="parallel"), tmp_path / "run")
    with pytest.raises(ConfigError, match="was read with 'parallel': only readings with memory or gated can be shortened"):
        write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=True)
    assert not (tmp_path / "short.jsonl").exists()


def test_a_sample_file_that_has_moved_is_asked_for(misled):
    (misled / "long.jsonl").rename(misled / "moved.jsonl")
    short = misled / "short.jsonl"
    with pytest.raises(ConfigError, match=r"the sample file of the run in .*long.jsonl.*name it with --samples"):
        write_short([misled / "run"], [], short, WordTokenizer(), most=8, right=False)
    counts = write_short([misled / "run"], [misled / "moved.jsonl"], short, WordTokenizer(), most=8, right=False)
    assert counts == (2, {"right": 1})


def test_another_sample_file_than_that_of_the_runs_is_refused(misled):
    other = a_file(misled / "other.jsonl", [with_lines(12, l3=TRUE)])
    with pytest.raises(ConfigError, match="is not the sample file of these runs"):
        write_short([misled / "run"], [other.path], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert not (misled / "short.jsonl").exists()


def with_a_fact(file, number, **fields):
    """The samples of a file, with one more fact that no answer needs: line `number`."""
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    for row in rows:
        text = LINE.format(number)
        start = row["document"].index(text)
        row["facts"].append({"text": text, "start": start, "end": start + len(text), "needed": False, **fields})
    file.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SampleFile.open(file.path)


def test_a_chunk_that_only_distracts_is_left_out_unless_the_memory_changed(tmp_path):
    file = with_a_fact(a_file(tmp_path / "long.jsonl", [with_lines(40, l0=FALSE, l30=TRUE)]), 20)
    run(an_evaluation(file, tempted), tmp_path / "run")
    write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=False)
    (sample,) = SampleFile.open(tmp_path / "short.jsonl")
    assert "Line 20 " not in str(sample.document)
    assert [fact.needed for fact in sample.facts] == [True]


def test_a_fact_that_two_chunks_share_is_whole_in_the_short_document(tmp_path):
    stated = ("The code for k is 77 and stays so. " + "of the sea " * 40).strip()
    file = a_file(tmp_path / "long.jsonl", [with_lines(40, l0=FALSE, l21=stated)], stated)
    run(an_evaluation(file, tempted), tmp_path / "run")
    counts = write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert counts == (1, {})
    (sample,) = SampleFile.open(tmp_path / "short.jsonl")
    assert sample.meta["shortened"]["chunks"] >= 3
    assert [fact.text for fact in sample.facts] == [stated]


def test_a_document_that_would_be_no_shorter_is_left_out_and_counted(tmp_path):
    file = a_file(tmp_path / "long.jsonl", [with_lines(2, l1=TRUE), with_lines(40, l1=TRUE)])
    run(an_evaluation(file, tempted), tmp_path / "run")
    counts = write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=True)
    assert counts == (1, {"whole": 1})


def test_two_runs_with_the_same_samples_give_samples_of_different_names(misled):
    run(an_evaluation(SampleFile.open(misled / "long.jsonl"), tempted), misled / "second")
    counts = write_short(
        [misled / "run", misled / "second"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False
    )
    assert counts[0] == len(SampleFile.open(misled / "short.jsonl")) == 4


def test_without_the_places_of_its_facts_a_sample_is_left_out_unless_there_is_no_answer(tmp_path):
    file = a_file(tmp_path / "long.jsonl", [with_lines(40, l0=FALSE, l30=TRUE), with_lines(40, l0=FALSE, l30=TRUE)])
    rows = [{**json.loads(line), "facts": []} for line in file.path.read_text().splitlines()]
    rows[1] |= {"answers": ["not in the document", "not yet"], "scorer": "abstention"}
    file.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(an_evaluation(SampleFile.open(file.path), tempted), tmp_path / "run")
    counts = write_short([tmp_path / "run"], [], tmp_path / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert counts == (1, {"unplaced": 1})
    assert in_words(counts[1]) == "1 of samples that do not say where their facts are"
    (sample,) = SampleFile.open(tmp_path / "short.jsonl")
    assert sample.meta["shortened"]["chunks"] == 1


def test_a_chunk_that_was_read_again_in_halves_stands_once_in_the_short_document(misled):
    records = misled / "run/records.jsonl"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for record in lines:
        turn = next(turn for turn in record["turns"] if turn.get("memory"))
        ((start, end),) = turn["spans"]
        middle = (start + end) // 2
        again = [{**turn, "outcome": "retry_long", "memory": None}, {**turn, "spans": [[start, middle]]}]
        again += [{**turn, "spans": [[middle, end]]}]
        place = record["turns"].index(turn)
        record["turns"][place : place + 1] = again
    records.write_text("".join(json.dumps(record) + "\n" for record in lines))
    write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    for sample in SampleFile.open(misled / "short.jsonl"):
        assert str(sample.document).count("The code of honour") == 1
        assert sample.meta["shortened"]["of"] == 21
        assert [fact.text for fact in sample.facts] == ["The code for k is 77."]


def test_a_run_that_is_not_finished_is_refused(misled):
    header = json.loads((misled / "run/run.json").read_text())
    (misled / "run/run.json").write_text(json.dumps({**header, "finished": None}))
    with pytest.raises(ConfigError, match=r"is not finished: repeat its command"):
        write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)


def test_a_record_of_a_sample_that_is_not_there_is_named(misled):
    records = misled / "run/records.jsonl"
    records.write_text(records.read_text().replace('"sample": "s1"', '"sample": "nobody"'))
    with pytest.raises(TaskError, match="has no sample 'nobody'"):
        write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert not (misled / "short.jsonl").exists()


def test_a_record_without_its_score_is_scored(misled):
    records = misled / "run/records.jsonl"
    lines = [{**json.loads(line), "scores": {}} for line in records.read_text().splitlines()]
    records.write_text("".join(json.dumps(record) + "\n" for record in lines))
    counts = write_short([misled / "run"], [], misled / "short.jsonl", WordTokenizer(), most=8, right=False)
    assert counts == (2, {"right": 1})
