"""One job: its readings go on where they stopped, and are begun again only where they cannot."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from memagent.batch.jobs import JobFile
from memagent.batch.reading import JobReader
from memagent.errors import JournalFileError, ModelUnavailableError
from memagent.journal import Journal
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.settings import make_settings
from tests.batch.conftest import reply, write_jobs


def reader(journal, turns=10**6):
    """With a model that is gone after some turns."""
    numbers = count()

    def said(turn):
        away = next(numbers) >= turns
        return ModelUnavailableError("it is gone") if away else reply([{"content": turn.user}])

    opened = OpenModel(engine=ScriptedModel(said))
    settings = make_settings(opened, model="scripted", profile="default", chunk_tokens=100, memory_tokens=80)
    return JobReader(opened, [settings], journal, at_once=1, verified=False)


def read(a_reader, job):
    taken = []
    asyncio.run(a_reader.read(job, job.questions, lambda record, id: taken.append((record, id))))
    return taken


def test_a_full_disk_does_not_cost_the_turns_of_a_reading_that_stopped(tmp_path) -> None:
    [job] = JobFile.open(write_jobs(tmp_path, 1, lines=3000))
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        read(reader(journal, turns=20), job)
        [stopped] = journal.list()
        journal._db.execute("DELETE FROM cuts_used")  # as if they went with another reading: they are kept again
        journal._db.execute("DELETE FROM cuts")
        journal._db.execute("VACUUM")
        [(pages,)] = journal._db.execute("PRAGMA page_count").fetchall()
        again = reader(journal)
        journal._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(JournalFileError, match="no room on its disk"):
            read(again, job)
        assert [(one.id, one.turns) for one in journal.list()] == [(stopped.id, 20)]
        journal._db.execute("PRAGMA max_page_count=1000000")
        [(record, id)] = read(reader(journal), job)
    assert (record["answer"], record["turns_resumed"], id) == ("70000", 20, stopped.id)


def test_a_reading_whose_document_has_changed_is_begun_again(tmp_path) -> None:
    [job] = JobFile.open(write_jobs(tmp_path, 1, lines=400))
    with Journal.open(tmp_path / "journal.sqlite3") as journal:
        read(reader(journal, turns=20), job)
        [stopped] = journal.list()
        write_jobs(tmp_path, 1, lines=300)
        [(record, id)] = read(reader(journal), job)
        assert [one.id for one in journal.list()] == [id]
    assert id != stopped.id
    assert record["turns_resumed"] == 0
