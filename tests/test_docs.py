"""What the documentation says is run: Python blocks, commands and their options, links, profiles."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main

from memagent.cli import app
from memagent.models.open import EMBEDDED
from memagent.profiles import read_profile
from memagent.training.reference import tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), EMBEDDED / "README.md"]
COMMAND = typer.main.get_command(app)


def test_the_readme_runs_from_python(tmp_path, monkeypatch, capsys):
    book = tmp_path / "build/moby-dick-with-three-facts.txt"
    book.parent.mkdir()
    book.write_text(
        "It was a cold morning. The Winter Orchard was written by Mara Holt. They sailed on. "
        "Anyone who wants to reach Owen Pell should dial 0171 555 264."
    )
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out.splitlines()
    assert (len(blocks), out[0], out[1], out[-1]) == (2, "0171 555 264", "supported", "Mara Holt")
    assert "facts.txt" in out[2]
    assert "Anyone who wants to reach Owen Pell should dial 0171 555 264." in out[2]


def test_names_of_the_python_reference_are_imported_from_where_it_says():
    """The module is `memagent`, or that of the last line "From `module`" below the heading."""
    module, names = "memagent", []
    for line in (ROOT / "docs/reference/python.md").read_text().splitlines():
        if line.startswith("#"):
            module = "memagent"
        elif said := re.match(r"From `(.*?)`", line):
            module = said[1]
        elif line.startswith("::: "):
            home, _, name = line.removeprefix("::: ").rpartition(".")
            assert getattr(import_module(module), name) is getattr(import_module(home), name), line
            names.append((module, name))
    assert len(names) == len(set(names)) > 40


@pytest.mark.parametrize("page", ["python", "verifying"])
def test_the_samples_in_the_guide_run_each_on_its_own(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "first.txt", "second.txt"):
        Path(name).write_text("It was cold. Either party may terminate. Owen Pell's phone number is 0171 555 264.\n")
    for block in re.findall(r"```python\n(.*?)```", (ROOT / f"docs/guide/{page}.md").read_text(), re.DOTALL):
        exec(compile(block, f"{page}.md", "exec"), {})
    assert "0171 555 264" in capsys.readouterr().out


def test_the_page_on_training_configurations_has_every_field():
    spec = spec_from_file_location("hooks", ROOT / "docs/_hooks.py")
    hooks = module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = ROOT / "docs/reference/training.md"
    written = hooks.on_page_markdown(page.read_text(), SimpleNamespace(file=SimpleNamespace(abs_src_path=page)))
    lines = written.splitlines()
    for table in (table for what in ("sft", "rl", "recipe") for table in tables(what)):
        assert not table.head or any(line.startswith(f"### `{table.head}` ") for line in lines), table.head
        for row in table.rows:
            assert any(line.startswith(f"| `{row.name}` |") and row.does.replace("|", "\\|") in line for line in lines), row


def commands(page: Path) -> list[str]:
    lines = re.findall(r"^(?: {4}|\$ )(memagent .*)$", page.read_text(), re.MULTILINE)
    return [line.partition("  #")[0] for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_documentation_exist_with_their_options(page):
    for line in commands(page):
        words, command = shlex.split(line)[1:], COMMAND
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert used <= known, f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_profiles_in_the_guide_are_profiles(tmp_path):
    text = (ROOT / "docs/guide/profiles.md").read_text()
    blocks = [[]]
    for line in text.splitlines():
        if re.match(r" {4}(\w+ +=|\w+ = )", line):
            blocks[-1].append(line[4:])
        elif blocks[-1]:
            blocks.append([])
    for number, block in enumerate(filter(None, blocks)):
        (tmp_path / f"{number}.toml").write_text("\n".join(block))
    names = [read_profile(path).name for path in sorted(tmp_path.iterdir())]
    assert names == ["mine", "terse"]


def test_every_option_has_the_place_it_is_promised():
    text = COMMAND.commands["ask"].params
    options = {option for parameter in text for option in parameter.opts}
    for promised in (
        "--question --model --base-url --profile --chunk-tokens --memory-tokens --temperature --seed --json --dry-run"
        " --no-journal --direct --verbose --questions"
    ).split():
        assert promised in options
