"""Laws of questions in natural words."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from functools import cache

import pytest

from memagent.errors import TaskError
from memagent.suite_scoring import own_score
from memagent.tasks.fact_values import SORTS, make
from memagent.tasks.facts import TASKS, Attribute, attributes
from memagent.tasks.name_forms import FORMS, FormedNames
from memagent.tasks.names import WORKS, Kind, Names
from memagent.tasks.samples import Sample, generator
from memagent.tasks.task import Materials, Request
from memagent.tasks.words import Words, shipped_words
from tests.helpers import WordTokenizer
from tests.tasks.invented import HAYSTACK

(FACTS,) = TASKS
ALL = [one.name for one in attributes()]
WORDS = shipped_words("eval")


def made(*, index: int = 0, tokens: int = 700, words: Words = WORDS, **options: object) -> Sample:
    materials = Materials(tokenizer=WordTokenizer(), haystack=HAYSTACK, words=words)
    return FACTS.sample(materials, Request(tokens=tokens, seed=2, index=index), FACTS.options(options))


def subject_of(sample: Sample) -> str:
    [key] = sample.meta["keys"]
    return str(key.rpartition(", ")[0])


def stated(sentence: str, value: str) -> list[tuple[Attribute, str]]:
    """The attributes that a sentence can state with this value, and of whom."""
    found, lowered = [], sentence.lower()
    for one in attributes():
        for statement in one.statements:
            if not all(part in lowered for part in literals(statement)):  # most, without a pattern
                continue
            pattern = re.escape(statement).replace(r"\{a\}", "(.+)").replace(r"\{b\}", re.escape(value))
            pattern = pattern.replace(r"\'", "'")
            if match := re.fullmatch(pattern, sentence, re.IGNORECASE):
                found.append((one, match[1]))
    return found


@cache
def literals(statement: str) -> list[str]:
    return re.split(r"{[ab]}", statement.lower())


@pytest.mark.parametrize("forms", ["plain", "many"])
@pytest.mark.parametrize("name", ALL)
def test_one_sentence_holds_the_answer_and_no_other_states_the_attribute_of_the_subject(name: str, forms: str) -> None:
    for index in range(12):
        sample = made(index=index, attribute=name, forms=forms)
        [needed] = [fact for fact in sample.facts if fact.needed]
        assert sample.answers == (needed.value,)
        subject = subject_of(sample)
        assert sample.meta["keys"] == [needed.key] == [f"{subject}, {name}"]
        assert sample.question.count(subject) == 1
        assert (name, subject) in {(one.name, of) for one, of in stated(needed.text, needed.value)}
        for other in sample.facts:
            if not other.needed:
                assert (name, subject) not in {(one.name, of) for one, of in stated(other.text, other.value)}


@pytest.mark.parametrize("name", ALL)
def test_the_last_ten_statements_and_questions_of_an_attribute_are_for_evaluation_alone(name: str) -> None:
    [one] = [one for one in attributes() if one.name == name]
    rng = generator(0, "wordings", 0)
    for texts, draw in (
        (one.statements, lambda split: one.state(rng, split, "Ann", "7")),
        (one.questions, lambda split: one.ask(rng, split, "Ann")),
    ):
        assert len({text.lower() for text in texts}) == len(texts) >= 34
        assert not [(held, text) for held in texts[-10:] for text in texts[:-10] if alike(held, text)]
        expected = [text.format(a="Ann", b="7") for text in texts]
        expected = [text[0].upper() + text[1:] for text in expected]
        assert {draw("train") for _ in range(3000)} == set(expected[:-10])
        assert {draw("eval") for _ in range(300)} == set(expected[-10:])


def alike(held: str, text: str) -> bool:
    """Whether one is the other with a word replaced, or with more behind it."""
    matcher = SequenceMatcher(None, words_of(held), words_of(text))
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)  # each is cheaper than the next, and above it
    return all(bound() >= 0.8 for bound in bounds) or held.rstrip(".?").lower() in text.lower()


@cache
def words_of(text: str) -> list[str]:
    return re.sub(r"[^\w{} ]", "", text.lower()).split()


@pytest.mark.parametrize("one", attributes(), ids=ALL)
def test_a_statement_is_a_sentence_that_says_the_value_as_it_is(one: Attribute) -> None:
    rng = generator(0, "sentences", 0)
    for _ in range(300):
        value = make(rng, one.target, "train") if one.target in SORTS else "Mara Tolle"  # type: ignore[arg-type]
        text = one.state(rng, "train", "Ann", value)
        assert "Ann" in text
        assert value in text
        assert text[0].isupper() or not text[0].isalpha()
        assert text.endswith((".", "!", "?"))
        assert ".." not in text


def test_no_statement_fits_two_attributes_of_a_kind_of_subject() -> None:
    texts = Counter((one.source, text) for one in attributes() for text in one.statements)
    asked = Counter((one.source, text) for one in attributes() for text in one.questions)
    assert max(texts.values()) == max(asked.values()) == 1


def test_wordings_are_those_of_the_words_or_as_asked_for() -> None:
    held_out = {one.name: one.questions[-10:] for one in attributes()}
    for wordings, expected in (("split", True), ("eval", True), ("train", False)):
        for index in range(20):
            sample = made(index=index, wordings=wordings)
            subject, _, attribute = sample.meta["keys"][0].rpartition(", ")
            assert (sample.question.replace(subject, "{a}") in held_out[attribute]) is expected


def test_distractors_say_the_same_of_others_and_other_things_of_the_same() -> None:
    sample = made(attribute="birthday", others=4, attributes=3, tokens=900)
    subject = subject_of(sample)
    keys = [fact.key for fact in sample.facts if not fact.needed]
    others = [key.removesuffix(", birthday") for key in keys if key.endswith(", birthday")]
    same = [fact for fact in sample.facts if not fact.needed and fact.key.startswith(f"{subject}, ")]
    assert len(others) == 4
    assert sum(bool(set(subject.split()) & set(other.split())) for other in others) >= 2
    assert len({fact.key for fact in same}) == 3
    assert all(subject.lower() in fact.text.lower() for fact in same)
    assert len(made(attribute="departure", attributes=9).facts) == 1 + 3 + 1  # there is one more that is known of ships


def test_a_document_without_the_answer_says_the_same_of_others_and_asks_for_an_abstention() -> None:
    for index in range(8):
        sample, there = made(index=index, absent=True), made(index=index)
        subject = subject_of(there)
        assert subject in sample.question
        assert {fact.text for fact in sample.facts} == {fact.text for fact in there.facts if not fact.needed}
        assert own_score(sample.scorer, "That is not in the document.", sample.answers, sample.mode, sample.meta) == 1
        assert own_score(sample.scorer, there.answers[0], sample.answers, sample.mode, sample.meta) == 0


def test_several_facts_are_asked_for_one_after_the_other_and_all_are_needed() -> None:
    of_one = 0
    for index in range(12):
        sample = made(index=index, asked=5, others=6, attributes=3, tokens=900)
        keys = sample.meta["keys"]
        needed = {fact.key: fact.value for fact in sample.facts if fact.needed}
        assert len(set(keys)) == 5
        assert sample.answers == tuple(needed[key] for key in keys)
        assert len({fact.key for fact in sample.facts}) == len(sample.facts)
        assert 5 + 6 <= len(sample.facts) <= 5 + 6 + 3  # as far as there are more attributes
        rest = sample.question
        for key in keys:  # the subjects stand in the question in the order of the keys
            _, found, rest = rest.partition(key.rpartition(", ")[0])
            assert found
        others = [
            fact.key for fact in sample.facts if not fact.needed and fact.key.rpartition(", ")[0] not in sample.question
        ]
        assert len({key.rpartition(", ")[2] for key in others}) >= 2  # the same as of more than one that is asked for
        of_one += len({key.rpartition(", ")[0] for key in keys}) < 5
        right, incomplete = "; ".join(sample.answers), "; ".join(sample.answers[1:])
        assert own_score("strict", right, sample.answers, sample.mode, sample.meta) == 1
        assert own_score("strict", incomplete, sample.answers, sample.mode, sample.meta) == 0.8
    assert of_one > 4
    births = made(asked=4, attribute="birthday").meta["keys"]
    assert {key.rpartition(", ")[2] for key in births} == {"birthday"}
    assert len(set(births)) == 4


def test_several_absent_facts_are_refused() -> None:
    with pytest.raises(TaskError, match="absent = true is for one question, not for asked = 2; leave one of them out"):
        made(asked=2, absent=True)


def test_names_are_coined_or_of_the_word_list() -> None:
    words = {word.capitalize() for word in WORDS.nouns}

    def of_words(names: str) -> list[bool]:
        samples = (made(index=index, names=names, attribute="mayor") for index in range(30))
        return [set(sample.answers[0].split()) <= words for sample in samples]

    assert all(of_words("words"))
    assert not any(of_words("coined"))
    assert 5 < sum(of_words("any")) < 25


def test_an_unknown_attribute_names_those_that_exist() -> None:
    with pytest.raises(TaskError, match=r"no attribute is named 'height'; known: any, birthday, telephone, .*captain"):
        made(attribute="height")


def test_no_name_of_a_contract_is_a_part_of_another() -> None:
    names = Names(generator(0, "contracts", 0), "train")
    first = names.new("contract")
    others = [names.new("contract", like=first) for _ in range(300)]
    assert len({first, *others}) == 301
    assert len({len(name.partition("-")[2]) for name in (first, *others)}) == 1
    assert all(other.partition("-")[0] == first.partition("-")[0] for other in others)


@pytest.mark.parametrize("kind", FORMS)
def test_names_in_many_forms_are_apart_and_alike_as_asked_for(kind: Kind) -> None:
    for split in ("train", "eval"):
        names = FormedNames(generator(0, "forms", 0), "train", forms=split)
        given = [names.new(kind) for _ in range(40)]
        alike = [(one, names.new(kind, like=one)) for one in given]
        every = [*given, *(other for _, other in alike)]
        assert all(name[0].isupper() and name[-1] != "." for name in every)
        lowered = sorted((name.lower() for name in every), key=len)
        assert not [(a, b) for at, a in enumerate(lowered) for b in lowered[at + 1 :] if a in b]
        shared = [set(re.findall(r"\w{3,}", one)) & set(re.findall(r"\w{3,}", other)) for one, other in alike]
        assert sum(map(bool, shared)) > 30


@pytest.mark.parametrize("kind", FORMS)
def test_the_last_forms_of_names_are_for_evaluation_alone(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent.tasks.names.coined", lambda *_: next(coined))
    shown = {}
    for split in ("train", "eval"):
        coined = (f"W{number:03}" for number in range(9999))
        names = FormedNames(generator(0, "forms", 0), "train", forms=split)
        made_up = [re.sub(r"W\d+", "#", names.new(kind)) for _ in range(400)]
        shown[split] = {
            re.sub("|".join(WORKS), "noun", re.sub(r"\d+", "0", re.sub(r"\b[A-Z]\b", "I", one))) for one in made_up
        }
    assert len(shown["eval"]) == 3
    assert len(shown["train"]) == len(FORMS[kind]) - 3
    assert not shown["train"] & shown["eval"]


def test_there_are_always_more_names_like_one() -> None:
    names = FormedNames(generator(0, "forms", 0), "train", forms="eval")
    first = names.new("ship")
    assert len({first, *(names.new("ship", like=first) for _ in range(50))}) == 51


def test_names_are_plain_unless_asked_for() -> None:
    def plain(forms: str) -> list[bool]:
        samples = [made(index=index, attribute="captain", forms=forms) for index in range(30)]
        return [bool(re.match("(SS|MV|HMS) ", subject_of(sample))) for sample in samples]

    assert all(plain("plain"))
    assert not any(plain("many"))
    assert 5 < sum(plain("any")) < 25


@pytest.mark.parametrize(("wordings", "held_out"), [("train", False), ("eval", True)])
def test_forms_of_names_are_those_of_the_wordings(wordings: str, held_out: bool) -> None:
    for index in range(20):
        sample = made(index=index, attribute="captain", forms="many", wordings=wordings)
        assert bool(re.match("Duke of |USS |.* Queen$", subject_of(sample))) is held_out


def test_coined_names_never_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    words = iter(["Tolle"] * 5000 + ["Marn"])
    monkeypatch.setattr("memagent.tasks.names.coined", lambda *_: next(words))
    names = Names(generator(0, "towns", 0), "train")
    assert [names.new("town"), names.new("town")] == ["Tolle", "Marn"]


def test_a_word_list_that_is_too_short_is_told() -> None:
    few = Words(WORDS.adjectives[:3], WORDS.nouns[:3])
    with pytest.raises(
        TaskError, match=r"its 3 words give 3 of the names that are needed; use a longer list, or coined names"
    ):
        made(words=few, names="words", attribute="mayor")


@pytest.mark.parametrize("sort", SORTS)
def test_values_are_one_short_line(sort: str) -> None:
    rng = generator(0, sort, 0)
    values = [make(rng, sort, "train") for _ in range(300)]  # type: ignore[arg-type]
    assert all(0 < len(value) <= 40 and value == value.strip() and "\n" not in value for value in values)
    assert len(set(values)) > 40


def test_trades_for_evaluation_are_not_trained_on() -> None:
    rng = generator(0, "trades", 0)
    train, held_out = ({make(rng, "trade", split) for _ in range(2000)} for split in ("train", "eval"))
    assert len(train) > 60
    assert len(held_out) > 10
    assert not train & held_out


def test_values_stand_first_where_that_is_asked_for() -> None:
    def first(order: str) -> list[bool]:
        samples = [made(index=index, order=order, wordings="train") for index in range(40)]
        facts = [fact for sample in samples for fact in sample.facts]
        subjects = [fact.key.rpartition(", ")[0] for fact in facts]
        return [fact.text.index(fact.value) < fact.text.index(one) for fact, one in zip(facts, subjects, strict=True)]

    assert all(first("value"))
    assert 0.1 < sum(first("any")) / len(first("any")) < 0.7
