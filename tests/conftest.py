"""Tests see and change nothing that the user of this machine keeps. Property tests draw the same examples on every machine
and every run, and take as long as a busy machine needs; Ctrl-C means what it means in a terminal."""

import os
import signal

# Tests that run side by side have a core each; torch reads this when it is first imported, here and in child processes.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator

import pytest
from hypothesis import settings  # after the environment is set

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# What runs in the background of a shell script ignores Ctrl-C, and so does everything it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Journals and profiles of the tests, and of the processes that they start, are not the user's."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MEMAGENT_HOME", str(tmp_path_factory.mktemp("home")))
        yield
