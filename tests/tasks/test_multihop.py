"""Laws of the synthetic chains."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from memagent.core.types import Tokenizer
from memagent.errors import TaskError
from memagent.models.open import EMBEDDED
from memagent.models.tokenizers import ByteTokenizer, FileTokenizer
from memagent.scoring import strict
from memagent.tasks.multihop import TASKS
from memagent.tasks.names import Names, coined
from memagent.tasks.relations import RELATIONS, Relation, path
from memagent.tasks.samples import Fact, Sample, generator
from memagent.tasks.task import Request
from memagent.tasks.words import split_of
from tests.helpers import WordTokenizer
from tests.tasks.invented import materials

(MULTIHOP,) = TASKS
_NAME = r"((?:The )?[A-Z]\w+(?: [A-Z]\w+)?)"
_LEADS = re.compile(r"(?:Who is|What is the name of|What is) (.*?)(?:, according to the text)?\?")


def make(
    *, tokens: int = 1500, index: int = 0, seed: int = 1, tokenizer: Tokenizer | None = None, **options: object
) -> Sample:
    request = Request(tokens=tokens, seed=seed, index=index)
    return MULTIHOP.sample(materials(tokenizer or WordTokenizer()), request, MULTIHOP.options(options))


def parsed(sentence: str) -> tuple[Relation, str, str]:
    """The one relation that a sentence can state, and its two names."""
    found = []
    for relation in RELATIONS:
        for statement in relation.statements:
            pattern = re.escape(statement).replace(r"\{a\}", f"(?P<a>{_NAME})").replace(r"\{b\}", f"(?P<b>{_NAME})")
            if match := re.fullmatch(pattern, sentence):
                found.append((relation, match["a"], match["b"]))
    assert len(found) == 1, (sentence, found)
    return found[0]


def answered(question: str, facts: tuple[Fact, ...]) -> set[str]:
    """Every answer that the sentences allow: each phrase they define is replaced by what it yields, as long as one is."""
    known: dict[str, set[str]] = {}
    for fact in facts:
        relation, a, b = parsed(fact.text)
        known.setdefault(relation.phrase.format(a=a), set()).add(b)
    match = _LEADS.fullmatch(question)
    assert match
    phrases, finished = {match[1]}, set()
    while phrases:
        phrase = phrases.pop()
        inner = [key for key in known if phrase.endswith(key)]
        phrases |= {phrase.removesuffix(key) + value for key in inner for value in known[key]}
        if not inner:
            finished.add(phrase)
    return finished


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["document", "reversed", "shuffled"])
def test_the_facts_lead_to_the_answer_and_nowhere_else(hops: int, order: str) -> None:
    for index in range(15):
        sample = make(hops=hops, order=order, index=index)
        assert answered(sample.question, sample.facts) == set(sample.answers)
        needed = [fact for fact in sample.facts if fact.needed]
        assert len(needed) == hops
        assert len(sample.facts) == hops * 5
        for left_out in needed:
            rest = tuple(fact for fact in sample.facts if fact is not left_out)
            assert answered(sample.question, rest) != set(sample.answers)


def test_needed_facts_stand_in_the_order_asked_for() -> None:
    orders = set()
    for index in range(30):
        for order in ("document", "reversed", "shuffled"):
            sample = make(hops=3, order=order, index=index)
            steps = [sample.meta["chain"].index(fact.value) for fact in sample.facts if fact.needed]
            assert steps == {"document": [1, 2, 3], "reversed": [3, 2, 1]}.get(order, steps)
            orders.add(tuple(steps))
            assert (sample.meta["hops"], sample.meta["order"]) == (3, order)
    assert len(orders) == 6


def test_the_question_is_the_same_in_every_order_and_at_every_length() -> None:
    for index in range(5):
        samples = [make(hops=3, order=order, index=index) for order in ("document", "reversed", "shuffled")]
        samples += [make(hops=3, tokens=tokens, index=index) for tokens in (600, 5000)]
        assert len({(sample.question, sample.answers) for sample in samples}) == 1


def test_facts_are_in_their_places_and_name_what_they_yield() -> None:
    for index in range(20):
        sample = make(hops=4, index=index)
        text = str(sample.document)
        for fact in sample.facts:
            relation, a, b = parsed(fact.text)
            assert text[fact.start : fact.end] == fact.text
            assert (fact.key, fact.value) == (relation.phrase.format(a=a), b)
        assert strict(sample.gold, sample.answers, sample.mode) == 1
        assert strict("", sample.answers, sample.mode) == 0


def test_no_name_is_a_part_of_another() -> None:
    for index in range(20):
        sample = make(hops=4, distractors=8, index=index)
        names = {name for fact in sample.facts for name in parsed(fact.text)[1:]}
        assert not [(a, b) for a in names for b in names if a != b and a in b]


def test_distractors_share_relations_names_and_branch_off() -> None:
    sample = make(hops=3, distractors=6)
    needed = [parsed(fact.text) for fact in sample.facts if fact.needed]
    others = [parsed(fact.text) for fact in sample.facts if not fact.needed]
    assert {relation for relation, _, _ in needed} <= {relation for relation, _, _ in others}
    assert {a for _, a, _ in needed} & {a for _, a, _ in others}
    assert len(make(distractors=0, hops=3).facts) == 3


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_names_never_run_out(hops: int) -> None:
    for index in range(5):
        one = make(tokens=8192, index=index, hops=hops, distractors=40)
        assert len({fact.key for fact in one.facts}) == len(one.facts) >= 41
        assert answered(one.question, one.facts) == set(one.answers)


def test_a_likeness_that_is_used_up_gives_way_to_a_fresh_name() -> None:
    for kind in ("company", "work", "person"):
        names = Names(generator(1, "names", 0), "eval")
        first = names.new(kind)
        given = [names.new(kind, first) for _ in range(60)]
        assert len({first, *given}) == 61
        word = first.removeprefix("The ").split(" ")[0]
        similar = sum(word in name.split(" ") for name in given)
        assert similar == {"company": 9, "work": 11}.get(kind, similar)
    assert similar > 12


@pytest.mark.parametrize(
    "tokenizer", [WordTokenizer(), ByteTokenizer(), FileTokenizer.load(EMBEDDED)], ids=lambda one: one.name
)
def test_documents_come_within_one_per_cent_and_never_above(tokenizer: Tokenizer) -> None:
    for tokens in (2000, 8000):
        for index in range(3):
            sample = make(tokens=tokens, index=index, tokenizer=tokenizer)
            assert tokens * 0.99 <= sample.tokens <= tokens
            assert tokens * 0.99 <= tokenizer.count(str(sample.document)) <= tokens


def test_a_sample_depends_on_seed_and_index() -> None:
    first = make(index=3)
    make(index=9, tokens=4000)
    assert make(index=3) == first
    assert make(index=4).question != first.question
    assert make(index=3, seed=2).question != first.question


def test_names_of_the_two_splits_are_never_shared() -> None:
    rng = generator(0, "names", 0)
    for split in ("train", "eval"):
        assert {split_of(coined(rng, split, ending).lower()) for ending in ("", "ton", "ia") for _ in range(50)} == {split}
    words = {word for fact in make().facts for name in parsed(fact.text)[1:] for word in name.split()[:1] if word != "The"}
    assert {split_of(word.lower()) for word in words} == {"train"}


def test_paths_never_turn_back_and_use_no_relation_twice() -> None:
    rng = generator(0, "paths", 0)
    for _ in range(300):
        steps = path(rng, 4)
        assert len(set(steps)) == 4
        assert all(one.target == other.source for one, other in pairwise(steps))
        phrases = [step.phrase for step in steps]
        assert ("the capital of {a}", "the country of {a}") not in pairwise(phrases)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(TaskError, match=r"option hops: .*not '5'"):
        make(hops="5")
    with pytest.raises(TaskError, match=r"option order: .*not 'upwards'"):
        make(order="upwards")
    with pytest.raises(TaskError, match="cannot make a document of 50 tokens"):
        make(tokens=50, hops=4)
