"""Variable tracking: RULER's structure and parameters."""

from __future__ import annotations

import re

import pytest

from memagent.errors import TaskError
from memagent.tasks.tracking import TASKS, TrackingOptions
from tests.tasks.made import materials, sample


def test_the_published_parameters() -> None:
    assert [task.name for task in TASKS] == ["vt"]
    assert TASKS[0].defaults == TrackingOptions(chains=1, hops=4, haystack="noise")


def test_the_chain_is_read_in_order() -> None:
    for index in range(10):
        one = sample("vt", index=index)
        first, *rest = one.facts
        value = re.fullmatch(r"VAR ([A-Z]{5}) = (\d{5})", first.text)
        assert value
        assert value[2] in one.question
        names = [value[1]]
        for fact in rest:
            assert fact.text == f"VAR {fact.value} = VAR {names[-1]}"
            names.append(fact.value)
        assert (one.mode, list(one.answers)) == ("all", names)
        assert len(names) == 5


def test_assignments_are_lines_of_noise_and_sentences_of_an_essay() -> None:
    one = sample("vt")
    lines = str(one.document).split("\n")
    assert {line for line in lines[:-1] if not line.startswith("VAR")} == {materials().wording.noise}
    assert all(fact.text in lines for fact in one.facts)
    essay = sample("vt", haystack="essay")
    assert all(fact.text.endswith(".") for fact in essay.facts)


def test_several_chains_are_mixed_and_one_is_asked() -> None:
    one = sample("vt", chains=3, hops=2)
    assert len(one.facts) == 9
    assert len({fact.value for fact in one.facts}) == 9
    assert [fact.value for fact in one.facts if fact.needed] == list(one.answers)
    known: set[str] = set()
    for fact in one.facts:
        assert fact.key.isdigit() or fact.key in known
        known.add(fact.value)
    mixed = [sample("vt", index=index, chains=3, hops=2) for index in range(5)]
    assert any([fact.needed for fact in other.facts] != [fact.needed for fact in one.facts] for other in mixed)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(TaskError, match="1 chain"):
        sample("vt", chains=0)
