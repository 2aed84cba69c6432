"""The examples of evaluation suites, run by the suites' own programs: through the service, and through the provider.

`make test-suites` has both programs; elsewhere these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.service import ServiceProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/suites"
FOUND = {name: importlib.util.find_spec(name) is not None for name in ("inspect_ai", "lm_eval")}
needs_inspect = pytest.mark.skipif(not FOUND["inspect_ai"], reason="make test-suites has inspect_ai")
needs_lm_eval = pytest.mark.skipif(not FOUND["lm_eval"], reason="make test-suites has lm_eval")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples and four samples."""
    folder = tmp_path_factory.mktemp("suites")
    for example in EXAMPLES.glob("needles.*"):
        shutil.copy(example, folder)
    ran(
        folder, "memagent", *"synth niah_single_2 --tokens 1500 --tokens 3000 --samples 2 --inline -o samples.jsonl".split()
    )
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A service with the embedded model."""
    service = ServiceProcess(folder / "home", [])
    service.start()
    yield f"http://127.0.0.1:{service.port}/v1"
    service.stop()


def ran(folder: Path, module: str, *arguments: str) -> None:
    """Runs a program, offline."""
    away = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "MEMAGENT_HOME": str(folder / "home")}
    keys = {"MEMAGENT_API_KEY": "none", "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, **away, **keys},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@needs_inspect
@pytest.mark.parametrize("model", ["openai-api/memagent/memagent", "memagent/embedded"])
def test_a_task_of_inspect_ai(folder: Path, url: str, model: str) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log

    there = [] if model == "memagent/embedded" else ["--model-base-url", url]
    logs = f"logs-{model.partition('/')[0]}"
    ran(folder, "inspect_ai", "eval", "needles.py", "--model", model, *there, "--log-dir", logs, "--display", "plain")
    [listed] = list_eval_logs(str(folder / logs))
    log = read_eval_log(listed)
    assert (log.status, len(log.samples)) == ("success", 4)
    assert [sample.output.completion for sample in log.samples] == [sample.target[0] for sample in log.samples]
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert all(sample.output.usage.input_tokens > 1000 for sample in log.samples)


@needs_lm_eval
def test_a_generate_until_task_of_lm_evaluation_harness(folder: Path, url: str) -> None:
    there = f"model=memagent,base_url={url}/chat/completions,num_concurrent=2,timeout=600"
    task = ["--include_path", ".", "--tasks", "needles", "--apply_chat_template", "--output_path", "results"]
    ran(folder, "lm_eval", "--model", "local-chat-completions", "--model_args", there, *task)
    [results] = (folder / "results").rglob("results_*.json")
    found = json.loads(results.read_text())
    assert found["results"]["needles"]["exact_match,none"] == 1.0
    assert found["n-samples"]["needles"] == {"original": 4, "effective": 4}
