"""Bodies and statuses → completions and errors."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from memagent.errors import ContextTooLongError, ModelRefusedError
from memagent.models.replies import GarbledReplyError, TransientError, completion, error_message, failure, redact
from memagent.models.retrying import MAX_WAIT, Backoff, is_transient, retry_after

TOO_LONG = {
    "openai": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your messages had 9000.",
                "code": "context_length_exceeded",
            }
        },
    ),
    "vllm": (
        400,
        {
            "error": {
                "message": "The decoder prompt (length 37) is longer than the maximum model length of 16.",
                "code": 400,
            }
        },
    ),
    "vllm input": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 16 tokens. However, your request has 37 input tokens."
            }
        },
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (1202 tokens) exceeds the available context size (512 tokens), try increasing it",
                "type": "exceed_context_size_error",
            }
        },
    ),
    "llama.cpp older": (500, {"error": {"message": "input is too large to process. increase the physical batch size"}}),
    "llama-cpp-python": (400, {"error": {"message": "Requested tokens (5000) exceed context window of 4096"}}),
    "sglang": (400, {"message": "The input (1202 tokens) is longer than the model's context length (512 tokens)."}),
    "sglang max": (
        400,
        {"message": "Requested token count exceeds the model's maximum context length of 512 tokens."},
    ),
    "sglang limit": (400, {"message": "Input length (600 tokens) exceeds the maximum allowed length (511 tokens)."}),
    "ollama": (400, {"error": "the input length exceeds the context length"}),
    "ollama prompt": (400, {"error": {"message": "prompt too long; exceeded max context length by 4 tokens"}}),
    "tgi": (
        422,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3000"},
    ),
    "tgi inputs": (422, {"error": "`inputs` must have less than 1024 tokens. Given: 2000", "error_type": "validation"}),
    "anthropic": (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    "gemini": (400, {"error": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (5)."}}),
    "proxy": (413, {"detail": "Request Entity Too Large"}),
}


@pytest.mark.parametrize(("status", "body"), TOO_LONG.values(), ids=TOO_LONG)
def test_too_long_in_every_servers_words(status: int, body: Any) -> None:
    assert isinstance(failure(status, json.dumps(body)), ContextTooLongError)


@pytest.mark.parametrize(
    "message",
    ["max_tokens is too large: 100000. This model supports at most 16384 completion tokens", "temperature must be >= 0"],
)
def test_other_limits_are_refusals(message: str) -> None:
    error = failure(400, json.dumps({"error": {"message": message}}))
    assert type(error) is ModelRefusedError
    assert message in str(error)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"error": {"message": "m"}}', "m"),
        ('{"detail": "d"}', "d"),
        ('{"error": "e"}', "e"),
        ('{"detail": [{"loc": ["x"]}]}', '[{"loc": ["x"]}]'),
        ("<html>busy</html>", "<html>busy</html>"),
        ("", "no explanation"),
        ("x" * 5000, "x" * 600),
    ],
)
def test_error_message(body: str, expected: str) -> None:
    assert error_message(body) == expected


def reply(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> str:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more})


class TestCompletion:
    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
    def test_reasoning_under_each_of_its_names(self, name: str) -> None:
        result = completion(reply({"content": "four", name: "two and two"}), 1.0)
        assert (result.text, result.reasoning) == ("four", "two and two")

    def test_only_reasoning(self) -> None:
        result = completion(reply({"content": None, "reasoning": "hm"}, "length"), 1.0)
        assert (result.text, result.reasoning, result.finish) == ("", "hm", "length")

    def test_an_empty_text_is_a_reply(self) -> None:
        assert completion(reply({"content": ""}), 1.0).text == ""

    def test_content_in_parts(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert completion(reply({"content": parts}), 1.0).text == "ab"

    def test_usage(self) -> None:
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
        result = completion(reply({"content": "x"}, usage=usage), 1.5)
        assert (result.prompt_tokens, result.completion_tokens, result.cached_tokens, result.seconds) == (9, 2, 4, 1.5)

    @pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "prompt_tokens_details": None}, "many"])
    def test_usage_is_optional(self, usage: Any) -> None:
        assert completion(reply({"content": "x"}, usage=usage), 1.0).prompt_tokens == 0

    @pytest.mark.parametrize(
        "body", ["", "[]", "{}", '{"choices": null}', '{"choices": [1]}', '{"choices": [{}]}', reply({"content": None})]
    )
    def test_what_is_no_completion(self, body: str) -> None:
        with pytest.raises(GarbledReplyError):
            completion(body, 1.0)

    def test_filtered_or_refused(self) -> None:
        with pytest.raises(ModelRefusedError, match="filter"):
            completion(reply({"content": "x"}, "content_filter"), 1.0)
        with pytest.raises(ModelRefusedError, match="I will not"):
            completion(reply({"content": None, "refusal": "I will not"}), 1.0)

    @pytest.mark.parametrize(("code", "kind"), [(429, TransientError), (None, TransientError), (400, ModelRefusedError)])
    def test_an_error_with_status_200(self, code: int | None, kind: type[Exception]) -> None:
        with pytest.raises(kind, match="down"):
            completion(json.dumps({"error": {"message": "down", "code": code}}), 1.0)


def test_an_empty_purse_is_not_waited_for() -> None:
    body = json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    assert isinstance(failure(429, body), ModelRefusedError)


def test_transient_statuses() -> None:
    assert [status for status in range(400, 600) if is_transient(status) and status < 500] == [408, 409, 425, 429]
    assert not is_transient(501)


def test_retry_after() -> None:
    assert retry_after({}) is None
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after": "-3"}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=20.0) == 40.0


def test_backoff_grows_up_to_its_limit() -> None:
    backoff = Backoff(base=1.0, limit=5.0, random=random.Random(0))
    for attempt, longest in enumerate([1, 2, 4, 5, 5], 1):
        waits = [backoff.wait(attempt) for _ in range(50)]
        assert 0.75 * longest <= min(waits) < max(waits) <= longest
    assert backoff.wait(1, asked=3.0) == 3.0
    assert backoff.wait(1, asked=1e9) == MAX_WAIT


def test_redact() -> None:
    assert redact("key abcd1234, Bearer xyz12345, sk-proj-123456", ["abcd1234"]) == "key ***, Bearer ***, sk-***"
    assert redact("abc", ["abc", ""]) == "abc"


def test_of_a_reply_in_parts_only_texts_count_and_of_counts_only_numbers() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "image"}, None, 3, {"text": None}, {"text": 4}, {"text": "b"}]
    made = completion(reply({"content": parts}, usage={"prompt_tokens": True, "completion_tokens": 10**30}), 1.0)
    assert (made.text, made.prompt_tokens, made.completion_tokens) == ("a b", 0, 0)
