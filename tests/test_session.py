"""Sessions and the façade, with a scripted engine: what Python users call."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import threading

import pytest

import memagent
from memagent.core import Completion
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.session import Session
from memagent.settings import make_settings
from tests.cli.conftest import FACT, reader

TEXT = "\n".join(f"Line {number} tells of the sea." if number != 30 else FACT for number in range(40))
OPTIONS = {"chunk_tokens": 300, "memory_tokens": 100}


def scripted(script=lambda turn: reader(turn.messages), **options):
    return OpenModel(engine=ScriptedModel(script, **options))


@pytest.fixture
def journal(tmp_path):
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        yield journal


def test_read_from_a_path_and_from_text(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    from_path = memagent.read(path, "the code?", model=scripted(), **OPTIONS)
    from_text = memagent.read(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS)
    assert from_path.answer == from_text.answer == "4821973"
    assert from_path.id is None
    assert str(path) in from_path.quotes[0].place


def test_a_result_names_the_encoding_of_each_file(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_bytes("Miete;1.200,00 €\n".encode("cp1252"))
    result = memagent.read(tmp_path, "the code?", model=scripted(), **OPTIONS)
    assert [(file["encoding"], file["guessed"]) for file in result.document["files"]] == [
        ("utf-8", False),
        ("cp1252", True),
    ]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"chunk_tokens": 300.0}, "chunk_tokens) is 300.0; it must be an int"),
        ({"memory_tokens": 100.0}, "memory_tokens) is 100.0; it must be an int"),
        ({"reasoning_tokens": 5.5}, "reasoning_tokens) is 5.5; it must be an int"),
        ({"chunk_tokens": "100"}, "chunk_tokens) is '100'; it must be an int"),
        ({"answer_tokens": True}, "answer_tokens) is True; it must be an int"),
        ({"temperature": None}, "temperature is None; it must be a number"),
        ({"top_p": "1"}, "top_p is '1'; it must be a number"),
        ({"seed": "x"}, "seed is 'x'; it must be an int"),
        ({"seed": 1.5}, "seed is 1.5; it must be an int"),
        ({"profile": 5}, "profile is 5; it must be the name of a profile"),
        (
            {"reader": "parallel", "reader_options": {"rounds": "x"}},
            "'rounds' of the reader 'parallel' is 'x'; it must be of",
        ),
        (
            {"reader": "parallel", "reader_options": {"rounds": 2.0}},
            "'rounds' of the reader 'parallel' is 2.0; it must be of",
        ),
        ({"reader": "parallel", "reader_options": {"rounds": True}}, "is True; it must be of the type int"),
        ({"reader": "gated", "reader_options": {"exit": 1}}, "is 1; it must be of the type bool"),
        ({"reader": "parallel", "reader_options": {5: 1, "a": 2}}, "has no option 5"),
        ({"reader": "parallel", "reader_options": "rounds"}, "reader_options are 'rounds'; they must be a mapping"),
        ({"reader": "auto", "reader_options": {5: 1, "a": 2}}, "has no option 5"),
    ],
)
def test_options_of_the_wrong_type_are_named_with_what_is_expected(chosen, said):
    opened = scripted(lambda turn: pytest.fail("the model was called"))
    with pytest.raises(memagent.ConfigError, match=re.escape(said)):
        memagent.read(memagent.from_text(TEXT), "the code?", model=opened, **{**OPTIONS, **chosen})


def test_a_document_that_is_followed_is_searched_as_ever():
    read, places = memagent.from_text(TEXT * 9), []
    read.follower = places.append
    found = memagent.read(
        read,
        "the code for amber-falcon?",
        model=scripted(lambda turn: "4821973" if FACT in turn.user else "not found"),
        reader="retrieve",
        **OPTIONS,
    )
    assert found.answer == "4821973"
    assert max(places) == len(read)


def test_a_result_has_about_the_tokens_of_the_whole_document_whatever_the_reader_shows_of_it(journal, tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT * 9)
    whole = memagent.read(path, "the code?", model=scripted(), **OPTIONS).document["tokens"]
    for how in ("retrieve", "truncate"):
        result = memagent.read(path, "the code?", model=scripted(), journal=journal, reader=how, **OPTIONS)
        described = journal.show(result.id).document
        assert result.document["tokens"] == described["tokens"] == pytest.approx(whole, rel=0.2), "an estimate"
        assert described["shown"] < whole / 5


def test_aread_gives_what_read_gives():
    there = memagent.read(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS)
    here = asyncio.run(memagent.aread(memagent.from_text(TEXT), "the code?", model=scripted(), **OPTIONS))
    assert (here.answer, here.memory, here.turns, here.provenance) == (
        there.answer,
        there.memory,
        there.turns,
        there.provenance,
    )


def test_a_failed_reading_raises_for_one_and_is_a_record_among_many():
    def script(turn):
        return memagent.ModelUnavailableError("gone") if "bad" in turn.user else reader(turn.messages)

    with pytest.raises(memagent.ModelError, match="gone"):
        memagent.read(memagent.from_text(TEXT), "bad", model=scripted(script), **OPTIONS)
    good, bad = memagent.read_many(memagent.from_text(TEXT), ["good", "bad"], model=scripted(script), **OPTIONS)
    assert (good.error, good.answer) == (None, "4821973")
    assert (bad.error, bad.answer) == ("gone", "")


def test_the_watcher_sees_every_turn_and_all_tokens():
    seen = []
    result = memagent.read(
        memagent.from_text(TEXT),
        "q",
        model=scripted(),
        watcher=lambda moved: seen.append((moved[0].tokens_read, moved[0].turns_left)),
        **OPTIONS,
    )
    assert len(seen) == result.turns
    assert seen[-1] == (len(TEXT.encode()), 0)
    assert [left for _, left in seen] == list(range(result.turns))[::-1]


def test_a_reading_in_the_journal_resumes_after_any_turn(journal):
    text = memagent.from_text(TEXT)
    settings = make_settings(scripted(), model="scripted", **OPTIONS)
    whole = memagent.read(memagent.from_text(TEXT), "q", model=scripted(), **OPTIONS)
    for stop in range(whole.turns):
        replies = itertools.chain(range(stop), itertools.repeat(None))

        def dies(turn, replies=replies):
            return memagent.ModelUnavailableError("gone") if next(replies) is None else reader(turn.messages)

        first = Session(text, scripted(dies), settings, journal)
        [broken] = first.run(first.start(["q"]))
        assert (broken.error, broken.turns) == ("gone", stop)
        model = scripted()
        again = Session(text, model, settings, journal)
        [resumed] = again.run([again.resume(broken.id)])
        asked = [turn for turn in model.engine.turns if turn.kind != "verify"]
        assert len(asked) == whole.turns - stop
        assert len(model.engine.turns) - len(asked) == resumed.verification.calls > 0
        assert (resumed.answer, resumed.memory, resumed.provenance, resumed.turns, resumed.outcomes) == (
            whole.answer,
            whole.memory,
            whole.provenance,
            whole.turns,
            whole.outcomes,
        )


def test_an_answered_reading_is_told_again_without_asking(journal):
    settings = _settings()
    first = Session(memagent.from_text(TEXT), scripted(), settings, journal)
    [told] = first.run(first.start(["q"]))
    silent = Session(memagent.from_text(TEXT), scripted([]), settings, journal)
    [again] = silent.run([silent.resume(told.id)])
    assert (again.answer, again.memory, again.quotes, again.status, again.turns) == (
        told.answer,
        told.memory,
        told.quotes,
        told.status,
        told.turns,
    )


def test_a_verification_that_failed_is_tried_again_on_resume(journal):
    def script(turn):
        return memagent.ModelUnavailableError("gone") if turn.kind == "verify" else reader(turn.messages)

    text = memagent.from_text(TEXT)
    first = memagent.read(text, "the code?", model=scripted(script), journal=journal, **OPTIONS)
    assert (first.answer, first.quotes[0].alignment, journal.show(first.id).verdicts) == ("4821973", "search", None)
    assert (first.status, first.verification_error) == (None, "gone"), "a search is no check by the model"
    again = memagent.resume(first.id, text, model=scripted(), journal=journal)
    assert (again.answer, again.quotes[0].alignment) == ("4821973", "exact")
    assert journal.show(first.id).verdicts is not None


def test_reasoning_that_uses_up_the_answer_says_which_budget_to_raise():
    def thinks(turn):
        return Completion(text="<think>Let me see. The code", finish="length") if turn.kind == "answer" else "m"

    with pytest.raises(memagent.ModelReplyError, match=r"not ended its reasoning at its last token: .* --reasoning-tokens"):
        memagent.read(memagent.from_text(TEXT), "the code?", model=scripted(thinks), **OPTIONS)


def test_several_questions_are_not_one():
    with pytest.raises(memagent.ConfigError, match="it must be a text: use read_many"):
        memagent.read(memagent.from_text(TEXT), ["the code?", "and who?"], model=scripted(), **OPTIONS)


def test_an_empty_answer_is_asked_again_on_resume(journal):
    settings = _settings()
    mute = Session(memagent.from_text(TEXT), scripted(lambda turn: "" if turn.kind == "answer" else "m"), settings, journal)
    [failed] = mute.run(mute.start(["q"]))
    assert "empty answer" in failed.error
    assert journal.show(failed.id).status == "failed"
    talking = Session(memagent.from_text(TEXT), scripted(["at last", "no support"]), settings, journal)
    [done] = talking.run([talking.resume(failed.id)])
    assert (done.answer, done.error) == ("at last", None)


def test_a_reading_is_answered_in_the_journal_while_others_go_on(journal):
    statuses = []

    def script(turn):
        if turn.kind != "verify":
            statuses.append([record.status for record in journal.list()])
        return "m"

    short, long = memagent.from_text("x"), memagent.from_text(TEXT)
    model = scripted(script)
    session = Session(long, model, _settings(), journal)
    other = Session(short, model, _settings(), journal)
    readings = session.start(["long"]) + other.start(["short"])
    session.run(readings)
    assert sorted(statuses[-1]) == ["answered", "running"]


def test_a_direct_reading_has_tokens_and_a_quote():
    result = memagent.read(
        memagent.from_text(TEXT), "q", model=scripted(lambda turn: "4821973"), reader="direct", **OPTIONS
    )
    assert (result.turns, result.document["tokens"]) == (1, len(TEXT.encode()))
    assert result.quotes[0].start_char_index == TEXT.index("4821973")


def test_resumed_seconds_include_what_the_engine_took_before(journal):
    def timed(turn):
        if turn.id == "chunk-4":
            return memagent.ModelError("gone")
        return memagent.Completion(text="m", seconds=100.0)

    first = Session(memagent.from_text(TEXT), scripted(timed), _settings(), journal)
    [broken] = first.run(first.start(["q"]))
    again = Session(memagent.from_text(TEXT), scripted(), _settings(), journal)
    [done] = again.run([again.resume(broken.id)])
    assert 300 <= done.seconds < 400
    assert journal.show(done.id).seconds == pytest.approx(done.seconds, abs=1)


def test_the_kind_of_error_and_the_way_on_reach_the_caller(journal):
    def script(turn):
        return memagent.ModelUnavailableError("gone")

    with pytest.raises(memagent.ModelUnavailableError) as failure:
        memagent.read(memagent.from_text(TEXT), "q", model=scripted(script), journal=journal, **OPTIONS)
    [record] = journal.list()
    assert failure.value.__notes__ == [f"resume with: memagent resume {record.id}"]


def test_cancelling_aread_ends_with_the_turn_under_way(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    turns, going_on = [], threading.Event()

    async def cancelled():
        loop, started = asyncio.get_running_loop(), asyncio.Event()

        def script(turn):
            turns.append(turn.id)
            loop.call_soon_threadsafe(started.set)
            going_on.wait(10)
            return "m"

        task = asyncio.create_task(memagent.aread(path, "q", model=scripted(script), **OPTIONS))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()  # the turn under way still uses the document and the engine
        going_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert turns == ["chunk-1"]


def test_a_folder_is_read_without_what_is_broken_in_it(tmp_path):
    (tmp_path / "a.txt").write_text("some words")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7\nhalf")
    with pytest.raises(memagent.errors.BrokenFileError, match=r"b\.pdf: "):
        memagent.read(tmp_path, "q", model=scripted(), **OPTIONS)
    made = memagent.read(tmp_path, "q", model=scripted(), skip_broken=True, **OPTIONS)
    assert [(one["path"], one["broken"]) for one in made.document["skipped"]] == [(str(tmp_path / "b.pdf"), True)]


def test_a_long_reading_keeps_no_completions():
    import tracemalloc

    def grown(size):
        text = memagent.from_text("word " * size)
        model = scripted(lambda turn: memagent.Completion(text="m", token_ids=tuple(range(1000, 1300))))
        model.engine.turns = type("Sink", (list,), {"append": lambda self, item: None})()
        tracemalloc.start()
        memagent.read(text, "q", model=model, **OPTIONS)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert grown(60_000) < grown(6_000) + 2_000_000


def test_other_settings_on_resume_are_refused_by_name(journal):
    text = memagent.from_text(TEXT)
    first = Session(text, scripted(["x", memagent.ModelError("gone")]), _settings(), journal)
    [broken] = first.run(first.start(["q"]))
    for name, options in (
        ("budgets.memory", {"memory_tokens": 120}),
        ("sampling.seed", {"seed": 9}),
        ("rules", {"rules": "paper"}),
    ):
        other = Session(text, scripted(), _settings(**options), journal)
        with pytest.raises(memagent.JournalError, match=rf"settings\.{name}: .* → .*"):
            other.resume(broken.id)


def _settings(**options):
    return make_settings(scripted(), model="scripted", **{**OPTIONS, **options})


def test_importing_memagent_loads_nothing_heavy():
    heavy = ("torch", "transformers", "openai", "pypdf")
    code = f"import sys, memagent, memagent.cli.commands; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_the_public_names_are_these():
    assert sorted(memagent.__all__) == sorted(set(memagent.__all__))
    for name in memagent.__all__:
        assert getattr(memagent, name) is not None
    assert dir(memagent) == sorted(memagent.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        memagent.nonsense  # noqa: B018


def test_missing_extras_name_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "memagent.models.local", raising=False)
    with pytest.raises(memagent.MissingExtraError, match=r"pip install 'memagent\[local\]'"):
        memagent.open_model("embedded")


def test_a_parallel_reading_says_where_each_merged_line_was_read_and_how_much_of_the_document():
    text = memagent.from_text("alpha is 1. " + "filler " * 40 + "beta is 2. " + "filler " * 40)

    def script(turn):
        if turn.kind == "note":
            found = [fact for fact in ("alpha is 1.", "beta is 2.") if fact in turn.user]
            return "\n".join(found) or "nothing new"
        return "alpha is 1. beta is 2." if turn.kind == "merge" else "beta is 2"

    budgets = {"question_tokens": 30, "chunk_tokens": 150, "memory_tokens": 40, "answer_tokens": 20}
    reading = memagent.read(text, "What is beta?", model=scripted(script), reader="parallel", **budgets)
    [source] = reading.provenance
    assert (source.line, source.turn) == ("alpha is 1. beta is 2.", 0)
    assert "beta is 2" in reading.quotes[0].cited_text
    assert reading.share_read == 1.0
    one = {"passages": 1, "rounds": 1}
    reading = memagent.read(text, "What is beta?", model=scripted(), reader="search", reader_options=one, **budgets)
    assert 0 < reading.share_read < 1
