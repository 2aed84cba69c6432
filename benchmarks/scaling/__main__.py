"""Time, memory and network of a training step on 8 to 512 GPUs, and what lockstep costs: arithmetic and a simulation.

    python -m benchmarks.scaling [--gpus 8 64 512] [--models 7B 14B 32B] [--seed 0]

Prints the tables behind docs/results/scaling.md. No GPU is used and none was measured; every constant stands in the last
table with its source.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from benchmarks.scaling.cases import Case, best_split, case, fits, mini_batches, rows_of, smallest
from benchmarks.scaling.model import (
    BF16,
    FP32,
    SHAPES,
    Experiment,
    Machine,
    Shape,
    check,
    gather_bytes,
    kv_room,
    micro_batch,
    resident_states,
    sync_seconds,
    update,
    update_memory,
    window,
)

SLOW = 100e9 / 8  # bytes/s of a machine with one 100 Gb/s adapter
# Issue 31 of the release: 7B on 32 H100, seconds of a user's step and of its update; and what it quotes of the authors,
# 150 steps in 32 GPU-days.
ANCHOR_GPUS, ANCHOR_MODEL, ANCHOR_STEP, ANCHOR_UPDATE = 32, "7B", 2400, 2100
AUTHORS_STEP = 24 * 3600 // 150

Cells = Sequence[object]


def table(title: str, head: str, rows: Iterable[Cells]) -> None:
    print(f"\n## {title}\n\n| {head} |\n|{'---|' * len(head.split(' | '))}")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


def work(cases: Sequence[Case]) -> None:
    rows: list[Cells] = []
    for one in {one.shape.name: one for one in cases}.values():
        size, cache = f"{one.shape.parameters / 1e9:.2f} B", f"{one.shape.kv_bytes / 1e3:.0f} kB"
        texts = (f"{one.own.read / 1e6:.1f} M", f"{one.own.written / 1e6:.1f} M")
        rows.append([one.shape.name, size, cache, f"{len(one.readings):,}", f"{len(rows_of(one.readings)):,}", *texts])
    table(
        "Work of one step",
        "model | parameters | cache of a token | readings | conversations | prompt tokens | reply tokens",
        rows,
    )


def step(cases: Sequence[Case], slowdown: float) -> None:
    rows: list[Cells] = []
    for one in cases:
        whole, scored, updated = one.step(one.own), 2 * one.scored.seconds, one.updated.seconds
        parts = (f"{one.own.seconds:.0f}", f"{scored:.0f}", f"{updated:.0f}", f"{one.sync:.2f}", f"**{whole:.0f}**")
        rows.append([one.shape.name, one.gpus, *parts, one.slowest, f"{whole + (slowdown - 1) * updated:.0f}"])
    table(
        "Seconds of a step: readings on their own, all GPUs do everything in turns",
        "model | GPUs | rollout | log-probabilities | update | sync | step | most of it"
        f" | step, update {slowdown:.1f} × slower",
        rows,
    )


def rates(cases: Sequence[Case]) -> None:
    rows: list[Cells] = []
    for one in cases:
        pairs = (
            (one.own.read, one.own.prefill),
            (one.own.written, one.own.decode),
            (one.tokens, one.scored.seconds),
            (one.tokens, one.updated.seconds),
            (one.tokens, one.step(one.own)),
        )
        speeds = [tokens / seconds / one.gpus for tokens, seconds in pairs]
        rows.append([one.shape.name, one.gpus, *(f"{speed:,.0f}" for speed in speeds), f"{speeds[-1] * one.gpus:,.0f}"])
    table(
        "Tokens/s of a GPU, by phase",
        "model | GPUs | prefill | decode | log-probabilities, each model | update | whole step | whole step, all GPUs",
        rows,
    )


def memory(shapes: Sequence[Shape], counts: Sequence[int], machine: Machine, experiment: Experiment) -> None:
    training: list[Cells] = []
    reading: list[Cells] = []
    for shape, gpus in ((shape, gpus) for shape in shapes for gpus in counts):
        tokens = micro_batch(shape, gpus, machine, experiment) or int(experiment.micro_batch) // 2
        used, kept = update_memory(shape, gpus, tokens, machine), resident_states(shape, gpus)
        parts = [used.weights, used.gradients, used.optimizer, used.reference, used.activations, used.logits]
        parts += [used.gathered, used.workspace]
        training.append([shape.name, gpus, f"{tokens:,}", *map(gigabytes, parts), f"**{gigabytes(used.total)}**"])
        room = max(kv_room(shape, kept, machine), 0)
        loaded, cache = BF16 * shape.parameters / shape.tensor_parallel, room * shape.kv_bytes / shape.tensor_parallel
        cells = [*map(gigabytes, (kept, loaded, used.workspace, cache)), f"{room / 1e3:,.0f} k"]
        verdict = "yes" if fits(shape, gpus, machine, experiment) else f"no: {smallest(shape, machine, experiment)} do"
        turns = int(room / window(experiment))
        reading.append([shape.name, gpus, shape.tensor_parallel, *cells, turns, verdict])
    table(
        f"Memory of a GPU in the update, GB of {machine.memory / 1e9:.0f}",
        "model | GPUs | micro-batch | weights | gradients | AdamW | reference | activations | logits | gathered | workspace"
        " | all",
        training,
    )
    table(
        f"Memory of a GPU in the rollout, GB of {machine.memory / 1e9:.0f}, and whether both fit",
        "model | GPUs | GPUs a replica | training states | weights | workspace | cache | tokens a replica | turns | fits",
        reading,
    )


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f}"


def network(cases: Sequence[Case], machine: Machine, experiment: Experiment) -> None:
    slow = replace(machine, adapter=SLOW / machine.per_machine)
    sync: list[Cells] = []
    sharding: list[Cells] = []
    for one in cases:
        shape, gpus, batches = one.shape, one.gpus, mini_batches(one.readings, experiment)
        parts, apart = len(batches), gpus > machine.per_machine
        slower = f"{update(shape, batches, gpus, slow, experiment).network / parts:.1f}" if apart else "–"
        slower_sync = f"{sync_seconds(shape, gpus, slow):.1f}" if apart else "–"
        each = f"{gather_bytes(shape, gpus, 2 * BF16 + FP32) / 1e9:.0f}"
        count, moved = f"{one.updated.micro_batches / parts:.1f}", f"{one.updated.traffic / parts / 1e9:,.0f}"
        times = (f"{seconds / parts:.1f}" for seconds in (one.updated.compute, one.updated.network))
        sync.append([shape.name, gpus, gigabytes(gather_bytes(shape, gpus, BF16)), f"{one.sync:.2f}", slower_sync])
        sharding.append([shape.name, gpus, each, count, moved, *times, slower])
    table("One weight sync", "model | GPUs | GB into each machine | seconds | seconds at 100 Gb/s a machine", sync)
    table(
        "FSDP traffic of one update (a sixteenth of a step)",
        "model | GPUs | GB a micro-batch | micro-batches | GB a GPU | s computing | s on the network"
        " | at 100 Gb/s a machine",
        sharding,
    )


def waiting(cases: Sequence[Case], machine: Machine, experiment: Experiment, seed: int) -> None:
    rows: list[Cells] = []
    for one in cases:
        base, name, gpus = one.step(one.locked), one.shape.name, one.gpus
        for kind, rollout in (("lockstep", one.locked), ("on their own", one.own)):
            idle, whole = one.waits(rollout), one.step(rollout)
            shares = (f"{share:.1%}" for share in (rollout.idle_share, *idle))
            running = f"{rollout.running:.1f}"
            rows.append(
                [name, gpus, kind, f"{rollout.seconds:.0f}", running, *shares, f"{whole:.0f}", f"{whole / base:.2f}"]
            )
        split = best_split(one, machine, experiment, seed)
        if split is None:
            rows.append([name, gpus, "asynchronous: no trainer fits beside a reader", *"–––––––"])
            continue
        idle, run = split.waits, split.run
        shares = (f"{share:.1%}" for share in (run.rollout_idle, *idle))
        kind = f"asynchronous, {split.readers} + {gpus - split.readers} GPUs"
        rows.append([name, gpus, kind, "–", "–", *shares, f"{run.seconds:.0f}", f"{run.seconds / base:.2f}"])
    table(
        "Where GPUs wait",
        "model | GPUs | readings | rollout, s | turns at once | idle meanwhile | lost reading | lost training | step, s"
        " | ratio",
        rows,
    )


def variants(one: Case, machine: Machine, experiment: Experiment, seed: int) -> None:
    changed = {
        "as above": experiment,
        "equal replies, equal documents": replace(experiment, spread=0.0, document_spread=0.0),
        "equal replies": replace(experiment, spread=0.0),
        "replies twice as uneven": replace(experiment, spread=1.0),
        "replies twice as long": replace(experiment, memory=800, answer=400),
        "documents of 1 to 8 chunks": replace(experiment, document=22_000, document_spread=9_000),
        "staleness 1": replace(experiment, staleness=1),
        "staleness 4": replace(experiment, staleness=4),
    }
    rows: list[Cells] = []
    for name, variant in changed.items():
        again = case(one.shape, one.gpus, machine, variant, seed)
        both = (again.locked, again.own)
        split = best_split(again, machine, variant, seed)
        cells = [f"{rollout.seconds:.0f} ({rollout.idle_share:.0%})" for rollout in both]
        cells += [f"{again.step(rollout):.0f}" for rollout in both]
        rows.append([name, *cells, f"{split.run.seconds:.0f} ({split.readers})" if split else "–"])
    table(
        f"What the waiting depends on: {one.shape.name} on {one.gpus} GPUs, seconds",
        "readings | rollout, lockstep (idle) | on their own (idle) | step, lockstep | on their own"
        " | asynchronous (readers)",
        rows,
    )


def anchor(one: Case, machine: Machine) -> None:
    updated, whole = one.updated.seconds, one.step(one.locked)
    rest = f"{whole - updated:.0f}: rollout {one.locked.seconds:.0f}, log-probabilities {2 * one.scored.seconds:.0f}"
    reported = ANCHOR_STEP - ANCHOR_UPDATE
    table(
        f"The anchor: {one.shape.name} on {one.gpus} GPUs in lockstep, nothing calibrated",
        "seconds | model | reported | reported / model",
        [
            ["update", f"{updated:.0f}", f"about {ANCHOR_UPDATE}", f"{ANCHOR_UPDATE / updated:.1f}"],
            ["everything else", rest, f"about {reported}", f"{reported / (whole - updated):.1f}"],
            ["step", f"**{whole:.0f}**", f"about {ANCHOR_STEP}", f"{ANCHOR_STEP / whole:.1f}"],
            ["step, by the authors' account", f"{whole:.0f}", f"about {AUTHORS_STEP}", f"{AUTHORS_STEP / whole:.1f}"],
        ],
    )
    share = machine.train_share * one.updated.compute / ANCHOR_UPDATE
    slow = one.updated.traffic / ANCHOR_UPDATE * 8 / 1e9
    print(f"\nThe update would take {ANCHOR_UPDATE} s at {share:.3f} of peak (train_share, here {machine.train_share}), or")
    print(f"with {slow:.0f} Gb/s that really flow into a machine.")


def constants(*holders: Machine | Experiment) -> None:
    rows: list[Cells] = []
    for holder in holders:
        for one in fields(holder):
            about = one.metadata
            rows.append([one.name, f"{getattr(holder, one.name):,.6g}", about["unit"], about["kind"], about["source"]])
    table("Constants", "name | value | unit | kind | source", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--models", nargs="+", default=list(SHAPES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    machine, experiment, seed = Machine(), Experiment(), options.seed
    try:
        wanted = [(check(name, gpus, machine), gpus) for name in options.models for gpus in options.gpus]
    except ValueError as problem:
        raise SystemExit(str(problem)) from None
    cases = [case(*one, machine, experiment, seed) for one in wanted if fits(*one, machine, experiment)]
    known = case(SHAPES[ANCHOR_MODEL], ANCHOR_GPUS, machine, experiment, seed)
    if cases:
        work(cases)
        step(cases, ANCHOR_UPDATE / known.updated.seconds)
        rates(cases)
    memory([SHAPES[name] for name in options.models], options.gpus, machine, experiment)
    if cases:
        network(cases, machine, experiment)
        waiting(cases, machine, experiment, seed)
        variants(max(cases, key=lambda one: (one.shape is cases[0].shape, one.gpus)), machine, experiment, seed)
    anchor(known, machine)
    constants(machine, experiment)


if __name__ == "__main__":
    main()
