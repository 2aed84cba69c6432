"""A batch whose server has moved: repeated with another address, it goes on where it was."""

from __future__ import annotations

import json
import subprocess

import pytest

from memagent.batch.folder import BatchFolder
from memagent.journal import Journal
from tests.batch.conftest import records, reply, timeless, write_jobs
from tests.batch.test_batch import options
from tests.batch.test_killed import command, comparable, wait_for
from tests.faults import Fault, FaultServer

REFUSED = Fault("status", status=400, body='{"error": {"message": "no"}}')


class Stopped(Exception):  # noqa: N818  # not an error
    """What a kill looks like from inside."""


def identity(server):
    return f"openai:scripted@{server.url}"


def words(text):
    return " ".join(text.split())


def with_password(server):
    return server.url.replace("//", "//user:pass-word@")


def killed_after(calls, jobs, out):
    """Kills a batch when its server has answered so often and all readings under way wait. Returns the server."""
    with FaultServer(reply, faults=lambda number: Fault("stall") if number >= calls else None) as server:
        process = subprocess.Popen(command(jobs, out, server), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            wait_for(lambda: len(server.requests) == calls + 4, process)
        finally:
            process.kill()
            process.communicate()
    return server


def test_killed_it_goes_on_at_other_addresses_with_every_turn_that_was_made(tmp_path):
    jobs, out = write_jobs(tmp_path, 16, lines=20), tmp_path / "out"
    with FaultServer(reply) as server:
        ended = subprocess.run(command(jobs, tmp_path / "whole", server), capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        calls = len(server.requests)
    five = calls * 5 // 16  # readings: with four at once, one of them at least has ended, and four are always left
    first = killed_after(five, jobs, out)
    header, done = json.loads((out / "batch.json").read_text()), timeless(out)
    second = killed_after(five, jobs, out)
    assert {key: timeless(out)[key] for key in done} == done
    with FaultServer(reply) as third:
        last = command(jobs, out, third, "--base-url", with_password(third))
        ended = subprocess.run(last, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        asked = [len(one.requests) for one in (first, second, third)]
    assert sum(asked) == calls + 2 * 4  # those that were waited for at a kill
    assert comparable(timeless(out)) == comparable(timeless(tmp_path / "whole"))
    found = [record["identity"] for record in records(out)]
    assert set(found) == {identity(first), identity(second), identity(third)}
    assert found[: len(done)] == [identity(first)] * len(done)
    assert any(record["turns_resumed"] for record in records(out) if record["identity"] == identity(third))
    assert json.loads(ended.stdout)["models"] == {name: found.count(name) for name in dict.fromkeys(found)}
    told = f"the model is asked at {identity(third)}; the batch in {out} was begun at {identity(first)}"
    assert told in words(ended.stderr)
    assert json.loads((out / "batch.json").read_text())["settings"] == header["settings"]
    written = "".join(path.read_text(errors="replace") for path in out.iterdir())
    assert "pass-word" not in ended.stderr + ended.stdout + written


def test_a_failed_reading_goes_on_at_its_turn_elsewhere_and_the_journal_knows_where(memagent, tmp_path):
    jobs, out = write_jobs(tmp_path, 2, lines=20), tmp_path / "out"
    with FaultServer(reply, faults=lambda number: REFUSED if number == 2 else None) as server:
        begun = memagent("batch", jobs, *options(server, out, "--at-once", 1, "--json"))
        assert (begun.code, begun.json["failures"]) == (4, {"refused": 1})
    with FaultServer(reply, faults=[REFUSED]) as elsewhere:
        kept = memagent("batch", jobs, *options(elsewhere, out))
        assert (kept.code, len(elsewhere.requests)) == (4, 0)
        assert "was begun at" not in kept.err  # nothing is left to be asked
        again = memagent("batch", jobs, *options(elsewhere, out, "--retry-failed", "--at-once", 1))
        assert "failed: 1 (refused)" in again.out
        with Journal.open(out / "journal.sqlite3") as journal:
            [known] = journal.list()
        assert (known.turns, known.settings["identity"]) == (2, identity(elsewhere))
        assert known.document["paths"] == [str(tmp_path / f"d{known.document['job']}.txt")]
        done = memagent("batch", jobs, *options(elsewhere, out, "--retry-failed"))
    assert (done.code, "2 of 2 questions answered" in done.out) == (0, True)
    last = records(out)[-1]
    assert (last["turns_resumed"], last["identity"]) == (2, identity(elsewhere))
    [told] = [line for line in done.out.splitlines() if line.startswith("readings at each address: 1 at")]
    assert f"1 at {identity(server)}" in told
    assert f"1 at {identity(elsewhere)}" in told


def test_an_answer_that_was_given_before_the_move_keeps_its_model(memagent, tmp_path, monkeypatch):
    def lost(folder, record, reading):
        raise Stopped  # after the last turn, and before the record

    jobs, out = write_jobs(tmp_path, 1), tmp_path / "out"
    with FaultServer(reply) as server, FaultServer(reply) as elsewhere:
        with monkeypatch.context() as patch:
            patch.setattr(BatchFolder, "write", lost)
            for one in (server, elsewhere):
                with pytest.raises(Stopped):
                    memagent("batch", jobs, *options(one, out))
        assert memagent("batch", jobs, *options(elsewhere, out)).code == 0
        assert elsewhere.requests == []
    assert [record["identity"] for record in records(out)] == [identity(server)]


@pytest.mark.parametrize(
    ("change", "named", "unnamed"),
    [
        (["--model", "other"], ['settings.usual.model: "scripted" → "other"'], []),
        (["--answer-tokens", "99"], ["settings.usual.budgets.answer: ", " → 99"], ["base_url", "identity", "model:"]),
        (["--window", "4000"], ["settings.usual.window: null → 4000"], ["base_url", "identity", "model:"]),
    ],
)
def test_another_model_or_setting_is_refused_at_another_address(memagent, tmp_path, change, named, unnamed):
    jobs, out = write_jobs(tmp_path, 2), tmp_path / "out"
    with FaultServer(reply) as server:
        memagent("batch", jobs, *options(server, out))
        before = [path.read_bytes() for path in sorted(out.iterdir())]
    with FaultServer(reply, models=["scripted", "other"]) as elsewhere:
        moved = ["--base-url", with_password(elsewhere)]
        refused = memagent("batch", jobs, *options(elsewhere, out, *moved, *change))
        assert (refused.code, elsewhere.requests) == (2, [])
    said = words(refused.err)
    for one in (*named, f"the batch in {out} has other settings", "or another folder"):
        assert one in said
    for one in (*unnamed, "pass-word"):
        assert one not in said
    assert [path.read_bytes() for path in sorted(out.iterdir())] == before


def test_a_server_does_not_take_the_place_of_weights_nor_weights_of_a_server(memagent, tmp_path):
    jobs = write_jobs(tmp_path, 1, lines=2)
    plain = ["--chunk-tokens", "100", "--memory-tokens", "50", "--no-verify"]
    with FaultServer(reply) as server:
        for name, first, second in (
            ("local", plain, options(server, tmp_path / "local")[2:]),
            ("served", options(server, tmp_path / "served")[2:], plain),
        ):
            out = tmp_path / name
            assert memagent("batch", jobs, "-o", out, *first).code == 0
            refused = memagent("batch", jobs, "-o", out, *second)
            assert refused.code == 2
            assert "settings.usual.base_url" in refused.err
            assert "settings.usual.identity" in refused.err


def test_a_header_without_settings_is_no_header(memagent, server, tmp_path):
    jobs, out = write_jobs(tmp_path, 1), tmp_path / "out"
    memagent("batch", jobs, *options(server, out))
    header = json.loads((out / "batch.json").read_text())
    for settings in (None, 5, {"usual": None}, {"usual": 5}, {"usual": {}}):
        (out / "batch.json").write_text(json.dumps(header | {"settings": settings}))
        refused = memagent("batch", jobs, *options(server, out))
        assert (refused.code, "is not the file of a batch" in words(refused.err)) == (2, True)
