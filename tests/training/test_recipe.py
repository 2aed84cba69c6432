"""Recipes: stages that follow from one file, are trained one after the other, and go on after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import torch
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from memagent.cli import app
from memagent.errors import ConfigError
from memagent.training.checkpoints import Checkpoints
from memagent.training.config import SftConfig
from memagent.training.recipe import load_recipe, read_stage
from memagent.training.rl_config import RlConfig
from memagent.training.stages import check_begun, plan, train

RECIPE = """
[sft]
seed = 3
threads = 1
tokenizer = "{folder}"
books = ["{folder}/book.txt"]
validation_books = ["{folder}/book.txt"]
profile = "compact"
log_every = 1
validate_every = 20
validation_batches = 1
save_every = 2
log = {{tensorboard = false}}
budgets = {{question = 80, chunk = 60, memory = 32, answer = 48}}
schedule = {{steps = 6, batch_tokens = 512, rate = 1e-2, muon = 1.0, warmup = 2}}

[sft.model]
window = 640
hidden = 16
feed_forward = 32
heads = 2
layers = ["conv", "full_attention", "conv"]

[rl]
steps = 3
save_every = 1
threads = 1
books = ["{folder}/book.txt"]
log = {{tensorboard = false}}
rollout = {{prompts = 1, group = 2, resample = 0}}

[mixture]
dense = {{tokens = [120, 160], asked = [1, 2]}}
echo = {{tokens = [30, 40], echo = 1.0}}

[reading]
vt = {{task = "vt", options = {{hops = [0, 1]}}}}

[task]
one = {{task = "niah_single_2", weight = 1.0, tokens = [200, 240]}}

[defaults]
reading = {{tokens = [150, 200], chunk = [60, 80]}}

[weights]
stages = ["first", "more", "tasks"]
dense = [1.0, [[0.0, 1.0], [1.0, 0.5]], 0]
echo = [0.5, 0.2, 0]
vt = [0, 0, 1]

[[stage]]
name = "first"
kind = "sft"
about = "Some steps of a longer schedule."
stop_after = 4

[[stage]]
name = "more"
kind = "sft"
resume = true
mixture.dense.stated = 0.9

[[stage]]
name = "tasks"
kind = "sft"
seed = 5
schedule.steps = 4

[[stage]]
name = "rewards"
kind = "rl"
"""


@pytest.fixture(scope="session")
def recipe_file(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(RECIPE.format(folder=config_file.parent), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def whole(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole-recipe")
    for one in plan(recipe_file, folder):
        train(one)
    return folder


def changed(folder: Path, recipe_file: Path, old: str, new: str) -> Path:
    text = recipe_file.read_text(encoding="utf-8")
    assert old in text
    path = folder / "changed.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_a_stage_that_goes_on_from_another_has_no_score_of_its_weights(
    whole: Path, recipe_file: Path, tmp_path: Path
) -> None:
    """Its `best` is of weights that it validated itself."""
    shutil.copytree(whole / "first", tmp_path / "first", symlinks=True)
    state = tmp_path / "first/last/trainer.pt"
    torch.save(torch.load(state) | {"best": 1.0}, state)
    more = plan(recipe_file, tmp_path)[1]
    train(more)
    assert Checkpoints(more.folder).load()["best"] < 1.0
    adopted = int(Checkpoints(more.before).folder("last").name)
    assert int(Checkpoints(more.folder).folder("best").name) > adopted


def metrics(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text(encoding="utf-8") for path in folder.glob("*/metrics.jsonl")}


def test_a_stage_is_what_its_kind_shares_with_its_own_fields_and_parts(recipe_file: Path) -> None:
    first, more, tasks, rewards = plan(recipe_file, Path("out"))
    assert isinstance(tasks.config, SftConfig)
    assert (first.config.seed, tasks.config.seed, tasks.config.schedule.steps, tasks.config.schedule.rate) == (
        3,
        5,
        4,
        0.01,
    )
    assert [one.parts for one in (first, more, tasks, rewards)] == [["dense", "echo"], ["dense", "echo"], ["vt"], ["one"]]
    assert isinstance(first.config, SftConfig)
    assert isinstance(more.config, SftConfig)
    assert [one.config.mixture[0].stated for one in (first, more) if isinstance(one.config, SftConfig)] == [0.4, 0.9]
    assert more.config.mixture[0].weight == [(0.0, 1.0), (1.0, 0.5)]
    assert (tasks.config.reading[0].tokens, tasks.config.reading[0].chunk) == ((150, 200), (60, 80))


def test_a_stage_starts_from_the_weights_or_the_run_of_the_one_before(recipe_file: Path) -> None:
    planned = plan(recipe_file, Path("out"))
    assert [one.config.start for one in planned] == [None, None, "out/more/last", "out/tasks/last"]
    assert [one.before and one.before.name for one in planned] == [None, "first", "more", "tasks"]
    assert [(one.steps, one.schedule) for one in planned] == [(4, 6), (6, 6), (4, 4), (3, 3)]
    given = plan(recipe_file, Path("out"), ["tasks.start=embedded"])[2]
    assert (given.config.start, given.before) == ("embedded", None)


def test_a_part_can_have_a_weight_for_each_reader(recipe_file: Path, tmp_path: Path) -> None:
    for old, new in (
        ("dense = [1.0", "dense = [{gated = 0.5, parallel = 0}"),
        ("schedule.steps = 4", "schedule.steps = 4\nreading.vt.weight = {memory = 1, gated = 2}"),
    ):
        recipe_file = changed(tmp_path, recipe_file, old, new)
    first, _, tasks, _ = plan(recipe_file, Path("out"))
    assert (first.parts, tasks.parts) == (["dense", "echo"], ["vt"])
    assert isinstance(first.config, SftConfig)
    assert isinstance(tasks.config, SftConfig)
    assert [(one.name, one.reader) for one in first.config.mixture] == [("dense_gated", "gated"), ("echo", "memory")]
    assert [(one.name, one.reader, one.weight) for one in tasks.config.reading] == [
        ("vt_memory", "memory", [(0.0, 1.0)]),
        ("vt_gated", "gated", [(0.0, 2.0)]),
    ]


def test_changes_are_for_a_stage_a_kind_or_all(recipe_file: Path) -> None:
    planned = plan(recipe_file, Path("out"), ["threads=2", "sft.seed=8", "tasks.seed=9", "rl.rollout.group=4"])
    assert [one.config.threads for one in planned] == [2, 2, 2, 2]
    assert [one.config.seed for one in planned] == [8, 8, 9, 0]
    assert isinstance(planned[3].config, RlConfig)
    assert planned[3].config.rollout.group == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[defaults]", "[default]", "default: there is no such field; there are sft, rl, mixture"),
        ("[sft.model]", "[sft.modle]", "stage 'first': modle: there is no such field"),
        ("schedule.steps = 4", "schedule.stepz = 4", r"stage 'tasks': schedule\.stepz: there is no such field"),
        ("stop_after = 4", "stop_after = 0", r"stage\.0\.stop_after"),
        ('kind = "rl"', 'kind = "dpo"', r"stage\.3\.kind"),
        ('name = "tasks"', 'name = "more"', "stage.* named 'more'"),
        ('name = "rewards"', 'name = "seed"', "a stage and a field, are named 'seed'"),
        ('name = "first"', 'name = "start here"', r"stage\.0\.name"),
        ("stop_after = 4", "resume = true", "stage 'first' cannot resume"),
        ("echo = [0.5, 0.2, 0]", "echo = [0.5, 0.2]", r"weights\.echo has 2 weights for 3 stages"),
        ("vt = [0, 0, 1]", "vtt = [0, 0, 1]", r"weights\.vtt: stage 'tasks' is of kind sft, and no part"),
        ('["first", "more", "tasks"]', '["first", "more", "task"]', "there is no stage 'task'; there are first, more"),
        (
            "mixture.dense.stated = 0.9",
            "mixture.dens.stated = 0.9",
            "stage 'more': mixture: .* names, which are dense, echo",
        ),
        ("mixture.dense.stated = 0.9", "mixture.dense.stated = 9", r"stage 'more': mixture\.0\.stated: .*, not 9"),
        ("vt = [0, 0, 1]", "vt = [0, 0, 0]", "stage 'tasks': .*nothing to train on"),
        ("[sft]", "[sft", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_named(tmp_path: Path, recipe_file: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(changed(tmp_path, recipe_file, old, new), tmp_path / "out")


def test_an_unknown_recipe_or_stage_lists_the_known_ones(recipe_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recipe 'embeded': .*: embedded"):
        load_recipe("embeded")
    with pytest.raises(ConfigError, match="there is no stage 'frist'; there are first, more, tasks, rewards"):
        read_stage(f"{recipe_file}:frist", SftConfig)


def test_a_stage_can_be_run_alone_from_given_weights(recipe_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"starts from 'more': say where its weights are, with --set start=FOLDER"):
        read_stage(f"{recipe_file}:tasks", SftConfig)
    with pytest.raises(ConfigError, match="memagent train rl "):
        read_stage(f"{recipe_file}:rewards", SftConfig)
    config, text = read_stage(f"{recipe_file}:tasks", SftConfig, ["start=embedded"])
    assert (config.start, config.model, config.schedule.steps) == ("embedded", None, 4)
    assert tomllib.loads(text)["start"] == "embedded"
    assert read_stage(f"{recipe_file}:first", SftConfig)[0].model is not None


def test_the_shipped_recipe_is_valid_and_goes_from_random_weights_to_reinforcement_learning() -> None:
    planned = plan("embedded", Path("out"))
    assert all(one.stage.about for one in planned)
    assert planned[0].before is None
    assert isinstance(planned[0].config, SftConfig)
    assert planned[0].config.model is not None
    assert [one.stage.kind for one in planned[-14:]] == [*["sft"] * 3, "rl", *["sft"] * 7, *["rl"] * 3]
    for rewarded in (one.config for one in planned[-14:] if one.stage.kind == "rl"):
        assert isinstance(rewarded, RlConfig)
        assert {part.reader for part in rewarded.task} == {"memory", "gated", "parallel"}


def test_the_recipe_in_the_guide_is_valid(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/training.md").read_text(encoding="utf-8")
    block = guide[guide.index("    [sft]") :].partition("\n\nThe fields")[0]
    path = tmp_path / "recipe.toml"
    path.write_text(block, encoding="utf-8")
    assert [(one.stage.name, one.config.start) for one in plan(path, Path("out"))] == [
        ("warm-start", "MODEL"),
        ("rewards", "out/warm-start/last"),
    ]


def test_all_stages_are_trained(whole: Path, recipe_file: Path) -> None:
    planned = plan(recipe_file, whole)
    assert all(one.finished for one in planned)
    assert [one.reached for one in planned] == [4, 6, 4, 3]
    steps = {name: [line.split(",")[0] for line in text.splitlines()] for name, text in metrics(whole).items()}
    assert steps["more"][0] == '{"step": 5', "the run of the stage before goes on"
    assert steps["tasks"][0] == '{"step": 1'
    check_begun(planned, planned)


def test_a_stage_can_start_from_a_mean_of_earlier_ones(whole: Path, recipe_file: Path, tmp_path: Path) -> None:
    path = changed(tmp_path, recipe_file, 'kind = "rl"\n', 'kind = "rl"\nblend = {first = 0.25}\nsteps = 1\n')
    out = tmp_path / "out"
    shutil.copytree(whole, out, symlinks=True)
    shutil.rmtree(out / "rewards")
    planned = plan(path, out)
    check_begun(planned, planned)
    train(planned[-1])
    start, first, tasks = (
        load_file(out / name / "model.safetensors") for name in ("rewards/start", "first/last", "tasks/last")
    )
    assert all(torch.allclose(value, 0.25 * first[name] + 0.75 * tasks[name], atol=1e-6) for name, value in start.items())
    assert any(not torch.equal(value, tasks[name]) for name, value in start.items())
    again = plan(changed(tmp_path, path, "first = 0.25", "first = 0.5"), out)
    with pytest.raises(ConfigError, match=r"another configuration \(blend\.first: 0\.25, now 0\.5\)"):
        check_begun(again, again)
    shutil.rmtree(out / "first")
    with pytest.raises(ConfigError, match="'rewards' blends 'first', which is not finished"):
        check_begun(plan(path, out), plan(path, out)[3:])


def test_a_stage_can_make_the_mean_that_it_starts_from_deeper(whole: Path, recipe_file: Path, tmp_path: Path) -> None:
    fields = "seed = 5\nblend = {first = 0.25}\nstack = [0, 1, 2, 1]"
    path = changed(tmp_path, recipe_file, 'kind = "sft"\nseed = 5', f'kind = "sft"\n{fields}')
    out = tmp_path / "out"
    shutil.copytree(whole, out, symlinks=True)
    for name in ("tasks", "rewards"):
        shutil.rmtree(out / name)
    planned = plan(path, out)
    train(planned[2])
    layers = [
        len({key.split(".")[2] for key in load_file(out / "tasks" / name / "model.safetensors") if ".layers." in key})
        for name in ("start", "deeper", "last")
    ]
    assert layers == [3, 4, 4]


def test_a_change_of_no_stage_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"frist is no stage, kind or field of a stage; stages: first, more, tasks"):
        plan(recipe_file, tmp_path, ["frist.seed=1"])
    assert plan(recipe_file, tmp_path, ["sft.schedule.rate=1e-4", "threads=1", "first.seed=7"])[0].config.seed == 7


def test_a_stage_can_be_like_an_earlier_one(recipe_file: Path, tmp_path: Path) -> None:
    path = changed(tmp_path, recipe_file, 'name = "tasks"\nkind = "sft"', 'name = "tasks"\nkind = "sft"\nlike = "more"')
    path = changed(tmp_path, path, "[1.0, 0.5]], 0]", "[1.0, 0.5]], 1]")
    tasks = plan(path, tmp_path)[2].config
    assert isinstance(tasks, SftConfig)
    assert (tasks.seed, tasks.schedule.steps) == (5, 4)
    assert [(part.name, part.stated) for part in tasks.mixture] == [("dense", 0.9)]
    with pytest.raises(ConfigError, match="stage 'more' is like 'tasks', which is no stage of its kind before it"):
        load_recipe(changed(tmp_path, recipe_file, "resume = true", 'resume = true\nlike = "tasks"'))


def test_the_mean_of_a_run_and_another_or_a_folder_is_exported(whole: Path, tmp_path: Path) -> None:
    def export(*arguments: object) -> Result:
        return CliRunner().invoke(app, ["train", "export", *map(str, arguments), "--checkpoint", "last"])

    rewards, tasks = whole / "rewards", whole / "tasks"
    for number, second in enumerate((tasks, tasks / "last")):  # a run, and a folder of weights
        model = tmp_path / f"model-{number}"
        result = export(rewards, model, "--blend", f"{second}=0.4", "--dtype", "float32")
        assert result.exit_code == 0, result.output
        mean, one, other = (load_file(folder / "model.safetensors") for folder in (model, rewards / "last", tasks / "last"))
        assert all(torch.allclose(value, 0.6 * one[name] + 0.4 * other[name], atol=1e-6) for name, value in mean.items())
    for blend, said in (
        (f"{rewards / 'last'}=0.4", "is the run itself"),
        (f"{tasks}=1", "below 1"),
        (f"{tasks}=x", "takes RUN=SHARE"),
        (f"{tasks}=0", "above 0"),
    ):
        refused = export(rewards, tmp_path / "none", "--blend", blend)
        assert refused.exit_code == 2
        assert said in " ".join(refused.stderr.split())
        assert not (tmp_path / "none").exists()
    twice = export(rewards, tmp_path / "none", "--blend", f"{tasks}=0.4", "--blend", f"{tasks}/=0.2")
    assert (twice.exit_code, (tmp_path / "none").exists()) == (2, False)
    assert "is given twice" in " ".join(twice.stderr.split())


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("blend = {tasks = 0.5}", "blends 'tasks', which is no stage before the last one: there are first, more"),
        ("blend = {frist = 0.5}", "blends 'frist', which is no stage before the last one: there are first, more"),
        ("blend = {first = 0.5, more = 0.5}", "blends shares of 1 in all: leave some to the stage before it"),
        ('blend = {first = 0.5}\nstart = "MODEL"', "has `blend` and `start`: leave out one"),
    ],
)
def test_a_blend_that_cannot_be_made_is_refused(recipe_file: Path, tmp_path: Path, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(changed(tmp_path, recipe_file, 'kind = "rl"\n', f'kind = "rl"\n{new}\n'))


def test_killed_and_run_again_equals_never_stopped(recipe_file: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "memagent", "train", "recipe", str(recipe_file), "-o", str(out), "-q"]
    for stage, lines in (("first", 3), ("more", 1), ("tasks", 3), ("rewards", 2)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        path, deadline = out / stage / "metrics.jsonl", time.monotonic() + 120
        while not path.exists() or path.read_text(encoding="utf-8").count("\n") < lines:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    assert "stage tasks (3 of 4): finished before" in done.stderr
    assert metrics(out) == metrics(whole)


def test_a_changed_recipe_is_refused_with_the_reason(recipe_file: Path, whole: Path, tmp_path: Path) -> None:
    def refused(message: str, path: Path = recipe_file, changes: tuple[str, ...] = ()) -> None:
        planned = plan(path, whole, changes)
        with pytest.raises(ConfigError, match=message):
            check_begun(planned, planned)

    refused(r"stage 'tasks' .*another configuration \(schedule\.steps: 4, now 5\)", changes=("tasks.schedule.steps=5",))
    refused(r"stage 'first' .*\(stop_after: 4, now 3\)", changed(tmp_path, recipe_file, "stop_after = 4", "stop_after = 3"))
    refused(r"stage 'more' .*\(mixture\.0\.stated: 0\.9, now 0\.8\)", changed(tmp_path, recipe_file, "= 0.9", "= 0.8"))


def test_an_interrupted_stage_can_go_on_with_another_configuration(recipe_file: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole / "first", out / "first", symlinks=True)
    (out / "first" / "finished.json").unlink()
    arguments = ["--only", "first", "--set", "first.schedule.rate=2e-3", "-q"]
    result = CliRunner().invoke(app, ["train", "recipe", str(recipe_file), "-o", str(out), *arguments])
    assert result.exit_code == 0
    assert "another configuration (schedule.rate: 0.01, now 0.002)" in " ".join(result.stderr.split())


def test_a_stage_needs_the_one_before_it(recipe_file: Path, whole: Path, tmp_path: Path) -> None:
    planned = plan(recipe_file, tmp_path)
    with pytest.raises(ConfigError, match=r"'tasks' starts from 'more', which is not finished .*--set tasks.start=FOLDER"):
        check_begun(planned, planned[2:])
    shutil.copytree(whole, tmp_path / "out", symlinks=True)
    shutil.rmtree(tmp_path / "out" / "more")
    planned = plan(recipe_file, tmp_path / "out")
    with pytest.raises(ConfigError, match="'tasks' has begun, and 'more', which it starts from, is not finished: delete"):
        check_begun(planned, planned)


def test_the_command_lists_stages_and_trains_what_is_chosen(recipe_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def recipe(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["train", "recipe", str(recipe_file), "-o", str(out), *arguments])

    listed = recipe("--dry-run", "--until", "tasks").stdout
    assert "first: sft, 4 steps of a schedule of 6, from random weights; not begun\n    Some steps" in listed
    assert "more: sft, 6 steps, from the run of first; not begun\n    dense, echo\n" in listed
    assert "tasks: sft, 4 steps, from the weights of more; not begun\n    vt\n" in listed
    assert "rewards" not in listed
    assert not out.exists()
    assert recipe("--only", "first", "-q").exit_code == 0
    assert [path.name for path in out.iterdir()] == ["first"]
    listed = recipe("--dry-run", "--only", "first").stdout
    assert listed.startswith("first: sft, 4 steps of a schedule of 6, from random weights; finished\n")
    for arguments, said in (
        (["--from", "rewards", "--until", "first"], "--from rewards comes after --until first"),
        (["--only", "frist"], "there is no stage 'frist'; there are first, more"),
        (["--only", "first", "--until", "more"], "without --from and --until"),
        (["--only", "rewards"], "stage 'rewards' starts from 'tasks', which is not finished"),
    ):
        result = recipe(*arguments)
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())
