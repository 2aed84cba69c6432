"""What a page says of an answer, and in which tone."""

from __future__ import annotations

import pytest

from memagent.page import write_page
from tests.cli.conftest import FACT
from tests.page.fakes import stored


@pytest.mark.parametrize(
    ("state", "answer", "verdict", "tone", "said"),
    [
        ("answered", "4821973", "supported", "good", "Supported by the document"),
        ("answered", "4821973", "partly", "fair", "Supported in part"),
        ("answered", "4821973", "unsupported", "fair", "Not supported: no passage was found"),
        ("answered", "none", "not_found", "fair", "Not found: the model says that what it read does not hold the answer"),
        ("answered", "4821973", "doubted", "plain", "Verified: doubted"),
        ("answered", "4821973", None, "plain", "Not verified"),
        ("answered", "", None, "bad", "The model gave an empty answer"),
        ("answered", "", "supported", "bad", "The model gave an empty answer"),
        ("failed", None, None, "bad", "The reading failed"),
        ("interrupted", None, None, "bad", "The reading was interrupted"),
        ("running", None, None, "plain", "The reading is still running"),
    ],
)
def test_how_far_an_answer_can_be_trusted(journal, tmp_path, state, answer, verdict, tone, said):
    path = tmp_path / "book.txt"
    path.write_text(FACT)
    values = {"status": verdict, "unsupported": ["one claim"]} if verdict else None
    reason = "gone" if state == "failed" else None
    record = stored(journal, [path], ["m"], answer=answer, verdict=values, reason=reason)
    if state == "interrupted":
        journal._db.execute("UPDATE readings SET owner = NULL")
    write_page(journal, journal.show(record.id), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert f'<p class="status {tone}"><span aria-hidden="true" class="sign"></span>{said}' in text
    assert ("memagent resume" in text) == (state in ("failed", "interrupted"))
    assert ('class="banner"' in text) == (state != "answered")
    assert ("one claim" in text) == (verdict == "partly")
    assert text.count('class="status ') == 1
