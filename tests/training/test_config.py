"""Configurations: presets, changes on the command line, and errors that name the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent.training.config import PRESETS, SftConfig, config_text, load_config
from memagent.training.fields import step_without_weight, weight_at
from memagent.training.rl_config import RlConfig

RL = """
start = "embedded"
steps = 4
books = ["book.txt"]
[[task]]
name = "one"
task = "niah_single_2"
tokens = [256, 512]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(PRESETS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_preset_is_valid(path: Path) -> None:
    assert load_config(path.stem, RlConfig)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no configuration 'paper-8b'.*preset: paper-7b"):
        load_config("paper-8b", RlConfig)


def test_a_former_preset_names_the_stage_that_it_is_now() -> None:
    with pytest.raises(ConfigError, match="is now the stage 'long-documents' of the recipe `embedded`"):
        load_config("embedded-cpu-long-sft", SftConfig)


def test_a_weight_is_a_number_or_points_over_the_progress_of_a_run(tmp_path: Path) -> None:
    path = written(tmp_path, RL)
    assert load_config(path, RlConfig, ["task.0.weight=0.4"]).task[0].weight == [(0.0, 0.4)]
    assert load_config(path, RlConfig, ["task.0.weight=[[0, 1], [1, 2]]"]).task[0].weight == [(0.0, 1.0), (1.0, 2.0)]


def test_changes_reach_into_tables_and_lists(tmp_path: Path) -> None:
    path = written(tmp_path, RL)
    changes = ["update.rate=3e-5", "task.0.tokens=[300, 600]", "algorithm.credit=final", 'log.wandb="x"', "seed = 7"]
    config = load_config(path, RlConfig, changes)
    assert (config.update.rate, config.task[0].tokens, config.algorithm.credit) == (3e-5, (300, 600), "final")
    assert (config.log.wandb, config.seed) == ("x", 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("update.rate", "expected FIELD=VALUE"),
        ("task.5.tokens=[1, 2]", "5 is none of the 1 entries"),
        ("steps.more=1", "steps is a value"),
        ("update.rate=-1", r"update\.rate: Input should be greater than 0, not -1"),
        ("update.rat=1", r"update\.rat: there is no such field; there are updates, batch_tokens, rate"),
        ("task.0.tokens=[300, 'x']", r"task\.0\.tokens\.1: .*, not 'x'"),
        ("validation=3", r"validation: Input should be a table .*, not 3$"),
        ("task.0=3", r"--set 'task\.0=3': 0 is a table"),
        ("task=[]", r"task: [^']*after validation, not 0$"),
        ("nothing=1", r"nothing: there is no such field; there are seed, processes, threads"),
        ("task.0.weigth=[[0.0, 1.0]]", r"task\.0\.weigth: there is no such field; there are name, task, .*weight"),
        ("policy.lora={rnk = 4}", r"policy\.lora\.rnk: there is no such field; there are rank"),
        ("algorithm.reward=exact", "no scorer 'exact'; known: strict"),
        ("algorithm.dual_clip=0.5", r"would clip ratios of 1"),
        ("rollout.group=1", r"rollout\.group"),
        ("validation.temperature=1e-4", r"validation\.temperature: .*0 \(greedy\)"),
        ("policy.dtype=bfloat16", "lose small updates"),
        ("task.0.file=x.jsonl", "either `task`"),
        ("task.0.tokens=[600, 300]", r"a range is \[lowest, highest\], not \[600, 300\]"),
        ("books=[]", "need `books`"),
        ("update.rate=inf", r"update\.rate: Input should be a finite number"),
        ("algorithm.kl=inf", r"algorithm\.kl: Input should be a finite number"),
        ("update.betas=[1.0, 0.9]", r"update\.betas\.0"),
        ("seed=99999999999999999999999", "seed"),
        ("policy.device=foo", r"policy\.device"),
        ("task.0.weight=[[1.0, 1.0], [0.0, 2.0]]", "in the order of progress"),
        ("task.0.weight=0", r"at step 0 of 4: every \[\[task\]\] has the weight 0 there"),
        ("task.0.weight=[[0.0, 1.0], [0.3, 0.0], [0.6, 0.0], [0.7, 1.0]]", r"at step 2 of 4: every \[\[task\]\]"),
        ("task.0.task=niah_single_7", r"task\.0: no task named 'niah_single_7'; known: niah_single_1"),
        ("task.0.task=hqa", r"task\.0: task 'hqa' needs a question file.*train on it by `file`"),
        ("task.0.options={keyz = 4}", r"task\.0: task 'niah_single_2' has no option 'keyz'; its options: haystack"),
        ("task.0.options={keys = []}", r"task\.0: .*option keys: an empty list leaves nothing to draw"),
        ("task.0.options={keys = [4, 'many']}", r"task\.0: task 'niah_single_2', option keys: .*, not 'many'"),
        (
            "validation.task=[{name = 'x', task = 'vt', tokens = [300], options = {hops = [1, 2]}}]",
            r"validation\.task\.0: task 'vt', option hops: .*, not \[1, 2\]",
        ),
        ("rollout.chunk_tokens=15", r"rollout\.chunk_tokens: .* greater than or equal to 16, not 15"),
        ("policy.device=cuda:99999999999999999999", r"policy\.device"),
        ("policy.lora.rank=100000000000", r"policy\.lora\.rank: .* less than or equal to 4096, not 100000000000"),
    ],
)
def test_bad_changes_are_named(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path, RL), RlConfig, [change])


@pytest.mark.parametrize(
    ("parts", "step"),
    [
        ([[(0.0, 1.0)]], None),
        ([[(0.0, 0.0), (1.0, 1.0)]], 0),
        ([[(0.0, 1.0), (1.0, 0.0)]], None),  # 0 after the last step only
        ([[(0.0, 1.0), (0.5, 0.0)]], 50),
        ([[(0.0, 1.0), (0.5, 0.0)], [(0.5, 0.0), (1.0, 1.0)]], 50),  # one ends where the other begins
        ([[(0.0, 1.0), (0.501, 0.0)], [(0.501, 0.0), (1.0, 1.0)]], None),  # between two steps
        ([[(0.0, 1.0), (0.3, 1.0), (0.3, 0.0), (0.7, 0.0), (0.7, 1.0)]], 31),
    ],
)
def test_a_step_at_which_nothing_has_a_weight_is_found(parts: list[list[tuple[float, float]]], step: int | None) -> None:
    first = next((one for one in range(100) if not any(weight_at(part, one / 100) for part in parts)), None)
    assert step_without_weight(parts, 100) == first == step


def test_what_changes_are_made_in_a_file_can_be_kept_with_its_comments(tmp_path: Path) -> None:
    path = written(tmp_path, "# Why.\nsteps = 4  # few\n" + RL.replace("steps = 4\n", ""))
    changes = ["update.rate=3e-5", "task.0.tokens=[300, 600]", "seed=7", "start=other"]
    kept = written(tmp_path, config_text(path, changes))
    assert kept.read_text(encoding="utf-8").startswith("# Why.\nsteps = 4  # few\n")
    config = load_config(kept, RlConfig)
    assert (config.update.rate, config.task[0].tokens, config.seed, config.start) == (3e-5, (300, 600), 7, "other")


def test_what_is_trained_on_is_not_validated_on(tmp_path: Path) -> None:
    same = RL + '[[task]]\nname = "own"\nfile = "s.jsonl"\n[[validation.task]]\nname = "held"\nfile = "x/../s.jsonl"\n'
    with pytest.raises(ConfigError, match=r"s\.jsonl is trained on: validate on other samples"):
        load_config(written(tmp_path, same), RlConfig)


def test_two_parts_of_a_mix_cannot_share_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name of its own"):
        load_config(written(tmp_path, RL + RL[RL.index("[[task]]") :]), RlConfig)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("hidden = 16", "hidden = 17", "model"),
        ("steps = 40", "steps = 0", r"schedule\.steps"),
        ("steps = 40", "stepz = 40", r"schedule\.stepz: there is no such field; there are steps,"),
        ("asked = [1, 2]", "asked = [-1, 2]", r"mixture\.0\.asked"),
        ("asked = [1, 2]", "asked = [0, 0]", r"mixture\.0\.asked"),
        ("asked = [1, 2]", "asked = [2, 1]", r"mixture\.0\.asked: a range is \[lowest, highest\], not \[2, 1\]"),
        ("window = 320", "window = 64", "the file: budgets of .* do not fit a window of 64"),
        ("tokens = [120, 160]", "tokens = [120, 99999]", "the file: mixture '.*' has rows of 99999 tokens"),
        ("chunk = [60, 80]", "chunk = [60, 999]", "the file: reading 'vt' has chunks of 999 tokens"),
        ("threads = 1", "threads = 100000", "threads: .* less than or equal to 1024, not 100000"),
        ("seed = 3", "seed = 3\nprocesses = 100000", "processes: .* less than or equal to 256, not 100000"),
        ("seed = 3", "seed = 'three'", "seed"),
        ("seed = 3", "seed = 3\nstart = 'x'", "the file: give either `start`"),
        ("[model]", "[model", "cannot be read"),
        ("seed = 3", "seed = 3\npieced = 0.5", "the file: `pieced` is now named `subword_words`"),
        ("asked = [1, 2]", "near = 0.5", r"mixture\.0: `near` is now named `partial_matches`"),
        (
            'task = "vt"',
            'task = "vt"\nreader = "gated"\nfalse_values = 0.5',
            r"reading\.0: false_values are for the reader 'memory', not 'gated'",
        ),
        (
            'task = "vt"',
            'task = "vt"\nreader = "gated"\nempty_notes = [0, 20]',
            r"reading\.0: empty_notes are for the reader 'parallel', not 'gated'",
        ),
        (
            'task = "vt"',
            'task = "vt"\nreader = "search"',
            r"reading\.0\.reader: Input should be 'memory', 'gated' or 'parallel'",
        ),
        ("tokens = [120, 160]", "tokens = [0, 0]", r"mixture\.0\.tokens\.0: .* greater than or equal to 1, not 0"),
        ("asked = [1, 2]", "asked = [1, 5000]", r"mixture\.0\.asked\.1: .* less than or equal to 1000, not 5000"),
        ("asked = [1, 2]", "distractors = [0, 5000]", r"mixture\.0\.distractors\.1: .* less than or equal to 1000"),
        ("chunk = [60, 80]", "chunk = [8, 80]", r"reading\.0\.chunk\.0: .* greater than or equal to 16, not 8"),
        ('task = "vt"', 'task = "cwe"', r"reading\.0: no perfect reader is known for task 'cwe'; there is one for niah_"),
        ("hops = [0, 1]", "hops = []", r"reading\.0: task 'vt', option hops: an empty list leaves nothing to draw"),
        ('name = "answer"', 'name = "vt"', r"the file: every .* needs a name of its own: there are two 'vt'"),
        ('name = "answer"', 'name = "mean"', "the file: the metrics have 'mean' for the mean of all parts"),
        ("answer = 48", "answer = 300", "the file: budgets of 348 tokens for question, memory and answer do not fit"),
        ("hidden = 16", "hidden = 1000000", r"model\.hidden: .* less than or equal to 16384, not 1000000"),
        ('task = "vt"', 'task = "vt"\nmistaken = 0.5', r"reading\.0: `mistaken` is now named `false_values`"),
    ],
)
def test_a_bad_file_names_the_field(config_file: Path, tmp_path: Path, old: str, new: str, field: str) -> None:
    path = written(tmp_path, config_file.read_text(encoding="utf-8").replace(old, new, 1))
    with pytest.raises(ConfigError, match=rf"config\.toml: {field}"):
        load_config(path, SftConfig)
