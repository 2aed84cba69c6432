"""The log of a run: whole lines, the same bytes for the same run, the same numbers wherever they are shown."""

from __future__ import annotations

import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from memagent.errors import ConfigError, MissingExtraError, OutputError, TrainingError
from memagent.training.log import RunLog

FILES = ("metrics.jsonl", "timing.jsonl")
NUMBERS = st.integers(-(2**53), 2**53) | st.floats()
VALUES = st.dictionaries(st.text(), NUMBERS | st.dictionaries(st.text(), NUMBERS, max_size=2), max_size=3)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def screen(**options: Any) -> Console:
    return Console(file=io.StringIO(), **{"width": 200, **options})


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def write_run(folder: Path, steps: range, start: int = 0) -> None:
    with RunLog(folder, step=start) as log:
        for step in steps:
            log.metrics(step, "train", {"loss": 1 / step})
            log.metrics(step, "validation", {"dense": {"row": step}})
            log.timing(step, {"update": 0.5}, {"update": 100 * step})


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel writes what fits and refuses the rest, as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_hold_the_step_the_part_and_the_values(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    with RunLog(folder) as log:
        log.metrics(1, "train", {"loss": 0.1, "kept": 3, "reward": {"mean": 0.5}})
        log.metrics(1, "validation", {"niah_single_2@4096": {"score": 1.0}})
        log.timing(1, {"rollout": 2.5}, {"rollout": 1000})
        # Nothing waits for the end: a run that is killed now has lost no line.
        metrics, timing = (read(folder / name) for name in FILES)
    assert metrics == [
        {"step": 1, "train": {"loss": 0.1, "kept": 3, "reward": {"mean": 0.5}}},
        {"step": 1, "validation": {"niah_single_2@4096": {"score": 1.0}}},
    ]
    assert timing == [{"step": 1, "seconds": {"rollout": 2.5}, "tokens": {"rollout": 1000}}]


def test_numbers_that_are_not_finite_are_strings(tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    with RunLog(tmp_path) as log:
        log.metrics(1, "train", {"loss": math.nan, "kl": math.inf, "part": {"low": -math.inf, "whole": 1}})
    line = json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"), parse_constant=refuse)
    assert line["train"] == {"loss": "nan", "kl": "inf", "part": {"low": "-inf", "whole": 1}}


def test_a_value_that_is_not_a_number_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with RunLog(tmp_path) as log:
        for values in ({"loss": "low"}, {"loss": None}, {"loss": {"a": {"b": 1}}}):
            with pytest.raises(TypeError, match="train/loss"):
                log.metrics(1, "train", {"reward": 1.0, **values})
        with pytest.raises(TypeError, match="seconds/rollout"):
            log.timing(1, {"rollout": None}, {})  # type: ignore[dict-item]
    assert [(tmp_path / name).read_bytes() for name in FILES] == [b"", b""]


def test_equal_runs_write_equal_bytes_whatever_their_clock_says(tmp_path: Path) -> None:
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        with RunLog(tmp_path / name, tensorboard=name == "one", console=screen() if name == "one" else None) as log:
            for step in range(1, 4):
                log.metrics(step, "train", {"loss": 1 / step})
                log.timing(step, {"update": seconds}, {"update": 10})
    one, two = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two


def test_resumed_equals_never_stopped(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", range(1, 9))
    write_run(tmp_path / "stopped", range(1, 7))
    write_run(tmp_path / "stopped", range(5, 9), start=4)
    for name in FILES:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_that_goes_on_with_another_configuration_keeps_the_former_one_and_says_so(tmp_path: Path) -> None:
    out = io.StringIO()
    with RunLog(tmp_path, source="seed = 3\n"):
        pass
    for source in ("seed = 3\n", "seed = 77\n"):
        with RunLog(tmp_path, step=4, console=Console(file=out, width=400), source=source):
            pass
    assert (tmp_path / "config.toml").read_text() == "seed = 77\n"
    assert [path.name for path in tmp_path.glob("config-*")] == ["config-to-000004.toml"]
    assert (tmp_path / "config-to-000004.toml").read_text() == "seed = 3\n"
    assert out.getvalue().count("the configuration has changed at step 4; the former one is in ") == 1


@given(steps=st.lists(st.tuples(st.integers(0, 6), VALUES), max_size=6), start=st.integers(-1, 7), data=st.data())
@settings(max_examples=150, deadline=None)
@example(steps=[(1, {"\u2028\r": 1.5})], start=1, data=None)
def test_cut_anywhere_the_whole_lines_up_to_the_step_remain(steps: Any, start: int, data: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with RunLog(folder) as log:
            for step, values in steps:
                log.metrics(step, "train", values)
                log.timing(step, {"a": 1.0}, {"a": step})
        for path in (folder / file for file in FILES):
            content = path.read_bytes()
            cut = content[: data.draw(st.integers(0, len(content)))] if data is not None else content
            path.write_bytes(cut)
            whole = cut.split(b"\n")[:-1]
            wanted = b"".join(line + b"\n" for line in whole if json.loads(line)["step"] <= start)
            RunLog(folder, step=start).close()
            assert path.read_bytes() == wanted
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_minus_one_keeps_nothing_of_an_earlier_start(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLog(tmp_path, step=-1) as log:
            log.metrics(0, "validation", {"loss": 1.0})
    assert len(read(tmp_path / "metrics.jsonl")) == 1


@pytest.mark.parametrize("line", [b"\0\0\0\n", b"[1]\n", b'{"train": {}}\n', b'{"step": "2"}\n', b'{"step": 2}{"st\n'])
def test_a_file_with_something_else_in_it_is_named_and_left_alone(tmp_path: Path, line: bytes) -> None:
    content = b'{"step": 1, "train": {}}\n' + line
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(TrainingError, match=r"metrics\.jsonl, line 2"):
        RunLog(tmp_path, step=1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_when_the_old_lines_cannot_be_dropped_the_file_is_the_old_one(tmp_path: Path) -> None:
    write_run(tmp_path, range(1, 5))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(OutputError, match=r"metrics\.jsonl: cannot be written: File too large"), largest_file(10):
        RunLog(tmp_path, step=2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    write_run(tmp_path, range(3, 5), start=2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_whole_lines(tmp_path: Path, name: str) -> None:
    with RunLog(tmp_path) as log:

        def write(step: int) -> None:
            if name == "metrics.jsonl":
                log.metrics(step, "train", {"loss": 0.5})
            else:
                log.timing(step, {"a": 0.5}, {"a": 1})

        write(1)
        size = (tmp_path / name).stat().st_size
        with pytest.raises(OutputError, match=name.replace(".", r"\.")), largest_file(size + 5):
            write(2)
        assert (tmp_path / name).stat().st_size == size
        write(3)
    assert [line["step"] for line in read(tmp_path / name)] == [1, 3]


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    with pytest.raises(OutputError, match="run: cannot be written"):
        RunLog(tmp_path / "run")


def test_a_killed_process_loses_no_line_it_was_told_of(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom memagent.training.log import RunLog\n"
        "log, step = RunLog(Path(sys.argv[1])), 0\n"
        "while True:\n    step += 1\n    log.metrics(step, 'train', {'loss': 0.5})\n    print(step, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(50):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    told = [int(line) for line in process.communicate()[0].split("\n")[:-1]]
    last = max(told, default=50)
    RunLog(tmp_path, step=last).close()
    assert [line["step"] for line in read(tmp_path / "metrics.jsonl")] == list(range(1, last + 1))


def test_the_console_shows_the_main_values_in_one_line_in_a_fixed_order(tmp_path: Path) -> None:
    console = screen()
    values = {"lr": 0.125, "loss": 0.25, "groups": 16, "kl": 1e-5, "kept": 12, "reward": 0.5, "odd": {"a": 1}}
    with RunLog(tmp_path, console=console) as log:
        log.metrics(7, "train", values)
        log.metrics(8, "train", {"row": 0.125, "format": 1.0, "loss": 2.0, "value": math.nan})
    lines = [line.split() for line in text(console).splitlines()]
    assert lines == [
        ["7", "reward", "0.5000", "kept", "12/16", "loss", "0.2500", "kl", "1.0e-05"],
        ["8", "loss", "2.0000", "format", "1.0000", "value", "nan", "row", "0.1250"],
    ]


def test_columns_stay_where_they_are_from_step_to_step(tmp_path: Path) -> None:
    console = screen()
    with RunLog(tmp_path, console=console) as log:
        for step, loss in ((1, 10.5), (10000, 1e-7), (200, 123456.0)):
            log.metrics(step, "train", {"loss": loss, "kl": 0.5})
    lines = text(console).splitlines()
    assert len({line.index("kl") for line in lines[:2]}) == 1
    assert len({line.index("loss") for line in lines}) == 1


def test_the_console_shows_the_speed_of_each_phase(tmp_path: Path) -> None:
    console = screen()
    with RunLog(tmp_path, console=console) as log:
        log.timing(1, {"rollout": 4.0, "save": 0.5, "instant": 0.0}, {"rollout": 8000, "instant": 5})
    assert text(console).split("  ")[-3:] == ["rollout 4.0 s, 2,000 tok/s", "save 0.5 s", "instant 0.0 s\n"]


def test_validation_is_a_table_of_names_and_keys(tmp_path: Path) -> None:
    console = screen()
    with RunLog(tmp_path, console=console) as log:
        log.metrics(9, "validation", {"qa@4096": {"score": 0.5, "n": 8}, "echo": {"score": 1.0}, "loss": 0.25})
    rows = [line.split() for line in text(console).splitlines()]
    assert rows == [
        ["9", "validation", "score", "n", "value"],
        ["qa@4096", "0.5000", "8"],
        ["echo", "1.0000"],
        ["loss", "0.2500"],
    ]


def test_a_file_gets_plain_lines_as_wide_as_they_need(tmp_path: Path) -> None:
    console = screen(width=20)
    with RunLog(tmp_path, console=console) as log:
        log.metrics(1, "train", {"reward": 0.5, "loss": 0.25, "entropy": 1.0})
        log.metrics(1, "validation", {"a" * 30: {"score": 0.5, "retention": 0.75}})
        log.timing(1, {"rollout": 1.0, "update": 2.0, "save": 3.0}, {})
    lines = text(console).splitlines()
    assert len(lines) == 4
    assert "\x1b" not in text(console)
    assert lines[2].split() == ["a" * 30, "0.5000", "0.7500"]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_are_shown_as_they_are_and_do_not_act(tmp_path: Path, terminal: bool) -> None:
    console = screen(force_terminal=terminal, color_system=None)
    with RunLog(tmp_path, console=console) as log:
        log.metrics(1, "validation", {"[red]a[/]\x1b[31m\n": {"[/b]": 1}})
        log.timing(1, {"[bold]p": 1.0}, {"[bold]p": 5})
    shown = text(console)
    assert "[red]a[/]\ufffd[31m\ufffd" in shown
    assert "[/b]" in shown
    assert "[bold]p 1.0 s, 5 tok/s" in shown
    assert "\x1b[31m" not in shown


def test_a_console_that_lacks_a_character_shows_its_escape(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with RunLog(tmp_path, console=Console(file=io.TextIOWrapper(buffer, encoding="ascii", write_through=True))) as log:
        log.metrics(1, "validation", {"übung": {"naïve": 1}})
        log.timing(1, {"prüfen": 1.0}, {})
    assert rb"\xfcbung" in buffer.getvalue()
    assert rb"pr\xfcfen" in buffer.getvalue()


def test_without_a_console_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, range(1, 3))
    assert capfd.readouterr() == ("", "")


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads: (step, value) of each scalar."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / "tensorboard"))
    reader.Reload()
    return {tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_tensorboard_reads_the_same_numbers(tmp_path: Path) -> None:
    with RunLog(tmp_path, tensorboard=True) as log:
        log.metrics(1, "train", {"reward": 0.5, "part": {"low": 2}})
        log.metrics(1, "validation", {"niah_single_2@4096": {"score": 0.25}})
        log.timing(1, {"rollout": 4.0, "save": 0.5}, {"rollout": 8000})
        during = events(tmp_path)
    assert during == events(tmp_path)
    assert during == {
        "train/reward": [(1, 0.5)],
        "train/part/low": [(1, 2.0)],
        "validation/niah_single_2@4096/score": [(1, 0.25)],
        "seconds/rollout": [(1, 4.0)],
        "seconds/save": [(1, 0.5)],
        "speed/rollout_tokens_per_second": [(1, 2000.0)],
    }


def test_tensorboard_shows_each_step_of_a_resumed_run_once(tmp_path: Path) -> None:
    with RunLog(tmp_path, tensorboard=True) as log:
        for step in range(1, 7):
            log.metrics(step, "train", {"reward": step})
    with RunLog(tmp_path, step=4, tensorboard=True) as log:
        log.metrics(5, "train", {"reward": 50})
    assert events(tmp_path)["train/reward"] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50)]


def test_a_disk_that_is_full_for_tensorboard_is_an_error_that_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        with RunLog(tmp_path, tensorboard=True) as log:
            (file,) = (tmp_path / "tensorboard").iterdir()
            with largest_file(file.stat().st_size + 5):
                log.metrics(1, "train", {"reward": 0.5})

    # The thread that writes the events dies of it, and Python reports that besides.
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    before = set(threading.enumerate())
    with pytest.raises(OutputError, match="tensorboard: cannot be written"):
        fill()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert len(read(tmp_path / "metrics.jsonl")) == 1


def test_without_the_package_tensorboard_is_an_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"memagent\[train\]") as caught:
        RunLog(tmp_path / "run", tensorboard=True)
    assert caught.value.extra == "train"
    assert not (tmp_path / "run").exists()
    write_run(tmp_path / "run", range(1, 2))


def test_what_is_not_asked_for_is_not_imported() -> None:
    code = "import sys, memagent.training.log; print([n for n in ('tensorboard', 'wandb') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class FakeWandb(ModuleType):
    """The three calls of wandb that the log makes, written down."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.started: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished: list[int] = []

    def init(self, **options: Any) -> FakeWandb:
        self.started.append(options)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.finished.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_gets_the_scalars_that_tensorboard_gets(tmp_path: Path, wandb: FakeWandb) -> None:
    log = RunLog(tmp_path, wandb="reading", tensorboard=True, config={"seed": 3})
    log.metrics(1, "train", {"reward": 0.5})
    log.metrics(1, "validation", {"qa@4096": {"score": 0.25}})
    log.timing(2, {"rollout": 4.0}, {"rollout": 8000})
    log.close()
    log.close()
    (options,) = wandb.started
    name = (tmp_path / "wandb-id").read_text(encoding="utf-8").strip()
    assert options == {"project": "reading", "dir": str(tmp_path), "config": {"seed": 3}, "resume": "allow", "id": name}
    together: dict[str, list[tuple[int, float]]] = {}
    for step, values in wandb.logged:
        for tag, value in values.items():
            together.setdefault(tag, []).append((step, value))
    assert together == events(tmp_path)
    assert wandb.finished == [0]


def test_wandb_knows_a_resumed_run_again_even_if_it_moved(tmp_path: Path, wandb: FakeWandb) -> None:
    for name in ("one", "two", "one"):
        RunLog(tmp_path / name, wandb="reading").close()
    (tmp_path / "one").rename(tmp_path / "three")
    RunLog(tmp_path / "three", wandb="reading").close()
    one, two, again, moved = (options["id"] for options in wandb.started)
    assert one == again == moved != two


def test_wandb_hears_that_a_run_failed(tmp_path: Path, wandb: FakeWandb) -> None:
    with pytest.raises(ZeroDivisionError), RunLog(tmp_path, wandb="reading"):
        raise ZeroDivisionError
    assert wandb.finished == [1]


def test_a_wandb_that_cannot_start_is_an_error_of_training(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(wandb, "init", refuse)
    (tmp_path / "config.toml").write_text("steps = 1\n", encoding="utf-8")
    with pytest.raises(TrainingError, match="reading: no network"):
        RunLog(tmp_path, wandb="reading", source="steps = 2\n")
    assert (tmp_path / "config.toml").read_text(encoding="utf-8") == "steps = 1\n"  # of the run before


def test_without_the_package_wandb_is_named_with_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        RunLog(tmp_path / "run", wandb="reading")
    # A folder `wandb` where Python looks for packages imports as a package with nothing in it.
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    with pytest.raises(ConfigError, match="pip install wandb"):
        RunLog(tmp_path / "run", wandb="reading")
    assert not (tmp_path / "run").exists()


def test_the_environment_is_written_nowhere(tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-secret-key")
    with RunLog(tmp_path, wandb="reading", tensorboard=True, console=(console := screen()), config={"seed": 3}) as log:
        log.metrics(1, "train", {"loss": 0.5})
        log.timing(1, {"a": 1.0}, {"a": 1})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert all(b"a-secret-key" not in path.read_bytes() for path in files)
    assert "a-secret-key" not in text(console) + str(wandb.started) + str(wandb.logged)
