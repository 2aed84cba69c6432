from __future__ import annotations

import json
import math
import re

import pytest

from memagent.errors import ConfigError, OutputError
from memagent.evaluation.report import training_page as pages
from memagent.evaluation.report.curves import Cell, main_values, sections, smoothed, thinned
from memagent.evaluation.report.training import (
    Metric,
    NoMetricsError,
    all_training_runs,
    is_training_run,
    read_training_runs,
)
from memagent.evaluation.report.training_page import reloading, training_page, watch_training, write_training_report

HOSTILE = "</pre><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
TASKS = [f"niah_single_{number}" for number in range(1, 9)] + ["vt"]


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def write_training(folder, *, steps=40, planned=40, lift=0.0, config=""):
    """The folder of a run of reinforcement learning that validates every tenth step."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"seed = 1\n# {config}\n[schedule]\nsteps = {planned}\n", encoding="utf-8")
    metrics, timing = [], []
    for step in range(1, steps + 1):
        reward = min(1.0, 0.3 + step / 100 + lift)
        train = {"reward": reward, "groups": 16, "kept": 8, "loss": (-1) ** step / 100, "clip_low": 0.001, "lr": 1e-6}
        metrics.append({"step": step, "train": {**train, **{f"reward/{task}": reward / 2 for task in TASKS}}})
        if step % 10 == 0:
            parts = {f"{task}@4096": {"score": reward, "n": 64, "retention": 0.99} for task in TASKS}
            metrics.append({"step": step, "validation": {**parts, "mean": {"score": reward}}})
        seconds = {"rollout": 4.0, "update": 2.0, "validation": 0.0 if step % 10 else 9.0}
        timing.append({"step": step, "seconds": seconds, "tokens": {"rollout": 90_000, "update": 30_000}})
    write_lines(folder / "metrics.jsonl", metrics)
    write_lines(folder / "timing.jsonl", timing)
    return folder


def write_sft(folder, lines):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[schedule]\nsteps = 100\n")
    write_lines(folder / "metrics.jsonl", lines)
    return folder


def test_metrics_of_older_runs_have_their_present_names(tmp_path):
    run = tmp_path / "rl"
    run.mkdir()
    write_lines(run / "metrics.jsonl", [{"step": 1, "train": {"silent": 3}}, {"step": 2, "train": {"no_signal": 4}}])
    (read,) = read_training_runs([run])
    assert read.series == {Metric("train", "no_signal"): ((1, 3.0), (2, 4.0))}


def test_every_number_of_a_run_becomes_a_series(tmp_path):
    (run,) = read_training_runs([write_training(tmp_path / "rl")])
    assert run.series[Metric("train", "reward")][:2] == ((1, 0.31), (2, 0.32))
    assert run.series[Metric("train", "reward", "vt")][0] == (1, 0.155)
    assert run.series[Metric("train", "kept / groups")][-1] == (40, 0.5)
    assert run.series[Metric("validation", "score", "vt@4096")] == ((10, 0.4), (20, 0.5), (30, 0.6), (40, 0.7))
    assert run.series[Metric("validation", "score")] == ((10, 0.4), (20, 0.5), (30, 0.6), (40, 0.7)), (
        "the mean is the whole"
    )
    assert run.series[Metric("time", "tokens/s", "rollout")][0] == (1, 22_500)
    assert [step for step, _ in run.series[Metric("time", "seconds", "validation")]] == [10, 20, 30, 40]
    assert not any(metric.name == "n" for metric in run.series)
    assert (run.name, run.step, run.planned, run.finished) == ("rl", 40, 40, True)


def test_both_forms_of_fine_tuning_are_read(tmp_path):
    old = {"step": 20, "tokens": 5000, "lr": 0.1, "train": {"loss": 2.0, "key": 0.5}}
    new = {"step": 40, "train": {"loss": 1.0, "key": 0.7, "tokens": 9000, "lr": 0.2, "phase": "decay", "last": True}}
    (run,) = read_training_runs([write_sft(tmp_path / "sft", [old, new])])
    assert run.series == {
        Metric("train", "loss"): ((20, 2.0), (40, 1.0)),
        Metric("train", "key"): ((20, 0.5), (40, 0.7)),
        Metric("train", "tokens"): ((20, 5000), (40, 9000)),
        Metric("train", "lr"): ((20, 0.1), (40, 0.2)),
    }
    assert not run.finished


def test_nested_and_plain_values_are_read_alike(tmp_path):
    lines = [{"step": 0, "train": {"reward": {"vt": 0.5}}}, {"step": 0, "validation": {"loss": 0.25}}]
    (run,) = read_training_runs([write_sft(tmp_path / "run", lines)])
    assert run.series == {Metric("train", "reward", "vt"): ((0, 0.5),), Metric("validation", "loss"): ((0, 0.25),)}


@pytest.mark.parametrize("value", ["nan", "-inf", math.nan, 10**400], ids=["nan", "-inf", "NaN", "too large"])
def test_a_value_that_is_not_finite_is_left_out_and_told(tmp_path, value):
    lines = [{"step": step, "train": {"loss": value if step > 20 else 1.5}} for step in (20, 40, 60)]
    (run,) = read_training_runs([write_sft(tmp_path / "run", lines)])
    assert run.series[Metric("train", "loss")] == ((20, 1.5),)
    page = training_page([run], "Title")
    assert "train loss is not a finite number, first at step 40." in " ".join(re.sub("<[^>]*>", "", page).split())


def test_a_step_that_was_done_again_counts_as_it_was_done_last(tmp_path):
    lines = [{"step": step, "train": {"loss": loss}} for step, loss in ((20, 3.0), (40, 2.0), (40, 1.0), (60, 0.5))]
    (run,) = read_training_runs([write_sft(tmp_path / "run", lines)])
    assert run.series[Metric("train", "loss")] == ((20, 3.0), (40, 1.0), (60, 0.5))


def test_a_half_written_last_line_is_left_out_and_a_whole_one_is_not(tmp_path):
    folder = write_sft(tmp_path / "run", [{"step": 20, "train": {"loss": 1.0}}])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "train": {"loss": 0.')
    assert read_training_runs([folder])[0].step == 20
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("5}}")
    assert read_training_runs([folder])[0].step == 40


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 40, "train"', "line 2: not a line of JSON"),
        ("\ufffd", "line 2: not a line of JSON"),
        ('{"train": {"loss": 1}}', 'line 2: expected an object with a whole number "step"'),
        ('{"step": true}', 'line 2: expected an object with a whole number "step"'),
        ("[1]", 'line 2: expected an object with a whole number "step"'),
    ],
)
@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_a_broken_line_is_named(tmp_path, name, line, message):
    folder = write_training(tmp_path / "run", steps=3)
    lines = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(ConfigError, match=re.escape(f"{folder / name}, {message}")):
        read_training_runs([folder])


@pytest.mark.parametrize("metrics", [None, "", '{"step": 1, "tr', '{"step": 1}\n'])
def test_a_run_without_metrics_says_what_to_do(tmp_path, metrics):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    if metrics is not None:
        (tmp_path / "metrics.jsonl").write_text(metrics)
    with pytest.raises(NoMetricsError, match=r"no metrics to draw.*metrics\.jsonl.*log_every.*--watch"):
        read_training_runs([tmp_path])


def test_training_runs_are_told_from_other_folders(tmp_path):
    run, other, begun = write_training(tmp_path / "run"), tmp_path / "other", tmp_path / "begun"
    for folder in (other, begun):
        folder.mkdir()
    (other / "run.json").write_text("{}")
    (begun / "config.toml").write_text("")
    assert [is_training_run(one) for one in (run, other, begun, tmp_path / "nowhere")] == [True, False, True, False]
    assert all_training_runs([run, begun])
    assert not all_training_runs([other])
    with pytest.raises(ConfigError, match=f"{run} is a training run and {other} is not.*separately"):
        all_training_runs([other, run])


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    folders = [write_training(tmp_path / one / "run", steps=1) for one in ("a", "b")]
    assert [run.name for run in read_training_runs(folders)] == ["a/run", "b/run"]
    with pytest.raises(ConfigError, match="given twice"):
        read_training_runs([folders[0], folders[0] / ".." / "run"])


@pytest.mark.parametrize(
    ("config", "steps", "finished"),
    [
        ("[schedule]\nsteps = 40", 40, True),
        ("steps = 40", 40, True),
        ("steps = 41", 40, False),
        ("steps = 'many'", 40, False),
        ("steps = ", 40, False),
        ("steps = 35", 35, False),  # step 35 is yet to be validated
    ],
)
def test_a_run_is_finished_when_its_last_step_is_logged_and_validated(tmp_path, config, steps, finished):
    folder = write_training(tmp_path / "run", steps=steps)
    (folder / "config.toml").write_text(config)
    assert read_training_runs([folder])[0].finished is finished


def test_a_long_line_is_smoothed_and_a_short_one_is_not():
    short = tuple((step, float(step % 2)) for step in range(30))
    assert smoothed(short) == short
    line = tuple((10 * step, float(step % 2)) for step in range(101))
    means = smoothed(line)
    assert [step for step, _ in means] == [step for step, _ in line]
    assert means[50] == (500, pytest.approx(6 / 11))  # steps 45 to 55 have six ones
    assert means[0] == (0, pytest.approx(3 / 6))  # of the six points from the first on: 0 1 0 1 0 1
    straight = tuple((step, 2.0 * step) for step in range(50))
    assert smoothed(straight)[5:-5] == tuple((step, pytest.approx(value)) for step, value in straight[5:-5])


def test_a_thinned_line_keeps_its_ends_and_its_spikes():
    line = tuple((step, 100.0 if step == 3333 else math.sin(step)) for step in range(10_000))
    few = thinned(line)
    assert len(few) <= 602
    assert (few[0], few[-1]) == (line[0], line[-1])
    assert (3333, 100.0) in few
    assert list(few) == sorted(set(few))


def test_one_run_has_a_line_for_every_part_and_several_runs_a_chart(tmp_path):
    runs = read_training_runs([write_training(tmp_path / "a"), write_training(tmp_path / "b", lift=0.1)])
    validation, training, time = sections(runs[:1])
    assert [group.title for group in validation.groups] == [""]
    charts = {chart.title: chart for chart in validation.groups[0].charts}
    assert list(charts)[:3] == ["score", "score by part (1 of 2)", "score by part (2 of 2)"]
    assert [part for _, part in charts["score by part (1 of 2)"].legend] == [f"{task}@4096" for task in TASKS[:4]]
    assert {"kept / groups", "clip_low", "lr"} <= {chart.title for chart in training.groups[0].charts}
    assert [chart.title for chart in time.groups[0].charts] == ["seconds by part", "tokens/s by part"]
    validation, training, time = sections(runs)
    assert [(group.title, group.folded) for group in validation.groups] == [
        ("", False),
        ("score by part", False),
        ("retention by part", True),
    ]
    assert [chart.title for chart in validation.groups[1].charts] == [f"score · {task}@4096" for task in TASKS]
    assert validation.groups[0].charts[0].summary == "score against the step; last: 0.7; 0.8"
    assert not any(group.folded for group in time.groups)


def test_charts_of_one_page_share_no_ids(tmp_path):
    page = training_page(read_training_runs([write_training(tmp_path / "a"), write_training(tmp_path / "b")]), "Title")
    clips = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(clips) > 20
    assert len(set(clips)) == len(clips)


def test_the_table_has_the_last_and_the_best_of_each_run(tmp_path):
    falling = [{"step": step, "train": {"loss": loss, "row": 1 / loss}} for step, loss in ((1, 4.0), (2, 1.0), (3, 2.0))]
    rising = [{"step": 1, "validation": {"a": {"row": 0.2, "loss": 1.0}, "b": {"row": 0.3, "loss": 1.0}}}]
    runs = read_training_runs([write_sft(tmp_path / "x", falling), write_sft(tmp_path / "y", rising)])
    rows = {(row.section, row.metric): row.cells for row in main_values(runs)}
    assert rows["Training", "loss"] == [Cell(last=2.0, last_step=3, best=1.0, best_step=2), None]
    assert rows["Training", "row"] == [Cell(last=0.5, last_step=3, best=1.0, best_step=2), None]
    assert list(rows)[:2] == [("Validation", "row · a"), ("Validation", "row · b")]
    assert ("Validation", "loss · a") not in rows


def test_the_loss_of_reinforcement_learning_has_no_best(tmp_path):
    rows = main_values(read_training_runs([write_training(tmp_path / "rl")]))
    assert "reward" in [row.metric for row in rows]
    assert "loss" not in [row.metric for row in rows]


def test_what_comes_from_files_is_escaped(tmp_path):
    folder = write_training(tmp_path / "run", steps=2, config=HOSTILE)
    write_lines(folder / "metrics.jsonl", [{"step": 1, "train": {HOSTILE: 1.0}, "validation": {HOSTILE: {HOSTILE: 0.5}}}])
    page = training_page(read_training_runs([folder]), HOSTILE)
    assert HOSTILE not in page
    assert "<img" not in page
    assert page.count("<script>") == 1


def test_the_same_runs_give_the_same_page_and_only_reports_are_replaced(tmp_path):
    runs = read_training_runs([write_training(tmp_path / "run")])
    page = tmp_path / "report.html"
    write_training_report(runs, title="Title", html=page, tables=tmp_path / "report.md")
    before = page.read_bytes()
    write_training_report(runs, title="Title", html=page, tables=tmp_path / "report.md")
    assert page.read_bytes() == before
    assert "| validation: score | 0.7 (best 0.7 at 40) |" in (tmp_path / "report.md").read_text()
    with pytest.raises(OutputError, match="is not a report"):
        write_training_report(runs, title="Title", html=tmp_path / "run" / "metrics.jsonl")


def test_a_watched_page_follows_the_run_until_it_is_finished(tmp_path, monkeypatch):
    """Begins before the first line; what the sleeps find is what a browser would load."""
    folder, html, said, seen = tmp_path / "run", tmp_path / "page.html", [], []
    folder.mkdir()
    (folder / "config.toml").write_text("steps = 2\n")
    steps = iter((1, 2, None))

    def sleep(seconds):
        assert seconds == 7
        seen.append(html.read_text() if html.exists() else "")
        if (step := next(steps)) is not None:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "train": {"loss": 1.0}}) + "\n")

    monkeypatch.setattr(pages.time, "sleep", sleep)
    watch_training([folder], title="Title", html=html, seconds=7, say=said.append)
    assert ["waiting" in said[0], "Ctrl-C" in said[1], "finished" in said[2], len(said)] == [True, True, True, 3]
    assert seen[0] == ""
    assert "step 1 of 2" in seen[1]
    assert "step 2 of 2" in seen[2]
    assert all('<meta http-equiv="refresh" content="7">' in page for page in seen[1:])
    assert html.read_text() == reloading(html.read_text(), 7).replace('<meta http-equiv="refresh" content="7">\n', "")
    assert 'http-equiv="refresh"' not in html.read_text()


def test_a_watched_page_is_drawn_only_when_there_is_something_new(tmp_path, monkeypatch):
    folder = write_training(tmp_path / "run", steps=2)
    drawn, sleeps = [], []
    monkeypatch.setattr(pages, "training_page", lambda runs, title: drawn.append(runs) or pages.GENERATOR)

    def sleep(seconds):
        sleeps.append(seconds)
        if len(sleeps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(pages.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch_training([folder], title="Title", html=tmp_path / "page.html", seconds=1, say=lambda text: None)
    assert len(drawn) == 1
    assert (tmp_path / "page.html").read_text() == pages.GENERATOR, "after an interrupt it loads itself no more"


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_page_cannot_be_written_all_the_time(tmp_path, seconds):
    with pytest.raises(ConfigError, match="the minimum is 1"):
        watch_training([write_training(tmp_path / "run")], title="", html=tmp_path / "p", seconds=seconds, say=print)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    long = "a-name-without-any-place-to-break-it-" * 3
    folders = [write_training(root / "one", config=HOSTILE), write_training(root / long, steps=31, lift=0.1)]
    runs = read_training_runs(folders)
    write_training_report(runs, title=f"Title {HOSTILE}", html=root / "report.html")
    write_training_report(runs[:1], title="One", html=root / "one.html")
    return root / "report.html"


def visible(page, selector):
    return [one for one in page.find_elements("css selector", selector) if one.is_displayed()]


def resize(browser, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("name", ["report.html", "one.html"])
@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_opens_in_a_browser_without_complaint(browser, report, name, width):
    resize(browser, width)
    browser.get_log("browser")
    browser.get((report.parent / name).as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hit") is None
    assert browser.execute_script("return document.images.length + performance.getEntriesByType('resource').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    charts = visible(browser, "figure div svg")
    assert len(charts) > 10
    assert all(chart.rect["width"] > 200 and chart.rect["height"] > 100 for chart in charts)
    assert all(browser.execute_script("return arguments[0].querySelectorAll('path').length > 5", one) for one in charts)
    assert [one.text for one in visible(browser, "h2")] == [
        "Last and best",
        "Validation",
        "Training",
        "Time",
        "Runs",
    ]
    assert "[schedule]" in visible(browser, "pre")[0].text


def test_a_page_that_loads_itself_anew_keeps_open_what_was_open(browser, report):
    copy = report.with_name("watched.html")
    copy.write_text(reloading(report.read_text(), 1))
    resize(browser, 1280)
    browser.get(copy.as_uri())
    browser.find_element("css selector", "details[id='config-1'] > summary").click()
    browser.execute_script("window.before = true")
    copy.write_text(report.read_text().replace("Last and best", "Newer"))
    wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(browser, 20)
    wait.until(lambda page: page.execute_script("return window.before === undefined && document.readyState === 'complete'"))
    assert "Newer" in browser.find_element("id", "values").text
    assert [one.get_attribute("id") for one in visible(browser, "details[open]")] == ["config-1"]


def test_a_run_that_went_on_after_its_end_is_not_finished(tmp_path):
    lines = [{"step": 1, "train": {"reward": 0.5}}, {"step": 1, "ended": "no better score"}]
    (tmp_path / "config.toml").write_text("steps = 9")

    def finished() -> bool:
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        [run] = read_training_runs([tmp_path])
        return run.finished

    assert finished()
    lines.append({"step": 2, "train": {"reward": 0.5}})
    assert not finished()
