from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from memagent.core import Budgets, Profile, budgets_for, check_budgets, profile_from_mapping, provenance, template_tokens
from memagent.core.types import Span
from memagent.errors import ConfigError
from memagent.models.tokenizers import ByteTokenizer
from memagent.profiles import load_profile

GOOD = {"name": "p", "empty_memory": "-", "update": "{question}{memory}{chunk}", "answer": "{question}{memory}"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": "{question}{memory}"}, r"'update': the field \{chunk\} is missing"),
        ({"answer": "{question}{memory}{chunk}"}, r"'answer': unknown field \{chunk\}"),
        ({"update": "{question}{memory}{chunk!r}"}, "take no format or conversion"),
        ({"update": "{question}{memory}{chunk"}, "a literal brace is written twice"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"version": "1"}, "'version' must be a int"),
        ({"answer_format": "xml"}, "answer_format is 'xml'"),
        (
            {"update": "{question}{memory}{chunk}{chunk}"},
            r"\{chunk\} stands there more than once; of the texts, only \{question\} may",
        ),
    ],
)
def test_a_bad_profile_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        profile_from_mapping({**GOOD, **change}, "file.toml")


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"file\.toml: a profile needs 'answer'"):
        profile_from_mapping({key: GOOD[key] for key in ("name", "empty_memory", "update")}, "file.toml")


def test_a_doubled_brace_is_a_brace():
    profile = profile_from_mapping({**GOOD, "answer": r"{question}{memory}\boxed{{}}"}, "f")
    assert profile.render("answer", question="q", memory="m") == r"qm\boxed{}"


@pytest.mark.parametrize("window", [None, 512, 1024, 2048, 4096, 8192, 32768, 131072])
@pytest.mark.parametrize("name", ["default", "compact"])
def test_default_budgets_fit_the_window_they_are_made_for(window, name):
    template = template_tokens(load_profile("compact"), ByteTokenizer(), 10)
    budgets = budgets_for(window, template)
    check_budgets(budgets, template, window)
    assert budgets.chunk >= budgets.memory
    assert budgets.chunk <= 5000


@pytest.mark.parametrize("window", [200, 512, 8192, 10_000])
def test_budgets_leave_room_for_a_question_that_is_shown_again(window):
    profile = profile_from_mapping({**GOOD, "update": "{question}{memory}{chunk}{question}{question}"}, "f")
    assert [profile.repeats(name) for name in ("update", "answer", "note")] == [2, 0, 0]
    tokenizer = ByteTokenizer()
    budgets = budgets_for(window, template_tokens(profile, tokenizer, 10), repeats=2)
    template = template_tokens(profile, tokenizer, 10, question=budgets.question)
    check_budgets(budgets, template, window)
    longest = profile.render(
        "update", question="q" * budgets.question, memory="m" * budgets.memory, chunk="c" * budgets.chunk
    )
    assert tokenizer.count(longest) + budgets.update_tokens <= window
    assert template - template_tokens(profile, tokenizer, 10) == 2 * budgets.question
    assert budgets.chunk >= 4 * budgets.memory
    with pytest.raises(ConfigError, match=f"the window of {window} tokens"):
        check_budgets(replace(budgets, question=budgets.question + window // 3), template + 2 * (window // 3), window)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"chunk": 700}, "lower the chunk to 644 tokens"),
        ({"memory": 500}, "lower the memory to 122 tokens"),
        ({"reasoning": 5000}, r"\+ 5000 reasoning = .*; lower the reasoning to 4 tokens"),
        ({"answer": 900}, "lower the answer to 764 tokens"),
        ({"question": 2000}, "lower several of the budgets"),
    ],
)
def test_budgets_that_do_not_fit_say_what_would(changes, hint):
    window = 1024
    budgets = replace(Budgets(question=60, memory=120, chunk=640, answer=120), **changes)
    with pytest.raises(ConfigError, match=hint):
        check_budgets(budgets, 80, window)
    told = re.search(r"lower the (\w+) to (\d+)", hint)
    if told is not None:
        fits = replace(budgets, **{told[1]: int(told[2])})
        check_budgets(fits, 80, window)
        with pytest.raises(ConfigError):
            check_budgets(replace(fits, **{told[1]: int(told[2]) + 1}), 80, window)


GIVEN = [
    {"reasoning": 300},
    {"memory": 200},
    {"memory": 90, "reasoning": 300},
    {"chunk": 300},
    {"question": 200},
    {"chunk": 200, "answer": 400},
    {"chunk": 200, "memory": 64},
]


@pytest.mark.parametrize("window", [1024, 4096, 8192, 40_000])
@pytest.mark.parametrize("given", GIVEN)
def test_the_chunk_gives_way_to_budgets_that_are_given(window, given):
    budgets = budgets_for(window, 80, **given)
    check_budgets(budgets, 80, window)
    assert {name: getattr(budgets, name) for name in given} == given
    usual = budgets_for(window, 80)
    others = {name for name in ("question", "memory", "answer") if name not in given}
    if window > 1024:
        assert all(getattr(budgets, name) == getattr(usual, name) for name in others)
    if "chunk" not in given:
        assert usual.chunk // 3 <= budgets.chunk <= usual.chunk


@pytest.mark.parametrize("given", [{"reasoning": 8000}, {"memory": 3500}, {"chunk": 7700}, *GIVEN])
def test_a_window_that_is_not_known_bounds_nothing(given):
    budgets, usual = budgets_for(None, 300, **given), budgets_for(None, 300)
    assert budgets == replace(usual, **given)


@pytest.mark.parametrize("window", [1024, 2048, 4096, 8192, 16_000])
def test_more_of_one_budget_never_leaves_more_for_a_chunk(window):
    for name in ("reasoning", "memory", "question", "answer"):
        chunks = []
        for tokens in range(8, window, window // 64):
            budgets = budgets_for(window, 80, **{name: tokens})
            try:
                check_budgets(budgets, 80, window)
            except ConfigError:
                break
            chunks.append(budgets.chunk)
        assert len(chunks) > 5
        assert all(later <= before + 8 for before, later in pairwise(chunks)), name


def test_given_budgets_that_leave_no_room_stay_and_are_refused_later():
    budgets = budgets_for(1024, 80, memory=600)
    assert budgets.memory == 600
    with pytest.raises(ConfigError, match=r"does not fit the window of 1024 tokens: .* 600 memory"):
        check_budgets(budgets, 80, 1024)


def test_a_hopeless_window_is_refused():
    with pytest.raises(ConfigError, match="window of 120 tokens is too small"):
        budgets_for(120, 90)


def test_provenance_counts_from_the_last_unbroken_presence():
    spans = [(Span(start=n, end=n + 1),) for n in range(4)]
    memories = ["a", "a\nb", "b", "a\nb\nb"]
    origins = provenance((n, spans[n], memory) for n, memory in enumerate(memories))
    assert [(one.line, one.turn, one.spans) for one in origins] == [("a", 3, spans[3]), ("b", 1, spans[1])]


def test_fields_are_filled_in_one_pass():
    profile = Profile(**GOOD)
    assert (
        profile.render("update", question="{memory}", memory="{chunk}", chunk="{question}") == "{memory}{chunk}{question}"
    )
