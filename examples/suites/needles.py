"""A task of inspect_ai on a sample file of `memagent synth … --inline`.

inspect eval needles.py --model memagent/embedded    # in this folder, with samples.jsonl beside it
"""

from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def needles(samples: str = "samples.jsonl") -> Task:
    """The document and, after an empty line, the question; an answer is right if it has the target in it."""
    return Task(dataset=json_dataset(samples, sample), solver=generate(), scorer=includes())


def sample(record: dict[str, Any]) -> Sample:
    return Sample(id=record["id"], input=f"{record['document']}\n\n{record['question']}", target=record["answers"])
