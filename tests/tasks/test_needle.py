"""The needle family: RULER's structure and parameters."""

from __future__ import annotations

import re
from collections import Counter
from uuid import UUID

import pytest

from memagent.errors import TaskError
from memagent.tasks.needle import TASKS, NeedleOptions
from memagent.tasks.samples import Sample
from tests.tasks.made import materials, sample


def needed(one: Sample) -> list[str]:
    return [fact.key for fact in one.facts if fact.needed]


def test_the_published_names_and_parameters() -> None:
    rows = {task.name: task.defaults for task in TASKS}
    assert rows == {
        "niah_single_1": NeedleOptions(haystack="noise"),
        "niah_single_2": NeedleOptions(haystack="essay"),
        "niah_single_3": NeedleOptions(value="uuid"),
        "niah_multikey_1": NeedleOptions(keys=4),
        "niah_multikey_2": NeedleOptions(haystack="needle"),
        "niah_multikey_3": NeedleOptions(haystack="needle", key="uuid", value="uuid"),
        "niah_multivalue": NeedleOptions(values=4),
        "niah_multiquery": NeedleOptions(queries=4),
    }
    assert all((row.key, row.value) == ("pair", "number") for name, row in rows.items() if not name.endswith("_3"))


def test_the_sentence_and_the_question() -> None:
    one = sample("niah_single_2")
    (fact,) = one.facts
    assert fact.text == f"A secret number for {fact.key} is {fact.value}."
    assert one.question == f"What is the secret number for {fact.key}?"
    assert re.fullmatch(r"[a-z]+-[a-z]+", fact.key)
    assert re.fullmatch(r"[1-9]\d{6}", fact.value)
    assert (one.mode, one.answers) == ("any", (fact.value,))


def test_one_of_four_keys_is_asked() -> None:
    one = sample("niah_multikey_1")
    assert len({fact.key for fact in one.facts}) == 4
    assert [fact.key in one.question for fact in one.facts].count(True) == len(needed(one)) == 1


def test_all_values_of_one_key_are_asked() -> None:
    one = sample("niah_multivalue")
    (key,) = set(needed(one))
    assert one.question == f"What are all the secret numbers for {key}?"
    assert (one.mode, len(set(one.answers)), len(one.facts)) == ("all", 4, 4)


def test_all_of_four_keys_are_asked() -> None:
    one = sample("niah_multiquery")
    assert len(set(needed(one))) == len(one.answers) == 4
    assert all(key in one.question for key in needed(one))
    assert one.question.startswith("What are all the secret numbers for ")


def test_every_key_has_as_many_values() -> None:
    one = sample("niah_multikey_1", values=2, queries=2)
    keys = [fact.key for fact in one.facts]
    assert sorted(map(keys.count, set(keys))) == [2, 2, 2, 2]
    assert len(one.answers) == 4


def test_facts_stand_between_the_lines_of_noise() -> None:
    lines = str(sample("niah_single_1").document).split("\n")
    noise = materials().wording.noise
    (fact,) = sample("niah_single_1").facts
    assert lines.count(fact.text) == 1
    assert set(lines[:-1]) == {noise, fact.text}
    assert noise.startswith(lines[-1]) or lines[-1] == fact.text


@pytest.mark.parametrize("task", ["niah_multikey_2", "niah_multikey_3"])
def test_a_haystack_of_needles_holds_the_asked_key_once(task: str) -> None:
    for index in range(5):
        one = sample(task, index=index)
        (fact,) = one.facts
        lines = str(one.document).split("\n")
        assert len(lines) == len(set(lines)) > 100
        assert sum(fact.key in line for line in lines) == 1
        assert all(line.startswith("A secret ") for line in lines[:-1])


def test_a_long_haystack_of_needles_repeats_keys_but_not_the_asked_one() -> None:
    one = sample("niah_multikey_2", 65_536)
    (fact,) = one.facts
    keys = Counter(re.findall(r" for ([a-z]+-[a-z]+) is", str(one.document)))
    assert keys[fact.key] == 1
    assert len(keys) < keys.total(), "as in RULER, which draws keys without looking back"


def test_uuids_are_of_version_four() -> None:
    one = sample("niah_multikey_3")
    assert UUID(one.gold).version == 4
    assert UUID(one.facts[0].key).version == 4
    assert "secret uuid for" in one.question


def test_essay_depths_are_forty_per_cents_without_repetition() -> None:
    for index in range(20):
        one = sample("niah_multikey_1", 40_000, index=index)
        assert len({fact.start for fact in one.facts}) == 4
    depths = {sample("niah_single_2", index=index).meta["depth"] for index in range(200)}
    assert depths <= {round(100 * step / 39) / 100 for step in range(40)}
    assert {0.0, 1.0} < depths
    assert len(depths) > 30


def test_facts_are_near_their_depth() -> None:
    for index in range(20):
        one = sample("niah_single_2", 40_000, index=index)
        assert abs(one.facts[0].start / len(one.document) - one.meta["depth"]) < 0.01


def test_hard_negatives_share_one_word_with_the_asked_key() -> None:
    one = sample("niah_multikey_1", keys=9, hard_negatives=True)
    (asked,) = needed(one)
    shared = [len(set(fact.key.split("-")) & set(asked.split("-"))) for fact in one.facts if not fact.needed]
    assert shared.count(1) >= 4


@pytest.mark.parametrize("task", ["niah_multikey_2", "niah_multikey_3"])
def test_every_second_line_of_a_haystack_of_facts_is_a_hard_negative(task: str) -> None:
    def parts(text: str) -> list[list[str]]:
        return [part.split("-") for part in re.findall(r"[\w-]+-[\w-]+|\d{7}", text)]

    plain, hard = sample(task), sample(task, hard_negatives=True)
    for one, share in ((plain, 0.0), (hard, 0.5)):
        asked, value = (text.split("-") for text in (one.facts[0].key, one.facts[0].value))
        others = [parts(line) for line in str(one.document).splitlines()[:-1] if one.facts[0].text not in line]
        near = [key for key, _ in others if any(a == b for a, b in zip(key, asked, strict=True))]
        assert len(near) / len(others) == pytest.approx(share, abs=0.06)
        assert asked not in [key for key, _ in others]
        assert value not in [told for _, told in others]
    if task == "niah_multikey_3":
        shared = [told for _, told in others if any(a == b for a, b in zip(told, value, strict=True))]
        assert len(shared) == len(near)


def test_many_wordings() -> None:
    sentences = {
        re.sub(r"\d|[a-z]+-[a-z]+", "", sample("niah_single_2", index=i, wordings="many").facts[0].text) for i in range(40)
    }
    assert len(sentences) > 10


@pytest.mark.parametrize("wrong", [{"queries": 0}, {"keys": -1}, {"values": 0}])
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(TaskError, match="a key, a value"):
        NeedleOptions(**wrong)


def test_options_come_from_text_and_errors_name_them() -> None:
    one = sample("niah_single_2", keys="3", value="word")
    assert one.meta["keys"] == 3
    with pytest.raises(TaskError, match="option haystack"):
        sample("niah_single_2", haystack="straw")
    with pytest.raises(TaskError, match="no option 'depth'"):
        sample("niah_single_2", depth=0.5)
    with pytest.raises(TaskError, match="option 'rivals' is now named 'hard_negatives'"):
        sample("niah_single_2", rivals=True)
    with pytest.raises(TaskError, match=r"^task 'niah_single_2': .*a key, a value"):  # of the options together
        sample("niah_single_2", queries=0)


def test_more_facts_than_tokens_are_refused_before_words_are_drawn() -> None:
    with pytest.raises(TaskError, match="cannot make a document of 1024 tokens with 99999 facts"):
        sample("niah_multikey_1", 1024, keys=99_999)
