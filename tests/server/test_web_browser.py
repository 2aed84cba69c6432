"""The web page in a real browser, with the embedded model: from a file to an answer that can be checked."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise

import pytest

from memagent.models.open import OpenModel, open_model
from memagent.models.scripted import ScriptedModel
from memagent.server.keys import add_key
from memagent.server.values import Limits
from tests.cli.conftest import FACT
from tests.evaluation.conftest import browser
from tests.evaluation.test_report_browser import contrast, resize, visible
from tests.page.test_browser import in_view
from tests.server.test_web import HIT, ODD, OPTIONS, QUESTION, TEXT, Gate
from tests.server.web_service import service
from tests.server.web_service import until as sometime

__all__ = ["browser"]

WIDTHS = [380, 1280]
LONG = "a-name-without-any-place-to-break-it-" * 5


@pytest.fixture(scope="module")
def embedded():
    return open_model("embedded")


@pytest.fixture
def site(tmp_path, embedded):
    with service(tmp_path / "data", embedded, {}, model="embedded") as running:
        yield running


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def scripted(tmp_path, gate):
    with service(tmp_path / "data", OpenModel(engine=ScriptedModel(gate)), OPTIONS) as running:
        yield running


@pytest.fixture
def book(tmp_path):
    """Some sixty chunks for the embedded model, with the fact near the end."""
    lines = [f"Line {number} tells of the sea and of the ships that lay still in the evening." for number in range(1500)]
    lines[1200] = FACT
    path = tmp_path / "the book.txt"
    path.write_text("\n".join(lines))
    return path


def opened(browser, site, path="/", width=1280):
    resize(browser, width)
    browser.delete_all_cookies()
    browser.get_log("browser")
    browser.get(site.url + path)
    return browser


def one(page, selector):
    return page.find_element("css selector", selector)


def until(holds):
    """Waits until something holds, while parts of the page come and go."""
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, WebDriverException

    def there():
        try:
            return holds()
        except (NoSuchElementException, StaleElementReferenceException):
            return False
        except WebDriverException as error:  # the same, where the page is replaced while the driver looks at a part
            if "does not belong to the document" not in str(error):
                raise
            return False

    return sometime(there)


def fill(page, question=QUESTION, text="", files=()):
    if files:
        one(page, "#files").send_keys("\n".join(map(str, files)))
    else:
        one(page, "#text").send_keys(text)
    one(page, "#question").send_keys(question)


def ask(page, **typed):
    fill(page, **typed)
    one(page, "#ask .primary").click()


def answer(page):
    return until(lambda: (found := page.find_elements("css selector", "p.answer")) and found[0].text)


def fits(page):
    return page.execute_script("const box = document.documentElement; return box.scrollWidth <= box.clientWidth")


def own(page, site):
    """Whether everything that was fetched is from the service."""
    fetched = page.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    return all(name.startswith(site.url + "/") for name in fetched)


@pytest.mark.parametrize("width", WIDTHS)
def test_from_a_file_to_an_answer_that_is_checked_and_asked_again(browser, site, book, width):
    page = opened(browser, site, width=width)
    assert fits(page)
    fill(page, files=[book])
    assert one(page, "#chosen").text.split("\n")[0] == "the book.txt"
    assert not one(page, "#text").is_displayed()
    assert fits(page)
    one(page, "#ask .primary").click()
    assert until(lambda: one(page, "#turns").text).startswith("turn ")
    assert until(lambda: visible(page, "#memory .said"))
    assert fits(page)
    assert answer(page) == "4821973"
    assert one(page, ".status").text == "Supported by the document."
    assert FACT in one(page, ".quotes").text
    assert "4821973" in one(page, "#said").get_attribute("textContent"), "it is told to those who do not see it"
    assert fits(page)
    assert one(page, ".history li a").text == QUESTION
    assert page.get_log("browser") == []
    assert own(page, site)

    one(page, "a.cited").click()
    assert one(page, "mark").text == FACT
    assert in_view(page, one(page, "mark"))
    assert page.current_url.endswith("#mark-1")
    assert "the book.txt" in one(page, "dl").text
    assert fits(page)
    assert page.get_log("browser") == []
    assert own(page, site)

    one(page, ".back a").click()
    one(page, "#question").send_keys("What is the access code for amber-falcon, once more?")
    one(page, "form.card .primary").click()
    until(lambda: visible(page, ".history li:nth-child(2)"))
    assert answer(page) == "4821973"
    assert [link.text for link in visible(page, ".history li > a")][1] == QUESTION
    assert page.get_log("browser") == []


def test_the_memory_is_shown_as_it_changes_and_the_reading_can_be_cancelled(browser, scripted, gate):
    page = opened(browser, scripted)
    gate.hold(after=4)
    ask(page, text=TEXT)
    until(lambda: [line.text for line in visible(page, "#memory .said.new")] == ["read 4"])
    assert [line.text for line in visible(page, "#memory .said")] == [FACT, "read 4"]
    assert one(page, "#turns").text.startswith("turn 4 of ")
    assert one(page, "#changed").text == "changed in turn 4"
    assert one(page, "#bar").get_attribute("value") == "4"
    page.refresh()
    until(lambda: [line.text for line in visible(page, "#memory .said")] == [FACT, "read 4"])
    gate.let_go(after=0.5)
    one(page, ".live button").click()
    until(lambda: visible(page, "#ended"))
    assert one(page, "#ended").text == "Cancelled before there was an answer."
    assert visible(page, ".history .tag")[0].text == "Cancelled"
    assert page.get_log("browser") == []


def test_a_reading_is_followed_through_a_restart_of_the_service(browser, tmp_path, gate):
    model = OpenModel(engine=ScriptedModel(gate))
    with service(tmp_path / "data", model, OPTIONS) as site:
        page = opened(browser, site)
        gate.hold(after=2)
        ask(page, text=TEXT)
        until(lambda: visible(page, "#memory .said.new"))
        site.stop()
        threading.Timer(2, lambda: setattr(gate, "free", gate.free + 1)).start()
    gate.open.set()
    until(lambda: visible(page, "#lost"))
    assert "The reading goes on" in one(page, "#lost").text
    with service(tmp_path / "data", model, OPTIONS, port=site.port):
        assert answer(page) == "4821973"
        assert not visible(page, "#lost")


def test_a_refusal_is_said_in_words_and_the_form_stays(browser, tmp_path, gate):
    gate.hold()
    limits = Limits(readings=1, queue=0, upload_bytes=1 << 20)
    large = tmp_path / "large.txt"
    large.write_bytes(b"x" * (1 << 20))
    with service(tmp_path / "data", OpenModel(engine=ScriptedModel(gate)), OPTIONS, limits=limits) as site:
        assert site.send("/readings", {"question": QUESTION, "text": TEXT}).status == 303
        page = opened(browser, site)
        fill(page, text=TEXT)
        one(page, "#ask .primary").click()
        assert until(lambda: one(page, "#ask .error").text).endswith("no more are taken now. Try again in 30 seconds.")
        assert one(page, "#text").get_attribute("value") == TEXT
        assert one(page, "#question").get_attribute("value") == QUESTION
        one(page, "#files").send_keys(str(large))
        assert one(page, "#ask .error").text == "That is 1 MB, and the service takes at most 1 MB at a time."
        one(page, "#ask .primary").click()
        assert one(page, "#ask .primary").is_enabled(), "it is not even sent"
        one(page, "#none").click()
        assert one(page, "#text").get_attribute("value") == TEXT
        gate.open.set()
    one(page, "#ask .primary").click()
    assert "could not be reached" in until(lambda: one(page, "#ask .error").text)
    assert one(page, "#text").get_attribute("value") == TEXT


def test_a_file_that_cannot_be_read_is_told(browser, scripted, tmp_path):
    (tmp_path / "report.pdf").write_bytes(b"no PDF at all")
    page = opened(browser, scripted)
    ask(page, files=[tmp_path / "report.pdf"])
    until(lambda: visible(page, "#ended"))
    assert "report.pdf" in one(page, "article .error").text
    assert page.get_log("browser") == []


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_and_endless_text_is_text(browser, tmp_path, width):
    name = tmp_path / f"<img src=x onerror='window.hit = 3'> {LONG[:150]}.txt"
    memory = f"{HIT} {ODD} {LONG}"
    name.write_text(f"{TEXT}\n{memory}")
    model = OpenModel(engine=ScriptedModel(lambda turn: memory))
    with service(tmp_path / "data", model, {"chunk_tokens": 300, "memory_tokens": 500}) as site:
        page = opened(browser, site, width=width)
        fill(page, question=f"What is {HIT} {LONG}?", files=[name])
        assert LONG[:150] in one(page, "#chosen").text
        assert fits(page)
        one(page, "#ask .primary").click()
        assert HIT in answer(page)
        for path in (page.current_url, site.url, one(page, ".check-it a").get_attribute("href")):
            page.get(path)
            assert fits(page), path
            assert page.execute_script("return [window.hit, document.images.length]") == [None, 0]
            assert page.get_log("browser") == []
        assert name.name in page.page_source.replace("&lt;", "<").replace("&gt;", ">")


def test_hostile_text_in_the_memory_is_text_while_it_is_read(browser, tmp_path, gate):
    memory = f"{HIT} {ODD} {LONG}"

    def model(turn):
        gate(turn)
        return memory

    with service(tmp_path / "data", OpenModel(engine=ScriptedModel(model)), {**OPTIONS, "memory_tokens": 500}) as site:
        page = opened(browser, site, width=380)
        gate.hold(after=1)
        ask(page, text=TEXT)
        [line] = until(lambda: visible(page, "#memory .said"))
        assert line.get_attribute("textContent").startswith(HIT)
        assert line.find_element("css selector", ".odd").text == "U+202E"
        assert page.execute_script("return [window.hit, document.images.length]") == [None, 0]
        assert fits(page)
        gate.open.set()


def test_everything_can_be_done_with_the_keyboard(browser, scripted):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, scripted)

    def press(*keys):
        ActionChains(page).send_keys(*keys).perform()

    def focused():
        return page.execute_script("return document.activeElement.id || document.activeElement.textContent.trim()")

    def outlined():
        return page.execute_script(
            "const one = document.activeElement;"
            "return getComputedStyle(one.id === 'files' ? one.nextElementSibling : one).outlineStyle"
        )

    order = []
    for _ in range(6):
        press(Keys.TAB)
        order.append(focused())
        assert outlined() == "solid", order
    assert order == ["memagent", "files", "text", "question", "reader", "Read and answer"]
    one(page, "#text").send_keys(TEXT)
    one(page, "#question").send_keys(QUESTION)
    ActionChains(page).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    assert answer(page) == "4821973"
    delete = one(page, ".history button")
    delete.send_keys(Keys.ENTER)
    page.switch_to.alert.accept()
    until(lambda: "There are none yet." in one(page, "#history").text)
    assert page.current_url == scripted.url + "/"


def test_it_says_what_it_is_to_those_who_do_not_see_it(browser, scripted):
    page = opened(browser, scripted)
    ask(page, text=TEXT)
    answer(page)
    for path in (page.current_url, scripted.url):
        page.get(path)
        levels = [int(one.tag_name[1]) for one in page.find_elements("css selector", "h1, h2, h3")]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        unnamed = page.execute_script(
            "return [...document.querySelectorAll('input:not([type=hidden]), textarea, select')]"
            ".filter((one) => !one.labels.length).length"
        )
        assert unnamed == 0
        ids = page.execute_script("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))
        named = page.execute_script(
            "return [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].flatMap((one) =>"
            " [one.getAttribute('aria-labelledby'), one.getAttribute('aria-describedby')]).filter(Boolean)"
        )
        assert set(named) <= set(ids)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(browser, scripted, scheme):
    page = opened(browser, scripted)
    ask(page, text=TEXT)
    answer(page)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        parts = ["h1", ".facts", ".status", ".place", ".primary", ".card .note", ".history li a", ".tag", ".quiet"]
        for selector in parts:
            assert contrast(page, selector) >= 4.5, selector
        page.get(scripted.url)
        for selector in (".lead", ".choose label", ".drop .note", "select", ".brand", ".hint"):
            assert contrast(page, selector) >= 4.5, selector
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_nothing_moves_for_those_who_want_no_motion(browser, scripted):
    page = opened(browser, scripted)
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    )
    try:
        moving = page.execute_script(
            "return [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) =>"
            " !(rule instanceof CSSMediaRule) && /animation|transition/.test(rule.cssText)).length"
        )
        assert moving == 0
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_files_can_be_dropped(browser, scripted):
    page = opened(browser, scripted)
    page.execute_script(
        "const data = new DataTransfer();"
        "data.items.add(new File([arguments[0]], 'dropped.txt', { type: 'text/plain' }));"
        "for (const kind of ['dragover', 'drop']) document.getElementById('drop').dispatchEvent("
        "new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));",
        TEXT,
    )
    assert one(page, "#chosen").text.split("\n")[0] == "dropped.txt"
    one(page, "#question").send_keys(QUESTION)
    one(page, "#ask .primary").click()
    assert answer(page) == "4821973"


def test_a_script_that_is_not_ours_is_not_allowed(browser, scripted):
    page = opened(browser, scripted)
    page.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 3\">')")
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hit = 4'; document.body.append(s);"
        "const t = document.createElement('style'); t.textContent = 'body { display: none }'; document.body.append(t);"
    )
    assert page.execute_script("return window.hit") is None
    assert one(page, "h1").is_displayed()
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


@pytest.mark.parametrize("width", WIDTHS)
def test_without_scripts_it_works_too(browser, scripted, width):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = opened(browser, scripted, width=width)
        assert visible(page, "#files") != []
        ask(page, text=TEXT)
        until(lambda: visible(page, "mark"))
        assert one(page, "mark").text == FACT
        one(page, ".back a").click()
        assert one(page, "p.answer").text == "4821973"
        one(page, "#question").send_keys("And again?")
        one(page, "form.card .primary").click()
        until(lambda: "And again?" in one(page, "h1").text and visible(page, ".check"))
        page.get(scripted.url)
        assert len(visible(page, ".history li")) == 2
        one(page, ".history button").click()
        until(lambda: len(visible(page, ".history li")) == 1)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_key_is_given_once_and_taken_back(browser, tmp_path, gate):
    key = add_key(tmp_path / "keys.txt", "ann")
    model = OpenModel(engine=ScriptedModel(gate))
    with service(tmp_path / "data", model, OPTIONS, keys=tmp_path / "keys.txt") as site:
        page = opened(browser, site, width=380)
        one(page, "#key").send_keys("mem-wrong")
        one(page, ".primary").click()
        assert "not a key of this service" in until(lambda: one(page, "#wrong").text)
        one(page, "#key").send_keys(key)
        one(page, ".primary").click()
        until(lambda: visible(page, "#ask"))
        assert fits(page)
        page.get_log("browser")
        ask(page, text=TEXT)
        assert answer(page) == "4821973"
        assert page.execute_script("return document.cookie") == "", "scripts do not see it"
        assert page.get_log("browser") == []
        one(page, ".account button").click()
        until(lambda: visible(page, "#key"))
        page.get(site.url)
        assert visible(page, "#key")


def test_another_site_cannot_use_the_cookie(browser, scripted, tmp_path, gate):
    """The other site has another port, which is the same site for cookies: only the origin tells them apart."""
    key = add_key(tmp_path / "keys.txt", "ann")
    model = OpenModel(engine=ScriptedModel(gate))
    with service(tmp_path / "keyed", model, OPTIONS, keys=tmp_path / "keys.txt") as site:
        page = opened(browser, site)
        one(page, "#key").send_keys(key)
        one(page, ".primary").click()
        until(lambda: visible(page, "#ask"))
        cookie = "; ".join(f"{one['name']}={one['value']}" for one in page.get_cookies())
        evil = tmp_path / "evil.html"
        evil.write_text(
            f'<form method="post" enctype="multipart/form-data" action="{site.url}/readings">'
            f'<input name="question" value="q"><textarea name="text">{TEXT}</textarea><button>Go</button></form>'
        )
        page.get(evil.as_uri())
        one(page, "button").click()
        time.sleep(0.5)
        listed = json.loads(site.get("/v1/readings", cookie=cookie).text)
        assert listed == {"readings": [], "has_more": False}
