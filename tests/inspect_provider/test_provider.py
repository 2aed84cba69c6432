"""inspect_ai finds the provider, reads its samples through it, and logs what came of each."""

from __future__ import annotations

import base64

import pytest

from tests.faults import Fault, FaultServer
from tests.test_follow_up import TEXT, served

SIZES = {"chunk_tokens": 100, "memory_tokens": 50}


inspect_ai = pytest.importorskip("inspect_ai", reason="make test-suites has inspect_ai")

from inspect_ai import Task, eval, eval_retry, task  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageSystem,
    ChatMessageUser,
    ContentDocument,
    ContentImage,
    ContentText,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import bash  # noqa: E402
from inspect_ai.util import json_schema  # noqa: E402

PLAIN = Sample(input=f"{TEXT}\n\nthe code?", target="4821973")


def logged(server: FaultServer, tmp_path, *samples: Sample, config=None, solver=None, **arguments):
    """The log of an evaluation of a few samples."""
    model = get_model("memagent/scripted", base_url=server.url, memoize=False, **SIZES, **arguments)
    asked = Task(dataset=list(samples), solver=solver or generate(), scorer=includes(), config=config or GenerateConfig())
    [log] = eval(asked, model=model, display="none", log_dir=str(tmp_path / "logs"), fail_on_error=False)
    return log


@task
def one_sample() -> Task:
    return Task(dataset=[PLAIN], solver=generate(), scorer=includes())


def test_samples_are_read_and_come_back_with_what_is_known(tmp_path) -> None:
    with FaultServer(served) as server:
        other = Sample(input=[ChatMessageSystem(content="Be brief."), ChatMessageUser(content=TEXT + "\n\nthe captain?")])
        other.target = "Ann"
        log = logged(server, tmp_path, PLAIN, other, journal=str(tmp_path / "journal.sqlite3"))
    assert log.status == "success"
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    [first, second] = log.samples
    assert (first.output.completion, second.output.completion) == ("4821973", "Ann")
    [memory, answer] = first.output.message.content
    assert ("4821973" in memory.reasoning, answer.text) == (True, "4821973")
    known = first.output.metadata
    assert (known["status"], known["share_read"]) == ("supported", 1.0)
    assert known["quotes"][0]["cited_text"] in TEXT
    assert known["reading"]
    usage = first.output.usage
    assert usage.total_tokens == usage.input_tokens + usage.input_tokens_cache_read + usage.output_tokens > 0


def test_documents_are_read_and_pictures_refused(tmp_path) -> None:
    def message(part) -> Sample:
        return Sample(input=[ChatMessageUser(content=[part, ContentText(text="the code?")])], target="4821973")

    file = f"data:text/plain;base64,{base64.b64encode(TEXT.encode()).decode()}"
    picture = "data:image/png;base64,iVBORw0KGgo="
    samples = [message(ContentDocument(document=file, filename="log.txt")), message(ContentImage(image=picture))]
    with FaultServer(served) as server:
        [read, refused] = logged(server, tmp_path, *samples).samples
    assert (read.output.completion, read.output.metadata["quotes"][0]["file"]) == ("4821973", "log.txt")
    assert "part of type 'image'" in refused.error.message


def test_what_a_task_sets_is_used(tmp_path) -> None:
    config = GenerateConfig(temperature=0.5, top_p=0.9, seed=7, max_tokens=44, stop_seqs=["\n"])
    with FaultServer(served) as server:
        log = logged(server, tmp_path, PLAIN, config=config)
        assert log.samples[0].output.completion == "4821973"
        answers = [body for body in server.requests if body["max_tokens"] == 44]
        assert {(body["temperature"], body["top_p"]) for body in answers} == {(0.5, 0.9)}
        assert all("seed" in body and "stop" not in body for body in answers)


@pytest.mark.parametrize(
    ("config", "solver", "said"),
    [
        (GenerateConfig(num_choices=2), None, "leave out num_choices"),
        (GenerateConfig(logprobs=True), None, "leave out logprobs"),
        (GenerateConfig(max_tokens=10**6), None, "the reading does not fit the window"),
        (None, [use_tools(bash()), generate()], "calls no tools, such as 'bash'"),
    ],
)
def test_what_a_reading_cannot_do_is_an_error_of_the_sample(tmp_path, config, solver, said) -> None:
    with FaultServer(served) as server:
        [sample] = logged(server, tmp_path, PLAIN, config=config, solver=solver, window=8192).samples
    assert said in sample.error.message


def test_an_answer_may_follow_a_schema(tmp_path) -> None:
    config = GenerateConfig(response_schema=ResponseSchema(name="code", json_schema=json_schema(int)))
    with FaultServer(served) as server:
        [sample] = logged(server, tmp_path, PLAIN, config=config).samples
    assert sample.output.completion == "4821973"


def test_a_reading_that_fails_is_an_error_and_its_retry_goes_on_where_it_was(tmp_path) -> None:
    journal = str(tmp_path / "journal.sqlite3")
    with FaultServer(served, faults=lambda number: Fault("status", status=400) if number == 6 else None) as server:
        options = {"display": "none", "log_dir": str(tmp_path / "logs")}
        arguments = {**SIZES, "journal": journal}
        [log] = eval(one_sample(), model="memagent/scripted", model_base_url=server.url, model_args=arguments, **options)
        assert log.status == "error"
        assert "a fault on schedule" in log.error.message
        [again] = eval_retry(log, **options)
    [sample] = again.samples
    assert sample.output.completion == "4821973"
    assert sample.output.metadata["turns_resumed"] > 0


def test_an_argument_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="no model argument 'chunks': choose from"):
        get_model("memagent/scripted", base_url="http://127.0.0.1:9/v1", memoize=False, chunks=3)
