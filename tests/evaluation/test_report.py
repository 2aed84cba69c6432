from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from memagent.core import Span
from memagent.errors import ConfigError, OutputError, TaskError
from memagent.evaluation.report import choose, gather, html_page, markdown, write_report
from memagent.evaluation.report.charts import mean_lines
from memagent.evaluation.report.numbers import depth, number, percent, short, signed, tokens
from memagent.evaluation.report.readings import Gap, ShownTurn, view
from memagent.evaluation.report.text import Piece, excerpt, word_diff
from memagent.evaluation.report.write import views
from memagent.evaluation.summary import row_of, summarize
from memagent.tasks.samples import Fact
from tests.evaluation.fakes import make_record, make_sample, write_run, write_samples
from tests.helpers import StringText

LENGTHS = (1024, 4096, 16384)
FATES = ("kept", "kept", "regained", "lost", "missed", "split", "failed", "misread")


@pytest.fixture
def samples():
    return [
        make_sample(index, task=task, tokens=tokens, characters=min(4 * tokens, 20_000), place=0.1 + index / 10)
        for task in ("niah_single_1", "vt")
        for tokens in LENGTHS
        for index in range(len(FATES))
    ]


@pytest.fixture
def runs(tmp_path, samples):
    """Three runs over one sample file: a memory that loses facts, an unfinished one, and a reader that cannot."""
    file = write_samples(tmp_path / "samples.jsonl", samples)
    fates = FATES * (len(samples) // len(FATES))
    memory = [make_record(sample, fate, turns=12) for sample, fate in zip(samples, fates, strict=True)]
    retrieved = [make_record(sample, "kept", reader="retrieve") for sample in samples[:40]]
    whole = [make_record(s, "too_long" if s.meta["target"] > 4096 else "kept", reader="direct") for s in samples]
    return [
        write_run(tmp_path / "memory", memory, file=file),
        write_run(tmp_path / "retrieve", retrieved, reader="retrieve", file=file, count=len(samples), finished=False),
        write_run(tmp_path / "direct", whole, reader="direct", file=file),
    ]


def table(page: str, caption: str) -> list[list[str]]:
    """The cells of the table with that caption, as text."""
    found = next(part for part in page.split("<table")[1:] if f"<caption>{caption}" in part).partition("</table>")[0]
    rows = re.findall(r"<tr.*?</tr>", found, re.DOTALL)
    return [
        [" ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<svg.*?</svg>", "", cell, flags=re.DOTALL)).split()) for cell in cells]
        for cells in (re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in rows)
    ]


def test_the_page_has_the_right_numbers(runs):
    page = html_page(gather(runs), "A title", [])
    rows = table(page, "Accuracy by task and length")
    assert rows[0] == ["system", "1,024 tokens", "4,096 tokens", "16,384 tokens"]
    assert rows[1] == ["niah_single_1"]
    assert rows[2][:2] == ["memory", "37.5 13.7–69.4 n 8 · 1 unavailable"]
    assert rows[4] == ["direct", "100.0 67.6–100.0 n 8", "100.0 67.6–100.0 n 8", "0.0 too long 0.0–32.4 n 8"]
    assert rows[-3] == ["memory", "37.5 2 tasks", "37.5 2 tasks", "37.5 1 task"]
    assert "<strong><bdi>retrieve</bdi> is unfinished: 40 of 48.</strong>" in page
    differences = table(page, "Differences by task and length, in points")
    assert differences[2][0] == "retrieve"
    assert differences[2][1].startswith("+62.5 ")
    assert differences[3][3].startswith("−37.5 ")
    facts = {row[0]: row[1:] for row in table(page, "Needed facts, followed through the memory")}
    # Of eight facts a cell, one reading failed after half of its turns, having shown or not shown its fact.
    assert facts["drifted kept, but not at the end"][0].split()[0] == "6"
    assert facts["missed never kept"][1:] == ["–", "–"]
    why = {row[0]: row[1:] for row in table(page, "Answers that are not fully right")}
    assert why["a needed fact was kept and then lost"] == ["6", "–", "–"]
    assert why["the reading failed"] == ["6", "–", "16"]
    assert why["total"] == ["30 of 48 readings", "0 of 40 readings", "16 of 48 readings"]


def test_the_same_runs_give_the_same_bytes(runs):
    first, second = gather(runs), gather(runs)
    assert html_page(first, "T", views(first, 4, (), ())) == html_page(second, "T", views(second, 4, (), ()))
    assert markdown(first, "T") == markdown(second, "T")


def assert_tables_are_whole(text: str) -> None:
    """Every row of a Markdown table has as many cells as its head."""
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.replace(r"\|", "").count("|") for row in rows}) <= 1, rows[:2]


class Page(HTMLParser):
    """Collects what a browser would run or fetch, and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[tuple[str, str]] = []
        self.scripts = 0
        self.handlers: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id"]
        self.fetched += [
            (tag, value) for name, value in attrs if name in ("src", "href", "xlink:href") and not value.startswith("#")
        ]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


HOSTILE = "<script>window.hit=1</script>\"'&<img src=x onerror=hit()>\u202egpj.exe\x00\x1b[31m\ud800{{ 7*7 }}${8*8}|`$x^2$"


def test_text_from_documents_and_models_is_data(tmp_path):
    sample = make_sample(0, tokens=500)
    fact = Fact(text=HOSTILE[:20], start=30, end=50, key=HOSTILE, value="1")
    record = make_record(replace(sample, id=HOSTILE, task=HOSTILE, question=HOSTILE, answers=(HOSTILE,)), "missed")
    record = replace(record, answer=HOSTILE, facts=(fact,), meta={HOSTILE: HOSTILE}, error_kind=HOSTILE, status="failed")
    turns = tuple(replace(turn, memory=f"{HOSTILE} {turn.number}", outcome=HOSTILE) for turn in record.turns)
    record = replace(record, turns=turns, error=HOSTILE)
    folder = write_run(tmp_path / "run<b>", [record], model=HOSTILE, command=HOSTILE, machine={HOSTILE: HOSTILE})
    findings = gather([folder])
    page = html_page(findings, HOSTILE, views(findings, 1, (), ()))
    parser = Page()
    parser.feed(page)
    assert (parser.scripts, parser.handlers, parser.fetched, parser.open) == (1, [], [], [])
    assert "{{ 7*7 }}" in page, "text is no template"
    assert not re.search("[\x00\x1b\u202e\ud800]", page)
    page.encode()
    assert page.count("&lt;script&gt;") > 10
    text = markdown(findings, HOSTILE)
    assert "<script>" not in text
    assert not re.search("[\x00\x1b\u202e\ud800]", text)
    assert_tables_are_whole(text)


def test_the_page_asks_for_nothing_and_allows_no_other_script(runs):
    findings = gather(runs)
    page = html_page(findings, "T", views(findings, 10, (), ()))
    parser = Page()
    parser.feed(page)
    assert (parser.fetched, parser.handlers, parser.open) == ([], [], [])
    assert "default-src 'none'" in page
    assert "http://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    used = [one for one in parser.ids if one.startswith(("accuracy", "reading", "runs", "costs"))]
    assert len(used) == len(set(used))


def test_every_figure_and_table_has_a_name(runs):
    page = html_page(gather(runs), "T", [])
    assert page.count("<table") == page.count("<caption>")
    assert page.count("<figure") == page.count("<figcaption>") == page.count('<div role="img" aria-label="')
    assert re.findall(r"<h(\d)", page)[:3] == ["1", "2", "2"]


def test_half_of_the_readings_shown_are_wrong_and_the_choice_repeats(runs):
    findings = gather(runs)
    chosen = choose(findings, 10)
    assert chosen == choose(findings, 10)
    assert chosen != choose(findings, 10, seed=1)
    assert [place.row.score == 1 for place in chosen] == [False] * 5 + [True] * 5
    assert {place.row.system for place in chosen} == {"memory"}, "a reader without a memory has less to show"
    assert len(choose(findings, 10_000)) == 48
    assert choose(findings, 0) == []
    assert [place.row.system for place in choose(findings, 3, ["vt-4096-1"])] == ["memory", "retrieve", "direct"]
    with pytest.raises(ConfigError, match="no reading of the sample 'nobody'"):
        choose(findings, 3, ["nobody"])


def test_a_reading_is_shown_turn_by_turn():
    sample = make_sample(0, tokens=2000, place=0.3)
    record = make_record(sample, "lost", turns=40)
    shown = view(record, row_of(record, "memory", 0), sample, None)
    turns = [item for item in shown.turns if isinstance(item, ShownTurn)]
    assert len(turns) <= 24
    assert sum(item.turns for item in shown.turns if isinstance(item, Gap)) + len(turns) == 41
    [kept] = [item for item in turns if [event.kind for event in item.events] == ["kept"]]
    [lost] = [item for item in turns if [event.kind for event in item.events] == ["lost"]]
    assert (kept.facts, lost.turn.number) == ((1,), kept.turn.number + 1)
    assert Piece("fact", sample.facts[0].text) in kept.text
    assert any(piece.kind == "old" and sample.answers[0] in piece.text for piece in lost.diff)
    assert [mark.kind for mark in shown.marks if mark.text] == ["fact", "kept", "lost"]
    assert shown.verdict == "a needed fact was kept and then lost"


def test_without_the_document_only_the_memory_is_shown(runs, samples, tmp_path):
    findings = gather(runs[:1])
    [shown] = views(findings, 1, (), ())
    assert shown.missing is None
    assert any(item.text for item in shown.turns if isinstance(item, ShownTurn))
    file = (tmp_path / "samples.jsonl").rename(tmp_path / "moved.jsonl")
    [shown] = views(findings, 1, (), ())
    assert "cannot be read" in shown.missing
    assert not any(item.text for item in shown.turns if isinstance(item, ShownTurn))
    assert "The text of the document is not shown" in html_page(findings, "T", [shown])
    [shown] = views(findings, 1, (), [file])
    assert shown.missing is None
    write_samples(tmp_path / "samples.jsonl", samples[1:])
    [shown] = views(findings, 1, (), ())
    assert "has changed since the run" in shown.missing
    with pytest.raises(ConfigError, match="is not the sample file of these runs"):
        views(findings, 1, (), [tmp_path / "samples.jsonl"])
    with pytest.raises(TaskError, match="nowhere"):
        views(findings, 1, (), [tmp_path / "nowhere.jsonl"])


def test_passages_of_a_reader_that_retrieves(runs):
    findings = gather(runs)
    [_, shown, _] = views(findings, 1, ["vt-4096-1"], ())
    [(span, pieces)] = shown.passages
    assert len(span) > 100
    assert any(piece.kind == "fact" for piece in pieces)
    assert "Passage shown" in html_page(findings, "T", [shown])


def test_other_scorers_and_what_cannot_be_reported(runs, tmp_path):
    assert gather(runs[:1], "released").scorer == "released"
    with pytest.raises(ConfigError, match="unknown scorer 'exact': choose one of strict, contains"):
        gather(runs, "exact")
    with pytest.raises(ConfigError, match="a run folder was given twice"):
        gather([runs[0], runs[0]])
    with pytest.raises(ConfigError, match="no finished reading"):
        gather([write_run(tmp_path / "empty", [], finished=False)])


def test_a_report_replaces_a_report_and_nothing_else(runs, tmp_path):
    findings = gather(runs)
    html, tables = tmp_path / "new" / "report.html", tmp_path / "new" / "report.md"
    for _ in range(2):
        write_report(findings, title="T", html=html, tables=tables, readings=1)
    assert html.read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in html.parent.iterdir()) == ["report.html", "report.md"]
    before = (runs[0] / "records.jsonl").read_bytes()
    for path in (runs[0] / "records.jsonl", tmp_path):
        with pytest.raises(OutputError, match=r"is not a report|is a folder"):
            write_report(findings, title="T", html=path)
    assert (runs[0] / "records.jsonl").read_bytes() == before


def test_the_tables_in_markdown(runs):
    lines = markdown(gather(runs), "My *results*").splitlines()
    assert lines[2] == r"# My \*results\*"
    assert (
        r"| niah\_single\_1 | direct | 100.0 (67.6–100.0; 8) | 100.0 (67.6–100.0; 8) | 0.0 (0.0–32.4; 8; too long) |"
        in lines
    )
    assert "| **mean over tasks** | memory | 37.5 (2 tasks) | 37.5 (2 tasks) | 37.5 (1 task) |" in lines
    assert_tables_are_whole("\n".join(lines))


def test_a_single_run_of_a_single_task_is_a_report_too(tmp_path):
    record = replace(make_record(make_sample(0, tokens=500)), tokens=0, meta={}, facts=())
    findings = gather([write_run(tmp_path / "run", [record])])
    page = html_page(findings, "T", views(findings, 3, (), ()))
    assert "length unknown" in page
    assert "Differences to" not in page
    assert "needs answers at two or more lengths" in page


def test_a_length_that_is_a_range_is_called_that(tmp_path):
    sizes = (9_032, 10_400, 12_413, 20_000)
    records = [replace(make_record(make_sample(n, tokens=500)), tokens=size, meta={}) for n, size in enumerate(sizes)]
    findings = gather([write_run(tmp_path / "run", records)])
    page = html_page(findings, "T", [])
    assert table(page, "Accuracy by task and length")[0] == ["system", "up to 16,384 tokens", "up to 32,768 tokens"]
    assert "≤16K" in page
    assert "up to 16,384 tokens" in markdown(findings, "T")


def test_means_say_over_which_tasks_they_are(tmp_path):
    samples = [make_sample(index, task=task, tokens=500) for task in ("niah", "vt") for index in range(2)]
    more = [make_record(sample) for sample in samples]
    less = [make_record(sample, reader="retrieve") for sample in samples[:2]]
    findings = gather([write_run(tmp_path / "a", more), write_run(tmp_path / "b", less, reader="retrieve")])
    page = html_page(findings, "T", [])
    rows = table(page, "Accuracy by task and length")
    assert rows[-2:] == [["memory", "100.0 1 task"], ["retrieve", "100.0 1 task"]]
    assert "<dt>500 tokens</dt><dd>niah</dd>" in page
    text = markdown(findings, "T")
    assert "\n- 500 tokens: niah\n" in text
    assert "100.0 (1 task)" in text
    assert_tables_are_whole(text)


def test_the_line_of_means_is_broken_where_the_tasks_change():
    def row(task, tokens, fate):
        record = make_record(make_sample(0, task=task, tokens=tokens), fate)
        return row_of(record, "memory", record.scores["strict"])

    rows = [row("easy", tokens, "kept") for tokens in (512, 1024, 4096)] + [row("hard", 4096, "lost")]
    assert mean_lines(summarize(rows, ["memory"]), "memory") == [[(512, 100), (1024, 100)], [(4096, 50)]]


def test_a_line_through_times_that_never_vary_has_no_r2(tmp_path):
    records = [make_record(make_sample(n, tokens=500 * (n + 1))) for n in range(4)]
    findings = gather([write_run(tmp_path / "a", [replace(record, seconds=0.1) for record in records])])
    [row] = table(html_page(findings, "T", []), "Growth with the length of the document")[1:]
    assert (row[1:3], row[-2:]) == (["0", "–"], ["4", "1"])
    assert re.search(r"\| memory \| 0 \| – \|.* 4 \| 1 \|", markdown(findings, "T"))


@pytest.mark.parametrize(("tasks", "folded"), [(3, 0), (4, 4)])
def test_depths_are_a_map_for_each_task_and_many_are_folded(tmp_path, tasks, folded):
    records = [make_record(make_sample(0, task=f"t{n}", tokens=500, place=0.4)) for n in range(tasks)]
    page = html_page(gather([write_run(tmp_path / "a", records)]), "T", [])
    assert page.count('<details class="maps">') == folded
    rows = table(page, "memory, t0: accuracy by depth and length")
    assert len(rows) == 11
    assert rows[0] == ["depth", "500"]
    assert rows[5][0] == "40–50 %"


def test_what_the_model_said_is_shown_with_its_turn(tmp_path):
    record = make_record(make_sample(0, tokens=500), turns=4)
    said = {0: HOSTILE, 1: "", 4: "word " * 500}
    turns = tuple(
        replace(turn, reply=said.get(turn.number), memory="x" if turn.number < 2 else turn.memory) for turn in record.turns
    )
    findings = gather([write_run(tmp_path / "a", [replace(record, turns=turns)])])
    page = html_page(findings, "T", views(findings, 1, (), ()))
    assert page.count("The model replied:") == 2
    assert "&lt;script&gt;window.hit=1" in page.split("The model replied:")[1]
    cut = page.split("The model replied:")[2].partition("</div>")[0]
    assert "2,500 characters in total" in cut
    assert 590 < len(cut) < 750
    Page().feed(page)


def test_full_notes_of_append_are_called_that(tmp_path):
    record = make_record(make_sample(0, tokens=500), "lost", reader="append")
    full = (replace(turn, outcome="full") if turn.outcome == "fitted" else turn for turn in record.turns)
    record = replace(record, turns=tuple(full))
    findings = gather([write_run(tmp_path / "a", [record], reader="append")])
    page = html_page(findings, "T", views(findings, 1, (), ()))
    facts = {row[0]: row[1:] for row in table(page, "Needed facts, followed through the memory")}
    assert facts["memory full the oldest lines were dropped to make room"] == ["2"]
    assert facts["overflowing replies longer than the memory budget"] == ["0"]
    assert '<span class="badge plain">memory full</span>' in page


def test_a_run_that_has_just_begun_is_shown_as_that(runs, tmp_path):
    new = write_run(tmp_path / "new", [], reader="truncate", count=48, finished=False)
    findings = gather([*runs, new])
    assert "unfinished: 0 of 48" in html_page(findings, "T", [])
    assert "unfinished: 0 of 48" in markdown(findings, "T")


def test_word_diffs():
    pieces = word_diff("amber 12\nthe old line", "amber 13\nthe old line, longer")
    assert [piece for piece in pieces if piece.kind != "same"] == [
        Piece("old", "12"),
        Piece("new", "13"),
        Piece("new", ", longer"),
    ]
    assert word_diff("", "new") == [Piece("new", "new")]
    assert word_diff("same", "same") == [Piece("same", "same")]
    old, new = "one two three", "uno dos tres"
    assert word_diff(old, new) == [Piece("old", old), Piece("new", new)], "a rewritten sentence is not shredded"


@pytest.mark.parametrize(("old", "new"), [("a b c", "b c d\ne"), ("x\n\ny", "x y"), ("", ""), ("日本 語", "日本 人")])
def test_a_diff_holds_both_texts(old, new):
    pieces = word_diff(old, new)
    assert "".join(piece.text for piece in pieces if piece.kind != "new") == old
    assert "".join(piece.text for piece in pieces if piece.kind != "old") == new


def test_an_excerpt_of_a_long_chunk_shows_what_is_around_its_facts():
    text = StringText("x" * 5000 + "FACT" + "y" * 5000)
    fact = Fact(text="FACT", start=5000, end=5004, value="FACT")
    pieces = excerpt(text, Span(start=100, end=9000), [fact])
    assert [piece.kind for piece in pieces] == ["gap", "same", "fact", "same", "gap"]
    assert pieces[0].text == "… 4,200 characters …"
    assert sum(len(piece.text) for piece in pieces) < 1500
    assert excerpt(text, Span(start=0, end=10), [fact]) == [Piece("same", "x" * 10)]
    cut = excerpt(text, Span(start=4990, end=5002), [fact])
    assert cut[:2] == [Piece("same", "x" * 10), Piece("fact", "FA")]
    assert [piece.kind for piece in excerpt(text, Span(start=0, end=4000), [fact])] == ["same", "gap"]


def test_numbers():
    assert [percent(0.975), percent(None), percent(1, 0)] == ["97.5", "–", "100"]
    assert [signed(0.025), signed(-0.1), signed(0), signed(-0.0001)] == ["+2.5", "−10.0", "0.0", "0.0"]
    assert [depth(0.4, 0.5), depth(0.25, 0.25), depth(1, 1), depth(1 / 3, 1 / 3)] == ["40–50 %", "25 %", "100 %", "33.3 %"]
    assert [tokens(16384), tokens(16384, True), short(16384, True), tokens(0)] == (
        ["16,384", "up to 16,384", "≤16K", "length unknown"]
    )
    assert [number(0.01234), number(12.3456), number(12345.6), number(None)] == ["0.0123", "12.3", "12,346", "–"]
    assert [short(n) for n in (437 * 1024, 16384, 16000, 4_000_000, 1234, 99, 1_234_567)] == (
        ["437K", "16K", "16k", "4M", "1.23k", "99", "1.23M"]
    )


def test_without_the_extra_the_error_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None\nimport memagent.evaluation.report"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'memagent[eval]'" in done.stderr
