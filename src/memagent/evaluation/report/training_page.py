"""The page of training runs: filled, written, and written again while they go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup

from memagent.errors import ConfigError
from memagent.evaluation.report.charts import key
from memagent.evaluation.report.curves import SMOOTHED, WINDOW, main_values, markdown, progress, sections
from memagent.evaluation.report.page import GENERATOR, rendered
from memagent.evaluation.report.training import NoMetricsError, TrainingRun, last_change, read_training_runs
from memagent.evaluation.report.write import check_report
from memagent.files import atomic_file


def training_page(runs: Sequence[TrainingRun], title: str) -> str:
    """One HTML file that needs no other, and asks for none. The same runs give the same bytes."""
    return rendered(
        "training.html.j2",
        title,
        scripts=("script.js", "reload.js"),
        runs=runs,
        keys=[Markup(key(place)) for place in range(len(runs))],
        rows=main_values(runs),
        sections=sections(runs),
        progress=progress,
        SMOOTHED=SMOOTHED,
        WINDOW=WINDOW,
    )


def write_training_report(
    runs: Sequence[TrainingRun], *, title: str, html: Path | None = None, tables: Path | None = None
) -> None:
    """Writes the page, the table in Markdown, or both. Replaces a report that is there; OutputError for any other file."""
    for path in (html, tables):
        if path is not None:
            check_report(path)
    if html is not None:
        _write(html, training_page(runs, title))
    if tables is not None:
        _write(tables, markdown(runs, title))


def watch_training(
    folders: Sequence[str | Path], *, title: str, html: Path, seconds: float, say: Callable[[str], None]
) -> None:
    """Rewrites the page whenever a run has logged something, until all have finished. The page reloads itself as often.

    `say` gets what there is to tell. The page that stays, even after an interrupt, is one that no longer loads itself anew.
    """
    if not 1 <= seconds < math.inf:
        raise ConfigError(f"the page cannot be written every {seconds:g} seconds: the minimum is 1")
    check_report(html)
    page, drawn, waiting = "", None, False
    try:
        while True:
            state = last_change(folders)
            if state != drawn:
                try:
                    runs = read_training_runs(folders)
                except NoMetricsError as error:
                    if not waiting:
                        say(f"waiting: {error}")
                    waiting = True
                else:
                    if not page:
                        say(f"{html}: written every {seconds:g} seconds while the runs go on; Ctrl-C ends it")
                    page, drawn = training_page(runs, title), state
                    _write(html, reloading(page, seconds))
            elif all(run.finished for run in runs):
                say(f"{html}: the runs are finished")
                return
            time.sleep(seconds)
    finally:
        if page:
            _write(html, page)


def reloading(page: str, seconds: float) -> str:
    """The page, made to ask the browser for itself again and again."""
    return page.replace(GENERATOR, f'<meta http-equiv="refresh" content="{math.ceil(seconds)}">\n{GENERATOR}', 1)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text)
