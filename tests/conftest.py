"""Property tests draw the same examples on every machine and every run, and Ctrl-C means what it means in a terminal."""

import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# What runs in the background of a shell script ignores Ctrl-C, and so does everything it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
