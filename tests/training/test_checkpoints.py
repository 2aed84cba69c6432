"""Checkpoints: whole or not there, whatever stops the process, and never more than two."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from memagent.errors import OutputError, TrainingError
from memagent.training.checkpoints import Checkpoints

# Every call by which the saving of a checkpoint can change what is on a disk.
_CALLS = ("mkdir", "rename", "replace", "symlink", "link", "unlink", "rmdir", "fsync")


class Killed(BaseException):
    """The process ends here: nothing catches it."""


def write(step: int, hook: Callable[[], None] = lambda: None) -> Callable[[Path], None]:
    """Writes a model in two files, both of which say `step`; `hook` is called before each."""

    def files(folder: Path) -> None:
        hook()
        (folder / "config.json").write_text(str(step), encoding="utf-8")
        hook()
        save_file({"step": torch.tensor([step])}, folder / "model.safetensors")

    return files


def state(step: int, best: int) -> dict[str, Any]:
    return {"step": step, "best": best, "optimizer": {"moment": torch.full((8,), float(step))}}


def whole(checkpoints: Checkpoints, name: Literal["last", "best"]) -> int:
    """The step of a checkpoint, all parts of which are of that step."""
    folder, found = checkpoints.folder(name), checkpoints.load(name)
    assert torch.equal(found["optimizer"]["moment"], torch.full((8,), float(found["step"])))
    assert (folder / "config.json").read_text(encoding="utf-8") == str(found["step"])
    assert load_file(folder / "model.safetensors")["step"].tolist() == [found["step"]]
    assert folder.stem == f"{found['step']:06d}"
    step: int = found["step"]
    return step


@contextmanager
def fails_at(
    number: int, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Callable[[], None], list[str]]]:
    """Raises `failure` at the change of the disk with that number, before it is made. Gives a hook that counts as one, and
    the names of those that came."""
    seen: list[str] = []

    def due(name: str) -> None:
        seen.append(name)
        if len(seen) == number + 1:
            raise failure

    def wrapped(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            due(name)
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        patch.setattr(torch, "save", wrapped("save", torch.save))
        yield lambda: due("write"), seen


def started(run: Path, *, leftover: bool) -> Checkpoints:
    """A run with best = 1 and last = 2; `leftover`: one that was killed when 3 was there and no link led to it."""
    checkpoints = Checkpoints(run)
    checkpoints.save(1, write(1), state(1, best=1), best=True)
    checkpoints.save(2, write(2), state(2, best=1))
    if leftover:
        write(9)(_folder(run / "checkpoints" / "000003"))
        write(9)(_folder(run / "checkpoints" / "000003.tmp"))
    return checkpoints


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, best: bool, leftover: bool) -> list[str]:
    """What saving step 3 does to the disk."""
    checkpoints = started(tmp_path / "count", leftover=leftover)
    with fails_at(10_000, Killed(), monkeypatch) as (hook, seen):
        checkpoints.save(3, write(3, hook), state(3, best=3 if best else 1), best=best)
    return seen


@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("best", [False, True])
def test_a_process_killed_at_any_place_leaves_the_old_checkpoint_or_the_new_one_whole(
    best: bool, leftover: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = changes(tmp_path, monkeypatch, best=best, leftover=leftover)
    assert {"write", "save", "fsync", "mkdir", "replace", "symlink"} <= set(seen)
    found = []
    for number in range(len(seen)):
        checkpoints = started(tmp_path / str(number), leftover=leftover)
        with fails_at(number, Killed(), monkeypatch) as (hook, _), pytest.raises(Killed):
            checkpoints.save(3, write(3, hook), state(3, best=3 if best else 1), best=best)
        found.append((whole(checkpoints, "last"), whole(checkpoints, "best")))
        checkpoints.save(3, write(3), state(3, best=3), best=True)  # the run that goes on finds nothing in its way
        assert (whole(checkpoints, "last"), whole(checkpoints, "best")) == (3, 3)
        assert [path.name for path in (checkpoints.run / "checkpoints").iterdir()] == ["000003"]
    assert found == sorted(found)
    assert found[0] == (2, 1)
    assert found[-1] == (3, 3 if best else 1)


def test_a_process_killed_at_any_place_leaves_as_best_what_the_last_state_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(len(changes(tmp_path, monkeypatch, best=True, leftover=False))):
        checkpoints = started(tmp_path / str(number), leftover=False)
        with fails_at(number, Killed(), monkeypatch) as (hook, _), pytest.raises(Killed):
            checkpoints.save(3, write(3, hook), state(3, best=3), best=True)
        # A run that resumes with the score of step 3 as its best replaces `best` only for a better one.
        assert whole(checkpoints, "best") >= checkpoints.load("last")["best"]


@pytest.mark.parametrize(
    ("links", "best"), [(["best"], True), (["best"], False), (["last"], False), (["best", "last"], True)]
)
def test_a_process_killed_while_it_replaces_a_checkpoint_that_links_lead_to_leaves_none_dangling(
    links: list[str], best: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed after step 3, before `last` led there, goes on from step 2; or step 3 is saved once more."""

    def begun(run: Path) -> Checkpoints:
        checkpoints, folder = started(run, leftover=False), _folder(run / "checkpoints" / "000003")
        write(3)(folder)
        torch.save(state(3, best=3), folder / "trainer.pt")
        for name in links:
            (run / name).unlink()
            (run / name).symlink_to(Path("checkpoints", "000003"))
        return checkpoints

    number, done = 0, False
    while not done:
        checkpoints = begun(tmp_path / str(number))
        there = {whole(checkpoints, "last"), whole(checkpoints, "best"), 3}
        for _ in range(2):  # and killed at the same place once more
            with fails_at(number, Killed(), monkeypatch) as (hook, seen), suppress(Killed):
                checkpoints.save(3, write(3, hook), state(3, best=3), best=best)
            assert {whole(checkpoints, "last"), whole(checkpoints, "best")} <= there
        done, number = len(seen) <= number, number + 1
        checkpoints.save(3, write(3), state(3, best=3), best=True)
        assert (whole(checkpoints, "last"), whole(checkpoints, "best")) == (3, 3)
        assert [path.name for path in (checkpoints.run / "checkpoints").iterdir()] == ["000003"]
    assert number > 10


@pytest.mark.parametrize("best", [False, True])
def test_a_disk_that_is_full_at_any_place_is_an_error_that_names_the_folder_and_loses_nothing(
    best: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []
    for number in range(len(changes(tmp_path, monkeypatch, best=best, leftover=True))):
        checkpoints = started(tmp_path / str(number), leftover=True)
        full = OSError(errno.ENOSPC, "No space left on device")
        with fails_at(number, full, monkeypatch) as (hook, _):
            try:
                checkpoints.save(3, write(3, hook), state(3, best=3), best=best)
            except OutputError as error:
                messages.append(str(error))
        assert whole(checkpoints, "last") in (2, 3)
        assert whole(checkpoints, "best") in (1, 3)
    assert len(messages) >= 5
    assert all(f"{Path('checkpoints', '000003')}: cannot be written" in message for message in messages)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("write failed: 28")])
def test_a_full_disk_while_the_model_is_written_leaves_the_earlier_checkpoint_and_no_rest(
    failure: Exception, tmp_path: Path
) -> None:
    def full(folder: Path) -> None:
        (folder / "half").write_text("half", encoding="utf-8")
        raise failure

    checkpoints = started(tmp_path, leftover=False)
    with pytest.raises(OutputError, match="cannot be written") as error:
        checkpoints.save(3, full, state(3, best=3), best=True)
    assert str(tmp_path / "checkpoints" / "000003") in str(error.value)
    assert (whole(checkpoints, "last"), whole(checkpoints, "best")) == (2, 1)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["000001", "000002"]


def test_a_full_disk_as_safetensors_reports_it_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    checkpoints = started(tmp_path, leftover=False)
    with pytest.raises(OutputError, match="000003"):
        checkpoints.save(3, full, state(3, best=3))


def test_only_the_last_checkpoint_and_the_best_one_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step, best in ((1, True), (2, False), (3, True), (4, False), (5, False)):
        folder = checkpoints.save(step, write(step), state(step, best=3), best=best)
        assert folder == tmp_path / "checkpoints" / f"{step:06d}"
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["000003", "000005"]
    assert (whole(checkpoints, "last"), whole(checkpoints, "best")) == (5, 3)


def test_a_run_folder_may_be_moved(tmp_path: Path) -> None:
    started(tmp_path / "run", leftover=False)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert whole(Checkpoints(tmp_path / "moved"), "last") == 2


def test_a_checkpoint_that_is_not_there_is_named_with_its_run(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "run")
    assert not checkpoints.exist()
    with pytest.raises(TrainingError, match="holds no checkpoint 'last'") as error:
        checkpoints.load()
    assert str(tmp_path / "run") in str(error.value)
    checkpoints.save(1, write(1), state(1, best=0))
    assert checkpoints.exist()
    with pytest.raises(TrainingError, match="no best checkpoint, because nothing was validated: use its last one"):
        checkpoints.load("best")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_named(content: bytes | None, tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path).save(1, write(1), state(1, best=0))
    path = folder / "trainer.pt"
    path.write_bytes(path.read_bytes()[:-200] if content is None else content)
    with pytest.raises(TrainingError, match="cannot be read as a checkpoint") as error:
        Checkpoints(tmp_path).load()
    assert "trainer.pt" in str(error.value)


def test_a_state_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path).save(1, write(1), state(1, best=0))
    torch.save({"step": Killed}, folder / "trainer.pt")
    with pytest.raises(TrainingError, match="cannot be read as a checkpoint"):
        Checkpoints(tmp_path).load()


def test_a_run_that_takes_over_a_checkpoint_has_no_best_one_yet(tmp_path: Path) -> None:
    other, mine = Checkpoints(tmp_path / "other"), Checkpoints(tmp_path / "mine")
    other.save(80, write(80), state(80, 90), best=True)
    other.save(100, write(100), state(100, 90))
    mine.adopt(other)
    assert whole(mine, "last") == 100
    assert mine.load()["scored"] is None, "the scores of the other do not count"
    with pytest.raises(TrainingError, match="nothing was validated"):
        mine.folder("best")
    assert other.load()["best"] == 90
