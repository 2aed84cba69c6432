"""A worker of a cluster, without one."""

from __future__ import annotations

import asyncio

from memagent import __version__
from memagent.batch.jobs import Job
from memagent.batch.worker import Setup, Worker, journal_of
from memagent.journal import Journal
from memagent.models.open import open_model
from memagent.settings import make_settings
from tests.batch.conftest import write_jobs


def test_a_worker_that_closes_has_forgotten_all_that_it_was_told_to(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    options = {"base_url": server.url}
    opened = open_model("scripted", **options)
    settings = make_settings(
        opened, model="scripted", base_url=server.url, question_tokens=100, chunk_tokens=100, memory_tokens=50
    )
    setup = Setup(
        batch="b", version=__version__, model="scripted", options=options, settings=[settings.to_json()], verified=False
    )
    write_jobs(tmp_path, 1)
    job = Job(number=0, id="j", paths=(str(tmp_path / "d0.txt"),), questions=("What is the code?", "And now?"), form=0)

    async def work() -> int:
        worker = Worker(setup, at_once=1)
        assert await worker.open() == ""
        made = await worker.read(job, job.questions, again=False)
        await asyncio.gather(worker.forget([reading for _, reading in made]), worker.close(delete=False))
        return len(made)

    assert asyncio.run(work()) == 2
    with Journal.open(journal_of("b")) as journal:
        assert journal.list() == ()
