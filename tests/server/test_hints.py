"""Errors of the service name what a request has, and nothing of the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memagent.core.budgets import Budgets
from memagent.core.readers.together import list_of
from memagent.errors import ConfigError
from memagent.models.open import OpenModel, open_model
from memagent.models.scripted import ScriptedModel
from memagent.models.tokenizers import ByteTokenizer
from memagent.profiles import load_profile
from memagent.server.hints import for_clients
from tests.faults import Fault, FaultServer
from tests.server.service import ended, served
from tests.test_follow_up import TEXT, script

_COMMAND_LINE = re.compile(r"--[a-z]|memagent [a-z]+|in Python")


def test_a_reading_that_fails_says_nothing_of_the_command_line(tmp_path: Path) -> None:
    with served(OpenModel(engine=ScriptedModel(script)), tmp_path) as client:
        sent = client.post("/v1/files", files={"file": ("data.txt", b"\x00\x01\x02" * 400)}).json()["id"]
        small = {"reader": "retrieve", "chunk_tokens": 20}
        asked = [{"documents": [sent]}, {"text": TEXT, "options": small}]
        begun = [client.post("/v1/readings", json={"question": "the code?", **one}) for one in asked]
        said = [begun[0].json(), begun[1].json()]
        errors = [ended(client, said[0]["id"])["error"], said[1]["error"]["message"]]
    for error, words in zip(errors, ("if it is text after all, name its encoding (UTF-16", "retrieve fewer"), strict=True):
        assert words in error
        assert not _COMMAND_LINE.search(error), error


def test_a_server_that_is_away_is_not_for_clients_to_find(tmp_path: Path) -> None:
    with FaultServer(lambda messages: "x", faults=lambda number: Fault("status", status=404)) as behind:
        opened = open_model("scripted", base_url=behind.url)
        with served(opened, tmp_path) as client:
            begun = client.post("/v1/readings", json={"question": "the code?", "text": TEXT}).json()
            error = ended(client, begun["id"])["error"]
        opened.engine.close()
    assert "404" in error
    assert not _COMMAND_LINE.search(error), error


def test_options_are_named_as_fields() -> None:
    with pytest.raises(ConfigError) as raised:
        list_of(["a question?"] * 40, load_profile("default"), Budgets(question=50), ByteTokenizer())
    assert "--question-tokens" in str(raised.value)
    assert for_clients(str(raised.value)).endswith("ask fewer together or raise `question_tokens`")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "reading r-1: a.txt has changed since it was read: ask again, or, if text was only added at the end,"
            " memagent extend r-1",
            "reading r-1: a.txt has changed since it was read: ask again",
        ),
        (
            "reading r-1 has no last memory, because its status is 'failed': memagent resume r-1",
            "reading r-1 has no last memory, because its status is 'failed'",
        ),
        (
            "it silently cut the text to fit its window, or uses another tokenizer. If it only counts differently, use"
            " --ignore-usage (usage='ignore' of open_model in Python)",
            "it silently cut the text to fit its window, or uses another tokenizer",
        ),
        ("a file -- of two pages: read it", "a file -- of two pages: read it"),
    ],
)
def test_what_only_a_command_can_do_is_left_out(message: str, told: str) -> None:
    assert for_clients(message) == told
