"""OpenAI GraphWalks: breadth-first searches and parents in a graph that is given as a list of edges."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import AliasChoices, Field

from memagent.errors import TaskError
from memagent.tasks.suites.suite import Exercise, Place, Suite, SuiteRecord, whole

_EDGES = "The graph has the following edges"
_OPERATION = "Operation:"
_FORM = 'End your answer with the line "Final Answer: [node, node, …]".'


class GraphWalksRecord(SuiteRecord):
    """`prompt`: rules, examples, the graph and at its end the operation."""

    prompt: str
    answer_nodes: list[str] = Field(validation_alias=AliasChoices("answer_nodes", "answer"))
    problem_type: str
    prompt_chars: int | None = None
    date_added: str = ""


def exercises(record: GraphWalksRecord, place: Place) -> Iterator[Exercise]:
    rules, body, operation = split(record.prompt)
    form = "" if "Final Answer" in operation else f"\n\n{_FORM}"
    yield Exercise(
        id=str(place.number),
        question=f"{rules}\n\n{operation}{form}".strip(),
        document=whole(body),
        answers=[f"Final Answer: [{', '.join(record.answer_nodes)}]"],
        scorer="graphwalks",
        category=record.problem_type,
        meta={"length": record.prompt_chars, "nodes": len(record.answer_nodes), "added": record.date_added},
    )


def split(prompt: str) -> tuple[str, str, str]:
    """The rules at the beginning; the examples and the graph; the operation at the end. Nothing is left out."""
    last = prompt.rfind(_OPERATION)
    if last < 0:
        raise TaskError(f"prompt: expected {_OPERATION!r} before the operation to perform")
    ends = [end for end in (prompt.find("\n\n", 0, last), prompt.find(_EDGES, 0, last)) if end >= 0]
    first = min(ends, default=0)
    return prompt[:first].strip(), prompt[first:last].strip() + "\n", prompt[last:].strip()


SUITE = Suite(
    name="graphwalks",
    title="OpenAI GraphWalks",
    file="graphwalks_128k_and_shorter.parquet, graphwalks_256k_to_1mil.parquet of openai/graphwalks (Hugging Face)",
    scorer="graphwalks",
    official="yes",
    record=GraphWalksRecord,
    exercises=exercises,
)
