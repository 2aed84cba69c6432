"""What one turn does with a profile's words: does a model note what a section says, keep what it knew, else add nothing?

    python -m benchmarks.wording OUT.csv SAMPLES.jsonl --base-url URL [--model NAME] --profile NAME_OR_FILE …
        [--template update|gated|answer …] [--samples N] [--characters N] [--memory-tokens N] [--replies FILE]

A reading is many turns; these are the three kinds of turn that decide whether it is right, each asked once a sample:
`found`, a section with the needed fact and an empty memory: the reply holds an answer; `kept`, another section and a memory
that holds the fact: the memory after the turn still holds it; `quiet`, that section and an empty memory: it stays empty.
With `--template answer`: `held`, a memory with the fact: the reply holds an answer; `absent`, one with another fact of the
document: the reply is the profile's "not found".
Samples are those of which one fact is needed, as of `memagent synth facts` or `niah_single_2`.
A reply that is cut at the budget counts as it stands. `--replies` writes them down.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import mean

from benchmarks.readers import write
from memagent.core.outcomes import says, says_no_change
from memagent.core.prompts import Profile
from memagent.core.types import Completion, Turn
from memagent.errors import TaskError
from memagent.evaluation.statistics import wilson
from memagent.models.open import OpenModel, open_model
from memagent.profiles import load_profile
from memagent.tasks.files import SampleFile
from memagent.tasks.samples import Fact, Sample

COLUMNS = "model profile version template kind n right low high tokens".split()
TEMPLATES = ("update", "gated", "answer")
KINDS = ("found", "kept", "quiet")


def sections(sample: Sample, fact: Fact, size: int) -> tuple[str, str]:
    """Characters of the document around the fact, and as many of where it is not: the half of the rest that is longer."""
    start = max(0, (fact.start + fact.end - size) // 2)
    end = start + max(size, fact.end - fact.start)
    length = len(sample.document)
    other = end if length - end > start else max(0, start - size)
    return sample.document.read(start, min(end, length)), sample.document.read(other, min(other + size, length))


def turns(sample: Sample, profile: Profile, template: str, size: int, budget: int) -> Iterator[Turn]:
    """The turns of a sample."""
    needed = [one for one in sample.facts if one.needed]
    if len(needed) != 1:
        raise TaskError(f"sample {sample.id} needs {len(needed)} facts, not one: take samples of facts or niah_single_2")
    [fact] = needed
    if template == "answer":
        other = next((one.text for one in sample.facts if not one.needed), profile.empty_memory)
        for kind, memory in (("held", fact.text), ("absent", other)):
            words = profile.render("answer", question=sample.question, memory=memory)
            yield Turn(id=kind, kind="answer", system=profile.system, user=words, max_tokens=budget)
        return
    around, elsewhere = sections(sample, fact, size)
    shown = ((profile.empty_memory, around), (fact.text, elsewhere), (profile.empty_memory, elsewhere))
    for kind, (memory, text) in zip(KINDS, shown, strict=True):
        values = {"question": sample.question, "memory": memory, "chunk": text, "memory_tokens": budget, "exit": ""}
        words = profile.render(template, **values)  # type: ignore[arg-type]
        yield Turn(id=kind, kind="update", system=profile.system, user=words, max_tokens=budget)


def right(kind: str, reply: str, sample: Sample, profile: Profile) -> bool:
    """Whether a reply does what its kind of turn should."""
    same = says(reply, profile.nothing) or says_no_change(reply, sample.question, profile.empty_memory)
    holds = any(answer.casefold() in reply.casefold() for answer in sample.answers)
    if kind == "absent":
        return says(reply, profile.not_found)
    return {"held": holds, "found": holds, "kept": holds or same, "quiet": same or not reply.strip()}[kind]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.wording")
    parser.add_argument("out", type=Path)
    parser.add_argument("samples_file", type=Path)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="model")
    parser.add_argument("--profile", action="append", required=True)
    parser.add_argument("--template", action="append", choices=TEMPLATES, default=[])
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--characters", type=int, default=1000)
    parser.add_argument("--memory-tokens", type=int, default=160)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--replies", type=Path)
    given = parser.parse_args(arguments)
    if min(given.samples, given.characters, given.memory_tokens, given.concurrency) < 1:
        parser.error("--samples, --characters, --memory-tokens and --concurrency are at least 1")
    opened = open_model(given.model, base_url=given.base_url, window=4096, concurrency=given.concurrency)
    with closing(opened.engine):
        compare(given, opened)


def compare(given: argparse.Namespace, opened: OpenModel) -> None:
    """Asks every turn of every profile and writes the table as it grows."""
    samples = list(islice(SampleFile.open(given.samples_file), given.samples))
    rows: list[dict[str, object]] = []
    for name in given.profile:
        profile = load_profile(name)
        for template in given.template or ["update"]:
            asked = [
                (sample, turn)
                for sample in samples
                for turn in turns(sample, profile, template, given.characters, given.memory_tokens)
            ]
            with ThreadPoolExecutor(given.concurrency) as pool:
                replies = list(pool.map(lambda pair: answered(opened, pair[1]), asked))
            told = list(zip(asked, replies, strict=True))
            if given.replies:
                keep(given.replies, f"{name} {template}", told)
            for kind in dict.fromkeys(turn.id for _, turn in asked):
                of_kind = [(sample, reply) for (sample, turn), reply in told if turn.id == kind]
                hits = [right(kind, reply.text, sample, profile) for sample, reply in of_kind]
                interval = wilson(sum(hits), len(hits))
                rows.append(
                    {
                        "model": given.model,
                        "profile": profile.name,
                        "version": profile.version,
                        "template": template,
                        "kind": kind,
                        "n": len(hits),
                        "right": sum(hits),
                        "low": round(interval.low, 3),
                        "high": round(interval.high, 3),
                        "tokens": round(mean(reply.completion_tokens for _, reply in of_kind), 1),
                    }
                )
                print(rows[-1], file=sys.stderr)
            write(given.out, COLUMNS, rows)


def answered(opened: OpenModel, turn: Turn) -> Completion:
    """The reply to one turn. Raises what stopped it."""
    [done] = opened.engine.generate([turn])
    if isinstance(done, Exception):
        raise done
    return done


def keep(path: Path, label: str, told: Sequence[tuple[tuple[Sample, Turn], Completion]]) -> None:
    """Adds the replies to a file, a JSON line each."""
    with path.open("a", encoding="utf-8") as file:
        for (sample, turn), reply in told:
            line = {"words": label, "sample": sample.id, "kind": turn.id, "answers": sample.answers, "reply": reply.text}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
