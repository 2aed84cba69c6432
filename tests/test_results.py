"""The results pages: short, a figure before the first table, and figures that the committed data draw."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.figures import main
from memagent.training.config import SftConfig, load_config
from memagent.training.rl_config import RlConfig
from memagent.training.stages import plan

RESULTS = Path(__file__).resolve().parent.parent / "docs/results"
PAGES = sorted(RESULTS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_begins_with_its_figure(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    if page.stem != "index":
        first = next(line for line in lines if line.startswith(("![", "|")))
        assert re.fullmatch(rf"!\[.{{40,}}\]\(figures/{page.stem}\.svg\)", first)


def test_the_index_links_to_every_page():
    index = (RESULTS / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([a-z-]+)\.md\)", index))
    assert linked == {page.stem for page in PAGES} - {"index"}


def drawing(path):
    """An SVG with its clip paths numbered: their names are hashes of numbers whose last bit depends on the processor."""
    names = {}
    return re.sub(r"\bp[0-9a-f]{10}\b", lambda found: names.setdefault(found[0], f"clip-{len(names)}"), path.read_text())


def test_the_committed_data_draw_the_committed_figures(tmp_path):
    main(tmp_path)
    drawn = {path.name: drawing(path) for path in tmp_path.iterdir()}
    kept = {path.name: drawing(path) for path in (RESULTS / "figures").iterdir()}
    assert drawn.keys() == kept.keys()
    assert [name for name in drawn if drawn[name] != kept[name]] == []


def test_results_hold_no_weights_and_no_logs():
    root = RESULTS.parent.parent
    files = [path for folder in (RESULTS, root / "experiments") for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".md", ".svg", ".json", ".jsonl", ".csv", ".toml"}
    assert sum(path.stat().st_size for path in files) < 3_000_000


def test_no_configuration_trains_on_a_book_of_evaluation():
    root = RESULTS.parent.parent
    for path in [*(root / "experiments").glob("*.toml"), *(root / "src").rglob("*.toml")]:
        assert "great_expectations" not in path.read_text(encoding="utf-8"), path


def test_configurations_in_experiments_are_valid():
    for path in sorted((RESULTS.parent.parent / "experiments").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        if "[[stage]]" in text:
            assert plan(path, Path("out"))
        else:
            load_config(path, SftConfig if "[schedule]" in text else RlConfig)
