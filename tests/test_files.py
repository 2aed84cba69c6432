"""Files that appear whole or not at all, whatever happens while they are written, and whatever is there already."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from memagent.errors import ConfigError, OutputError
from memagent.files import atomic_file, locked
from memagent.folders import check_same


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "out.jsonl"

    def fails():
        with atomic_file(path) as stream:
            stream.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []
    path.parent.mkdir()
    with pytest.raises(RuntimeError):
        fails()
    assert list(path.parent.iterdir()) == []
    with atomic_file(path) as stream:
        stream.write("whole")
    assert path.read_text(encoding="utf-8") == "whole"
    (tmp_path / "a file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"), atomic_file(tmp_path / "a file" / "out.jsonl"):
        pass


def test_of_new_folders_only_the_empty_ones_go_again(tmp_path):
    def fails():
        with atomic_file(tmp_path / "kept" / "new" / "out.jsonl"):
            (tmp_path / "kept" / "mine").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to the pipe").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("pipe", "to the pipe", "circle"):
        with pytest.raises(OutputError, match=f"{name} is not a file that can be replaced"), atomic_file(tmp_path / name):
            pytest.fail("opened")
    with pytest.raises(OutputError, match="is a folder"), atomic_file(tmp_path):
        pytest.fail("opened")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed(tmp_path, there):
    (tmp_path / "far").mkdir()
    if there:
        (tmp_path / "far" / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to("far/real.jsonl")
    with atomic_file(tmp_path / "link.jsonl") as stream:
        stream.write("new")
        assert [left.suffix for left in (tmp_path / "far").iterdir()].count(".partial") == 1
    assert (tmp_path / "link.jsonl").is_symlink()
    assert [(one.name, one.read_text()) for one in (tmp_path / "far").iterdir()] == [("real.jsonl", "new")]


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    path = tmp_path / "out [1].jsonl"
    code = (
        "import sys, time; from pathlib import Path; from memagent.files import atomic_file\n"
        "with atomic_file(Path(sys.argv[1])) as stream: print('open', flush=True); time.sleep(60)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "open\n"
        dead, living = processes
        dead.kill()
        assert dead.wait() == -signal.SIGKILL
        others = [tmp_path / f"other.jsonl.{dead.pid}.partial", tmp_path / f"{path.name}.notes.partial"]
        for other in others:
            other.write_text("")
        with atomic_file(path) as stream:
            stream.write("whole")
        assert set(tmp_path.iterdir()) == {path, tmp_path / f"{path.name}.{living.pid}.partial", *others}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(("code", "held"), [("EAGAIN", True), ("EACCES", True), ("EBADF", False), ("ENOTSUP", False)])
def test_only_a_file_system_without_locks_is_let_pass(tmp_path, monkeypatch, code, held):
    fcntl = pytest.importorskip("fcntl")

    def flock(opened, how):
        raise OSError(getattr(errno, code), code)

    monkeypatch.setattr(fcntl, "flock", flock)
    if held:
        with pytest.raises(ConfigError, match="another process is at the run"), locked(tmp_path):
            pass
    else:
        with locked(tmp_path):
            pass


HOLD = """
import sys, time
from pathlib import Path
from memagent.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_held_by_one_process_for_as_long_as_it_lives(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"another process is at the run in {tmp_path}"), locked(tmp_path):
            pass
    finally:
        process.kill()
        process.communicate()
    for _ in range(2):  # a process that is killed holds nothing, nor does a block that has ended
        with locked(tmp_path):
            pass


def test_of_many_differences_some_are_named_and_the_others_counted() -> None:
    old = {"settings": {str(number): number for number in range(11)}}
    with pytest.raises(
        ConfigError, match=r"has other settings: [^;]*(; settings\.\d+: [^;]*){7}; and 4 more\. Use the same"
    ):
        check_same("the run in X", old, {"settings": {}})
