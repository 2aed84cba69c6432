"""The report in a real browser: nothing overflows, runs or is fetched that should not, and everything prints."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace

import pytest
from pypdf import PdfReader

from memagent.evaluation.report import gather, write_report
from memagent.scoring import scores
from tests.evaluation.fakes import make_record, make_sample, write_run, write_samples

HOSTILE = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'>\"'></title>\u202egpj & \x1b[31m"
LONG = "a-name-without-any-place-to-break-it-" * 6


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two readers, two tasks, three lengths; hostile and endless words wherever a document or a model could put them."""
    root = tmp_path_factory.mktemp("report")
    samples = [
        make_sample(index, task=task, tokens=tokens, characters=9000, place=0.4)
        for task in ("niah_single_1", LONG)
        for tokens in (1024, 16384, 447_488)
        for index in range(4)
    ]
    samples[0] = replace(samples[0], question=f"What is {HOSTILE}?")
    file = write_samples(root / "samples.jsonl", samples)
    fates = ("kept", "lost", "missed", "regained")
    memory = [make_record(sample, fates[number % 4], turns=10) for number, sample in enumerate(samples)]
    turns = tuple(replace(turn, memory=f"{HOSTILE} {turn.number} {LONG}") for turn in memory[0].turns)
    memory[0] = replace(memory[0], answer=HOSTILE, scores=scores(HOSTILE, samples[0].answers), turns=turns)
    retrieved = [make_record(sample, "kept", reader="retrieve") for sample in samples]
    runs = [
        write_run(root / "memory", memory, file=file, model=LONG),
        write_run(root / "other", retrieved, reader="retrieve"),
    ]
    path = root / "report.html"
    write_report(gather(runs), title=f"Title {HOSTILE}", html=path, readings=24)
    return path


@pytest.fixture
def page(browser, report):
    """The report, freshly loaded in a window of ordinary width."""
    resize(browser, 1280)
    browser.get_log("browser")
    browser.get(report.as_uri())
    return browser


def resize(browser, width, height=900):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def open_everything(page):
    page.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def visible(page, selector):
    return [one for one in page.find_elements("css selector", selector) if one.is_displayed()]


def test_nothing_is_complained_about_and_nothing_hostile_ran(page):
    open_everything(page)
    assert page.get_log("browser") == []
    assert page.execute_script("return window.hit") is None
    assert page.execute_script("return document.images.length") == 0
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert "<script>window.hit = 1</script>" in page.find_element("tag name", "h1").text


def test_a_script_that_is_not_ours_is_not_allowed(page):
    page.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 3\">')")
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 4'; document.body.append(s)"
    )
    assert page.execute_script("return window.hit") is None
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways(page, width):
    resize(page, width)
    open_everything(page)
    wide = page.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    for box in visible(page, ".scroll"):
        assert box.rect["x"] >= 0
        assert box.rect["x"] + box.rect["width"] <= width + 1


def test_headings_and_numbers_are_there_to_be_seen(page):
    headings = [one.text for one in visible(page, "h2")]
    assert headings.pop(1).startswith("Differences to memory · a-name-without")
    assert headings == [
        "Accuracy",
        "Time and tokens",
        "Depth of the needed fact",
        "Facts through the reading",
        "Single readings",
        "Runs",
    ]
    captions = [one.text for one in visible(page, "caption")]
    assert "Accuracy by task and length" in captions
    table = visible(page, "table")[captions.index("Accuracy by task and length")]
    # Three of the first cell's four readings: "lost" and "missed" are wrong, the first was made to answer with a script.
    cells = [" ".join(cell.text.split()) for cell in table.find_elements("css selector", "td")]
    assert "25.0 4.6–69.9 n 4" in cells
    assert "50.0 15.0–85.0 n 4" in cells
    assert "100.0 51.0–100.0 n 4" in cells
    assert len(visible(page, "figure svg")) == 5


def test_charts_and_text_have_some_size(page):
    for chart in visible(page, "figure svg"):
        assert chart.rect["width"] > 200
        assert chart.rect["height"] > 100
    assert page.execute_script("return getComputedStyle(document.querySelector('figure svg text')).fontSize") == "9px"


def test_a_reading_opens_and_shows_what_changed(page):
    assert not visible(page, ".turn")
    for summary in visible(page, "details.reading > summary"):
        if "amber-falcon-1?" in summary.text:
            summary.click()
            break
    shown = visible(page, "details.reading[open]")
    assert len(shown) == 1
    assert "a needed fact was kept and then lost" in shown[0].text
    assert visible(page, "ins")[0].text.startswith("So far")
    assert any(re.search(r"\d{7}", one.text) for one in visible(page, "del")), "the value that was lost"
    assert [one.text for one in visible(page, ".badge.lost")] == ["lost: fact 1"]
    assert any("The access code for amber-falcon-1 is" in one.text for one in visible(page, "mark"))
    places = [mark.rect["x"] + mark.rect["width"] / 2 for mark in visible(page, ".strip .fact, .strip .kept, .strip .lost")]
    assert places == sorted(places)
    assert len(places) == 3


def test_the_button_opens_all_and_a_link_opens_one(page, report):
    button = page.find_element("id", "toggle")
    button.click()
    assert len(visible(page, "details.reading[open]")) == 24
    button.click()
    assert not visible(page, "details.reading[open]")
    page.get(f"{report.as_uri()}#reading-3")
    page.refresh()
    assert page.execute_script("return document.getElementById('reading-3').open")


def test_text_can_be_read_in_the_dark(page):
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        for selector in ("h1", ".lead", "td small", "caption", "thead th", ".badge.wrong", "figure svg text"):
            assert contrast(page, selector) >= 4.5, selector
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(
    "selector", ["h1", ".lead", "td small", "caption", "thead th", ".badge.wrong", ".badge.right", "figure svg text", "a"]
)
def test_contrast(page, selector):
    assert contrast(page, selector) >= 4.5


def contrast(page, selector):
    """The contrast ratio of an element's text to the first opaque background behind it (WCAG 2)."""
    colours = page.execute_script(
        """
        let one = document.querySelector(arguments[0]);
        const style = getComputedStyle(one);
        const ink = one.closest("svg") ? style.fill : style.color;
        while (one && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(one).backgroundColor)) one = one.parentElement;
        return [ink, getComputedStyle(one || document.body).backgroundColor];
        """,
        selector,
    )
    light, dark = sorted((luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    red, green, blue = (int(value) / 255 for value in re.findall(r"\d+", colour)[:3])
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_it_prints_with_everything_open(page):
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    assert pdf.startswith(b"%PDF")
    pages = PdfReader(io.BytesIO(pdf)).pages
    assert len(pages) > 5
    assert any("Memory at the end" in sheet.extract_text() for sheet in pages), "readings are open"
    assert "needs no network" in pages[-1].extract_text()
    assert page.execute_script("return document.querySelectorAll('details.reading[open]').length") == 0
