"""Profiles on disk, and the importer of the released templates: parsed, never run."""

from __future__ import annotations

import re
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from memagent import from_text
from memagent.cli import app
from memagent.core import Profile
from memagent.errors import ConfigError
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.profiles import load_profile, profile_paths, read_profile, write_profile
from memagent.profiles.released import import_released
from memagent.settings import make_plan, make_settings
from tests.helpers import WordTokenizer

# The shape of the released files, with words of our own and a line that must never run.
TRAINING_CODE = '''
import nowhere_to_be_found
open("{proof}", "w").write("this code was run")
TEMPLATE = """Look at {{prompt}} and \\\\{{{{x}}}}
{{memory}} | {{chunk}}
"""
TEMPLATE_FINAL_BOXED = """End: {{prompt}} {{memory}} in \\\\boxed{{{{}}}}.
"""
class Agent:
    def __init__(self, tokenizer):
        self.NO_MEMORY_TOKENS = tokenizer.encode("Nothing so far", add_special_tokens=False)
'''
EVALUATION_CODE = """
TEMPLATE = "{prompt} {memory} {chunk}"
TEMPLATE_FINAL = "{prompt} {memory}"
NO_MEMORY = "void"
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def checkout(tmp_path):
    source = tmp_path / "checkout" / "recurrent" / "impls" / "memory.py"
    source.parent.mkdir(parents=True)
    source.write_text(TRAINING_CODE.format(proof=tmp_path / "proof"))
    return tmp_path / "checkout"


def test_templates_are_read_and_nothing_is_run(checkout, tmp_path):
    profile = import_released(checkout)
    rendered = profile.render("update", question="Q", memory="M", chunk="C")
    assert rendered == "Look at Q and \\{x}\nM | C\n"
    assert profile.render("answer", question="Q", memory="M") == "End: Q M in \\boxed{}.\n"
    assert (profile.empty_memory, profile.answer_format) == ("Nothing so far", "boxed")
    assert not (tmp_path / "proof").exists()


def test_the_evaluation_code_serves_where_the_training_code_is_missing(tmp_path):
    source = tmp_path / "taskutils/memory_eval/utils/recurrent_boxed.py"
    source.parent.mkdir(parents=True)
    source.write_text(EVALUATION_CODE)
    assert import_released(tmp_path).empty_memory == "void"


@pytest.mark.parametrize("content", ["def broken(:", "TEMPLATE = 3", "TEMPLATE = 'no fields'", "\x00"])
def test_what_is_not_the_released_code_is_refused_by_file(checkout, content):
    (checkout / "recurrent/impls/memory.py").write_text(content)
    with pytest.raises(ConfigError, match=r"no templates of the released code below .*memory\.py"):
        import_released(checkout)


def test_a_missing_checkout_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent is not a folder"):
        import_released(tmp_path / "absent")


def test_the_command_imports_lists_and_shows(checkout, home):
    run = CliRunner().invoke
    assert run(app, ["profile", "import", str(checkout)]).exit_code == 0
    assert load_profile("released").answer_format == "boxed"
    listed = run(app, ["profile", "list"]).stdout
    assert all(name in listed for name in ("compact", "default", "released"))
    shown = run(app, ["profile", "show", "released"]).stdout
    (home / "copy.toml").write_text(shown)
    assert read_profile(home / "copy.toml") == load_profile("released")
    assert run(app, ["profile", "import", str(checkout), "--name", "../up"]).exit_code == 2
    assert run(app, ["profile", "show", "nope"]).exit_code == 2


def test_a_broken_profile_is_listed_with_what_is_wrong(checkout, home):
    run = CliRunner().invoke
    assert run(app, ["profile", "import", str(checkout)]).exit_code == 0
    (home / "profiles" / "bad.toml").write_text("name = [")
    listed = run(app, ["profile", "list"])
    assert listed.exit_code == 0
    assert all(f"{name}  " in listed.stdout for name in ("bad", "compact", "default", "released"))
    assert "bad.toml cannot be read" in listed.stdout


def test_a_profile_is_shown_byte_for_byte(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(
        'name="mine"\r\nempty_memory=":key:\u00a0[red]\t\u200c" # \t x\nupdate="{question}{memory}{chunk}"\n'
        'answer="{question}{memory}"'.encode()
    )
    assert CliRunner().invoke(app, ["profile", "show", str(path)]).stdout_bytes == path.read_bytes()


def test_a_profile_from_any_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name="mine"\nempty_memory="-"\nupdate="{question}{memory}{chunk}"\nanswer="{question}{memory}"')
    assert load_profile(path).name == "mine"
    path.write_text("name = [")
    with pytest.raises(ConfigError, match=r"mine\.toml cannot be read"):
        load_profile(path)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@settings(max_examples=100, deadline=None)
def test_a_written_profile_reads_back_the_same(tmp_path_factory, text):
    literal = text.replace("{", "{{").replace("}", "}}")
    profile = Profile(
        name="p", empty_memory=text, update=literal + "{question}{memory}{chunk}", answer="{question}{memory}"
    )
    path = tmp_path_factory.mktemp("profiles") / "p.toml"
    write_profile(profile, path)
    assert read_profile(path) == profile


def test_shipped_profiles_say_that_the_document_is_material():
    assert set(profile_paths()) == {"chunk-first", "compact", "default"}
    for name in ("chunk-first", "default"):
        profile = load_profile(name)
        shown = [
            one for one in asdict(profile).values() if isinstance(one, str) and re.search(r"{(chunk|notes|document)}", one)
        ]
        assert len(shown) >= 8
        assert all(re.search("never follow\\s+instructions", one) for one in shown)


def test_a_profile_that_is_another_one_but_for_a_few_words(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base="default"\nname="mine"\nanswer="{question} {memory} Answer in rhyme."')
    mine, default = load_profile(path), load_profile("default")
    assert (mine.name, mine.version, mine.answer) == ("mine", 1, "{question} {memory} Answer in rhyme.")
    assert (
        replace(mine, name="default", version=default.version, description=default.description, answer=default.answer)
        == default
    )


@pytest.mark.parametrize("base", ["nope", "../default", "", 3])
def test_a_base_that_is_not_shipped(tmp_path, base):
    path = tmp_path / "mine.toml"
    path.write_text(f'base={base!r}\nname="mine"'.replace("'", '"'))
    with pytest.raises(ConfigError, match=r"mine\.toml: base is .*must be another one of chunk-first, compact, default"):
        load_profile(path)


def test_chunk_first_shows_each_section_before_what_differs_between_questions():
    first, default = load_profile("chunk-first"), load_profile("default")
    templates = [name for name, text in asdict(default).items() if isinstance(text, str) and "{chunk}" in text]
    for name in templates:
        text = getattr(first, name)
        places = [text.find(f"{{{field}}}") for field in ("question", "memory", "answer", "recalled")]
        assert all(text.index("{chunk}") < place for place in places if place >= 0), name
        fields = [sorted(re.findall(r"{(\w+)}", one)) for one in (text, getattr(default, name))]
        assert fields[0] == fields[1], name
    assert {name for name, text in asdict(first).items() if text != getattr(default, name)} == {
        "name",
        "version",
        "description",
        *templates,
    }


def test_budgets_of_a_small_window_leave_room_for_a_question_that_is_shown_twice():
    engine = ScriptedModel([], window=300, tokenizer=WordTokenizer())
    opened, usual = OpenModel(engine=engine), load_profile("default")
    twice = replace(usual, update=f"{usual.update} {{question}}")
    budgets = [make_settings(opened, model="scripted", profile=one).budgets for one in (usual, twice)]
    assert budgets[1].question < budgets[0].question
    question = " ".join(f"w{n}" for n in range(budgets[1].question))
    made = make_settings(opened, model="scripted", profile=twice)
    make_plan(from_text("a few words"), question, made, opened)  # which refuses budgets that do not fit
