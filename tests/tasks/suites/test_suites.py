"""Official files of evaluation suites become valid sample files, or are refused with the place of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memagent.errors import ConfigError, MissingExtraError, OutputError, TaskError, TrainingError
from memagent.suite_scoring import SUITE_SCORERS, own_score
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Sample
from memagent.tasks.suites.catalog import SUITES, find_suite
from memagent.tasks.suites.importing import Import
from memagent.tasks.suites.writing import import_samples
from tests.tasks.suites import invented
from tests.tasks.suites.invented import INVENTED, Invented

BY_NAME = {one.name: one for one in INVENTED}


def imported(given: Invented, folder: Path, **options: Any) -> list[Sample]:
    file = given.write(folder)
    import_samples(given.wanted(file, **options), folder / "out" / "s.jsonl")
    return list(SampleFile.open(folder / "out" / "s.jsonl"))


def test_every_suite_and_every_scorer_is_tried():
    assert {one.suite for one in INVENTED} == set(SUITES)
    for suite in SUITES.values():
        assert suite.official.split()[0].rstrip(",:;") in ("yes", "no", "nearly", "in")
    assert {
        name for suite in SUITES.values() for name in suite.scorer.replace(";", ",").replace(" for ", ",").split(", ")
    } >= set(SUITE_SCORERS) - {"abstention", "locomo_parts"}


@pytest.mark.parametrize("given", INVENTED, ids=lambda one: f"{one.suite}-{Path(one.name).stem}")
def test_a_file_of_the_official_form_is_imported(given: Invented, tmp_path: Path):
    samples = imported(given, tmp_path)
    assert len(samples) == given.samples
    for sample in samples:
        assert own_score(sample.scorer, sample.gold, sample.answers, sample.mode, sample.meta) == pytest.approx(1)
        assert own_score(sample.scorer, "", sample.answers, sample.mode, sample.meta) == 0
        assert own_score(sample.scorer, "The moon, perhaps.", sample.answers, sample.mode, sample.meta) < 0.5
        assert sample.id.startswith(given.suite)
        assert (sample.meta["suite"], sample.meta["split"]) == (given.suite, "eval")
        assert sample.task == f"{given.suite} {sample.meta['category']}"
        assert sample.meta["record"]


def test_importing_twice_gives_the_same_bytes(tmp_path: Path):
    for given in INVENTED:
        file = given.write(tmp_path)
        for name in "ab":
            import_samples(given.wanted(file), tmp_path / name / "s.jsonl")
        files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
        assert files[0] == files[1]


def test_choices_are_in_the_question_and_the_answer_is_a_letter(tmp_path: Path):
    first, *_ = imported(BY_NAME["data.json"], tmp_path)
    assert "(A) The buyer\n(B) The seller" in first.question
    assert first.answers == ("A",)
    assert own_score(first.scorer, "The correct answer is (A).", first.answers, "any", {}) == 1
    assert own_score(first.scorer, "A buyer is (B) what I read.", first.answers, "any", {}) == 0


def test_chats_have_sessions_dates_and_speakers_and_facts_where_the_answer_is(tmp_path: Path):
    samples = imported(BY_NAME["longmemeval_oracle.json"], tmp_path)
    text = str(samples[0].document)
    assert text.startswith("Session 1, 2023/05/20 (Sat) 02:21\nUser: I moved to Port 4b.\nAssistant: Nice.\n\nSession 2, ")
    assert samples[0].question == "The date of this question is 2023/05/30 (Tue) 23:40. Where do I live?"
    assert [fact.text for fact in samples[0].facts] == ["User: I moved to Port 4b."]
    assert (samples[3].scorer, samples[3].meta["category"], samples[3].facts) == ("abstention", "abstention", ())
    for said in ("Not mentioned.", "not in the document", "You didn\u2019t mention a hamster."):
        assert own_score("abstention", said, samples[3].answers, "any", {}) == 1


def test_a_conversation_is_one_document_for_all_its_questions(tmp_path: Path):
    samples = imported(BY_NAME["locomo10.json"], tmp_path)
    assert str(samples[0].document).startswith(
        "Session 1, 1:56 pm on 8 May, 2023\nAda: I bought a kettle. [shares a picture: a kettle]\nBea: I leave today.\n\n"
    )
    assert [fact.text for fact in samples[0].facts][1] == "Ada: And two lamps."
    assert [sample.scorer for sample in samples] == ["locomo_parts", *["locomo_f1"] * 3, "abstention"]
    assert [sample.answers[0] for sample in samples] == [
        "a kettle, two lamps", "8 May 2023", "Likely yes", "2", "No information available",
    ]  # fmt: skip
    assert len(list((tmp_path / "out").glob("s.*.text"))) == 1
    inline = tmp_path / "inline" / "s.jsonl"
    import_samples(BY_NAME["locomo10.json"].wanted(tmp_path / "locomo10.json", shared=False), inline)
    assert [path.name for path in inline.parent.iterdir()] == ["s.jsonl"]
    assert [str(sample.document) for sample in SampleFile.open(inline)] == [str(sample.document) for sample in samples]


def test_older_conversations_have_their_sessions_beside_the_questions(tmp_path: Path):
    record = invented.locomo()
    older = {**record["conversation"], "qa": record["qa"]}
    file = BY_NAME["locomo10.json"].write(tmp_path, records=[older])
    assert import_samples(BY_NAME["locomo10.json"].wanted(file), tmp_path / "s.jsonl").total() == 5


def test_sessions_come_in_the_order_of_their_numbers_however_they_are_written(tmp_path: Path):
    record = invented.locomo()
    talk = record["conversation"]
    renamed = {"session_03": talk["session_2"], "session_03_date_time": "9:00 am", **talk, "session_2": []}
    file = BY_NAME["locomo10.json"].write(tmp_path, records=[{**record, "conversation": renamed}])
    import_samples(BY_NAME["locomo10.json"].wanted(file), tmp_path / "s.jsonl")
    first = SampleFile.open(tmp_path / "s.jsonl").load("locomo-conv-1-1")
    assert str(first.document).endswith("Bea: I leave today.\n\nSession 3, 9:00 am\nAda: And two lamps.\n")


def test_the_parts_of_a_graph_prompt_lose_nothing(tmp_path: Path):
    first, empty = imported(BY_NAME["graphwalks.jsonl"], tmp_path)
    assert first.question.startswith("You are given a graph.\nReturn nodes.\n\nOperation:\nPerform a BFS")
    assert str(first.document).startswith("Here is an example.")
    assert str(first.document).endswith("c3 -> e5\n")
    prompt = invented.graphwalks([])["prompt"]
    both = f"{first.question} {first.document}"
    assert sorted(both.split()) == sorted(prompt.split())
    assert empty.gold == "Final Answer: []"


def test_the_last_message_asks_and_the_others_are_the_document(tmp_path: Path):
    sample = imported(BY_NAME["2needle.jsonl"], tmp_path)[0]
    assert sample.question.startswith("Prepend aB3xY9kQ2z")
    assert str(sample.document).startswith("User: write a poem about tides\n\nAssistant: The tide comes in.\n\nUser: ")
    assert sample.meta["category"] == "2 needles"
    assert own_score("mrcr", "The tide goes out,\nand out.", sample.answers, "any", sample.meta) == 0


def test_a_pair_is_a_fact_at_its_depth_in_json(tmp_path: Path):
    sample = imported(BY_NAME["kv-retrieval-75_keys.jsonl.gz"], tmp_path)[0]
    assert json.loads(str(sample.document))["key-3"] == 'value "3"'
    assert (sample.facts[0].text, sample.meta["depth"]) == ('"key-3": "value \\"3\\""', 0.75)


def test_needles_are_hidden_at_every_depth_with_seeded_names(tmp_path: Path):
    given = BY_NAME["needle_set.json"]
    samples = imported(given, tmp_path)
    for sample in samples:
        assert sample.tokens <= 600 == sample.meta["target"]
        assert "{" not in sample.question + str(sample.document)
        assert sample.answers[0] in next(fact.text for fact in sample.facts if fact.needed)
        assert sum(not fact.needed for fact in sample.facts) == 1
    assert {sample.meta["depth"] for sample in samples} == {0, 0.5, 1}
    other = imported(given, tmp_path / "other", seed=4)
    assert [sample.question for sample in other] == [sample.question for sample in samples]
    assert [str(sample.document) for sample in other] != [str(sample.document) for sample in samples]


def test_where_the_path_does_not_say_what_a_file_holds(tmp_path: Path):
    given = BY_NAME["passkey.jsonl"]
    file = given.write(tmp_path, "part.jsonl")
    with pytest.raises(ConfigError, match=r"pass --subset with one of passkey, number_string"):
        import_samples(given.wanted(file), tmp_path / "s.jsonl")
    assert import_samples(given.wanted(file, subset="passkey"), tmp_path / "s.jsonl") == {"infinitebench passkey": 1}
    with pytest.raises(ConfigError, match=r"no subset 'passkeys'; there are passkey"):
        import_samples(given.wanted(file, subset="passkeys"), tmp_path / "s.jsonl")
    with pytest.raises(ConfigError, match=r"OpenAI MRCR has no subsets"):
        import_samples(BY_NAME["2needle.jsonl"].wanted(file, subset="passkey"), tmp_path / "s.jsonl")


def test_qa1_is_not_found_in_qa10(tmp_path: Path):
    given = BY_NAME["data/qa1/4k.json"]
    sample = imported(given, tmp_path)[0]
    assert (sample.meta["category"], sample.meta["length"]) == ("qa1", "4k")
    file = given.write(tmp_path, "data/qa10/1M.json")
    with pytest.raises(TaskError, match=r"qa10.1M\.json, record 1, target: 'garden' is no answer of qa10: maybe, no, yes"):
        import_samples(given.wanted(file), tmp_path / "s.jsonl")


def test_some_samples_from_the_beginning_or_at_random(tmp_path: Path):
    many = [invented.longbench("C", number) for number in range(40)]
    given = BY_NAME["data.json"]
    file = given.write(tmp_path, records=many)

    def ids(**options: Any) -> list[str]:
        import_samples(given.wanted(file, **options), tmp_path / "s.jsonl")
        return [sample.id for sample in SampleFile.open(tmp_path / "s.jsonl")]

    assert ids(limit=3) == ["longbench-v2-lb0", "longbench-v2-lb1", "longbench-v2-lb2"]
    assert len(ids(limit=100)) == 40
    drawn = ids(limit=10, seed=1)
    assert len(set(drawn)) == 10
    assert drawn == ids(limit=10, seed=1) == sorted(drawn, key=lambda id: int(id.removeprefix("longbench-v2-lb")))
    assert drawn != ids(limit=10, seed=2)
    assert len(ids(limit=100, seed=1)) == 40


def test_categories_are_chosen_or_those_there_are_named(tmp_path: Path):
    given = BY_NAME["locomo10.json"]
    file = given.write(tmp_path)
    assert import_samples(given.wanted(file, categories=("temporal",)), tmp_path / "s.jsonl") == {"locomo temporal": 1}
    with pytest.raises(TaskError, match=r"no record of the category time; there are adversarial, multi-hop"):
        import_samples(given.wanted(file, categories=("time",)), tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()


def test_imported_samples_are_not_trained_on_unless_made_for_it(tmp_path: Path):
    pytest.importorskip("torch")
    from memagent.training.curriculum import _training_file

    given = BY_NAME["test.jsonl"]
    file = given.write(tmp_path)
    import_samples(given.wanted(file), tmp_path / "s.jsonl")
    with pytest.raises(TrainingError, match=r"of the evaluation suite qmsum, and must not be trained on: .* --split train"):
        _training_file(tmp_path / "s.jsonl")
    import_samples(given.wanted(file, split="train"), tmp_path / "s.jsonl")
    assert len(_training_file(tmp_path / "s.jsonl")) == 4


def changed(given: Invented, **changes: Any) -> list[dict[str, Any]]:
    """The records, with other values in the last one; None removes a field."""
    *before, last = given.records
    return [*before, {name: value for name, value in {**last, **changes}.items() if value is not None}]


SURROGATE = "half \ud800 a pair"
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("oolong_synth.jsonl", {"answer": "twelve"}, "line 4, answer: expected a list with one item"),
    ("oolong_synth.jsonl", {"answer": "[[1]]"}, "line 4, answer: expected a list with one text or number"),
    ("oolong_synth.jsonl", {"answer": "[datetime.date(2023, 13, 5)]"}, "line 4, answer: .* is no date"),
    ("oolong_synth.jsonl", {"answer": "__import__('os').system('x')"}, "line 4, answer: expected a list with one item"),
    ("oolong_synth.jsonl", {"context_window_text": None}, "line 4, context_window_text: Field required"),
    ("oolong_synth.jsonl", {"context_window_text": SURROGATE}, "sample oolong-1004: half of a surrogate pair is not text"),
    ("longmemeval_oracle.json", {"haystack_dates": ["x"]}, "record 4, haystack_dates: expected a date for each of the 2"),
    ("longmemeval_oracle.json",
    {"haystack_sessions": [[{"role": "user"}]]}, "record 4, haystack_sessions.0.0.content: Field"),
    ("data.json", {"answer": "E"}, "record 4, answer: Input should be 'A', 'B', 'C' or 'D'"),
    ("data.json", {"context": ""}, "record 4, the document is empty"),
    ("data.json", {"_id": "lb0"}, "record 4, a second sample with the id 'lb0'"),
    ("data.json", {"question": SURROGATE}, "sample longbench-v2-lb3: half of a surrogate pair"),
    ("2needle.jsonl", {"prompt": "[{]"}, "line 2, prompt: expected messages in JSON"),
    ("2needle.jsonl", {"prompt": "[" * 9000}, "line 2, prompt: expected messages in JSON"),
    ("2needle.jsonl", {"prompt": '[{"role": "user"}]'}, "line 2, prompt.0.content: Field required"),
    ("2needle.jsonl", {"prompt": '[{"role": "user", "content": "x"}]'}, "line 2, prompt: expected several messages"),
    ("2needle.jsonl", {"prompt": '{"role": "user"}'}, "line 2, prompt: Input should be a valid list, not {'role': 'user'}"),
    ("2needle.jsonl",
    {"prompt": [{"role": "user", "content": "x"}] * 2 + [{"role": "assistant", "content": "y"}]},
    "line 2, prompt: expected several messages, of which the last is the user's"),
    ("2needle.jsonl", {"answer": "The tide."}, "line 2, answer: expected it to begin with 'aB3xY9kQ2z'"),
    ("graphwalks.jsonl", {"prompt": "a -> b"}, "line 2, prompt: expected 'Operation:'"),
    ("longbook_choice_eng.jsonl", {"answer": ["Eve"]}, "line 1, answer: expected one of the options"),
    ("longbook_choice_eng.jsonl", {"options": ["Bea"]}, "line 1, a question has 2 to 26 choices, not 1"),
    ("passkey.jsonl", {"input": " "}, "line 1, input: expected the question"),
    ("passkey.jsonl", {"answer": [[1]]}, "line 1, answer: expected a text, a number or a list of them"),
    ("passkey.jsonl", {"answer": ["none"]}, "line 1, .* does not score 1 by its scorer first_number"),
    ("locomo10.json", {"conversation": {"speaker_a": "Ada"}}, "record 1, conversation: expected session_1"),
    ("locomo10.json",
    {"conversation": {"session_1": [{"text": "x"}]}}, r"record 1, conversation\.session_1\.0\.speaker: Field"),
    ("locomo10.json", {"qa": [{"question": "?", "category": 4}]}, r"record 1, qa\.0\.answer: expected an answer"),
    ("locomo10.json", {"qa": [{"question": "?", "category": 6}]}, r"record 1, qa\.0\.category: Input should be less"),
    ("needle_set.json", {"character_set": []}, "record 1, character_set: expected names for {CHAR}"),
    ("needle_set.json", {"needle": "No one.", "distractors": {}}, r"record 1, tests\.T1\.gold_answers: expected an answer"),
    ("qa_1.jsonl", {"input": "Only one line?"}, "line 1, input: expected a document and, in the last line, the question"),
    ("qa_1.jsonl", {"outputs": []}, "line 1, outputs: List should have at least 1 item"),
    ("kv-retrieval-75_keys.jsonl.gz", {"value": "other"}, "line 1, key: expected a key of ordered_kv_records"),
    ("test.jsonl", {"meeting_transcripts": []}, "line 2, meeting_transcripts: List should have at least 1 item"),
    ("test.jsonl", {"general_query_list": [{"query": "?", "answer": " "}]}, "line 2, qmsum-2-general-1: "),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), BROKEN)
def test_a_broken_record_is_named_and_nothing_is_left(name: str, changes: dict[str, Any], message: str, tmp_path: Path):
    given = BY_NAME[name]
    file = given.write(tmp_path, records=changed(given, **changes))
    (tmp_path / "out").mkdir()
    with pytest.raises(TaskError, match=message) as raised:
        import_samples(given.wanted(file), tmp_path / "out" / "s.jsonl")
    assert str(file) in str(raised.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failure_keeps_the_files_of_an_earlier_import(tmp_path: Path):
    given = BY_NAME["test.jsonl"]
    imported(given, tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    file = given.write(tmp_path, records=[*given.records, {"meeting_transcripts": 1}])
    with pytest.raises(TaskError, match=r"line 3"):
        import_samples(given.wanted(file), tmp_path / "out" / "s.jsonl")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("given", INVENTED, ids=lambda one: f"{one.suite}-{Path(one.name).stem}")
def test_a_file_of_another_suite_is_recognised(given: Invented, tmp_path: Path):
    other = next(one for one in INVENTED if one.suite == ("qmsum" if given.suite != "qmsum" else "mrcr"))
    file = given.write(tmp_path)
    with pytest.raises(TaskError, match=rf"Field required \(this is no file of .*: it has the form of .*{given.suite}"):
        import_samples(other.wanted(file), tmp_path / "s.jsonl")


def test_an_unknown_form_says_what_it_has(tmp_path: Path):
    given = BY_NAME["data.json"]
    file = given.write(tmp_path, records=[{"title": "x", "body": "y"}])
    with pytest.raises(TaskError, match=r"is this a file of LongBench v2.* Its first record has the fields body, title"):
        import_samples(given.wanted(file), tmp_path / "s.jsonl")


def test_the_file_to_import_and_other_files_are_not_overwritten(tmp_path: Path):
    given = BY_NAME["oolong_real.jsonl"]
    file = given.write(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"is not a sample file"):
        import_samples(given.wanted(file), tmp_path / "notes.txt")
    with pytest.raises((ConfigError, OutputError)):
        import_samples(given.wanted(file), file)
    assert file.read_text().startswith('{"id"')


def test_an_unknown_format_lists_those_there_are():
    with pytest.raises(ConfigError, match=r"no format 'ruler2'; there are babilong, .*, ruler: `memagent import --list`"):
        find_suite("ruler2")


def test_a_haystack_goes_with_needles_only(tmp_path: Path):
    file = BY_NAME["needle_set.json"].write(tmp_path)
    with pytest.raises(ConfigError, match=r"NoLiMa needs a text to hide its needles in: pass --haystack"):
        import_samples(Import(suite=find_suite("nolima"), file=file), tmp_path / "s.jsonl")
    with pytest.raises(ConfigError, match=r"QMSum brings its documents: leave --haystack out"):
        import_samples(Import(suite=find_suite("qmsum"), file=file, hay=invented.hay()), tmp_path / "s.jsonl")


def test_parquet_files_are_read_in_batches(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    given = BY_NAME["graphwalks.jsonl"]
    records = [invented.graphwalks(["d4", "e5"][: number % 3]) for number in range(40)]
    file = tmp_path / "graphwalks.parquet"
    parquet.write_table(arrow.Table.from_pylist(records), file)
    assert import_samples(given.wanted(file), tmp_path / "s.jsonl").total() == 40
    file.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(TaskError, match=r"cannot be read as Parquet"):
        import_samples(given.wanted(file), tmp_path / "s.jsonl")


def test_parquet_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    file = tmp_path / "x.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match=r"a Parquet file needs .* 'memagent\[parquet\]'"):
        import_samples(BY_NAME["2needle.jsonl"].wanted(file), tmp_path / "s.jsonl")
