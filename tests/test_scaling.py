"""The scaling model: its arithmetic against published sizes and rates, and laws that the simulation keeps."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from benchmarks.scaling.__main__ import main, network, rates, step, variants, waiting, work
from benchmarks.scaling.cases import best_split, case, fits, mini_batches, rows_of, smallest
from benchmarks.scaling.model import (
    SHAPES,
    Experiment,
    Machine,
    Shape,
    check,
    engine,
    heaviest,
    kv_room,
    micro_batch,
    score,
    sync_seconds,
    update,
    update_memory,
    window,
)
from benchmarks.scaling.simulation import asynchronous, draw, fleet, lockstep, on_their_own

MACHINE, EXPERIMENT = Machine(), Experiment()
SMALL = replace(SHAPES["7B"], prompts=16)
EVEN = replace(EXPERIMENT, spread=0.0, document_spread=0.0)
ROOM = 1e7
LLAMA_8B = replace(SMALL, layers=32, hidden=4096, kv_heads=8, intermediate=14336, vocabulary=128_256)
QWEN_72B = replace(SMALL, layers=80, hidden=8192, kv_heads=8, intermediate=29568, tensor_parallel=2)


def readers(count: int, room: float = ROOM, experiment: Experiment = EXPERIMENT):
    return fleet(engine(SMALL, MACHINE), count, room, experiment)


def ran(
    experiment: Experiment, count: int, staleness: int, train: float, *, steps: int = 6, drain: bool = False, seed: int = 0
):
    batches = [draw(experiment, SMALL.prompts, seed, batch) for batch in range(steps + staleness + 1)]
    run = asynchronous(
        batches, readers(count, experiment=experiment), train=train, sync=0.5, staleness=staleness, steps=steps, group=16,
        drain=drain,
    )  # fmt: skip
    return batches, run


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_shapes_have_the_published_number_of_parameters(shape):
    assert shape.parameters == pytest.approx(shape.published, rel=0.01)


def test_rates_are_those_of_their_sources():
    assert LLAMA_8B.parameters == pytest.approx(8.03e9, rel=0.001)
    assert engine(LLAMA_8B, MACHINE).decode(1, 200) == pytest.approx(6.48e-3, rel=0.01)
    assert QWEN_72B.forward(8192, 1) / 1.0638 / 2 / MACHINE.peak == pytest.approx(0.59, abs=0.005)
    half_recomputed = 3.5 * LLAMA_8B.forward(8192, 8192) / 8192 * 5605
    assert half_recomputed / MACHINE.peak == pytest.approx(MACHINE.train_share, abs=0.005)


def test_every_constant_has_a_unit_a_kind_and_a_source():
    for holder in (MACHINE, EXPERIMENT):
        for one in fields(holder):
            assert one.metadata["unit"], one.name
            assert one.metadata["source"], one.name
            assert one.metadata["kind"].partition(",")[0] in ("published", "measured", "assumed"), one.name


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_memory_falls_with_more_gpus_and_states_are_divided_evenly(shape):
    totals = [update_memory(shape, gpus, 8192, MACHINE).total for gpus in (8, 16, 64, 512)]
    assert totals == sorted(totals, reverse=True)
    assert update_memory(shape, 8, 8192, MACHINE).states * 8 == pytest.approx(18 * shape.parameters)


def test_what_fits_is_what_is_said_to_fit():
    assert not fits(SHAPES["32B"], 8, MACHINE, EXPERIMENT)
    least = smallest(SHAPES["32B"], MACHINE, EXPERIMENT)
    assert fits(SHAPES["32B"], least, MACHINE, EXPERIMENT)
    assert not fits(SHAPES["32B"], least - 8, MACHINE, EXPERIMENT)
    for shape, gpus in ((SHAPES["14B"], 8), (SHAPES["14B"], 64)):
        tokens = micro_batch(shape, gpus, MACHINE, EXPERIMENT)
        assert update_memory(shape, gpus, tokens, MACHINE).total <= MACHINE.memory
        assert tokens >= window(EXPERIMENT)
    assert kv_room(SHAPES["7B"], 0, MACHINE) == pytest.approx((80e9 - 6e9 - 2 * 7.6156e9) / 57_344, rel=1e-4)


def test_rows_go_to_gpus_evenly_and_none_is_lost():
    rows = [700, 5000, 5600, 5600, 5700, 600, 5200, 5100]
    flops, tokens = heaviest(SMALL, rows, 4)
    assert max(max(rows), sum(rows) / 4) <= tokens <= 2 * sum(rows) / 4
    assert heaviest(SMALL, rows, 1)[1] == sum(rows)
    assert flops >= sum(SMALL.forward(row, row) for row in rows) / 4
    assert heaviest(SMALL, rows, 512) == (SMALL.forward(5700, 5700), 5700)


def test_an_update_is_four_forward_passes_and_never_slower_on_more_gpus():
    rows = rows_of(draw(EXPERIMENT, 16, 0))
    one, same = score(SMALL, rows, 8, MACHINE, EXPERIMENT), replace(MACHINE, score_share=MACHINE.train_share)
    assert update(SMALL, [rows], 8, MACHINE, EXPERIMENT).compute == pytest.approx(4 * one.compute)
    assert score(SMALL, rows, 8, same, EXPERIMENT).even <= one.seconds
    times = [update(SMALL, [rows], gpus, MACHINE, EXPERIMENT).seconds for gpus in (8, 16, 64, 512)]
    assert times == sorted(times, reverse=True)


def test_a_slow_network_bounds_the_update():
    rows, slow = rows_of(draw(EXPERIMENT, 16, 0)), replace(MACHINE, adapter=1e9)
    fast, slower = (update(SMALL, [rows], 64, machine, EXPERIMENT) for machine in (MACHINE, slow))
    assert (fast.bound, fast.seconds) == ("compute", fast.compute)
    assert (slower.bound, slower.seconds) == ("network", slower.network)
    assert slower.network == pytest.approx(50 * fast.network)
    assert sync_seconds(SMALL, 64, slow) == pytest.approx(50 * sync_seconds(SMALL, 64, MACHINE))


def test_a_reading_is_as_long_as_its_document():
    for reading in draw(replace(EXPERIMENT, document_spread=9_000), 16, 3):
        chunks = len(reading.prompts) - 1
        assert 1 <= chunks <= 8
        assert len(reading.replies) == chunks + 1
        assert max(reading.prompts) + max(reading.replies) <= window(EXPERIMENT)
        assert all(1 <= reply <= 1024 for reply in reading.replies)
        document = sum(reading.prompts[:-1]) - 230 * chunks - sum(reading.replies[: chunks - 1])
        assert (chunks - 1) * 4874 - 8 < document < chunks * 4874 + 8
        assert reading.prompts[-1] == 130 + reading.replies[-2]


def test_one_reading_alone_takes_the_sum_of_its_turns():
    reading = draw(EXPERIMENT, 1, 0)[0]
    speed = engine(SMALL, MACHINE)
    alone = sum(
        speed.prefill(prompt) + reply * speed.decode(1, prompt)
        for prompt, reply in zip(reading.prompts, reading.replies, strict=True)
    )
    for play in (lockstep, on_their_own):
        assert play([reading], readers(1)).seconds == pytest.approx(alone)


def test_readings_that_do_not_fit_together_take_turns():
    readings = draw(EXPERIMENT, 1, 0)[:3]
    alone = sum(on_their_own([reading], readers(1)).seconds for reading in readings)
    single = readers(1, experiment=replace(EXPERIMENT, max_running=1))
    assert on_their_own(readings, single).seconds == pytest.approx(alone)
    seconds = [on_their_own(readings, readers(1, room=room)).seconds for room in (7_152, 14_304, ROOM)]
    assert alone > seconds[0] > seconds[1] > seconds[2] > alone / 3
    with pytest.raises(ValueError, match=r"a cache of 5,000 tokens: a turn needs 7,152; use more GPUs or memory"):
        readers(1, room=5000)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "room"), [(1, ROOM), (1, 60_000), (8, 60_000), (64, ROOM)])
@pytest.mark.parametrize("changes", [{}, {"spread": 1.0}, {"document": 22_000, "document_spread": 9_000}], ids=str)
def test_lockstep_is_never_faster(seed, count, room, changes):
    experiment = replace(EXPERIMENT, **changes)
    readings = draw(experiment, 8, seed)
    locked, own = (play(readings, readers(count, room, experiment)) for play in (lockstep, on_their_own))
    assert own.seconds <= locked.seconds
    assert own.running >= locked.running


@pytest.mark.parametrize("count", [1, 4, 16])
def test_with_equal_lengths_all_ways_take_the_same_time(count):
    readings = draw(EVEN, SMALL.prompts, 0)
    locked, own = (play(readings, readers(count, experiment=EVEN)) for play in (lockstep, on_their_own))
    assert own.seconds == pytest.approx(locked.seconds)
    assert own.idle == pytest.approx(0, abs=1e-6)
    _, run = ran(EVEN, count, 0, train=30.0)
    assert run.seconds == pytest.approx(own.seconds + 30.0 + 0.5)


def test_the_simulation_is_determined_by_its_seed():
    first, again, other = (on_their_own(draw(EXPERIMENT, 8, seed), readers(8)) for seed in (1, 1, 2))
    assert first == again != other
    assert ran(EXPERIMENT, 4, 1, train=20.0, seed=1)[1] == ran(EXPERIMENT, 4, 1, train=20.0, seed=1)[1]


@pytest.mark.parametrize("count", [1, 8, 64])
def test_every_token_is_read_and_written_once(count):
    readings = draw(EXPERIMENT, SMALL.prompts, 0)
    total = [sum(sum(reading.prompts) for reading in readings), sum(sum(reading.replies) for reading in readings)]
    for play in (lockstep, on_their_own):
        done = play(readings, readers(count, room=60_000))
        assert [done.read, done.written] == total
        assert done.prefill + done.decode + done.idle == pytest.approx(done.seconds)


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("train", [1.0, 30.0, 200.0])
def test_asynchronous_rollouts_lose_nothing_and_stay_within_their_staleness(staleness, train):
    batches, run = ran(EXPERIMENT, 4, staleness, train, drain=True)
    assert run.written == sum(sum(reading.replies) for batch in batches for reading in batch)
    assert run.oldest <= staleness
    assert run.seconds >= train + 0.5 - 1e-9
    assert 0 <= run.rollout_idle <= 1
    assert 0 <= run.trainer_idle <= 1


def test_a_trainer_that_is_slow_enough_never_waits():
    rollout = on_their_own(draw(EXPERIMENT, SMALL.prompts, 0), readers(4)).seconds
    _, run = ran(EXPERIMENT, 4, 1, train=2 * rollout)
    assert run.seconds == pytest.approx(2 * rollout + 0.5)
    assert run.trainer_idle == pytest.approx(0, abs=1e-9)
    assert run.rollout_idle > 0.3


def test_a_case_adds_up_and_its_split_uses_all_gpus():
    one = case(SMALL, 16, MACHINE, EXPERIMENT, 0)
    assert one.step(one.own) == one.own.seconds + 2 * one.scored.seconds + one.updated.seconds + one.sync
    assert sum(map(sum, mini_batches(one.readings, EXPERIMENT))) == one.tokens == one.own.read + one.own.written
    assert len(mini_batches(one.readings, EXPERIMENT)) == 16
    split = best_split(one, MACHINE, EXPERIMENT, 0)
    assert (split.readers, split.gpus) == (8, 16)
    assert all(0 <= share < 1 for share in (*split.waits, *one.waits(one.own), *one.waits(one.locked)))
    assert best_split(replace(one, gpus=1), MACHINE, EXPERIMENT, 0) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "0"], "0 GPUs: at least 1 is needed; give for example --gpus 8"),
        (["--models", "7B", "70B"], "model '70B' is not known; known are 7B, 14B, 32B"),
        (
            ["--gpus", "6", "--models", "32B"],
            "6 GPUs: 32B runs on 4 GPUs a replica (tensor parallel); give a multiple of 4",
        ),
        (["--gpus", "12"], "12 GPUs: above 8 only whole machines of 8; give 16"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert str(caught.value) == message


def test_good_input_is_the_shape():
    assert check("14B", 64, MACHINE) is SHAPES["14B"]
    assert isinstance(check("7B", 1, MACHINE), Shape)


def test_all_tables_are_tables(capsys):
    one = case(SMALL, 16, MACHINE, EXPERIMENT, 0)
    work([one])
    step([one], 5.0)
    rates([one])
    network([one], MACHINE, EXPERIMENT)
    waiting([one, replace(one, gpus=1)], MACHINE, EXPERIMENT, 0)
    variants(one, MACHINE, EXPERIMENT, 0)
    main(["--gpus", "1", "--models", "7B"])
    out = capsys.readouterr().out
    assert "no: 8 do" in out
    assert "no trainer fits" in out
    assert out.count("\n## ") == 11
    for table in out.split("\n## ")[1:]:
        rows = [line for line in table.splitlines() if line.startswith("|")]
        assert len(rows) > 2
        assert len({line.count("|") for line in rows}) == 1, rows[0]
