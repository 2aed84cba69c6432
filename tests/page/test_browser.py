"""The page in a real browser: it checks an answer, and nothing of a document runs, is fetched or restyles it."""

from __future__ import annotations

import base64
import io
from itertools import pairwise

import pytest
from pypdf import PdfReader

from memagent.journal import Journal
from memagent.page import write_page
from tests.documents.document_samples import write_pdf
from tests.evaluation.test_report_browser import contrast, luminance, resize, visible
from tests.page.fakes import stored

HIT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'>\"'></title></style></script><!--"
ODD = "\u202egpj \u2066 \u2028 \x1b[31m red \x07 \u0085 \U000e0041"
HOSTILE = f"{HIT} {ODD}"
LONG = "a-name-without-any-place-to-break-it-" * 8
STYLE = "<style>body { display: none }</style><base href='https://example.org/'><meta http-equiv=refresh content=0>"
FACT = "The code is 4821973."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plain reading, and one in which hostile text and endless words stand wherever they can."""
    root = tmp_path_factory.mktemp("page")
    with Journal.open(root / "journal.sqlite3") as journal:
        plain = root / "plain.txt"
        lines = [f"Line {number} tells of the sea." for number in range(2_000)]
        lines[1_500] = FACT
        plain.write_text("\n".join(lines))
        memories = ["Line 3 tells of the sea.", "Line 3 tells of the sea.", f"Line 3 tells of a ship.\n{FACT}"]
        record = stored(journal, [plain], memories, answer="4821973", quotes=["Line 7 tells of the sea.", FACT])
        write_page(journal, record, root / "plain.html")

        bad = root / f"{HIT.replace('/', '_')} {LONG[:100]}.txt"
        bad.write_text(f"{HOSTILE}\n{STYLE}\n{LONG}\nquoted: {HIT} {LONG}\r\nend", newline="")
        model = {"model": HOSTILE, "identity": f"{LONG}\ud800"}
        verdict = {"status": "partly", "unsupported": [HOSTILE + LONG], "error": HOSTILE}
        record = stored(
            journal,
            [bad],
            [f"{HOSTILE}\ud800", f"{HOSTILE} {LONG}\ud800"],
            question=f"What is {HOSTILE} {LONG}?",
            answer=f"{HOSTILE} {LONG}",
            quotes=[f"quoted: {HIT} {LONG}"],
            verdict=verdict,
            settings=model,
        )
        write_page(journal, record, root / "hostile.html")

        pdf = write_pdf(root / "report.pdf", ["One.", "", "The code is 42.", "Four."])
        record = stored(journal, [pdf], ["The code is 42."], answer="42", quotes=["The code is 42."])
        write_page(journal, record, root / "pdf.html")
    return root


def opened(browser, path, width=1280):
    resize(browser, width)
    browser.get_log("browser")
    browser.get(path.as_uri())
    return browser


@pytest.fixture
def page(browser, folder):
    return opened(browser, folder / "plain.html")


def quiet(page):
    """Whether nothing was complained about, run or fetched."""
    fetched = page.execute_script("return document.images.length + performance.getEntriesByType('resource').length")
    return (page.get_log("browser"), page.execute_script("return window.hit"), fetched) == ([], None, 0)


@pytest.mark.parametrize("name", ["plain.html", "hostile.html", "pdf.html"])
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_it_opens_without_complaint_and_never_scrolls_sideways(browser, folder, name, width):
    page = browser
    resize(page, width)
    page.get_log("browser")
    page.get((folder / name).as_uri())
    assert quiet(page)
    for box in ("document.documentElement", "document.querySelector('.document')", "document.querySelector('.check')"):
        assert page.execute_script(f"return {box}.scrollWidth <= {box}.clientWidth"), box


def test_a_quote_is_a_link_to_its_place_where_it_stands_word_for_word(page):
    link = page.find_elements("css selector", "a.cited")[1]
    mark = page.find_element("css selector", 'mark[data-quotes~="2"]')
    assert not in_view(page, mark)
    link.click()
    assert in_view(page, mark)
    assert mark.get_attribute("textContent") == FACT
    assert mark.get_attribute("class") == "on"
    assert page.execute_script("return window.scrollY") == 0, "the answer stays where it is"
    page.find_element("id", "mark-2").click()
    assert page.current_url.endswith("#quote-2")


def test_a_quote_is_found_on_a_narrow_page_too(browser, folder):
    page = opened(browser, folder / "plain.html", 360)
    mark = page.find_element("css selector", 'mark[data-quotes~="2"]')
    page.find_elements("css selector", "a.cited")[1].click()
    assert in_view(page, mark)


def in_view(page, element):
    place = page.execute_script("const box = arguments[0].getBoundingClientRect(); return [box.top, box.bottom]", element)
    return place[0] >= 0 and place[1] <= 900


def test_the_slider_and_the_buttons_move_through_the_memories(page):
    from selenium.webdriver.common.keys import Keys

    def current():
        [step] = visible(page, ".step")
        return step.find_element("tag name", "h3").text

    assert current() == "Turn 3 memory changed"
    [step] = visible(page, ".step")
    assert [one.text for one in step.find_elements("tag name", "del")] == ["the sea"]
    assert [one.text for one in step.find_elements("tag name", "ins")] == ["a ship"]
    assert step.find_elements("css selector", ".line.new")[1].text.split("\n") == ["added:", FACT]
    page.find_element("id", "previous").click()
    assert current() == "Turn 2 memory unchanged"
    slider = page.find_element("id", "slider")
    slider.send_keys(Keys.ARROW_LEFT)
    assert current() == "Turn 1 memory changed"
    assert page.find_element("id", "previous").get_attribute("aria-disabled") == "true"
    assert page.find_element("id", "next").get_attribute("aria-disabled") == "false"
    assert slider.get_attribute("aria-valuetext") == "Turn 1 (step 1 of 4)"
    slider.send_keys(Keys.END)
    assert current() == "Turn 4 answer"
    page.find_element("css selector", ".lines a.to-step").click()
    assert current() == "Turn 3 memory changed"


def test_a_button_at_the_end_keeps_the_focus_and_does_nothing(page):
    from selenium.webdriver.common.keys import Keys

    button = page.find_element("id", "next")
    for _ in range(3):
        button.send_keys(Keys.ENTER)
    assert page.switch_to.active_element == button
    assert page.find_element("id", "where").text == "Turn 4 (step 4 of 4)"


@pytest.mark.parametrize("part", ["", "#%", "#nothing", "#quote-1"])
def test_the_first_thing_that_tab_comes_to_leads_to_the_document(browser, folder, part):
    from selenium.webdriver.common.keys import Keys

    resize(browser, 1280)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get((folder / "plain.html").as_uri() + part)
    assert quiet(browser)
    if part != "#quote-1":
        browser.switch_to.active_element.send_keys(Keys.TAB)
        [link] = [one for one in visible(browser, ".skip") if in_view(browser, one)]
        assert browser.switch_to.active_element == link
        link.send_keys(Keys.ENTER)
        assert browser.execute_script("return document.activeElement.id || location.hash") in ("document", "#document")


def test_what_a_turn_showed_can_be_seen_in_the_document(page, folder):
    link = visible(page, ".step a[data-end]")[0]
    link.click()
    size = page.execute_script("return [...CSS.highlights.get('shown')][0].toString().length")
    size_of_text = len((folder / "plain.txt").read_text())
    assert size == size_of_text - 2 * size_of_text // 3
    assert in_view(page, page.find_element("id", link.get_attribute("href").partition("#")[2]))


def test_hostile_text_is_text(browser, folder):
    page = opened(browser, folder / "hostile.html")
    assert quiet(page)
    shown = page.find_element("id", "document").get_attribute("textContent")
    for text in (HIT, STYLE, LONG, "U+202E", "U+2066", "U+2028", "U+001B", "U+0007", "U+0085", "U+E0041"):
        assert text in shown
    for part in ("h1", ".answer", ".claims", ".said", ".diff", "dl"):
        assert HIT in page.find_element("css selector", part).get_attribute("textContent"), part
    marked = "".join(one.get_attribute("textContent") for one in page.find_elements("css selector", "mark"))
    assert marked == f"quoted: {HIT} {LONG}"
    source = (folder / "hostile.html").read_text()
    assert not any(one in source for one in "\u202e\u2066\u2028\x1b\x07\u0085\U000e0041")
    assert page.find_element("tag name", "body").is_displayed()
    assert page.execute_script("return document.querySelectorAll('script, style, base, img').length") == 2


def test_a_script_or_style_that_is_not_ours_is_not_allowed(page):
    page.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 3\">')")
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 4'; document.body.append(s);"
        "const t = document.createElement('style'); t.textContent = 'body { display: none }'; document.body.append(t);"
    )
    assert page.execute_script("return window.hit") is None
    assert page.find_element("tag name", "h1").is_displayed()
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_pages_of_a_pdf_are_told(browser, folder):
    page = opened(browser, folder / "pdf.html")
    assert [one.text for one in visible(page, ".border .page")] == ["page 1", "page 3", "page 4"]
    before = page.execute_script(
        "return document.querySelector('mark').closest('.text').previousElementSibling.textContent.trim()"
    )
    assert before == "page 3"


def test_it_says_what_it_is_to_those_who_do_not_see_it(page):
    assert page.execute_script("return document.documentElement.lang") == "en"
    assert page.title.startswith("What is the code? · r-")
    levels = [int(one.tag_name[1]) for one in page.find_elements("css selector", "h1, h2, h3, h4")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for control in visible(page, "button, input"):
        assert control.get_attribute("aria-label")
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    links = page.execute_script("return [...document.querySelectorAll('a[href]')].map((one) => one.getAttribute('href'))")
    assert {link[1:] for link in links} <= set(ids)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(page, scheme):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        for selector in ("h1", ".kicker", ".status", ".place", "a.to-step", ".tag.changed", ".current .line.new", "mark"):
            assert contrast(page, selector) >= 4.5, selector
        page.find_elements("css selector", "a.cited")[1].click()
        assert contrast(page, "mark.on") >= 4.5
        for background in ("page", "line"):
            assert ratio(page, "tick", background) >= 3, background
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def ratio(page, *names):
    """The contrast ratio of two colours of the style sheet."""
    colours = page.execute_script(
        "return arguments[0].map((name) => { const one = document.createElement('i'); document.body.append(one);"
        "one.style.color = `var(--${name})`; const said = getComputedStyle(one).color; one.remove(); return said; })",
        names,
    )
    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def test_without_scripts_everything_is_there(browser, folder):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = opened_without_scripts(browser, folder / "plain.html")
        assert len(visible(page, ".step")) == 4
        assert not visible(page, "#controls")
        assert [one.text for one in visible(page, "mark")] == ["Line 7 tells of the sea.", FACT]
        assert [one.text for one in visible(page, ".lines .said")] == ["Line 3 tells of a ship.", FACT]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def opened_without_scripts(browser, path):
    resize(browser, 1280)
    browser.get(path.as_uri())
    return browser


def test_it_prints_with_every_memory_and_the_document(page):
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
    sheets = [sheet.extract_text() for sheet in PdfReader(io.BytesIO(pdf)).pages]
    assert len(sheets) > 10
    whole = "\n".join(sheets)
    for text in ("Turn 1", "Turn 2", "Turn 4", "Line 1999 tells of the sea.", FACT, "needs no network"):
        assert text in whole, text
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        for selector in (".controls", ".skip"):
            assert page.find_elements("css selector", selector)
            assert not visible(page, selector), selector
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
