"""Question files: every published form loads, and what is wrong is named by line and field."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from memagent.errors import TaskError
from memagent.tasks.passages import Passage, Passages, stands_in
from memagent.tasks.question_files import load_questions
from memagent.tasks.questions import question_number
from tests.helpers import WordTokenizer
from tests.tasks.invented import contract, filing, filing_question, hotpot, musique, squad, write


@pytest.mark.parametrize("name", ["squad.json", "squad.json.gz"])
def test_squad_gives_its_answerable_questions_and_counts_the_others(tmp_path: Path, name: str) -> None:
    given = load_questions(write(tmp_path / name, squad(articles=2, paragraphs=3)))
    assert given.form == "squad"
    assert len(given.questions) == 6
    assert len(given.passages) == 6
    assert given.notes == {"unanswerable questions left out": 6}
    question = given.questions[4]
    assert question.id == "q1-1"
    assert question.answers == ("Mr. Keeper1x1", "Keeper1x1")
    assert question.values == ("Mr. Keeper1x1",)
    assert given.passages[question.gold[0]].text.startswith("The keeper is Mr. Keeper1x1.")
    assert sorted(question.related) == [3, 4, 5]
    assert question.meta == {"source": "Article_1"}


def test_squad_1_1_indented_over_many_lines_loads(tmp_path: Path) -> None:
    content = squad(articles=1, paragraphs=2)
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"] = [{key: asked[key] for key in ("id", "question", "answers")} for asked in paragraph["qas"][:1]]
    (tmp_path / "old.json").write_text(json.dumps(content, indent=2))
    assert len(load_questions(tmp_path / "old.json").questions) == 2


def test_hotpotqa_knows_its_gold_and_what_a_memory_must_hold(tmp_path: Path) -> None:
    given = load_questions(write(tmp_path / "hotpot.json", hotpot(questions=2)))
    bridge, comparison = given.questions
    assert given.form == "multihop"
    assert [given.passages[number].title for number in bridge.gold] == ["Society 0", "Founder0 Lee"]
    assert (
        given.passages[bridge.gold[0]].text
        == "Society 0 is a society of readers. It was founded by Founder0 Lee in a cellar."
    )
    assert bridge.values == ("Founder0 Lee", "Port 0b")
    assert comparison.values == ("", "")
    assert len(bridge.context) == 10
    assert bridge.meta == {"type": "bridge", "level": "hard"}


def test_lines_with_gold_titles_and_gold_places_load_alike(tmp_path: Path) -> None:
    record = hotpot(questions=2)[0]
    short = {key: record[key] for key in ("question", "answer")}
    short |= {"id": "x", "split": "dev", "context": [[title, "".join(text)] for title, text in record["context"]]}
    titled = {**short, "gold_titles": ["Society 0", "Founder0 Lee"]}
    placed = {**short, "id": "y", "gold_idx": [0, 9]}
    given = load_questions(write(tmp_path / "lines.jsonl.gz", [titled, placed], lines=True))
    assert len(given.passages) == 10
    assert given.questions[0].gold == given.questions[1].gold
    assert given.questions[0].meta == {"question_split": "dev"}


def test_musique_takes_values_from_its_steps_and_answers_from_aliases(tmp_path: Path) -> None:
    lines = [
        musique(),
        musique(id="u", answerable=False, paragraphs=musique()["paragraphs"][2:]),
        musique(id="e", answer="The", answer_aliases=[]),
    ]
    given = load_questions(write(tmp_path / "musique.jsonl", lines, lines=True))
    (question,) = given.questions
    assert question.answers == ("Isle of Um", "Um Island")
    assert question.values == ("Captain Oda", "Isle of Um")
    assert question.meta == {"hops": 2}
    assert given.notes == {
        "unanswerable questions left out": 1,
        "questions left out whose answers are empty once normalized": 1,
    }


def test_contracts_ask_for_labels_clauses_and_presence(tmp_path: Path) -> None:
    given = load_questions(write(tmp_path / "contracts.jsonl", [contract()], lines=True))
    asked = {(question.meta["ask"], question.meta["category"]): question for question in given.questions}
    assert asked["fact", "Governing Law"].answers == ("Oregon", "The law of Oregon\n   governs it.")
    assert {"5/5/19", "the 5th of May, 2019", "May 5, 2019"} <= set(asked["fact", "Agreement Date"].answers)
    assert asked["presence", "Insurance"].answers == ("No",)
    assert asked["presence", "Insurance"].evidence == ()
    assert asked["clause", "Anti-Assignment"].answers == ("Neither side may assign it.", "except to a bank.")
    assert ("clause", "Insurance") not in asked
    texts = {contract()["text"][place.start : place.end] for place in asked["fact", "Parties"].evidence}
    assert texts == {"Acme Bolts", "Zeta “Nuts”"}
    assert given.notes == {
        "pieces of evidence that do not stand in their document word for word": 1,
        "categories of contracts without a label": 1,
    }


def test_contracts_need_no_other_file(tmp_path: Path) -> None:
    path = write(tmp_path / "contracts.jsonl", [contract()], lines=True)
    assert load_questions(path, passages=path).passages.text == load_questions(path).passages.text
    with pytest.raises(TaskError, match=r"omit --passages .*other\.jsonl"):
        load_questions(path, passages=tmp_path / "other.jsonl")


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "hotpot.json", hotpot(questions=1))
    assert load_questions(path, format="multihop").form == "multihop"
    with pytest.raises(TaskError, match=r"record 1, data: Field required"):
        load_questions(path, format="squad")


def test_filings_place_their_evidence_on_its_page(tmp_path: Path) -> None:
    lines = [filing_question(), filing_question(financebench_id="fb_2", doc_name="OTHER_2020")]
    questions = write(tmp_path / "questions.jsonl", lines, lines=True)
    with pytest.raises(TaskError, match="--passages"):
        load_questions(questions)
    given = load_questions(questions, passages=write(tmp_path / "filings.jsonl", [filing()], lines=True))
    (question,) = given.questions
    (place,) = question.evidence
    assert given.passages[0].text == "\n\n".join(filing()["pages"])
    assert given.passages[0].text[place.start : place.end] == "Net sales\n $ 417\nmillion"
    assert place.value == "417"
    assert question.meta["pages"] == [1, 0]
    assert sum(given.notes.values()) == 2


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_passage_files_add_distractors_once_each(tmp_path: Path, suffix: str) -> None:
    questions = write(tmp_path / "hotpot.json", hotpot(questions=2))
    known = hotpot(questions=1)[0]["context"][1]
    lines = [{"title": "New", "text": "Unheard of."}, {"text": "No title."}, {"title": known[0], "text": known[1][0]}]
    extra = write(tmp_path / f"passages.jsonl{suffix}", lines, lines=True)
    alone, more = load_questions(questions), load_questions(questions, passages=extra)
    assert list(more.passages)[: len(alone.passages)] == list(alone.passages)
    assert list(more.passages)[len(alone.passages) :] == [
        Passage(title="New", text="Unheard of."),
        Passage(title="", text="No title."),
    ]


def test_passages_come_from_question_files_and_plain_text_too(tmp_path: Path) -> None:
    questions = write(tmp_path / "hotpot.json", hotpot(questions=1))
    other = write(tmp_path / "squad.json", squad(articles=1, paragraphs=3))
    (tmp_path / "plain.txt").write_text("One line\nand another.\n\n\n[Two]\n\n")
    assert len(load_questions(questions, passages=other).passages) == 13
    assert [passage.text for passage in load_questions(questions, passages=tmp_path / "plain.txt").passages][10:] == [
        "One line\nand another.",
        "[Two]",
    ]


def broken(**changes: object) -> dict[str, object]:
    return {**hotpot(questions=1)[0], **changes}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([broken(), broken(answer="")], r"line 2, answer: .*at least 1 character"),
        ([broken(), broken(question=None)], r"line 2, question: .*valid string, not None$"),
        ([broken(), broken(context=[["a"]])], r"line 2, context\.0\.1: Field required"),
        ([broken(), broken(supporting_facts=[["Nobody", 0]])], r"line 2, .*'Nobody', which is not a title"),
        ([broken(), broken(supporting_facts=[])], r"line 2, .*no passage is marked as needed"),
        ([broken(), broken(gold_idx=[99])], r"line 2, .*gold_idx has 99, but the record has 10"),
        ([broken(), {"question": "?", "answer": "!"}], r"line 2, .*passages are missing"),
        ([broken(), ["a list"]], r"line 2, the record: .*a table \(an object, in JSON\), not \['a list'\]$"),
        ([{"name": "x", "labels": []}], r"record 1, text: Field required|line 1, text: Field required"),
        (
            [contract(), contract(labels=[{"category": "x", "clauses": [""]}])],
            r"line 2, labels\.0\.clauses\.0: .*1 character",
        ),
        ([{"rows": 3}], r"not a question file in a known form .*its fields: rows"),
    ],
)
def test_a_broken_record_is_named_with_its_field(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load_questions(write(tmp_path / "broken.jsonl", lines, lines=True))
    assert "broken.jsonl" in str(caught.value)


def test_records_of_a_list_and_places_in_one_object_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"list\.json, record 2, answer: "):
        load_questions(write(tmp_path / "list.json", [broken(), broken(answer="")]))
    content = squad(articles=2, paragraphs=2)
    content["data"][1]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = " "
    with pytest.raises(TaskError, match=r"record 1|line 1, data\.1\.paragraphs\.0\.qas\.0\.answers\.0\.text: "):
        load_questions(write(tmp_path / "squad.json", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"[]", "the file has no records"),
        (b'{"question": "a"\n{"question": "b"}\n', "line 1, column 17: not JSON"),
        (b'{"a": 1}\n{"b": }\n', "line 2, column 7: not JSON"),
        (b"[1, 2", "line 1, column 6: not JSON"),
        (b"\xff\xfe", "cannot be read as UTF-8"),
        (gzip.compress(b"{}", mtime=0)[:-4], "cannot be read as UTF-8"),
    ],
)
def test_files_that_are_no_json_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / ("cut.json.gz" if content[:2] == b"\x1f\x8b" else "bad.json")
    path.write_bytes(content)
    with pytest.raises(TaskError, match=message):
        load_questions(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.json"):
        load_questions(tmp_path / "none.json")


def test_the_order_of_questions_is_a_permutation_that_depends_on_the_seed() -> None:
    first = [question_number(1, "t", 50, index) for index in range(50)]
    assert sorted(first) == list(range(50))
    assert [question_number(1, "t", 50, index) for index in range(50, 100)] == first
    assert [question_number(2, "t", 50, index) for index in range(50)] != first


def test_synthetic_articles_follow_the_given_passages_and_never_change() -> None:
    own = Passages([Passage(title="A", text="Alpha."), Passage(title="", text="Beta.")])
    more, most = own.grown("eval", 100), own.grown("eval", 3000)
    assert own.grown("eval", 2) is own
    assert own.grown("eval", 200) is more
    assert more.text == most.text[: len(more.text)]
    assert [most[0], most[1]] == list(own)
    assert most.real == 2
    assert len({passage.title for passage in most}) > 0.99 * len(most) > 3000 * 0.99
    assert most[2] != own.grown("train", 100)[2]


def test_passages_are_counted_as_parts_of_a_document() -> None:
    own = Passages([Passage(title="A", text="Alpha beta."), Passage(title="", text="Gamma.")])
    counts = own.counts(WordTokenizer(), "Document {number}:\n")
    document = "Document 1:\nGamma.\n\nDocument 2:\nA\nAlpha beta."
    assert counts.tokens(1, 1) + counts.tokens(0, 2) == WordTokenizer().count(document)
    assert own.counts(WordTokenizer(), "Document {number}:\n") is counts


def test_words_are_found_whole_in_any_case() -> None:
    own = Passages([Passage(title="", text=text) for text in ("Ham and eggs", "HAM.", "Hamster", "İ ham", "shame")])
    assert own.holding(["ham"]) == {0, 1, 3}
    assert own.holding(["eggs", "shame"]) == {0, 4}
    assert stands_in("C++", "in c++.")
    assert not stands_in("", "anything")
