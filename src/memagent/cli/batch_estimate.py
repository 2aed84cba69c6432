"""`memagent batch --dry-run`: estimates what the jobs of a file cost, without calling the model."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.batch.jobs import JobFile
from memagent.batch.reading import loaded
from memagent.cli import interrupts
from memagent.cli.console import print_json, warn, write
from memagent.cli.estimate import estimate
from memagent.cuts import Cuts
from memagent.errors import ConfigError, DocumentError
from memagent.models.open import OpenModel
from memagent.session import Session
from memagent.settings import Settings

_SHOWN = 5  # of the jobs that cannot be read
_SUMMED = ("tokens", "calls", "prompt_tokens", "completion_tokens")


def print_estimate(
    file: JobFile, opened: OpenModel, settings: Sequence[Settings], *, verified: bool, as_json: bool
) -> None:
    """Prints the sums over all jobs. Documents are loaded one at a time, and each is cut once, however many jobs it has.
    Counts are upper bounds."""
    cuts = Cuts.of(settings[0], None)  # the forms of jobs have one model
    totals = dict.fromkeys(_SUMMED, 0)
    checks = dict.fromkeys(_SUMMED[1:], 0)
    refused: list[str] = []
    for job in file:
        interrupts.check()
        try:
            with loaded(job) as document:
                session = Session(document, opened, settings[job.form], verified=verified, cuts=cuts)
                values = estimate(session, job.questions, None, None)
        except (DocumentError, ConfigError) as error:
            refused.append(f"job {job.id!r}: {error}")
            continue
        for name in totals:
            totals[name] += values[name]
        for name in checks:
            checks[name] += values["verification"].get(name, 0)
    found = {"jobs": len(file), "questions": file.questions, "failing": len(refused), **totals, "verification": checks}
    for said in refused[:_SHOWN]:
        warn(said)
    if len(refused) > _SHOWN:
        warn(f"{len(refused) - _SHOWN:,} more jobs would fail")
    if as_json:
        print_json(found)
        return
    write(f"jobs       {len(file):,} with {file.questions:,} questions; {len(refused):,} would fail")
    write(f"documents  {totals['tokens']:,} tokens")
    write(f"calls      {totals['calls']:,}, and at most {checks['calls']:,} more to verify the answers")
    into, out = (totals[name] + checks[name] for name in _SUMMED[2:])
    write(f"tokens     at most {into:,} in, {out:,} out, without repeated turns")
