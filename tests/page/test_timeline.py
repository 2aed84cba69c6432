from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.page.diff import CHARACTERS, LINES, compared
from tests.page.fakes import timeline, turn

MEMORIES = st.lists(st.sampled_from(["", "a", "b", "a\nb"]), max_size=40)


def entries(memories):
    return [turn(number, memory, [(number, number + 1)]) for number, memory in enumerate(memories)]


@given(MEMORIES, st.integers(min_value=2, max_value=8))
def test_steps_cover_the_turns_in_order_and_are_bounded(memories, limit):
    line = timeline(entries(memories), limit=limit)
    assert len(line.steps) + len(line.later) <= limit
    parts = [*line.steps, *([line.left_out] if line.left_out else []), *line.later]
    assert [number for part in parts for number in range(part.first, part.last + 1)] == list(range(len(memories)))
    assert line.changes == sum(one != other for one, other in zip(["", *memories], memories, strict=False))
    assert line.memory == (memories[-1] if memories else "")


@given(MEMORIES)
def test_a_step_is_one_change_or_turns_without_any(memories):
    line = timeline(entries(memories))
    for step in line.steps:
        assert (
            (step.first == step.last)
            if step.changed
            else all(memories[number] == step.after for number in range(step.first, step.last + 1))
        )
    assert not any(one.changed is other.changed is False for one, other in zip(line.steps, line.steps[1:], strict=False))


def test_quiet_turns_count_their_outcomes_and_join_what_they_showed():
    turns = [turn(0, "a", [(0, 5)]), turn(1, "a", [(5, 9)], "skipped"), turn(2, "a", [(9, 12)], "empty")]
    turns += [turn(3, "a", [(20, 22)], "skipped"), turn(4, "a", kind="answer", outcome="answered")]
    first, quiet, answer = timeline(turns).steps
    assert (first.changed, answer.answers) == (True, True)
    assert dict(quiet.outcomes) == {"skipped": 2, "empty": 1}
    assert [(one.start, one.end) for one in quiet.spans] == [(5, 12), (20, 22)]


def test_a_long_reading_keeps_its_first_and_last_steps():
    line = timeline(entries(f"memory {number}" for number in range(5_000)))
    assert [step.first for step in line.steps] == list(range(75))
    assert [step.first for step in line.later] == list(range(4_925, 5_000))
    assert (line.left_out.first, line.left_out.last, line.left_out.changes) == (75, 4_924, 4_850)
    assert (line.holding(4_999).first, line.holding(100)) == (4_999, None)


def kinds(before, after):
    return [(line.kind, line.text) for line in compared(before, after)]


def test_lines_that_went_and_came_are_told():
    assert kinds("one\ntwo\nthree", "one\nthree\nfour") == [
        ("same", "one"),
        ("old", "two"),
        ("same", "three"),
        ("new", "four"),
    ]


def test_of_a_line_that_was_rewritten_the_words_are_marked():
    old, new = compared("The code is 4821 and the captain is Ann.", "The code is 9999 and the captain is Ann.")
    assert [text for text, marked in old.pieces if marked] == ["4821"]
    assert [text for text, marked in new.pieces if marked] == ["9999"]


def test_a_line_that_came_before_a_rewritten_one_does_not_hide_what_was_rewritten():
    old = "The code is 4821 and the captain is Ann."
    lines = compared(f"head\n{old}\ngone for good", f"head\nunlike in all\n{old.replace('4821', '9999')}")
    assert [(line.kind, [text for text, marked in line.pieces if marked]) for line in lines] == [
        ("same", []),
        ("new", []),
        ("old", ["4821"]),
        ("new", ["9999"]),
        ("old", []),
    ]


def test_lines_that_have_little_in_common_are_not_compared_by_words():
    assert kinds("a ship sails\nthe end", "four men drown\nnobody") == [
        ("old", "a ship sails"),
        ("old", "the end"),
        ("new", "four men drown"),
        ("new", "nobody"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a b", "a  b", "… only white space differs …"),
        ("  a b\nc", "a b\nc", "… only white space differs …"),
        ("a", "a\n", "… only ends of lines differ …"),
        ("a\r\nb", "a\nb", "… only ends of lines differ …"),
    ],
)
def test_a_change_of_white_space_is_told(before, after, said):
    assert said in [line.text for line in compared(before, after) if line.kind == "fold"]


WORDS = " ".join(f"word{number}" for number in range(4_000))


@pytest.mark.parametrize(
    "before",
    [
        "\n".join(f"line {number}" for number in range(3_000)),
        "x " * 7_000 + "end",
        WORDS,
        f"{WORDS}\n{WORDS}",
        WORDS[:9_000],
    ],
    ids=["lines", "one line", "words", "two lines", "fewer words"],
)
def test_a_change_at_the_end_of_a_long_memory_is_seen(before):
    """Whatever comes before it."""
    lines = compared(f"{before} old", f"{before} new")
    for kind in ("old", "new"):
        [line] = [line for line in lines if line.kind == kind]
        assert [text for text, marked in line.pieces if marked] == [kind]
    lines = compared(f"{before}\nold", f"{before}\nnew")
    assert [(line.kind, line.text) for line in lines if line.kind in ("old", "new")] == [("old", "old"), ("new", "new")]


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_memories_that_differ_have_something_to_show(before, after):
    assert any(line.kind != "same" for line in compared(before, after)) == (before != after)


def test_a_long_memory_is_folded_around_its_changes():
    before = [f"line {number}" for number in range(100)]
    after = [*before[:50], "another", *before[51:]]
    lines = compared("\n".join(before), "\n".join(after))
    assert (lines[0].text, lines[-1].text) == ("… 48 unchanged lines …", "… 47 unchanged lines …")
    assert len(lines) == 2 + 4 + 2


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_both_memories_can_be_read_from_a_comparison(before, after):
    lines = [line for line in compared(before, after) if line.kind != "fold"]
    if len(before.splitlines()) + len(after.splitlines()) <= 24:
        assert [line.text for line in lines if line.kind in ("same", "old")] == before.splitlines()
        assert [line.text for line in lines if line.kind in ("same", "new")] == after.splitlines()


def test_a_comparison_is_bounded():
    lines = compared("a " * 100_000, "b\n" * 50_000)
    assert sum(len(line.text) for line in lines if line.kind != "fold") <= CHARACTERS
    assert "left out" in lines[-1].text
    assert len(compared("", "a\nb\n" * 5_000)) == LINES + 1
