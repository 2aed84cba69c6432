"""Starts real server programs on a loopback port for the tests: llama.cpp (as a wheel) and `transformers serve`.

Run as a script it *is* one of those servers. It ends by itself when its standard input closes, so that no server outlives
the tests, however they end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProgram:
    """One server process, ready when `with` begins and gone when it ends. `kill` and `start` act out a crash."""

    def __init__(self, kind: str, *arguments: str, port: int | None = None, deadline: float = 60.0) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._command = [sys.executable, __file__, kind, str(self.port), *arguments]
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.NamedTemporaryFile(prefix=f"{kind}-server-", suffix=".log", delete=False)  # noqa: SIM115

    @property
    def log(self) -> str:
        """What the program has printed so far."""
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def start(self, *, wait: bool = True) -> None:
        """Starts the program; with `wait`, returns once it answers and raises RuntimeError after the deadline."""
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )
        if wait:
            self._wait()

    def kill(self) -> None:
        """Ends the process at once, as a crash would: open connections are reset."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def _wait(self) -> None:
        end = time.monotonic() + self._deadline
        while time.monotonic() < end and self._process is not None and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1):
                    return
            except OSError:  # includes URLError: not listening yet, or still loading
                time.sleep(0.05)
        raise RuntimeError(f"the server did not come up within {self._deadline} s; its log:\n{self.log[-4000:]}")

    def __enter__(self) -> ServerProgram:
        with ExitStack() as failed:
            failed.callback(self.kill)
            self.start()
            failed.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.kill()
        self._log.close()
        if kind is None:
            Path(self._log.name).unlink()
        else:
            print(f"server log kept: {self._log.name}", file=sys.stderr)


def llama_server(
    gguf: Path,
    *,
    window: int = 512,
    slots: int = 2,
    api_key: str = "",
    port: int | None = None,
    threads: int = 1,
    cache: int = 8192,
    guess: int = 0,
) -> ServerProgram:
    """llama.cpp serving one GGUF file, with `window` tokens for each of `slots` requests at a time, and `cache` MiB for
    prompts that it has seen. `guess`: tokens that it guesses at once by what followed the last four in the prompt."""
    settings = map(str, (gguf, window, slots, api_key, threads, cache, guess))
    return ServerProgram("llama", *settings, port=port)


def transformers_server(folder: Path) -> ServerProgram:
    """`transformers serve` with one local folder loaded; the model's name is the folder's path."""
    return ServerProgram("transformers", str(folder), deadline=120)


def _run_llama(port: int, gguf: str, window: str, slots: str, api_key: str, threads: str, cache: str, guess: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.port = port
    params.n_parallel = int(slots)
    params.n_ctx = int(window) * int(slots)
    params.kv_unified = False
    params.fit_params = False
    params.cpuparams.n_threads = int(threads)
    params.n_threads_http = 4
    params.endpoint_props = params.endpoint_metrics = True
    params.warmup = False
    params.cache_ram_mib = int(cache)
    if int(guess):
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        params.speculative.ngram_simple.size_n, params.speculative.ngram_simple.size_m = 4, int(guess)
        params.speculative.draft.n_max = int(guess)
    if api_key:
        params.api_keys = [api_key]
    server = xllamacpp.Server(params)
    print("listening on", server.listening_address, flush=True)
    threading.Event().wait()


def _run_transformers(port: int, folder: str) -> None:
    from transformers.cli.transformers import main

    sys.argv = ["transformers", "serve", folder, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    main()


def _leave_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock must not be held when the interpreter ends
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    {"llama": _run_llama, "transformers": _run_transformers}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])
