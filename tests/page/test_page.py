"""What stands on a page, from readings of every kind."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest

import memagent
from memagent.documents import load
from memagent.page import origins, write_page
from memagent.page.gather import page_of
from memagent.page.passages import Border, Gap, Passage
from tests import test_structured as structured
from tests.cli.conftest import FACT
from tests.documents.document_samples import write_pdf, write_pptx
from tests.page.fakes import stored, turn
from tests.test_follow_up import OPTIONS, TEXT, model, script

FIRST = "Line 3 tells of the sea."


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


def words(page):
    """The text of a page's blocks."""
    return "".join(piece.text for block in page.blocks if isinstance(block, Passage) for piece in block.pieces)


def borders(page):
    return [(one.file.rpartition("/")[2], one.page, one.begins) for one in page.blocks if isinstance(one, Border)]


def test_a_small_document_is_there_whole_with_its_quotes_marked(journal, book):
    record = stored(journal, [book], ["m", f"m\n{FACT}", f"m\n{FACT}"], answer="4821973", quotes=[FIRST, FACT])
    page = page_of(journal, record)
    assert words(page) == TEXT
    pieces = [piece for block in page.blocks if isinstance(block, Passage) for piece in block.pieces]
    assert [piece.text for piece in pieces if 1 in piece.quotes] == [FIRST]
    assert "".join(piece.text for piece in pieces if 2 in piece.quotes) == FACT
    assert [quote.held for quote in page.questions[0].quotes] == [True, True]
    [line] = [line for line in page.lines if line.text == FACT]
    assert (line.found, TEXT[line.link.start : line.link.end], line.turn) == (True, FACT, 1)
    assert (
        page.trace.timeline.changes,
        page.trace.ledger.turns,
        page.trace.ledger.usage.calls,
        page.verification.calls,
    ) == (2, 4, 4, 1)
    assert page.share_read == 1.0


def test_overlapping_quotes_are_both_marked(journal, book):
    record = stored(journal, [book], ["m"], answer="4821973", quotes=["Line 3 tells of", "3 tells of the sea."])
    pieces = [piece for block in page_of(journal, record).blocks if isinstance(block, Passage) for piece in block.pieces]
    both = [piece.text for piece in pieces if piece.quotes == (1, 2)]
    assert both == ["3 tells of"]


def test_the_page_of_a_large_document_is_bounded_and_reads_slices(journal, tmp_path):
    """Some 20 MB; a hundred lines of memory from all over it, and three thousand turns."""
    path = tmp_path / "large.txt"
    path.write_text("".join(f"Line {number} tells of the sea and of nothing else at all.\n" for number in range(400_000)))
    memories = [f"note {number // 10}\nLine {number * 100} tells of the sea" for number in range(3_000)]
    said = [f"Line {number} tells of the sea and of nothing else at all." for number in (3, 200_000, 399_999)]
    record = stored(journal, [path], memories, answer="the sea", quotes=said)
    with load([path]) as document:
        size = len(document)
    tracemalloc.start()
    page = page_of(journal, record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 20_000_000
    assert peak < 12_000_000
    assert len(words(page)) <= 200_000
    gaps = sum(block.characters for block in page.blocks if isinstance(block, Gap))
    assert len(words(page)) + gaps == size
    assert all(quote.held for quote in page.questions[0].quotes)
    assert (len(page.steps), page.trace.timeline.left_out.changes > 2_000) == (150, True)
    write_page(journal, record, tmp_path / "page.html")
    written = (tmp_path / "page.html").read_text()
    assert len(written) < 500_000
    assert re.search(r"… \d+,\d{3},\d{3} characters …", written)


def test_the_page_of_the_worst_text_is_bounded_too(journal, tmp_path):
    """Every other character is written as its code; memories and answers are long, of very short lines and words."""
    path = tmp_path / "odd.txt"
    path.write_text("a\u202e" * 150_000)
    memories = ["\n".join("ab"[(number + line) % 2] for line in range(3_000)) for number in range(200)]
    verdict = {"status": "partly", "unsupported": ["claim"] * 5_000}
    record = stored(journal, [path], memories, answer="x" * 200_000, quotes=["a\u202e" * 5_000], verdict=verdict)
    write_page(journal, record, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(text) < 6_000_000
    for said in ("150,000 more characters", "4,800 more claims", "lines cut or left out", "are left out"):
        assert said in text, said


def test_pages_of_a_pdf_begin_where_they_do(journal, tmp_path):
    path = write_pdf(tmp_path / "report.pdf", ["", "The first page with text.", "", "", "The code is 42.", "The end."])
    record = stored(journal, [path], ["The code is 42."], answer="42", quotes=["The code is 42."])
    page = page_of(journal, record)
    assert borders(page) == [("report.pdf", 2, "file"), ("report.pdf", 5, "page"), ("report.pdf", 6, "page")]
    blocks = [block for block in page.blocks if isinstance(block, Border | Passage)]
    texts = ["".join(piece.text for piece in block.pieces) for block in blocks if isinstance(block, Passage)]
    assert texts == ["The first page with text.\n", "The code is 42.\n", "The end.\n"]
    assert ", page 5" in page.questions[0].quotes[0].place


def test_slides_are_called_so(journal, tmp_path):
    slides = write_pptx(tmp_path / "plan.pptx")
    write_page(journal, stored(journal, [slides], ["Ada"], answer="Ada", quotes=["Ada"]), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert '<span class="page">slide 1</span>' in text
    assert '<span class="page">slide 3</span>' in text
    assert "plan.pptx, slide 3, offset" in text
    assert '"page">page' not in text


def test_files_have_their_names_at_their_borders_also_amid_a_large_one(journal, tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path in paths:
        path.write_text(f"It begins with {path.stem}. " + "More of it. " * 10_000 + f"It ends with {path.stem}.")
    record = stored(journal, paths, [""], answer="b", quotes=["It ends with a.", "It begins with b.", "It ends with c."])
    page = page_of(journal, record)
    assert borders(page) == [("a.txt", None, ""), ("b.txt", None, "file"), ("c.txt", None, "")]
    assert [type(block).__name__ for block in page.blocks].count("Gap") == 2
    assert all(quote.held for quote in page.questions[0].quotes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "could not be loaded again"),
        (lambda path: path.write_text(TEXT.replace("sea", "sky")), "has changed since it was read"),
    ],
)
def test_a_document_that_is_gone_or_changed_is_not_shown_and_its_quotes_are(journal, book, tmp_path, change, said):
    record = stored(journal, [book], ["m"], answer="4821973", quotes=[FACT])
    change(book)
    page = write_page(journal, record, tmp_path / "page.html")
    assert said in page.note
    assert (page.blocks, page.ticks) == (None, ())
    text = (tmp_path / "page.html").read_text()
    assert FACT in text
    assert said in text
    assert 'href="#mark-' not in text


@pytest.mark.parametrize("paths", [[], ["-"]])
def test_a_document_from_standard_input_or_memory_is_not_shown(journal, book, paths):
    page = page_of(journal, stored(journal, [book], ["m"], answer="1", quotes=[FACT], described={"paths": paths}))
    assert "was read from standard input, from memory or by a watch" in page.note


def test_of_a_document_that_has_grown_what_was_read_is_shown(journal, book):
    record = stored(journal, [book], ["m"], answer="4821973", quotes=[FACT])
    with book.open("a") as file:
        file.write("\nMore of it.")
    page = page_of(journal, record)
    assert "has grown by 12 characters" in page.note
    assert words(page) == TEXT
    assert page.questions[0].quotes[0].held


def test_a_quote_that_does_not_stand_where_the_journal_says_is_only_text(journal, book):
    record = stored(journal, [book], ["m"], answer="4821973", quotes=[FACT])
    quote = {**record.verdicts[0]["quotes"][0], "start_char_index": 5, "end_char_index": 10**12}
    journal.verified(record.id, [{**record.verdicts[0], "quotes": [quote]}])
    page = page_of(journal, journal.show(record.id))
    assert not page.questions[0].quotes[0].held
    assert words(page) == TEXT


def test_questions_that_were_read_together_have_their_own_answers_and_quotes(journal, book, tmp_path):
    room = {**OPTIONS, "question_tokens": 200, "memory_tokens": 200}
    asked = ["the code?", "who is the captain?"]
    both = memagent.read_many(book, asked, together=True, model=model(), journal=journal, **room)
    page = write_page(journal, journal.show(both[0].id), tmp_path / "page.html")
    assert [(one.question, one.answer, one.verdict.status) for one in page.questions] == [
        ("the code?", "4821973", "supported"),
        ("who is the captain?", "Ann", "supported"),
    ]
    assert [quote.number for one in page.questions for quote in one.quotes] == [1, 2]
    assert "<h1>2 questions, read together</h1>" in (tmp_path / "page.html").read_text()


def test_an_answer_that_follows_a_schema_has_a_quote_for_each_field(journal, tmp_path):
    path = tmp_path / "contract.txt"
    path.write_text(structured.TEXT)
    answer = structured.model(json.dumps(structured.RIGHT))
    options = {**structured.OPTIONS, "schema": structured.FEE}
    reading = memagent.read(path, "the terms?", model=answer, journal=journal, **options)
    page = write_page(journal, journal.show(reading.id), tmp_path / "page.html")
    assert page.questions[0].answer == json.dumps(structured.RIGHT, indent=2)
    assert [one.field for one in page.questions[0].quotes] == [one.field for one in reading.quotes]
    assert all(one.held and one.field in (tmp_path / "page.html").read_text() for one in page.questions[0].quotes)


def test_a_follow_up_of_a_follow_up_is_traced_to_the_reading_that_noted_it(journal, book):
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    second = memagent.follow_up(first, "who is the captain?", model=model(), journal=journal)
    third = memagent.follow_up(second, "and the code?", model=model(), journal=journal)
    whole, page = (page_of(journal, journal.show(one.id)) for one in (first, third))
    assert (page.trace.source, page.trace.lost, page.share_read, page.trace.ledger.turns) == (first.id, "", 0.0, 1)
    assert [(one.text, one.turn, one.link) for one in page.lines] == [(one.text, one.turn, one.link) for one in whole.lines]
    assert all(one.link for one in page.lines)
    assert (page.trace.timeline.memory, page.trace.timeline.changes, [one.step.answers for one in page.steps]) == (
        first.memory,
        0,
        [True],
    )
    journal.delete(second.id)
    journal.delete(first.id)
    page = page_of(journal, journal.show(third.id))
    assert "has no reading" in page.trace.lost
    assert page.trace.timeline.memory == first.memory


def test_an_extended_reading_shows_the_grown_document(journal, book):
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    with book.open("a") as file:
        file.write("\n" + "\n".join(f"More {number} of the sea." for number in range(60)))
    memagent.extend(first.id, model=model(), journal=journal)
    page = page_of(journal, journal.show(first.id))
    assert words(page) == book.read_text()
    assert (page.note, page.share_read) == ("", 1.0)


def test_a_follow_up_of_a_reading_that_was_extended_does_not_say_what_is_not_known(journal, book, tmp_path):
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    second = memagent.follow_up(first, "who is the captain?", model=model(), journal=journal)
    before = page_of(journal, journal.show(second.id))
    assert [line.text for line in before.lines] == first.memory.splitlines()
    turns = [line.turn for line in before.lines]
    record, gone = journal.show(first.id), max(turns)
    journal.extend(first.id, document=record.document, plan_digest="", planned=9, keep=gone, base={})
    for number in range(gone, gone + 3):
        kept = "\n".join(line.text for line in before.lines if line.turn < gone)
        journal.append(first.id, turn(number, f"{kept}\nother {number}", [(900, 1_200)]))
    page = write_page(journal, journal.show(second.id), tmp_path / "page.html")
    assert [line.turn for line in page.lines] == [number if number < gone else None for number in turns]
    assert [line.place != "" for line in page.lines] == [number < gone for number in turns]
    text = (tmp_path / "page.html").read_text()
    assert text.count("The turn that noted it is not known any more.") == 1


def test_a_line_of_a_follow_up_is_from_the_turn_that_it_was_from_then(journal, book):
    """The reading went on since; it dropped the line, and noted it again elsewhere."""
    first = memagent.read(book, "the code?", model=model(), journal=journal, **OPTIONS)
    second = memagent.follow_up(first, "who is the captain?", model=model(), journal=journal)
    before = page_of(journal, journal.show(second.id)).lines
    record = journal.show(first.id)
    journal.extend(first.id, document=record.document, plan_digest="", planned=9, keep=record.turns, base={})
    for number, memory in enumerate(("", first.memory + "\nmore"), record.turns):
        journal.append(first.id, turn(number, memory, [(900, 1_200)]))
    after = page_of(journal, journal.show(second.id)).lines
    assert [(line.turn, line.link) for line in after] == [(line.turn, line.link) for line in before] != []


def test_the_last_memory_is_shown_as_it_stands(journal, book):
    memory = f"- {FIRST}\n    {FACT}\n\n- {FIRST}\nend"
    page = page_of(journal, stored(journal, [book], [memory]))
    assert [line.text for line in page.lines] == [line for line in memory.splitlines() if line]
    assert [line.number for line in page.lines] == [1, 2, 3, 4]
    one, fact, again, end = page.lines
    assert (one.link, one.turn, fact.found, end.found) == (again.link, again.turn, True, False)


@pytest.mark.parametrize(("copies", "sought"), [(2_000, 32), (4_000, 0)])
def test_what_is_looked_through_for_lines_is_bounded(journal, tmp_path, monkeypatch, copies, sought):
    """Two hundred lines of a merge, each from all of the document."""
    path = tmp_path / "large.txt"
    path.write_text("Line after line tells of the sea, and of a ship that sails upon it, or will.\n" * copies)
    looked = []
    monkeypatch.setattr(origins, "align", lambda quote, text, spans: looked.append(sum(map(len, spans))) or ())
    page = page_of(journal, stored(journal, [path], ["\n".join(f"a merged line {number}" for number in range(200))]))
    assert (len(looked), len(page.lines)) == (sought, 200)
    assert sum(looked) <= 5_000_000
    assert all(line.link and not line.found for line in page.lines)


def test_of_more_than_a_page_holds_the_rest_is_counted_and_every_link_has_a_target(journal, tmp_path):
    paths = [tmp_path / f"{number:02}.txt" for number in range(21)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"Line {number * 20 + line} tells of the sea. " for line in range(20)))
    said = [f"Line {number} tells of the sea." for number in range(201)]
    spans = [(start, start + 50) for start in (0, 2_000, 4_000, 6_000)]
    last = [turn(0, "\n".join(said), spans), turn(1, "\n".join(said), (), "answered", "answer", "the sea")]
    record = stored(journal, paths, [], answer="the sea", quotes=said, last=last)
    page = write_page(journal, record, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert (len(page.questions[0].quotes), len(page.lines), len(page.names)) == (200, 200, 20)
    assert (len(page.steps[0].shown), len([one for one in page.ticks if one[0] == "quote"])) == (3, 200)
    for more in ("… and 1 more quote<", "… and 1 more line<", "and 1 more file<", "and 1 more place<"):
        assert more in text, more
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|data-end=")([^"]+)"', text)) <= set(ids)
    assert "mark-200" in ids


def test_a_failed_reading_says_why_and_shows_how_far_it_came(journal, book, tmp_path):
    def dies(turn):
        return memagent.ModelUnavailableError("the server is gone") if turn.id == "chunk-3" else script(turn)

    with pytest.raises(memagent.ModelUnavailableError):
        memagent.read(book, "the code?", model=model(dies), journal=journal, **OPTIONS)
    record = journal.list(limit=1)[0]
    page = write_page(journal, record, tmp_path / "page.html")
    assert (page.record.status, page.questions[0].answer, page.trace.ledger.turns) == ("failed", None, 2)
    text = (tmp_path / "page.html").read_text()
    assert "The reading failed after 2 turns" in text
    assert "the server is gone" in text
    assert f"memagent resume {record.id}" in text


def test_an_interrupted_reading_and_one_without_any_turn_have_pages(journal, book, tmp_path):
    for memories in (["a", "b"], []):
        record = stored(journal, [book], memories, last=())
        journal._db.execute("UPDATE readings SET owner = NULL")
        write_page(journal, journal.show(record.id), tmp_path / "page.html")
        said = f"was interrupted after {len(memories)} turns of {record.planned}."
        assert said in (tmp_path / "page.html").read_text()


def verified_as(journal, record, **changes):
    journal.verified(record.id, [{**record.verdicts[0], **changes}])
    return journal.show(record.id)


def test_what_another_version_wrote_has_a_page(journal, book, tmp_path):
    described = {"tokens": None, "files": [{"kind": "text"}, "odd"]}
    record = stored(journal, [book], ["m"], answer="4821973", quotes=[FACT], described=described)
    [values] = record.verdicts
    quotes = [{**values["quotes"][0], "colour": "red", "alignment": "guessed"}]
    usage = {**values["usage"], "calls": 2, "images": 3, "seconds": None}
    record = verified_as(journal, record, status="doubted", quotes=quotes, usage=usage, more=1)
    page = write_page(journal, record, tmp_path / "page.html")
    assert (page.tokens, page.verification.calls, page.questions[0].quotes[0].held) == (0, 2, True)
    text = (tmp_path / "page.html").read_text()
    assert "Verified: doubted." in text
    assert "nearly: 100 % agree" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"quotes": [{"cited_text": "m"}]},
        {"quotes": ["m"]},
        {"quotes": None},
        {"status": None},
        {"status": ["supported"]},
        {"unsupported": 1},
        {"error": 1},
    ],
)
def test_what_is_no_verdict_is_named_with_its_reading(journal, book, changes):
    record = verified_as(journal, stored(journal, [book], ["m"], answer="4821973", quotes=[FACT]), **changes)
    with pytest.raises(memagent.JournalError, match=f"reading {record.id} has a verification"):
        page_of(journal, record)


def test_a_quote_whose_values_have_other_types_is_no_quote(journal, book):
    record = stored(journal, [book], ["m"], answer="4821973", quotes=[FACT])
    [quote] = record.verdicts[0]["quotes"]
    for change in ({"turn": None}, {"score": "high"}, {"start_char_index": "5"}, {"cited_text": None}, {"place": 1}):
        record = verified_as(journal, record, quotes=[{**quote, **change}])
        with pytest.raises(memagent.JournalError):
            page_of(journal, record)


def test_a_folder_that_has_grown_by_a_file_keeps_the_names_of_the_others(journal, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.txt").write_text(f"The text of {name}.")
    files = [{"name": f"folder/{name}.txt"} for name in "ab"]
    record = stored(journal, [folder], ["m"], answer="4821973", described={"files": files})
    (folder / "c.txt").write_text("The text of c.")
    page = page_of(journal, record)
    assert "has grown by" in page.note
    assert [one.file for one in page.blocks if isinstance(one, Border)] == ["folder/a.txt", "folder/b.txt"]


def test_an_unverified_and_a_direct_reading_have_pages(journal, book, tmp_path):
    last = [turn(0, "", [(0, len(TEXT))], "answered", "answer", "4821973")]
    record = stored(journal, [book], [], answer="4821973", last=last, settings={"reader": "direct"})
    write_page(journal, record, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "Not verified." in text
    assert "has no memory" in text
