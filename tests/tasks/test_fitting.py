"""Planting and fitting: the haystack comes back when the facts are taken out, and lengths are as asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core.types import Span
from memagent.errors import TaskError
from memagent.tasks.fitting import EXACT_TOKENS, Planned, fit, plant
from memagent.tasks.haystack import Haystack
from memagent.tasks.samples import Fact
from tests.tasks.made import TOKENIZERS, materials, tokenizer

TEXT = "One is here. Two is there.\nThree is gone! Four and “five” stay. Six? Seven.\n\nEight is last, it seems. " * 4
HAYSTACKS = {"sentences": Haystack([TEXT]), "lines": Haystack([TEXT], lines=True)}

facts = st.lists(
    st.tuples(st.text("abc é", min_size=1, max_size=9).map(lambda text: f"<{text}>"), st.floats(0, 1)), max_size=6
)


@st.composite
def places(draw: st.DrawFn) -> tuple[str, list[Span]]:
    """A haystack's name, and a piece of its text, or what goes over its end and begins again."""
    kind = draw(st.sampled_from(sorted(HAYSTACKS)))
    size = len(HAYSTACKS[kind].text)
    if draw(st.booleans()):
        start = draw(st.integers(0, 400))
        return kind, [Span(start=start, end=start + draw(st.integers(1, 400)))]
    whole = [Span(start=0, end=size)] * draw(st.integers(0, 2))
    tail, head = draw(st.integers(1, 400)), draw(st.integers(1, 400))
    return kind, [Span(start=size - tail, end=size), *whole, Span(start=0, end=head)]


def without(text: str, planted: list[Fact], haystack: Haystack) -> str:
    """The text with the facts and what separates them taken out."""
    for fact in reversed(planted):
        assert text[fact.start : fact.end] == fact.text
        assert text[fact.end] == haystack.joint
        text = text[: fact.start] + text[fact.end + 1 :]
    return text


@given(places(), facts)
def test_the_haystack_comes_back_without_the_facts(place: tuple[str, list[Span]], what: list[tuple[str, float]]) -> None:
    kind, where = place
    haystack = HAYSTACKS[kind]
    planned = [Planned(text=text) for text, _ in what]
    document, planted = plant(haystack, where, planned, [depth for _, depth in what])
    text, base = str(document), "".join(haystack.text[span.start : span.end] for span in where)
    assert len(document) == len(text)
    assert sorted(fact.text for fact in planted) == sorted(fact.text for fact in planned)
    rest = without(text, planted, haystack)
    # Only a fact at the end of a text that was cut has a separator before it.
    assert rest == base or (rest == base + haystack.joint and not base[-1].isspace())


@given(places(), facts, st.integers(0, 900), st.integers(0, 900))
def test_a_rope_reads_as_its_text(
    place: tuple[str, list[Span]], what: list[tuple[str, float]], start: int, end: int
) -> None:
    kind, where = place
    document, _ = plant(HAYSTACKS[kind], where, [Planned(text=text) for text, _ in what], [depth for _, depth in what])
    assert document.read(start, end) == str(document)[start:end]


def test_facts_of_one_border_stay_in_order_and_others_go_by_depth() -> None:
    haystack = HAYSTACKS["sentences"]
    planned = [Planned(text=f"<{name}>") for name in "abcd"]
    whole = [Span(start=0, end=len(haystack.text))]
    _, planted = plant(haystack, whole, planned, [0.5, 0.5, 1.0, 0.0])
    assert [fact.text for fact in planted] == ["<d>", "<a>", "<b>", "<c>"]


def test_facts_stand_behind_sentences() -> None:
    haystack = Haystack(["One. Two. Three."])
    document, _ = plant(haystack, [Span(start=0, end=16)], [Planned(text="Fact.")], [0.6])
    assert str(document) == "One. Two. Fact. Three."


@pytest.mark.parametrize("depths", [[0.5], [0.1, 1.5]])
def test_planting_refuses_depths_that_do_not_fit(depths: list[float]) -> None:
    with pytest.raises(TaskError, match="between 0 and 1"):
        plant(HAYSTACKS["lines"], [Span(start=0, end=9)], [Planned(text="s"), Planned(text="t")], depths)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", ["sentences", "lines", "shipped"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_documents_are_as_long_as_asked(kind: str, name: str, data: st.DataObject) -> None:
    haystack = materials(name).haystack if kind == "shipped" else HAYSTACKS[kind]
    tokens = data.draw(st.one_of(st.integers(150, 3000), st.integers(EXACT_TOKENS - 50, EXACT_TOKENS + 3000)))
    planned = [Planned(text=f"The code of {key} is 4821973.") for key in data.draw(st.sets(st.sampled_from("abc")))]
    start = haystack.borders[data.draw(st.integers(0, len(haystack.borders) - 1))]
    depths = [data.draw(st.floats(0, 1)) for _ in planned]
    document, planted, have = fit(haystack, tokenizer(name), planned, depths, tokens=tokens, start=start)
    real = tokenizer(name).count(str(document))
    assert tokens * 0.99 <= real <= tokens
    assert abs(have - real) <= (0 if tokens <= EXACT_TOKENS else tokens // 1000)
    assert all(document.read(fact.start, fact.end) == fact.text for fact in planted)


def test_facts_that_are_too_long_are_refused() -> None:
    with pytest.raises(TaskError, match="cannot make a document of 9 tokens: its 1 facts need 2"):
        fit(HAYSTACKS["lines"], tokenizer("words"), [Planned(text="word " * 20)], [0.5], tokens=9, start=0)
