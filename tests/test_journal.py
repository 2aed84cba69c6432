"""The journal loses no finished turn, mixes no two writers, writes no secret, and says what is wrong and what to do."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from memagent.errors import JournalError
from memagent.journal import Journal, TurnEntry, database, default_path, owners
from memagent.journal.values import Cut

SETTINGS = {"model": "scripted", "budgets": {"chunk": 5000, "memory": 1024}, "sampling": {"temperature": 0.0}}
DOCUMENT = {"name": "book.txt", "sha256": "ab" * 32, "characters": 1_000_000}
START: dict[str, Any] = {"question": "Who?", "settings": SETTINGS, "document": DOCUMENT, "plan_digest": "d" * 64}


def turn(number: int, memory: str = "", **changes: Any) -> TurnEntry:
    memory = memory or f"memory after turn {number}"
    completion = {"text": memory, "finish": "stop", "prompt_tokens": 900, "completion_tokens": 12, "seconds": 0.25}
    state = {"turn": number + 1, "memory": memory, "pending": [[number, number + 1]], "answer": None}
    values: dict[str, Any] = {
        "kind": "update",
        "outcome": "updated",
        "spans": ((number * 10, number * 10 + 10),),
    }
    values |= {"memory": memory, "completion": completion, "state": state}
    return TurnEntry(number=number, **{"id": f"chunk-{number + 1}", **values, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite3"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.open(path) as journal:
        yield journal


# What the processes started here need of this file; importing all of it would cost each of them half a second.
CHILD = f"""
import itertools, sys
from pathlib import Path
from typing import Any
from memagent.errors import JournalError
from memagent.journal import Journal, TurnEntry
START = {START!r}
{inspect.getsource(turn)}
"""


def spawn(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Runs `code` in a second process; it has `turn`, `START` and `Journal` at hand."""
    command = [sys.executable, "-c", CHILD + code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def kill(child: subprocess.Popen[str]) -> list[str]:
    """Kills without warning and returns what was still printed."""
    child.kill()
    assert child.stdout is not None
    output = child.stdout.read()  # communicate would pass over lines that were read ahead
    child.wait()
    return output.split()


def file_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(path.name + "*")))


# A reading from start to end


def test_a_reading_from_start_to_answer(journal: Journal) -> None:
    before = time.time()
    id = journal.start(**START, planned=3)
    assert list(journal.turns(id)) == []
    for number in range(3):
        journal.append(id, turn(number))
    running = journal.show(id)
    assert (running.status, running.turns, running.planned) == ("running", 3, 3)
    assert running.owner == f"process {os.getpid()} on {socket.gethostname()}"
    journal.finish(id, "Ada", 1.5)
    record = journal.show(id)
    assert (record.status, record.answer, record.seconds, record.owner) == ("answered", "Ada", 1.5, "")
    assert (record.question, record.settings, record.document) == ("Who?", SETTINGS, DOCUMENT)
    assert before <= record.created <= running.updated <= record.updated <= time.time()
    assert list(journal.turns(id)) == [turn(0), turn(1), turn(2)]
    assert list(journal.turns(id, 2)) == [turn(2)]


def test_a_journal_keeps_everything_when_it_is_opened_again(path: Path) -> None:
    with Journal.open(path) as journal:
        id = journal.start(**START)
        journal.append(id, turn(0))
    with Journal.open(path) as journal:
        assert journal.show(id).status == "interrupted"
        assert journal.claim(id).turns == 1
        journal.append(id, turn(1))
        assert list(journal.turns(id)) == [turn(0), turn(1)]


def test_only_the_next_turn_is_taken(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    for wrong in (0, 2):
        with pytest.raises(JournalError, match=rf"{id} has 1 turns, so the next is turn 1, not {wrong}"):
            journal.append(id, turn(wrong))
    assert journal.show(id).turns == 1


def test_a_batch_is_all_or_nothing(journal: Journal) -> None:
    first, second = journal.start(**START), journal.start(**START)
    journal.append_many([(first, turn(0)), (second, turn(0))])
    with pytest.raises(JournalError, match="the next is turn 1, not 7"):
        journal.append_many([(first, turn(1)), (second, turn(7))])
    with pytest.raises(JournalError, match="the state of turn chunk-2 cannot be written as JSON"):
        journal.append_many([(first, turn(1)), (second, turn(1, state={"loss": float("nan")}))])
    journal.append_many([])
    assert [journal.show(id).turns for id in (first, second)] == [1, 1]


def test_ended_readings_take_no_turns_and_failed_ones_can_be_claimed(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    journal.fail(id, "no answer from https://me:hunter2@host/v1 after 5 tries")
    assert journal.show(id).reason == "no answer from https://host/v1 after 5 tries"
    with pytest.raises(JournalError, match="is already failed"):
        journal.append(id, turn(1))
    record = journal.claim(id)
    assert (record.status, record.reason, record.turns) == ("running", None, 1)
    journal.finish(id, "", 2.0)
    assert journal.show(id).answer == ""
    with pytest.raises(JournalError, match="is already answered: show it"):
        journal.claim(id)


def test_a_verdict_is_on_an_answer_and_goes_with_it(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    with pytest.raises(JournalError, match="is running: only an answer can be verified"):
        journal.verified(id, [{"status": "supported"}])
    journal.finish(id, "Ada", 1.5)
    journal.verified(id, [{"status": "supported"}])
    assert journal.show(id).verdicts == ({"status": "supported"},)
    journal.extend(id, document=DOCUMENT, plan_digest="e" * 64, planned=2, keep=0, base={})
    record = journal.show(id)
    assert (record.status, record.answer, record.seconds, record.verdicts) == ("running", None, None, None)


def test_long_readings_stream(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    id = journal.start(**START)
    journal.append_many((id, turn(number)) for number in range(1000))
    stream = journal.turns(id)
    assert [next(stream).number for _ in range(3)] == [0, 1, 2]
    journal.append(id, turn(1000))  # a half-read stream holds nothing up
    assert sum(1 for _ in stream) == 997
    stream = journal.turns(id)
    next(stream)
    journal.delete(id)
    with pytest.raises(JournalError, match="disappeared during the query"):
        list(stream)


def test_several_threads_share_a_journal(journal: Journal) -> None:
    ids = [journal.start(**START) for _ in range(4)]

    def work(id: str) -> None:
        for number in range(20):
            journal.append(id, turn(number))
            assert journal.show(id).turns == number + 1

    threads = [threading.Thread(target=work, args=[id]) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.turns for record in journal.list()] == [20] * 4


def test_a_journal_does_not_cross_a_fork(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(JournalError, match="opened before a fork: open it again"):
            journal.list()
        journal.close()  # leaves the parent's file open
    assert journal.list() == ()


# Crashes


APPENDING = """
with Journal.open(sys.argv[1]) as journal:
    id = journal.claim(sys.argv[2]).id
    number = journal.show(id).turns
    print("from", number, flush=True)
    while True:
        journal.append(id, turn(number, memory=f"{number} " * 500))
        print(number, flush=True)
        number += 1
"""


def test_no_acknowledged_turn_is_lost_when_the_process_is_killed(path: Path) -> None:
    rng = random.Random(7)
    with Journal.open(path) as journal:
        id = journal.start(**START)
    done = 0
    for _ in range(8):
        child = spawn(APPENDING, path, id)
        assert line(child) == f"from {done}"  # the owner before was killed: taken over without waiting
        acknowledged = [int(line(child)) for _ in range(rng.randrange(40))]
        time.sleep(rng.random() * 0.01)
        acknowledged += map(int, kill(child))
        check = sqlite3.connect(path)
        assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        check.close()
        with Journal.open(path) as journal:
            assert journal.show(id).status == "interrupted"
            turns = list(journal.turns(id))
            assert [entry.number for entry in turns[done:]][: len(acknowledged)] == acknowledged
            assert len(turns) - done - len(acknowledged) in (0, 1)  # at most one was stored and not yet acknowledged
            assert all(entry == turn(entry.number, memory=f"{entry.number} " * 500) for entry in turns)
            done = len(turns)
            assert [entry.state["turn"] for entry in turns] == list(range(1, done + 1))


BATCHES = """
with Journal.open(sys.argv[1]) as journal:
    ids = [journal.start(**START) for _ in range(8)]
    number = 0
    while True:
        journal.append_many([(id, turn(number)) for id in ids])
        print(number, flush=True)
        number += 1
"""


def test_a_killed_batch_leaves_its_readings_in_step(path: Path) -> None:
    rng = random.Random(11)
    for _ in range(3):
        child = spawn(BATCHES, path)
        steps = [line(child) for _ in range(1 + rng.randrange(20))]
        time.sleep(rng.random() * 0.01)
        steps += kill(child)
        with Journal.open(path) as journal:
            counts = {record.turns for record in journal.list(8)}
        assert len(counts) == 1
        assert counts.pop() - len(steps) in (0, 1)


OPENING = """
for number in itertools.count():
    Journal.open(Path(sys.argv[1]) / str(number) / "journal.sqlite3")
    print(number, flush=True)
"""


def test_a_journal_whose_making_was_killed_opens(tmp_path: Path) -> None:
    rng = random.Random(5)
    for round in range(3):
        child = spawn(OPENING, tmp_path / str(round))
        line(child)
        time.sleep(rng.random() * 0.02)
        made = 1 + len(kill(child))
        for folder in (tmp_path / str(round)).iterdir():
            with Journal.open(folder / "journal.sqlite3") as journal:
                journal.start(**START)
        assert len(list((tmp_path / str(round)).iterdir())) - made in (0, 1)


def test_a_power_cut_leaves_the_turns_before_it(journal: Journal, path: Path, tmp_path: Path) -> None:
    id = journal.start(**START)
    sizes = []
    for number in range(12):
        journal.append(id, turn(number))
        sizes.append(Path(f"{path}-wal").stat().st_size)
    rng = random.Random(3)
    for cut in (sizes[-1], *(rng.randrange(sizes[0], sizes[-1]) for _ in range(10))):
        copy = tmp_path / str(cut)
        copy.mkdir()
        for suffix in ("", "-wal"):  # the shared memory is gone after a power cut
            shutil.copy(f"{path}{suffix}", copy)
        os.truncate(copy / f"{path.name}-wal", cut)  # as if what came later had not reached the disk
        with Journal.open(copy / path.name) as rescued:
            assert rescued.show(id).turns == sum(size <= cut for size in sizes)
            assert all(entry == turn(entry.number) for entry in rescued.turns(id))


def test_every_commit_is_synchronised(journal: Journal) -> None:
    values = {
        name: journal._db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "journal_mode", "secure_delete")
    }
    assert values == {"synchronous": 2, "journal_mode": "wal", "secure_delete": 1}


# Two processes


OWN_READING = """
with Journal.open(sys.argv[1]) as journal:
    id = journal.start(**START)
    print(id, flush=True)
    for number in range(60):
        journal.append(id, turn(number))
    journal.finish(id, "done", 1.0)
"""


def test_processes_write_one_journal_at_the_same_time(path: Path) -> None:
    children = [spawn(OWN_READING, path) for _ in range(3)]  # they also race to make the file
    ids = {line(child) for child in children}
    assert [child.wait(20) for child in children] == [0, 0, 0]
    for child in children:
        child.communicate()
    with Journal.open(path) as journal:
        assert {(record.id, record.status, record.turns) for record in journal.list()} == {
            (id, "answered", 60) for id in ids
        }


HOLDING = """
journal = Journal.open(sys.argv[1])
print(journal.start(**START), flush=True)
sys.stdin.read()
"""


def test_a_reading_is_held_by_one_process_until_that_dies(journal: Journal, path: Path) -> None:
    child = spawn(HOLDING, path)
    id = line(child)
    assert journal.show(id).status == "running"
    for refused in (journal.claim, journal.delete):
        with pytest.raises(JournalError, match=rf"{id} is in use by process {child.pid} on {socket.gethostname()}"):
            refused(id)
    with pytest.raises(JournalError, match=r"was taken over by .*: claim it before writing"):
        journal.append(id, turn(0))
    child.kill()  # not reaped yet: a zombie holds nothing
    deadline = time.monotonic() + 5
    while journal.show(id).status == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert journal.show(id).status == "interrupted"
    assert journal.claim(id).status == "running"
    journal.append(id, turn(0))
    child.communicate()


CLAIMING = """
journal = Journal.open(sys.argv[1])
print("ready", flush=True)
while not Path(sys.argv[3]).exists():
    pass
try:
    print(journal.claim(sys.argv[2]).status, flush=True)
except JournalError:
    print("refused", flush=True)
sys.stdin.read()
"""


def test_a_reading_that_is_under_way_is_held_against_its_own_journal_too(journal: Journal) -> None:
    id, other = journal.start(**START), journal.start(**START)
    with journal.under_way([id]), journal.under_way([other]):
        with pytest.raises(JournalError, match=rf"{id} is in use by process {os.getpid()} on {socket.gethostname()}"):
            journal.claim(id)
        with pytest.raises(JournalError, match=f"{id} is in use by process"), journal.under_way([id]):
            pass
        with pytest.raises(JournalError, match=f"{id} is in use by process"):
            journal.claim(id)
        journal.claim(id, force=True)
    journal.claim(id)
    with journal.under_way([id, other]):
        pass


def test_of_many_that_claim_at_once_one_wins(journal: Journal, path: Path, tmp_path: Path) -> None:
    id = journal.start(**START)
    journal.close()
    children = [spawn(CLAIMING, path, id, tmp_path / "go") for _ in range(4)]
    assert {line(child) for child in children} == {"ready"}
    (tmp_path / "go").touch()
    assert sorted(line(child) for child in children) == ["refused", "refused", "refused", "running"]
    for child in children:
        child.communicate("")


def test_a_writer_that_lost_its_reading_is_refused(journal: Journal, path: Path) -> None:
    id = journal.start(**START)
    with Journal.open(path) as other:
        with pytest.raises(JournalError, match="wait for it, or stop it"):
            other.claim(id)
        other.claim(id, force=True)
        other.append(id, turn(0))
        for write in (
            lambda: journal.append(id, turn(0)),
            lambda: journal.finish(id, "x", 1.0),
            lambda: journal.fail(id, "x"),
        ):
            with pytest.raises(JournalError, match="was taken over by"):
                write()
    with pytest.raises(JournalError, match="is not held by anyone: claim it"):
        journal.append(id, turn(1))
    assert journal.claim(id).turns == 1


def owner(**changes: Any) -> owners.Owner:
    return dataclasses.replace(owners.Owner.current(), **changes)


def test_when_an_owner_counts_as_alive() -> None:
    stale = owners.STALE_SECONDS + 1
    assert owner().alive(stale)
    assert not owner(started="another boot 1").alive(0.0), "the process number was given to a new process"
    assert not owner(pid=2**22 + 1).alive(0.0), "no such process"
    for unknown in (owner(host="elsewhere"), owner(started="")):
        assert unknown.alive(1.0)
        assert not unknown.alive(stale)
    assert owners.Owner.loads(owner(nonce="1").dumps()) == owner(nonce="1")


def test_without_proc_the_last_sign_of_life_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_started", lambda pid: "")
    assert owner().alive(1.0)
    assert not owner().alive(owners.STALE_SECONDS + 1)
    assert not owner(pid=2**22 + 1).alive(1.0)


def test_a_locked_file_is_waited_for_and_then_named(path: Path) -> None:
    with Journal.open(path, wait=0.1) as journal:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match=rf"{path.name} is locked by another process"):
            journal.start(**START)
        blocker.execute("ROLLBACK")
        blocker.close()
        journal.start(**START)


# Resuming


def test_check_names_every_difference(journal: Journal) -> None:
    id = journal.start(**START)
    given = {"settings": SETTINGS, "document": DOCUMENT, "plan_digest": START["plan_digest"]}
    journal.check(id, **given)
    settings = {**SETTINGS, "budgets": {"chunk": 4000, "memory": 1024}, "rules": "x" * 100}
    with pytest.raises(JournalError) as caught:
        journal.check(id, **{**given, "settings": settings, "document": {**DOCUMENT, "name": "copy.txt"}})
    message = str(caught.value)
    for part in (
        id,
        "settings.budgets.chunk: 5000 → 4000",
        "settings.rules: (not set) → ",
        "(102 characters)",
        'document.name: "book.txt" → "copy.txt"',
        "Resume it with the same settings, or start a new reading",
    ):
        assert part in message
    assert "memory" not in message
    with pytest.raises(JournalError, match=r"another plan \(dddddddddddd → eeeeeeeeeeee\) although"):
        journal.check(id, **{**given, "plan_digest": "e" * 64})


def test_check_compares_what_was_written(journal: Journal) -> None:
    settings = {"server": "https://me:hunter2@host/v1?api-version=2&key=abc", "stop": ("a", "b"), "none": None}
    id = journal.start(**{**START, "settings": settings})
    assert journal.show(id).settings == {"server": "https://host/v1?api-version=2", "stop": ["a", "b"], "none": None}
    new = {**settings, "server": "https://you:swordfish@host/v1?api-version=2&key=xyz"}
    journal.check(id, settings=new, document=DOCUMENT, plan_digest=START["plan_digest"])


# Looking and deleting


def test_ids_are_short_sortable_and_given_by_any_unique_beginning(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []
    for now in (1.7e9, 1.7e9 + 0.01, 1.9e9):
        monkeypatch.setattr("memagent.journal.store.time.time", lambda now=now: now)
        ids.append(journal.start(**START))
    assert ids == sorted(ids)
    assert all(len(id) == 14 and id.startswith("r-") for id in ids)
    assert journal.show(ids[2][:8]).id == journal.show(ids[2][2:8].upper()).id == journal.show(ids[2]).id == ids[2]
    with pytest.raises(JournalError, match=rf"beginning of several ids \({ids[0]}, {ids[1]}\)"):
        journal.show(ids[0][:8])
    for unknown in ("r-zzz", "r-", "", "%", "\ud800", ids[0] + "0"):
        with pytest.raises(JournalError, match=r"has no reading .*: list the readings"):
            journal.show(unknown)
    with pytest.raises(JournalError, match="does not contain the reading"):
        journal.append(ids[2][:8], turn(0))


def test_an_id_is_never_given_twice(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent.journal.store.time.time", lambda: 1.7e9)
    bits = iter([1, 1, 1, 2])
    monkeypatch.setattr("memagent.journal.store.secrets.randbits", lambda count: next(bits))
    assert journal.start(**START) < journal.start(**START)


def test_list_is_newest_first_and_filters_by_status(journal: Journal, path: Path) -> None:
    with Journal.open(path) as gone:
        interrupted = gone.start(**START)
        gone.append(interrupted, turn(0))
    answered, failed, running = (journal.start(**START, planned=4) for _ in range(3))
    journal.finish(answered, "a", 1.0)
    journal.fail(failed, "f")
    assert [record.id for record in journal.list()] == [running, failed, answered, interrupted]
    assert [record.turns for record in journal.list()] == [0, 0, 0, 1]
    assert [record.planned for record in journal.list(2)] == [4, 4]
    for status, id in (("running", running), ("failed", failed), ("answered", answered), ("interrupted", interrupted)):
        assert [record.id for record in journal.list(None, status)] == [id]  # type: ignore[arg-type]
    assert journal.list(0) == ()


def test_export_holds_everything_needed_to_resume(journal: Journal) -> None:
    id = journal.start(**START)
    entries = [turn(0, "naïve 記憶 \x00\n\u2028"), turn(1, "half a smile \ud83d")]
    for entry in entries:
        journal.append(id, entry)
    lines = list(journal.export(id))
    assert not any("\n" in line for line in lines)
    header, *rest = (json.loads(line.encode()) for line in lines)
    assert (header["schema"], header["version"]) == ("memagent.reading", 2)
    assert {name: header[name] for name in START} == START
    assert (header["id"], header["turns"]) == (id, 2)
    tuples = [{**one, "spans": tuple(map(tuple, one["spans"])), "splits": tuple(one["splits"])} for one in rest]
    assert [TurnEntry(**one) for one in tuples] == entries
    assert "記憶" in lines[1]


def test_delete_leaves_no_trace(journal: Journal, path: Path) -> None:
    kept, id = journal.start(**START), journal.start(**{**START, "question": "unforgettable question"})
    journal.append(kept, turn(0))
    journal.append_many((id, turn(number, f"unforgettable memory {number} " * 300)) for number in range(50))
    assert b"unforgettable" in file_bytes(path)
    journal.delete(id)
    assert b"unforgettable" not in file_bytes(path)
    assert [record.id for record in journal.list()] == [kept]
    assert list(journal.turns(kept)) == [turn(0)]
    with pytest.raises(JournalError, match="has no reading"):
        journal.delete(id)


# Text


TEXT = st.text(st.characters(codec=None), max_size=40)
JSON_VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT, st.lists
)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(memory=TEXT, text=TEXT, extra=st.dictionaries(TEXT, JSON_VALUE, max_size=4), question=TEXT, answer=TEXT)
def test_any_text_comes_back_as_it_went_in(
    journal: Journal, memory: str, text: str, extra: dict[str, Any], question: str, answer: str
) -> None:
    id = journal.start(**{**START, "question": question})
    entry = TurnEntry(
        number=0,
        id="answer",
        kind="answer",
        outcome="answered",
        memory=memory,
        completion={**extra, "text": text},
        state={"memory": memory},
    )
    journal.append(id, entry)
    journal.finish(id, answer, 0.5)
    assert list(journal.turns(id)) == [entry]
    assert (journal.show(id).question, journal.show(id).answer) == (question, answer)


def test_nul_and_surrogates_come_back(journal: Journal) -> None:
    id = journal.start(**START)
    for number, memory in enumerate(("a\0b", "\ud83d", "\ud83d\ude00", "😀", "\udcff")):
        journal.append(id, turn(number, memory))
        assert list(journal.turns(id))[-1].state == turn(number, memory).state
    assert len({entry.memory for entry in journal.turns(id)}) == 5


def test_text_equal_to_the_memory_is_stored_once(journal: Journal, path: Path) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0, "found once"))
    assert file_bytes(path).count(b"found once") == 1
    assert list(journal.turns(id)) == [turn(0, "found once")]


# Secrets


SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "X-Api-Key",
        "OPENAI_API_KEY",
        "authorization",
        "token",
        "hf_token",
        "password",
        "db_passwd",
        "clientSecret",
    ],
)
def test_settings_that_name_a_secret_are_refused(journal: Journal, path: Path, name: str) -> None:
    for settings in ({name: SECRET}, {"server": {"headers": [{name: SECRET}]}}):
        with pytest.raises(JournalError, match=rf"{name} looks like a secret and was not written") as caught:
            journal.start(**{**START, "settings": settings})
        assert SECRET not in str(caught.value)
    assert journal.list() == ()
    assert SECRET.encode() not in file_bytes(path)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "api_key_env", "author", "keywords", "chunk_tokens"])
def test_harmless_names_are_kept(journal: Journal, name: str) -> None:
    id = journal.start(**{**START, "settings": {name: "x"}})
    assert journal.show(id).settings == {name: "x"}


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"https://user:{SECRET}@host:8000/v1", "https://host:8000/v1"),
        (f"https://{SECRET}@host/v1", "https://host/v1"),
        (f"https://host/v1?a=1&api_key={SECRET}&b=2", "https://host/v1?a=1&b=2"),
        (f"https://host/f.pdf?X-Amz-Signature={SECRET}&sig={SECRET}", "https://host/f.pdf"),
        (f"https://host/#access_token={SECRET}&page=2", "https://host/#page=2"),
        (f"https://host/?api%5Fkey={SECRET}", "https://host/"),
        (f"https://user:pass/{SECRET}@host/", "https://(withheld)"),
        (f"two: http://a:{SECRET}@x/ http://b:{SECRET}@y/ end", "two: http://x/ http://y/ end"),
        ("https://host/@user/page?q=a%20b#part", "https://host/@user/page?q=a%20b#part"),
        ("http://host?#", "http://host?#"),
        ("cannot reach 'http://localhost:8000': refused", "cannot reach 'http://localhost:8000': refused"),
        (f"(http://me:{SECRET}@localhost:8000).", "(http://localhost:8000)."),
        ("no url: a@b", "no url: a@b"),
    ],
)
def test_urls_lose_their_credentials(journal: Journal, path: Path, url: str, kept: str) -> None:
    id = journal.start(**{**START, "settings": {"server": url}, "document": {"sources": [url]}})
    journal.fail(id, url)
    record = journal.show(id)
    assert (record.settings, record.document, record.reason) == ({"server": kept}, {"sources": [kept]}, kept)
    assert SECRET.encode() not in file_bytes(path)


def test_settings_hold_only_json(journal: Journal) -> None:
    for value in (b"bytes", object(), {1: 2}, float("inf")):
        with pytest.raises(JournalError, match="JSON"):
            journal.start(**{**START, "settings": {"value": value}})
    assert journal.list() == ()


# The file


def test_the_file_and_its_folders_are_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "journal.sqlite3"
    before = os.umask(0)
    try:
        with Journal.open(path) as journal:
            journal.start(**START)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {f"journal.sqlite3{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}
    assert [folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    assert default_path() == tmp_path / "home" / "journal.sqlite3"
    with Journal.open() as journal:
        assert journal.path == default_path()
    monkeypatch.delenv("MEMAGENT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path().name == "journal.sqlite3"
    assert default_path().parent.is_relative_to(tmp_path)


def sqlite_file(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("Dear diary, " * 1000), "is not a journal; move the file away or give another path"),
        (
            lambda path: sqlite_file(path, "CREATE TABLE songs (name)"),
            "is an SQLite file of another program and was not changed",
        ),
        (
            lambda path: sqlite_file(path, "PRAGMA user_version=3"),
            "is an SQLite file of another program and was not changed",
        ),
        (
            lambda path: sqlite_file(path, f"PRAGMA application_id={database.APPLICATION_ID}", "PRAGMA user_version=99"),
            "was written by a newer memagent .schema 99, this one supports 6.; upgrade memagent",
        ),
    ],
)
def test_a_file_that_is_no_journal_stays_as_it_was(path: Path, make: Any, words: str) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"journal {path} {words}"):
        Journal.open(path)
    assert file_bytes(path) == before


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    path.touch()
    with Journal.open(path) as journal:
        assert journal.list() == ()


def test_a_damaged_file_is_named(path: Path) -> None:
    with Journal.open(path) as journal:
        id = journal.start(**START)
        journal.append_many((id, turn(number, "memory " * 400)) for number in range(200))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(1).randbytes(size - 8192))
    with pytest.raises(JournalError, match=rf"journal {path} is damaged; move it aside"), Journal.open(path) as journal:
        list(journal.export(id))


def test_damaged_json_is_named(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    journal._db.execute("UPDATE turns SET state = '[[], {'")
    with pytest.raises(JournalError, match="is damaged; move it aside"):
        list(journal.turns(id))


def test_a_full_disk_loses_nothing_that_was_stored(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(JournalError, match=r"has no room on its disk.*free some, and `memagent resume ID` goes on"):
        journal.append(id, turn(1, "memory " * 4000))
    assert list(journal.turns(id)) == [turn(0)]
    journal._db.execute("PRAGMA max_page_count=1000000")
    journal.append(id, turn(1, "memory " * 4000))
    assert journal.show(id).turns == 2


def test_a_read_only_journal_is_named(journal: Journal) -> None:
    journal._db.execute("PRAGMA query_only=ON")
    with pytest.raises(JournalError, match="cannot be written; make the file and its folder writable"):
        journal.start(**START)


def test_an_unusable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "journal.sqlite3"):
        with pytest.raises(JournalError, match=r"cannot be opened.*set MEMAGENT_HOME to another folder"):
            Journal.open(path)


def test_a_file_system_without_shared_memory_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutWal(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("journal_mode=WAL", "journal_mode=DELETE"), *arguments)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=WithoutWal))
    with pytest.raises(JournalError, match=r"file system without shared memory .* put the journal on a local disk"):
        Journal.open(path)


def test_older_files_are_brought_forward_or_left_as_they_were(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(path) as journal:
        id = journal.start(**START)
        journal.append(id, turn(0))
    monkeypatch.setattr(
        database, "MIGRATIONS", (*database.MIGRATIONS, ("ALTER TABLE readings ADD COLUMN note TEXT", "broken"))
    )
    with pytest.raises(JournalError, match=r"failed .*syntax error"):
        Journal.open(path)
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS[:-1], ("ALTER TABLE readings ADD COLUMN note TEXT",)))
    with Journal.open(path) as journal:
        assert journal._db.execute("SELECT note FROM readings").fetchone()[0] is None
        assert journal._db.execute("PRAGMA user_version").fetchone()[0] == 7
        assert list(journal.turns(id)) == [turn(0)]


FIRST_SCHEMA_TURN = """INSERT INTO turns (reading, number, kind, outcome, span_start, span_end, memory, completion, state,
    stored) VALUES (1, ?, ?, ?, ?, ?, ?, ?, '[[],{"turn":1}]', 0)"""


def test_a_journal_of_the_first_schema_can_be_looked_at_and_its_readings_cannot_go_on(path: Path) -> None:
    old = sqlite3.connect(path)
    for statement in database.MIGRATIONS[0]:
        old.execute(statement)
    old.execute(f"PRAGMA application_id={database.APPLICATION_ID}")
    old.execute("PRAGMA user_version=1")
    old.execute(
        "INSERT INTO readings (key, id, status, question, settings, document, plan_digest, created, touched)"
        " VALUES (1, 'r-0old0reading', 'running', 'Who?', '{}', '{}', 'd', 0, 0)"
    )
    completion = '[["text"],{"finish":"stop"}]'
    old.execute(FIRST_SCHEMA_TURN, (0, "update", "kept", 0, 10, "noted", completion))
    old.execute(FIRST_SCHEMA_TURN, (1, "answer", "retry_empty", None, None, "noted", '[[],{"text":"","finish":"stop"}]'))
    old.commit()
    old.close()
    with Journal.open(path) as journal:
        first, last = journal.turns("r-0old0reading")
        assert (first.id, first.spans, first.memory, first.state) == ("turn-1", ((0, 10),), "noted", None)
        assert first.completion == {"finish": "stop", "text": "noted"}
        assert (last.id, last.kind, last.spans) == ("turn-2", "answer", ())
        assert len(list(journal.export("r-0old0reading"))) == 3
        for act in (journal.claim, journal.resumable):
            with pytest.raises(JournalError, match=r"started by an older memagent.*show and export"):
                act("r-0old0reading")
        journal.delete("r-0old0reading")


READING_OF_THE_FIFTH_SCHEMA = """INSERT INTO readings (key, id, status, question, settings, document, plan_digest, created,
    touched, protocol) VALUES (1, 'r-0old0reading', 'running', 'Who?', '{}', '{}', 'd', 0, 0, 2)"""
CUTS_OF_ONE_READING = """INSERT INTO cuts (document, chunk_limit, tokenizer, reading, chunks)
    VALUES ('d', 500, 't', 1, '[]')"""
CUTS_OF_SEVERAL = "INSERT INTO cuts (document, way, chunks) VALUES ('d', 'w', 'x')"


@pytest.mark.parametrize(
    ("last", "kept"),
    [(database.MIGRATIONS[4], CUTS_OF_ONE_READING), (database.MIGRATIONS[5][2:], CUTS_OF_SEVERAL)],
    ids=["cuts of one reading", "cuts of several readings"],
)
def test_both_kinds_of_journals_of_the_fifth_schema_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, last: tuple[str, ...], kept: str
) -> None:
    with monkeypatch.context() as then:
        then.setattr(database, "MIGRATIONS", (*database.MIGRATIONS[:4], last))
        old = database.connect(path, wait=1)
        old.execute(READING_OF_THE_FIFTH_SCHEMA)
        old.execute(kept)
        old.close()
    with Journal.open(path) as journal:
        assert journal.show("r-0old0reading").question == "Who?"
        assert journal._db.execute("SELECT count(*) FROM cuts").fetchone()[0] == 0
        cut = Cut(document="d", way="w", chunks=b"chunks")
        other = journal.start(**{**START, "cuts": (cut,)})
        assert journal.cut("d", "w") == b"chunks"
        journal.delete(other)
        assert journal.cut("d", "w") is None


# One digest for each entry that has been on the main branch. A failure here means that journals on users' disks would miss
# a change: leave the entry as it was, and add another one with its digest.
PUBLISHED = [
    "ba9d68d7b04da807",
    "216e605a45f429c7",
    "47f053a59bed66c6",
    "314e907180070f7b",
    "4bffb3c2b9fc21ac",
    "d5358f81660d2550",
]


def test_no_published_migration_is_changed() -> None:
    digests = [hashlib.sha256(repr(entry).encode()).hexdigest()[:16] for entry in database.MIGRATIONS]
    assert digests == PUBLISHED


def test_tests_leave_the_journal_of_the_user_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert tmp_path_factory.getbasetemp() in default_path().parents


def test_a_turn_is_stored_once(journal: Journal) -> None:
    id = journal.start(**START)
    journal.append(id, turn(0))
    with pytest.raises(JournalError, match="already has a turn 'chunk-1'"):
        journal.append(id, turn(1, id="chunk-1"))
    assert journal.show(id).turns == 1


def test_a_closed_journal_may_be_closed_again(path: Path) -> None:
    journal = Journal.open(path)
    journal.start(**START)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed database"):
        journal.list()


def test_emptying_the_log_waits_for_no_reader_and_is_made_up_for(tmp_path: Path) -> None:
    db = database.connect(tmp_path / "journal.sqlite3", wait=20)
    db.execute("CREATE TABLE texts (text TEXT)")
    log = tmp_path / "journal.sqlite3-wal"
    reader = sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM texts").fetchall()
    db.execute("INSERT INTO texts VALUES ('a secret')")
    tried: list[str] = []
    db.set_trace_callback(tried.append)
    database.empty_log(db)
    assert tried.index("PRAGMA busy_timeout=0") < tried.index("PRAGMA wal_checkpoint(TRUNCATE)"), "or it waits 20 s"
    assert log.stat().st_size > 0
    assert db.execute("PRAGMA busy_timeout").fetchone()[0] == 20_000
    reader.execute("ROLLBACK")
    database.empty_log(db)
    assert log.stat().st_size == 0
    reader.close()
    db.close()
