"""The state machine: what is asked, in which order, and what each kind of reply does to the memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent.core import Budgets, Completion, Profile, Sampling, make_reader, plan_reading, start
from memagent.core.budgets import JOIN_SLACK
from memagent.core.readers.chunkwise import ChunkState
from memagent.errors import ConfigError, ContextTooLongError
from memagent.models.tokenizers import ByteTokenizer, EstimateTokenizer
from memagent.profiles import load_profile
from tests.helpers import StringText, WordTokenizer, halved, next_turn, replied

PROFILE = Profile(
    name="test",
    empty_memory="none",
    update="Q {question} M {memory} C {chunk}",
    answer="Q {question} M {memory} A",
    direct="Q {question} D {document} A",
    retry=" again {limit}",
)
BUDGETS = Budgets(question=20, chunk=16, memory=10, answer=8)
DOCUMENT = " ".join(f"w{n}" for n in range(40))


def plan(text=DOCUMENT, question="why?", **options):
    given = {"reader": make_reader(), "tokenizer": WordTokenizer(), "profile": PROFILE, "budgets": BUDGETS, **options}
    return plan_reading(StringText(text), question, **given)


def reply(text, **values):
    return Completion(text=text, **values)


def after(a_plan, *replies):
    state = start(a_plan)
    for one in replies:
        state = replied(a_plan, state, one)
    return state


def test_each_turn_shows_question_memory_and_chunk_and_the_answer_shows_no_document():
    a_plan = plan()
    assert len(a_plan.chunks) == 3
    first = next_turn(a_plan, start(a_plan))
    assert first.user == "Q why? M none C " + DOCUMENT[: a_plan.chunks[0].end]
    assert first.max_tokens == BUDGETS.memory
    assert first.kind == "update"
    second = next_turn(a_plan, after(a_plan, "m1"))
    assert "M m1 C" in second.user
    assert "w0" not in second.user
    last = next_turn(a_plan, after(a_plan, "m1", "m2", "m3"))
    assert (last.kind, last.user, last.max_tokens, last.spans) == ("answer", "Q why? M m3 A", BUDGETS.answer, ())
    done = after(a_plan, "m1", "m2", "m3", "because")
    assert done.answer == "because"
    assert next_turn(a_plan, done) is None


def test_the_draft_of_an_update_is_the_memory_as_it_stands():
    a_plan = plan()
    drafts = [
        next_turn(a_plan, after(a_plan, *replies)).draft for replies in ([], ["m1"], ["m1", "m2"], ["m1", "m2", "m3"])
    ]
    assert drafts == ["", "m1", "m2", ""]  # nothing is noted before the first, and the last is the answer
    assert next_turn(a_plan, after(a_plan, "m1", "")).draft == ""  # asked again: it was not what is wanted
    notes = plan(reader=make_reader("append"))
    assert next_turn(notes, after(notes, "m1")).draft == ""  # a reply is only what is new


@pytest.mark.parametrize("reader", ["memory", "gated", "recall"])
def test_an_update_says_how_many_tokens_it_has_as_its_parts_were_counted(reader):
    budgets = Budgets(question=20, chunk=60, memory=40, answer=40)
    options = {"profile": load_profile("default"), "tokenizer": ByteTokenizer(), "budgets": budgets}
    a_plan = plan(reader=make_reader(reader), **options)
    assert len(a_plan.chunks) >= 3
    for replies in ([], ["m1"], ["m1", "a longer memory"], ["m1", "", "m2"]):
        a_turn = next_turn(a_plan, after(a_plan, *replies))
        assert a_turn.tokens == a_plan.tokenizer.count(a_turn.user), replies
    for unknown in (["m1", ""], ["m"] * len(a_plan.chunks)):  # asked again, and the answer
        assert next_turn(a_plan, after(a_plan, *unknown)).tokens == 0


def test_a_finished_reading_takes_no_more():
    a_plan = plan()
    with pytest.raises(ValueError, match="finished"):
        replied(a_plan, after(a_plan, "a", "b", "c", "d"), "e")


def test_braces_in_question_memory_and_document_are_text():
    a_plan = plan("{memory} {0} {{x}}", question="{chunk}?")
    state = ChunkState(memory="{question}")
    assert next_turn(a_plan, state).user == "Q {chunk}? M {question} C {memory} {0} {{x}}"


# Outcomes: one documented rule each.

LONG = " ".join(f"m{n}" for n in range(14))


def test_too_long_a_memory_is_asked_again_then_cut_at_a_sentence():
    a_plan = plan()
    state = after(a_plan, LONG)
    assert (state.outcome, state.again, state.memory) == ("retry_long", True, "")
    turn = next_turn(a_plan, state)
    assert turn.user.endswith(" again 10")
    assert turn.spans == next_turn(a_plan, start(a_plan)).spans
    state = replied(a_plan, state, "a b c d e f. g h i j k l m")
    assert (state.outcome, state.memory, state.part, state.again) == ("fitted", "a b c d e f.", 1, False)


def test_a_shorter_second_try_is_kept():
    assert after(plan(), LONG, "short").memory == "short"


def test_a_reply_cut_at_the_length_limit_is_too_long_whatever_it_holds():
    assert after(plan(), reply("short", finish="length")).outcome == "retry_long"


def test_paper_rules_keep_what_fits_at_once():
    state = after(plan(rules="paper"), LONG)
    assert state.memory == " ".join(f"m{n}" for n in range(10))
    assert (state.outcome, state.part) == ("fitted", 1)


@pytest.mark.parametrize("empty", ["", "  \n", "<think>only thoughts</think>", "<think>never closed"])
def test_an_empty_reply_is_asked_again_then_the_memory_stays(empty):
    state = after(plan(), "m1", empty)
    assert (state.outcome, state.memory) == ("retry_empty", "m1")
    state = replied(plan(), state, empty)
    assert (state.outcome, state.memory, state.part) == ("empty", "m1", 2)


def test_paper_rules_let_an_empty_reply_wipe_the_memory():
    assert after(plan(rules="paper"), "m1", "").memory == ""


@pytest.mark.parametrize(
    "prose",
    [
        "No change.",
        "The memory remains unchanged.",
        "No new information.",
        "Nothing new to add.",
        "No updates needed",
        "(no changes)",
        "No relevant information found in this section. The previous memory remains unchanged.",
        "The section contains no relevant information.",
        "No change needed; the section is irrelevant.",
        "No change to the memory based on this section.",
        "The section is irrelevant, so I will keep the memory as it is.",
        "Previous memory retained.",
        "The memory remains unchanged as it stands.",
        "The new memory is the same as the old memory, as the section does not contribute anything new to the question.",
        "N/A",
        "None.",
    ],
)
def test_prose_that_nothing_changed_does_not_wipe_the_memory(prose):
    state = after(plan(), "m1", prose)
    assert (state.outcome, state.memory, state.part) == ("unchanged", "m1", 2)
    assert after(plan(rules="paper"), "m1", prose).memory != "m1"


@pytest.mark.parametrize("memory", ["", "m1"])
def test_the_words_for_an_empty_memory_are_no_memory(memory):
    profile = replace(plan().profile, empty_memory="(empty: the first section)")
    a_plan, literal = (replace(plan(rules=rules), profile=profile) for rules in ("careful", "paper"))
    for reply in (profile.empty_memory, "EMPTY: the first section."):
        state = after(a_plan, memory, reply)
        assert (state.outcome, state.memory) == ("unchanged", memory)
    assert after(literal, memory, profile.empty_memory).memory == profile.empty_memory


def test_what_the_text_does_not_mention_may_be_said_in_words_of_the_question():
    a_plan = plan(question="the access code?")
    assert after(a_plan, "m1", "The text does not mention the access code.").memory == "m1"
    for told in (
        "The text doesn't mention the access code.",
        "This does not contain the access code.",
        "It isn’t mentioned.",
        "I found nothing about the access code.",
    ):
        assert after(a_plan, "m1", told).memory == "m1"
    assert after(a_plan, "m1", "There is no change in the access code.").memory != "m1"


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("Does the warranty include labor?", "The warranty does not include labor."),
        ("Does the drug contain lactose?", "The drug contains no lactose."),
        ("Does the plan provide dental benefits?", "The plan does not provide dental benefits."),
        ("What information does the label provide?", "The label does not provide information."),
    ],
)
def test_a_fact_that_denies_what_the_question_asks_is_a_memory(question, memory):
    budgets = Budgets(question=20, chunk=16, memory=30)
    assert after(plan(question=question, budgets=budgets), "m1", memory).memory == memory
    told = "No information about that in this section."
    assert after(plan(question=question, budgets=budgets), "m1", told).memory == "m1"


@pytest.mark.parametrize(
    "memory",
    [
        "The code is 12. No change in the price.",
        "no",
        "The answer is no.",
        "Nothing is known about Ishmael but his name.",
        "nothing yet",
        "amber-falcon: not yet",
        "No. 5 changed hands.",
        "No new king was crowned in 1820 and the update of the law failed",
    ],
)
def test_memories_that_merely_sound_like_it_are_kept(memory):
    assert after(plan(budgets=Budgets(question=20, chunk=16, memory=30)), "m1", memory).memory == memory


@pytest.mark.parametrize(
    "text", ["<think>a plan</think>m", "<thinking>\na</thinking>\n\nm", "ends here</think>m", " <THINK>x</THINK> m "]
)
def test_reasoning_before_the_reply_never_enters_memory_or_answer(text):
    assert after(plan(), text).memory == "m"
    assert after(plan(), "a", "b", "c", text).answer == "m"


def test_reasoning_in_a_field_of_its_own_stays_out():
    assert after(plan(), reply("m", reasoning="secret plan")).memory == "m"


def test_a_closing_tag_quoted_from_the_document_cuts_nothing():
    a_plan = plan("the tag </think> stands in the text")
    assert after(a_plan, "key 1; the tag </think> stands").memory == "key 1; the tag </think> stands"
    assert after(a_plan, "key 1: the tag </think>").memory == "key 1: the tag </think>"
    assert after(a_plan, "</think> stands in it").memory == "</think> stands in it"
    assert after(a_plan, "hm, what is it? </think> key 1").memory == "key 1", "other words are beside the tag in the text"


def test_a_model_known_to_open_with_reasoning_is_not_quoting():
    a_plan = plan("first chunk here " * 6 + "the tag </think> stands in the text " * 3)
    state = after(a_plan, "let me see</think>m1")
    assert (state.memory, state.reasons) == ("m1", True)
    while "</think>" not in next_turn(a_plan, state).user:
        state = replied(a_plan, state, "m1")
    assert replied(a_plan, state, "hm, a tag</think>m2").memory == "m2"


def test_a_block_of_its_own_does_not_hide_a_quotation():
    a_plan = plan("the tag </think> stands in the text")
    assert after(a_plan, "<think>x</think>it says </think> there").memory == "it says </think> there"


def test_lone_surrogates_are_replaced():
    assert after(plan(), "bad \ud83d").memory == "bad \ufffd"
    with pytest.raises(ConfigError, match=r"not valid Unicode: 'bad \\ud83d'"):
        plan("x", question="bad \ud83d")


def test_an_empty_answer_is_asked_again_and_then_recorded_as_empty():
    state = after(plan(), "a", "b", "c", "")
    assert (state.answer, state.outcome) == (None, "retry_empty")
    assert next_turn(plan(), state).user.endswith("again 8")
    state = replied(plan(), state, "")
    assert (state.answer, state.outcome) == ("", "empty")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \boxed{a} or rather \boxed{{x} y}.", "{x} y"),
        (r"\boxed{\text{Paris}}", r"\text{Paris}"),
        ("Paris", "Paris"),
        (r"half \boxed{open", r"half \boxed{open"),
    ],
)
def test_a_boxed_answer_is_the_last_one(text, answer):
    boxed = Profile(name="b", empty_memory="-", update=PROFILE.update, answer=PROFILE.answer, answer_format="boxed")
    assert after(plan(profile=boxed), "a", "b", "c", text).answer == answer


# A window that turns out smaller than said.


def served(a_plan, fits):
    """What is shown of a document at a server where some texts do not fit, and how many prompts it refuses."""
    text, state, shown, refused = a_plan.text, start(a_plan), [], 0
    while (turn := next_turn(a_plan, state)).kind == "update":
        piece = "".join(text.read(span.start, span.end) for span in turn.spans)
        if fits(piece):
            state = replied(a_plan, state, f"m{len(shown)}")
            shown.append(piece)
        else:
            state, refused = halved(a_plan, state), refused + 1
    assert "".join(shown) == text.read(0, len(text)), "each part is shown once"
    assert state.memory == f"m{len(shown) - 1}"
    return shown, refused


def test_a_chunk_that_does_not_fit_is_read_in_halves_and_the_next_ones_in_pieces_as_small():
    a_plan = plan(" ".join(f"w{number:04}" for number in range(16 * 200)))
    chunks, most = len(a_plan.chunks), max(len(one.span) for one in a_plan.chunks)
    shown, refused = served(a_plan, lambda piece: len(piece) <= most // 2 + 2)
    assert 300 < 2 * chunks <= len(shown) <= 4 * chunks
    assert refused <= 9, "a window that is too small for each chunk refuses one after 2, 4, 8 … others"


def test_one_dense_chunk_does_not_make_all_of_the_others_small():
    a_plan = plan("7 " * 16 + "".join(f"w{number:04} " for number in range(16 * 200)))
    chunks = len(a_plan.chunks)
    shown, refused = served(a_plan, lambda piece: piece.count("7 ") <= 2)
    assert refused < 2 * 16
    assert chunks <= len(shown) <= chunks + 100, "16 short pieces, some short ones after them, and then whole chunks again"
    assert {len(piece) for piece in shown[-50:]} <= {len(one.span) for one in a_plan.chunks}


def test_what_cannot_be_halved_ends_the_reading():
    a_plan = plan()
    with pytest.raises(ContextTooLongError, match="question and the memory"):
        halved(a_plan, after(a_plan, "a", "b", "c"))
    state = start(a_plan)
    while len(next_turn(a_plan, state).spans[0]) > 1:
        state = halved(a_plan, state)
    with pytest.raises(ContextTooLongError, match="one character"):
        halved(a_plan, state)


# States.

REPLIES = st.lists(
    st.sampled_from(["m", "a b", "", LONG, "No change.", "<think>x</think>y", "split"]), min_size=1, max_size=40
)


@given(REPLIES, st.integers(0, 20), st.sampled_from(["careful", "paper"]))
@settings(max_examples=200, deadline=None)
def test_a_reading_stopped_anywhere_and_taken_up_from_json_ends_the_same(replies, stop, rules):
    a_plan = plan(rules=rules, sampling=Sampling(temperature=1.0, seed=3))

    def run(interrupted):
        state, turns = start(a_plan), []
        for number, text in enumerate(replies):
            if interrupted and number == stop:
                state = a_plan.reader.load(json.loads(json.dumps(state.to_json())))
            if state.finished:
                break
            turns.append(next_turn(a_plan, state))
            if text == "split" and turns[-1].kind == "update" and len(turns[-1].spans[0]) > 1:
                state = halved(a_plan, state)
            else:
                state = replied(a_plan, state, text)
        return state, turns

    assert run(True) == run(False)


@given(REPLIES)
@settings(max_examples=100, deadline=None)
def test_the_memory_never_exceeds_its_budget(replies):
    a_plan = plan()
    state = start(a_plan)
    for text in replies:
        if state.finished:
            break
        state = replied(a_plan, state, text)
        assert a_plan.tokenizer.count(state.memory) <= BUDGETS.memory


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ConfigError, match="not the state of such a reading"):
        ChunkState.from_json({"turn": 1})


def test_turns_draw_from_different_seeds():
    a_plan = plan(sampling=Sampling(temperature=1.0, seed=1))
    assert next_turn(a_plan, start(a_plan)).sampling.seed != next_turn(a_plan, after(a_plan, "m")).sampling.seed


# Plans and budgets.


def test_the_digest_changes_with_whatever_changes_the_turns():
    base = plan().digest()
    assert plan().digest() == base
    for other in (
        plan(rules="paper"),
        plan(sampling=Sampling(temperature=0.5)),
        plan(budgets=Budgets(question=20, chunk=20, memory=10, answer=8)),
        plan(DOCUMENT + " more"),
        plan(reader=make_reader("direct")),
        plan(reader=make_reader("append")),
    ):
        assert other.digest() != base


def test_budgets_over_the_window_are_refused_with_the_sum_and_the_way_out():
    with pytest.raises(ConfigError, match=r"window of 60 tokens: .* = \d+; lower the"):
        plan(window=60)
    plan(window=100)


def test_every_token_around_the_fields_is_counted():
    """The longest turn, built by hand, needs exactly what the check says, but for the slack of joining fields."""
    budgets = Budgets(question=10, chunk=16, memory=10, answer=8)
    parts = 10 + 16 + 10 + 10  # question, chunk, memory, new memory
    around = len("Q  M  C again 9999".split()) + 5 + JOIN_SLACK  # wording and note, chat form
    plan(budgets=budgets, window=parts + around, overhead=5)
    with pytest.raises(ConfigError):
        plan(budgets=budgets, window=parts + around - 1, overhead=5)


def test_a_long_text_for_the_empty_memory_is_counted():
    wordy = replace(PROFILE, empty_memory="none " * 60)
    plan(window=100)
    with pytest.raises(ConfigError, match="does not fit the window of 100"):
        plan(window=100, profile=wordy)


def test_a_question_over_its_budget_is_refused():
    with pytest.raises(ConfigError, match="30 tokens, the question budget is 20"):
        plan("x", question="why " * 30)


def test_an_empty_question_is_refused():
    with pytest.raises(ConfigError, match="question is empty"):
        plan("x", question=" ")


def test_direct_shows_the_whole_document_once_if_it_fits():
    a_plan = plan(reader=make_reader("direct"), window=200)
    turn = next_turn(a_plan, start(a_plan))
    assert turn.user == f"Q why? D {DOCUMENT} A"
    assert after(a_plan, "because").answer == "because"
    assert (a_plan.turns, a_plan.tokens) == (1, 40)
    with pytest.raises(ConfigError, match="does not fit the window whole"):
        plan(reader=make_reader("direct"), window=40)


def test_reasoning_has_room_of_its_own():
    budgets = Budgets(question=20, chunk=16, memory=10, answer=8, reasoning=50)
    assert next_turn(plan(budgets=budgets), start(plan())).max_tokens == 60


def test_without_an_exact_tokenizer_the_server_counts():
    class Estimate(ByteTokenizer):
        exact = False

    a_plan = plan(tokenizer=Estimate(), budgets=Budgets(question=20, chunk=100, memory=10))
    assert after(a_plan, reply("twelve bytes!", completion_tokens=4)).outcome == "kept"
    assert after(a_plan, reply("twelve bytes!", completion_tokens=12)).outcome == "retry_long"
    # A server that counts nothing, or next to nothing, is not believed.
    assert after(a_plan, reply("twelve bytes!", completion_tokens=0)).outcome == "retry_long"
    assert after(a_plan, reply("twelve bytes! " * 40, completion_tokens=4)).outcome == "retry_long"
    assert after(a_plan, reply("nine bytes." * 6, completion_tokens=7)).outcome == "retry_long"
    assert after(a_plan, reply("nine bytes." * 6, completion_tokens=10)).outcome == "kept"
    assert after(a_plan, reply("<think>.</think>twelve bytes!", completion_tokens=12)).outcome == "kept"


def test_a_stream_of_ones_own_stays_what_it_was_when_results_were_recorded():
    drawn = Sampling(temperature=0.5, seed=7).own("7\x1fa\x1f0")
    assert drawn == Sampling(temperature=0.5, seed=1577442406)


@pytest.mark.parametrize(("memory", "kept"), [(60, True), (400, False)])
def test_reasoning_takes_no_memory_and_hides_none_where_tokens_are_estimated(memory, kept):
    """The server counted reasoning and memory together; of what it counted, the memory is a third, or three quarters."""
    words = "word " * memory
    said = reply(words.strip(), reasoning="thought " * 130, completion_tokens=memory + 130)
    budgets = Budgets(question=20, chunk=40, memory=100, answer=20, reasoning=200)
    a_plan = replace(plan(budgets=budgets), tokenizer=EstimateTokenizer())
    assert (after(a_plan, said).outcome == "kept") == kept


@pytest.mark.parametrize(
    "told",
    [
        "The provided section does not contain any information related to the question.",
        "There is no information in this section that helps answer the question.",
        "The passage doesn't say who wrote the letter.",
        "The given section does not provide any information regarding the letter.",
        "There's nothing relevant in this section.",
        "I don't see anything relevant in this section.",
        "The section does not appear to contain relevant information.",
        "The previous memory is still valid; no new information.",
        "This section is unrelated to the question.",
        "Not specified in this section.",
    ],
)
def test_what_models_say_of_a_section_without_news_leaves_the_memory(told):
    a_plan = plan(question="Who wrote the letter to the mayor?", budgets=Budgets(question=20, chunk=16, memory=30))
    assert after(a_plan, "m1", told).memory == "m1"


@pytest.mark.parametrize(
    "memory",
    [
        "The letter was not written by the mayor.",
        "The letter does not say who wrote it.",
        "The mayor says no.",
        "No. The mayor wrote the letter.",
        "The letter states nothing.",
    ],
)
def test_what_the_text_says_of_the_question_is_a_memory_although_it_denies(memory):
    a_plan = plan(question="Who wrote the letter to the mayor?", budgets=Budgets(question=20, chunk=16, memory=30))
    assert after(a_plan, "m1", memory).memory == memory
