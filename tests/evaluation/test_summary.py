from __future__ import annotations

from dataclasses import replace

import pytest

from memagent.evaluation.runs import Run
from memagent.evaluation.statistics import wilson
from memagent.evaluation.summary import length_class, row_of, summarize
from memagent.evaluation.systems import systems
from memagent.tasks.samples import Fact
from tests.evaluation.fakes import make_record, make_sample, write_run


def rows(fates, *, system="memory", attempt=0, **sample):
    records = [make_record(make_sample(index, **sample), fate, attempt=attempt) for index, fate in enumerate(fates)]
    return [row_of(record, system, record.scores["strict"]) for record in records]


def test_a_cell_by_hand():
    cells = summarize(rows(["kept", "kept", "lost", "failed", "too_long"]), ["memory"]).cells
    [cell] = cells.values()
    assert (cell.task, cell.length, cell.samples, cell.readings) == ("niah_single_1", 4096, 5, 5)
    assert cell.mean == pytest.approx(0.4)
    assert cell.interval == wilson(2, 5)
    assert cell.failures == {"unavailable": 1, "too_long": 1}
    assert cell.failed == 2
    assert not cell.too_long
    assert cell.turns == 9
    assert cell.prompt_tokens == pytest.approx(8 * 700 + 100)
    assert cell.seconds == pytest.approx(4096 / 9e3, rel=0.01)


def test_a_cell_of_nothing_but_failures_counts_as_zero_and_has_no_costs():
    summary = summarize([*rows(["too_long"] * 3), *rows(["kept"] * 3, task="vt")], ["memory"])
    cell = summary.cells["niah_single_1", 4096, "memory"]
    assert (cell.mean, cell.too_long, cell.seconds, cell.turns) == (0, True, None, None)
    assert summary.means[4096, "memory"] == (0.5, 2)


def test_attempts_are_averaged_within_their_sample_first():
    tried = [*rows(["kept", "kept"]), *rows(["lost", "kept"], attempt=1), *rows(["lost"], attempt=2)]
    [cell] = summarize(tried, ["memory"]).cells.values()
    assert (cell.samples, cell.readings) == (2, 5)
    assert cell.mean == pytest.approx((1 / 3 + 1) / 2)


def test_tasks_weigh_the_same_whatever_their_number_of_samples():
    summary = summarize([*rows(["kept"] * 9), *rows(["lost"], task="vt")], ["memory"])
    assert summary.means[4096, "memory"] == (0.5, 2)
    assert summary.tasks == ("niah_single_1", "vt")
    assert summary.lengths_of("vt") == (4096,)


def test_means_are_over_the_tasks_that_all_systems_have_read():
    both = [*rows(["kept"]), *rows(["lost"], system="b")]
    one = [*rows(["lost"], task="vt"), *rows(["kept"], task="vt", tokens=1024)]
    summary = summarize([*both, *one], ["memory", "b"])
    assert summary.compared == {4096: ("niah_single_1",), 1024: ("vt",)}
    assert summary.partly_compared == summary.compared
    assert summary.means == {(4096, "memory"): (1, 1), (4096, "b"): (0, 1), (1024, "memory"): (1, 1)}
    nothing = summarize([*rows(["kept"]), *rows(["kept"], system="b", task="vt")], ["memory", "b"])
    assert (nothing.compared, nothing.means) == ({4096: ()}, {})


def test_differences_are_against_the_first_system_over_common_samples():
    first, second = rows(["kept", "lost", "lost", "kept"]), rows(["kept", "kept", "kept"], system="b")
    difference = summarize([*first, *second], ["memory", "b"]).differences["niah_single_1", 4096, "b"]
    assert (difference.n, difference.mean) == (3, pytest.approx(2 / 3))
    assert summarize(first, ["memory"]).differences == {}


def test_time_grows_with_length():
    growth = summarize([*rows(["kept"] * 3), *rows(["kept"] * 3, tokens=65536)], ["memory"]).growth["memory"]
    assert growth.seconds.slope == pytest.approx(1 / 9e3)
    assert growth.seconds.r2 == pytest.approx(1)
    assert (growth.seconds.n, growth.times) == (6, 6)
    shared = [replace(row, seconds=row.length / 1e3) for row in [*rows(["kept"] * 3), *rows(["kept"] * 3, tokens=65536)]]
    assert summarize(shared, ["memory"]).growth["memory"].times == 2, "batches share their time"
    assert summarize(rows(["failed"]), ["memory"]).growth["memory"].seconds is None
    near = [replace(row, tokens=4000 + place) for place, row in enumerate(rows(["kept"] * 3))]
    assert summarize(near, ["memory"]).growth["memory"].seconds is None, "one length has no slope"


def record(tokens=4096, meta=None, **changes):
    return replace(make_record(make_sample(0)), tokens=tokens, meta=meta or {}, **changes)


@pytest.mark.parametrize(
    ("tokens", "meta", "length"),
    [
        (16_300, {"target": 16_000}, 16_000),
        (16_221, {}, 16_384),
        (16_384, {}, 16_384),
        (16_700, {}, 16_384),
        (16_800, {}, 32_768),
        (9_032, {}, 16_384),
        (12_413, {}, 16_384),
        (437_000, {}, 524_288),
        (7, {}, 8),
        (1, {}, 1),
        (0, {}, 0),
    ],
)
def test_length_classes(tokens, meta, length):
    assert length_class(record(tokens, meta)) == length


def test_documents_of_lengths_of_their_own_are_one_range():
    found = [row_of(record(tokens), "a", 1) for tokens in (9_032, 10_500, 12_413)]
    assert summarize(found, ["a"]).lengths == (16_384,)
    assert summarize(found, ["a"]).ranges == {16_384}
    asked = row_of(record(4_000, {"target": 4096}), "a", 1)
    unknown = row_of(record(0), "a", 1)
    assert summarize([*found, asked, unknown], ["a"]).ranges == {16_384}
    [cell] = summarize(found, ["a"]).cells.values()
    assert cell.document == pytest.approx((9_032 + 10_500 + 12_413) / 3)


def test_depth_is_told_by_the_task_or_by_the_only_needed_fact():
    fact = Fact(text="x", start=50, end=60, value="1")
    aside = replace(fact, start=10, end=20, needed=False)
    assert row_of(record(meta={"depth": 0.25}), "a", 1).depth == 0.25
    assert row_of(record(meta={"depth": 40}, facts=(fact, aside), characters=100), "a", 1).depth == 0.55
    assert row_of(record(facts=(fact, fact)), "a", 1).depth is None


def test_few_depths_that_a_task_names_are_rows_of_their_own():
    rows = [row_of(record(meta={"depth": n / 10}), "a", n != 9) for n in range(11)]
    [found] = summarize(rows, ["a", "b"]).depths
    assert found.rows == tuple((n / 10, n / 10) for n in range(11))
    assert (found.cells[9, 4096], found.cells[10, 4096]) == ((0, 1), (1, 1))


def test_many_depths_and_those_of_facts_are_in_tenths():
    rows = [row_of(record(meta={"depth": n / 40}), "a", n % 2) for n in range(41)]
    [found] = summarize(rows, ["a"]).depths
    assert found.rows[9] == (0.9, 1)
    assert len(found.rows) == 10
    assert found.cells[9, 4096] == (0.4, 5)
    fact = Fact(text="x", start=50, end=60, value="1")
    [found] = summarize([row_of(record(facts=(fact,), characters=100), "a", 1)], ["a"]).depths
    assert found.cells == {(5, 4096): (1, 1)}


def test_depths_of_different_tasks_are_different_maps():
    rows = [row_of(record(meta={"depth": 0.5}, task=task), one, 1) for task in ("x", "y") for one in ("a", "b")]
    rows.append(row_of(record(facts=(), task="z"), "a", 1))
    assert [(one.task, one.system) for one in summarize(rows, ["a", "b"]).depths] == (
        [("x", "a"), ("x", "b"), ("y", "a"), ("y", "b")]
    )


def opened(tmp_path, name, **header):
    return Run.open(write_run(tmp_path / name, [], **header))


def test_systems_are_named_by_what_differs(tmp_path):
    settings = {"budgets": {"memory": 64, "chunk": 640}, "profile": {"name": "compact", "update": "x"}}
    larger = {"budgets": {"memory": 128, "chunk": 640}, "profile": {"name": "default", "update": "y"}}
    memory, truncate = opened(tmp_path, "a"), opened(tmp_path, "b", reader="truncate")
    assert systems([memory]) == ["memory"]
    assert systems([memory, truncate]) == ["memory", "truncate"]
    options = [{**settings, "reader_options": {"passages": 8}}, {**settings, "reader_options": {"passages": 4}}]
    found = [opened(tmp_path, f"found {number}", reader="retrieve", settings=one) for number, one in enumerate(options)]
    plain = opened(tmp_path, "plain", settings=settings)
    assert systems([plain, found[0]]) == ["memory", "retrieve"]
    assert systems([plain, *found]) == [
        "memory",
        "retrieve · reader_options.passages 8",
        "retrieve · reader_options.passages 4",
    ]
    other = opened(tmp_path, "c", model="other")
    names = systems([memory, other])
    assert names[1] == "memory · other"
    one, two = opened(tmp_path, "d", settings=settings), opened(tmp_path, "e", settings=larger)
    assert systems([one, two]) == [
        "memory · budgets.memory 64 · profile.name compact",
        "memory · budgets.memory 128 · profile.name default",
    ]


def test_runs_over_other_samples_are_one_system_and_repetitions_are_not(tmp_path):
    samples = {"path": "x", "sha256": "1", "count": 1}
    first, second = opened(tmp_path, "a", samples=samples), opened(tmp_path, "b", samples=samples | {"sha256": "2"})
    again = opened(tmp_path, "c", samples=samples)
    assert systems([first, second]) == ["memory", "memory"]
    assert systems([first, again]) == ["memory · a", "memory · c"]
    deep, other = opened(tmp_path, "x/run", samples=samples), opened(tmp_path, "y/run", samples=samples)
    assert systems([deep, other]) == ["memory · x/run", "memory · y/run"]
    assert systems([deep, other, first]) == ["memory · x/run", "memory · y/run", f"memory · {tmp_path.name}/a"]


def test_profiles_of_one_name_and_other_words_are_other_systems(tmp_path):
    words = [{"profile": {"name": "mine", "update": update}} for update in ("x", "y", "x")]
    names = systems([opened(tmp_path, f"run {number}", settings=one) for number, one in enumerate(words)])
    assert all(name.startswith("memory · profile mine ") for name in names)
    assert names[0].partition(" · run")[0] == names[2].partition(" · run")[0] != names[1]
    assert systems([opened(tmp_path, f"again {number}", settings=words[0]) for number in range(1)]) == ["memory"]
