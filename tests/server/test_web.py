"""The web page as a browser without scripts sees it: forms, pages, keys, and text that is not ours."""

from __future__ import annotations

import json
import re
import threading
import time
from urllib.parse import urlencode

import pytest

from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.server.keys import add_key
from memagent.server.values import Limits
from tests.cli.conftest import FACT, reader
from tests.server.web_service import service, until

OPTIONS = {"chunk_tokens": 300, "memory_tokens": 100}
LINES = [f"Line {number} tells of the sea." for number in range(40)]
LINES[30] = FACT
TEXT = "\n".join(LINES)
QUESTION = "What is the access code for amber-falcon?"
HIT = "<script>window.hit = 1</script></textarea><img src=x onerror='window.hit = 2'>\"'></title>"
ODD = "\u202egpj\u2066\u2028\x07"


class Gate:
    """A scripted model that can be held: after some turns it waits until it is let through."""

    def __init__(self) -> None:
        self.open, self.turns, self.free = threading.Event(), 0, 0
        self.open.set()

    def hold(self, after: int = 0) -> None:
        self.free = self.turns + after
        self.open.clear()

    def let_go(self, after: float) -> None:
        """Lets everything through in some seconds: a turn that is under way ends before a reading can be cancelled."""
        threading.Timer(after, self.open.set).start()

    def __call__(self, turn):
        self.turns += 1
        number, end = self.turns, time.monotonic() + 60
        while number > self.free and not self.open.wait(0.02):
            assert time.monotonic() < end
        return reader(turn.messages)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def opened(gate):
    return OpenModel(engine=ScriptedModel(gate))


@pytest.fixture
def site(tmp_path, opened):
    with service(tmp_path / "data", opened, OPTIONS) as running:
        yield running


def sent(site, question=QUESTION, text=TEXT, files=(), **fields):
    """The id of a reading that the form began."""
    answer = site.send("/readings", {"question": question, "text": text, **fields}, files)
    assert answer.status == 303, answer.text
    return answer.headers["location"].removeprefix("/readings/")


def over(site, id):
    """The reading on the page, once it is over."""
    return until(lambda: (page := site.get(f"/?reading={id}").text) and "data-open" not in article(page) and page)


def kept(site):
    """The ids of the files of a key."""
    return [file["id"] for file in json.loads(site.get("/v1/files").text)["data"]]


def article(page):
    return page.partition("<article")[2].partition("</article>")[0]


def history(page):
    return re.findall(r'<a href="/\?reading=(reading-[0-9a-f]+)"', page.partition("<nav")[2])


def test_without_scripts_the_form_leads_to_a_page_that_looks_again_until_it_is_the_page_of_the_reading(site, gate):
    gate.hold()
    id = sent(site, text="", files=[("log <b>of the sea.txt", TEXT.encode())])
    waiting = site.get(f"/readings/{id}")
    assert '<meta http-equiv="refresh" content="3">' in waiting.text
    assert "script-src 'self'" in waiting.headers["content-security-policy"]
    gate.open.set()
    page = over(site, id)
    assert "http-equiv" not in page
    read = site.get(f"/readings/{id}")
    assert f">{FACT}</mark>" in read.text
    assert "log &lt;b&gt;of the sea.txt" in read.text
    assert f'<a href="/?reading={id}">' in read.text
    assert "part-" not in read.text, "a file is named as its owner knows it"
    assert "memagent resume" not in read.text
    policy = read.headers["content-security-policy"]
    assert "script-src 'sha256-" in policy
    assert "frame-ancestors 'none'" in policy
    assert "'self'" not in policy


def test_the_answer_stands_with_its_status_and_quotes_and_the_memory(site):
    found = article(over(site, sent(site)))
    assert '<p class="answer" dir="auto">4821973</p>' in found
    assert "Supported by the document." in found
    assert FACT in found.partition('class="quotes"')[2]
    assert "text.txt" in found
    assert "read " in found.partition("The memory it ended with")[2]


def test_another_question_is_answered_from_the_memory_and_leads_back(site):
    first = sent(site)
    over(site, first)
    answer = site.send(f"/readings/{first}/ask", {"question": "And again?"})
    assert answer.status == 303
    second = answer.headers["location"].removeprefix("/readings/")
    found = over(site, second)
    assert "4821973" in article(found)
    assert f'<a href="/?reading={first}"' in article(found)
    assert history(found) == [second, first], "newest first"
    assert f">{FACT}</mark>" in site.get(f"/readings/{second}").text


def test_a_reading_that_was_not_answered_has_no_memory_to_ask(site, gate):
    gate.hold()
    id = sent(site)
    assert site.send(f"/readings/{id}/ask", {"question": "And?"}).status == 409
    until(lambda: ">Reading<" in site.get("/").text)
    gate.let_go(after=0.3)
    site.send(f"/readings/{id}/cancel", {})
    assert "Cancelled before there was an answer" in over(site, id)
    refused = site.send(f"/readings/{id}/ask", {"question": "And?"})
    assert refused.status == 409
    assert "Only a reading that was answered" in refused.text


def test_deleting_a_reading_deletes_its_document_but_no_file_of_the_key(site, tmp_path):
    uploaded = json.loads(site.send("/v1/files", {}, [("log.txt", TEXT.encode())], field="file").text)["id"]
    asked = json.dumps({"question": QUESTION, "documents": [uploaded]}).encode()
    first = json.loads(site.ask("POST", "/v1/readings", asked, content_type="application/json").text)["id"]
    second = sent(site, text="", files=[("other.txt", TEXT.encode())])
    over(site, first), over(site, second)
    assert kept(site) == [uploaded], "what came with a form belongs to its reading"
    for id in (first, second):
        assert site.send(f"/readings/{id}/delete", {}).headers["location"] == "/"
    assert history(site.get("/").text) == []
    assert [path.stem for path in (tmp_path / "data/files").iterdir()] == [uploaded]
    assert site.get(f"/readings/{first}").status == 404
    assert "There is nothing here" in site.get(f"/?reading={first}").text


def test_a_document_that_was_deleted_is_not_shown_and_the_page_says_so(site):
    uploaded = json.loads(site.send("/v1/files", {}, [("log.txt", TEXT.encode())], field="file").text)["id"]
    asked = json.dumps({"question": QUESTION, "documents": [uploaded]}).encode()
    id = json.loads(site.ask("POST", "/v1/readings", asked, content_type="application/json").text)["id"]
    over(site, id)
    assert "log.txt" in site.get("/").text
    assert site.ask("DELETE", f"/v1/files/{uploaded}").status == 200
    assert "The document is not shown" in site.get(f"/readings/{id}").text
    assert "a deleted file" in site.get("/").text


@pytest.mark.parametrize(
    ("fields", "files", "said"),
    [
        ({"question": " \r\n", "text": TEXT}, [], "Ask a question"),
        ({"question": QUESTION, "text": " "}, [], "Choose a file, or paste a text"),
        ({"question": QUESTION, "text": "kept"}, [("a.txt", b"one")], "both a file and a text"),
        ({"question": QUESTION, "text": "kept", "reader": "no & reader"}, [], "no reader &#39;no &amp; reader&#39;"),
        ({"question": "x" * 100_001, "text": "kept"}, [], "100,001 characters"),
        ({"question": QUESTION, "text": f"\n{HIT}"}, [("a.txt", b"one")], "both a file and a text"),
    ],
)
def test_a_form_that_is_refused_says_why_and_keeps_what_was_typed(site, tmp_path, fields, files, said):
    refused = site.send("/readings", fields, files)
    assert refused.status == 400
    assert said in refused.text.partition('role="alert"')[2].partition("</p>")[0]
    areas = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", refused.text, re.S)
    escaped = [fields["text"], fields["question"]]
    for mark, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ('"', "&#34;")):
        escaped = [text.replace(mark, name) for text in escaped]
    assert [text.replace("\r\n", "\n") for text in areas] == [text.replace("\r\n", "\n") for text in escaped]
    assert not any((tmp_path / "data/files").iterdir())
    as_script = site.send("/readings", fields, files, accept="application/json")
    assert (as_script.status, "message" in json.loads(as_script.text)["error"]) == (400, True)


def test_when_too_many_readings_wait_it_says_so_and_keeps_nothing_but_what_was_typed(tmp_path, opened, gate):
    gate.hold()
    with service(tmp_path / "data", opened, OPTIONS, limits=Limits(readings=1, queue=0)) as site:
        first = sent(site)
        before = sorted((tmp_path / "data/files").iterdir())
        refused = site.send("/readings", {"question": QUESTION, "text": TEXT})
        assert (refused.status, FACT in refused.text) == (429, True)
        assert "no more are taken now" in refused.text
        assert sorted((tmp_path / "data/files").iterdir()) == before
        as_script = site.send("/readings", {"question": QUESTION, "text": TEXT}, accept="application/json")
        assert as_script.headers["retry-after"] == "30"
        gate.let_go(after=0.3)
        site.send(f"/readings/{first}/cancel", {})


def test_a_file_that_cannot_be_read_is_named_as_its_owner_knows_it(site, tmp_path):
    page = article(over(site, sent(site, text="", files=[("report.pdf", b"no PDF at all")])))
    assert "Failed" in page
    assert "report.pdf" in page
    assert str(tmp_path) not in page
    assert "part-" not in page.partition('class="error"')[2]


def test_a_text_of_megabytes_can_be_pasted_and_one_beyond_the_limit_cannot(tmp_path, opened, gate):
    gate.hold()
    with service(tmp_path / "data", opened, OPTIONS, limits=Limits(upload_bytes=3 << 20)) as site:
        id = sent(site, text="a line of the sea\n" * 120_000)
        refused = site.send("/readings", {"question": QUESTION, "text": "x" * (3 << 20)})
        assert (refused.status, "the limit" in refused.text) == (413, True)
        gate.let_go(after=0.3)
        site.send(f"/readings/{id}/cancel", {})


def test_hostile_names_questions_and_texts_are_text(site):
    id = sent(
        site,
        f"What is {HIT} {ODD}?",
        text="",
        files=[(f"<script>hit() {ODD} <img src=x> {'long' * 40}.txt", TEXT.encode())],
    )
    over(site, id)
    for path in (f"/?reading={id}", f"/readings/{id}", "/"):
        page = site.get(path).text
        assert "window.hit" in page
        assert page.count("<script") == 1, path
        assert "<img" not in page
        assert not any(char in page for char in ODD if char not in "gpj"), path
    assert "U+202E" in article(site.get(f"/?reading={id}").text)


def test_an_invalid_form_is_no_error_of_the_service(site):
    for path in ("/readings", "/login"):
        wrong = site.ask("POST", path, b"no form", content_type="multipart/form-data; boundary=x", origin=site.url)
        assert wrong.status in (400, 303), path
    broken = site.ask("POST", "/readings", b"no form", content_type="multipart/form-data", accept="text/html")
    assert (broken.status, "That did not work" in broken.text) == (400, True)
    assert site.ask("POST", "/readings", b"\xff\xfe", content_type="text/plain").status == 400
    assert site.get("/?show=-1&reading=").status == 200
    assert site.get("/?show=99999999999").status == 200
    assert site.get("/?reading=%00").status == 404


def test_files_of_the_page_may_be_kept_and_everything_else_is_not(site):
    page = site.get("/")
    assert page.headers["cache-control"] == "no-store"
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
        kept = site.get(path)
        assert (kept.status, "immutable" in kept.headers["cache-control"]) == (200, True)
    assert site.get("/favicon.ico").headers["content-type"] == "image/svg+xml"
    assert site.get("/static/routes.py").status == 404
    assert site.get("/static/..%2froutes.py").status == 404


def test_older_readings_are_shown_on_demand(site):
    for number in range(3):
        over(site, sent(site, f"Question {number}"))
    page = site.get("/?show=2").text
    assert len(history(page)) == 2
    assert 'href="/?show=8"' in page
    assert len(history(site.get("/?show=8").text)) == 3


# Keys


@pytest.fixture
def keyed(tmp_path, opened):
    key = {name: add_key(tmp_path / "keys.txt", name) for name in ("ann", "ben")}
    with service(tmp_path / "data", opened, OPTIONS, keys=tmp_path / "keys.txt") as running:
        yield running, key


def log_in(site, key, **fields):
    answer = site.send("/login", {"key": key, **fields})
    if answer.status == 303:
        site.cookie = answer.headers["set-cookie"].partition(";")[0]
    return answer


def test_a_key_is_asked_for_and_kept_until_the_logout(keyed):
    site, key = keyed
    asked = site.get("/")
    assert (asked.status, 'type="password"' in asked.text) == (401, True)
    wrong = log_in(site, "mem-wrong")
    assert (wrong.status, "not a key of this service" in wrong.text, "set-cookie" in wrong.headers) == (401, True, False)
    right = log_in(site, key["ann"])
    assert (right.status, right.headers["location"]) == (303, "/")
    attributes = {one.strip().lower() for one in right.headers["set-cookie"].split(";")[1:]}
    assert attributes == {"httponly", "samesite=strict", "path=/"}
    page = site.get("/")
    assert (page.status, ">ann</bdi>" in page.text, "Log out" in page.text) == (200, True, True)
    assert site.get("/v1/readings").status == 200
    over(site, sent(site))
    left = site.send("/logout", {})
    assert (left.status, 'memagent_key=""' in left.headers["set-cookie"]) == (303, True)
    site.cookie = ""
    assert site.get("/").status == 401


def test_those_without_a_key_can_send_nothing_large(keyed):
    site, _ = keyed
    assert site.send("/login", {"key": "x" * 20_000}).status == 400
    assert site.send("/login", {}, [("a.txt", b"x")]).status == 400
    assert site.send("/readings", {"question": QUESTION, "text": TEXT}).status == 401


def test_behind_tls_the_cookie_is_for_tls_only(keyed):
    site, key = keyed
    answer = site.send("/login", {"key": key["ann"]}, x_forwarded_proto="https", origin=f"https://127.0.0.1:{site.port}")
    assert "; secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "origin", ["https://example.org", "null", "", "http://127.0.0.1:1", "http://127.0.0.1.example.org"]
)
def test_what_another_site_sends_with_the_cookie_is_refused(keyed, origin):
    site, key = keyed
    log_in(site, key["ann"])
    id = sent(site)
    over(site, id)
    for path in (f"/readings/{id}/delete", f"/readings/{id}/cancel", f"/readings/{id}/ask", "/logout", "/login"):
        assert site.send(path, {"question": "And?", "key": key["ann"]}, origin=origin).status == 403, path
    assert site.send("/readings", {"question": QUESTION, "text": TEXT}, origin=origin).status == 403
    assert site.ask("DELETE", f"/v1/readings/{id}", origin=origin).status == 403
    assert history(site.get("/").text) == [id]


def test_a_program_with_its_key_in_the_header_needs_no_origin(keyed):
    site, key = keyed
    asked = json.dumps({"question": QUESTION, "text": TEXT}).encode()
    headers = {"content_type": "application/json", "authorization": f"Bearer {key['ann']}"}
    assert site.ask("POST", "/v1/readings", asked, **headers).status == 202


def test_a_key_sees_its_own_readings_only(keyed):
    site, key = keyed
    log_in(site, key["ann"])
    id = sent(site)
    over(site, id)
    site.cookie = ""
    log_in(site, key["ben"])
    assert history(site.get("/").text) == []
    for path in (f"/readings/{id}", f"/?reading={id}"):
        assert site.get(path).status == 404
    assert site.send(f"/readings/{id}/delete", {}).status == 404


def test_the_login_goes_on_to_the_reading_that_was_wanted_and_nowhere_else(keyed):
    site, key = keyed
    assert 'name="wanted" value="/readings/reading-1"' in site.get("/readings/reading-1").text
    assert 'name="wanted" value="/?reading=reading-1"' in site.get("/?reading=reading-1").text
    assert log_in(site, key["ann"], wanted="/readings/reading-1").headers["location"] == "/readings/reading-1"
    for wanted in ("https://example.org/", "//example.org", "/readings/../..", "/readings/a\r\nx: y", "javascript:x"):
        assert log_in(site, key["ann"], wanted=wanted).headers["location"] == "/"


def test_a_form_may_be_sent_without_files_as_browsers_do_by_default(keyed):
    site, key = keyed
    body = urlencode({"key": key["ann"]}).encode()
    kind = "application/x-www-form-urlencoded"
    assert site.ask("POST", "/login", body, content_type=kind, origin=site.url).status == 303
