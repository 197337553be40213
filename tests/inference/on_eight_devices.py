"""Fits whose records are spread over devices. ``test_sharding.py`` runs this file with eight of
XLA's simulated ones.
"""

import dataclasses
import functools
import re
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from jax import export, lax
from jax.sharding import Mesh, PartitionSpec
from numpyro.optim import Adam

import workbench as wb
from tests import zoo
from tests.auditing import reachable, summation
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.clipping import clipped_sums
from workbench.data.storage import packing
from workbench.fitting import checkpoints, resuming
from workbench.fitting.devices import devices_named
from workbench.fitting.groups import grouped
from workbench.inference import compiling
from workbench.inference.assemble import assemble
from workbench.inference.batched import BatchedProgram, stacked, starting_states
from workbench.inference.sharding import Shards
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.ledger.ledger import Ledger
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.sampling import (
    PoissonSampler,
    RandomAllocationSampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)
from workbench.sweeps import running, sweeping
from workbench.sweeps.request import LISTS
from workbench.sweeps.store import Store

N = 61  # which no number of devices divides
SAMPLERS = [
    PoissonSampler(N, 0.4, 50),
    RandomAllocationSampler(N, 3, 50),
    WithoutReplacementSampler(N, 24),
    ShuffleSampler(N, 24),
]
CLIP = 1.0
KEY = key_from_seed(0)
EXCHANGES = (
    r"all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Seen(GaussianMechanism):
    """Keeps the sum, the noise and what is released."""

    kept: list = dataclasses.field(default_factory=list)

    def add(self, total, noise):
        noised = super().add(total, noise)
        self.kept.append((total, noise, noised))
        return noised


def step_of(model, guide, records, sampler, sigma=2.0):
    return assemble(
        model, guide, Adam(0.01), KEY, records, sampler=sampler, mechanism=Seen(CLIP, sigma)
    )


def releasing(step, number=3):
    """A function of a key and records: (sum without noise, its spacing, noise, release, the
    optimiser's state) of a step.
    """
    hyper = Hyperparameters.of(step.mechanism)
    params = step.model.initial

    def one(key, records):
        state = step.optimizer.init(params)
        draws = step.draw(key, jnp.int32(number), hyper)
        step.mechanism.kept.clear()
        following = step.step(DPVIState(state, jnp.int32(number), key), records, draws, hyper)
        ((total, noise, noised),) = step.mechanism.kept
        return total.units, total.spacing, noise.units, noised, following.optim_state

    return one


def released(step, *records):
    """As ``releasing``, for one or several sets of records."""
    compiled = jax.jit(releasing(step))
    found = [compiled(KEY, each) for each in records]
    return found[0] if len(found) == 1 else found


@functools.cache
def alone(sampler):
    """(a step, what one device releases of it)."""
    records = zoo.logistic_data(N)
    step = step_of(zoo.logistic, zoo.logistic_guide, records, sampler)
    return step, released(step, tuple(map(jnp.asarray, records)))


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def spread(step, records, count):
    shards = Shards(tuple(jax.devices()[:count]))
    return dataclasses.replace(step, source=shards), shards.spread(records)


def check_release(sampler, count, shards=Shards, **bugs):
    """The sum of ``count`` devices is that of one, and noise is added to it once, on every device
    alike.

    :param bugs: planted ones of the step on several devices.
    """
    step, (sums, spacing, noise, _, _) = alone(sampler)
    shared = shards(tuple(jax.devices()[:count]))
    own = released(
        dataclasses.replace(step, source=shared, **bugs), shared.spread(zoo.logistic_data(N))
    )
    own_sums, own_spacing, own_noise, own_noised, end = own
    np.testing.assert_allclose(flat(own_sums) * own_spacing, flat(sums) * spacing, atol=1e-3 * CLIP)
    np.testing.assert_array_equal(own_noise, noise)
    np.testing.assert_array_equal(
        flat(own_noised), ((flat(own_sums) + own_noise).astype(np.float32) * own_spacing)
    )
    for leaf in jax.tree.leaves(end):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(copies) == count
        for copy in copies:
            np.testing.assert_array_equal(copy, copies[0], "a device has gone a way of its own")


@dataclasses.dataclass(frozen=True, eq=False)
class Spaced(GaussianMechanism):
    """Keeps what the spacing of a sum follows from."""

    facts: set = dataclasses.field(default_factory=set)

    def spacing(self, noise_multiplier, clip, level, slack, units):
        self.facts.add((slack, units))
        return super().spacing(noise_multiplier, clip, level, slack, units)


@pytest.mark.parametrize("name", some_of(["poisson", "random_allocation"]))
@pytest.mark.parametrize(
    ("count", "sizes"), some_of([(2, (100, 344, 345, 400)), (1, (100, 400)), (8, (344, 345))], 3)
)
def test_the_spacing_follows_the_declared_number_of_records(count, sizes, name):
    """On two devices 344 and 345 records told each other apart, where 400 were declared."""
    mechanism = Spaced(CLIP, 2.0)
    settings = PrivacySettings(1.0, 1e-4, 100, 0.1, name, CLIP, 400, None)
    shapes = set()
    for size in sizes:
        records = zoo.logistic_data(size)
        step = assemble(
            zoo.logistic,
            zoo.logistic_guide,
            Adam(0.01),
            KEY,
            records,
            sampler=make_plan(settings, size).sampler,
            mechanism=mechanism,
            num_records=400,
        )
        if count > 1:
            step = dataclasses.replace(step, source=Shards(tuple(jax.devices()[:count])))
            spread_out = step.source.spread(records, step.sampler.public_size)
            shapes.add((spread_out[0].shape, spread_out[0].addressable_shards[0].data.shape))
            records = spread_out
        hyper = Hyperparameters.of(step.mechanism)
        state = DPVIState(step.optimizer.init(step.model.initial), jnp.int32(0), KEY)
        jax.eval_shape(
            lambda records, step=step, state=state, hyper=hyper: step.step(
                state, records, step.draw(KEY, jnp.int32(0), hyper), hyper
            ),
            tuple(map(jnp.asarray, records)),
        )
    assert len(mechanism.facts) == 1
    assert len(shapes) <= 1


@pytest.mark.parametrize("sampler", some_of(SAMPLERS, 4), ids=lambda sampler: sampler.name)
@pytest.mark.parametrize("count", some_of([8, 2]))
def test_the_sum_is_that_of_one_device_and_noise_is_added_once(sampler, count):
    check_release(sampler, count)


def wide(x, num_records=None):
    """So many parameters that their noise has a key of its own and is drawn in chunks."""
    kernel = numpyro.param("kernel", lambda key: 0.1 * jax.random.normal(key, (240, 280)))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(x @ kernel, 1.0).to_event(1), obs=jnp.zeros((len(x), 280)))


@pytest.mark.thorough
def test_the_noise_of_many_coordinates_is_that_of_one_device_and_added_once():
    records = (np.random.default_rng(0).normal(size=(N, 240)).astype(np.float32),)
    step = step_of(wide, lambda x, num_records=None: None, records, SAMPLERS[0])
    sums, spacing, noise, _, _ = released(step, tuple(map(jnp.asarray, records)))
    own_sums, own_spacing, own_noise, own_noised, _ = released(*spread(step, records, 4))
    np.testing.assert_allclose(flat(own_sums) * own_spacing, flat(sums) * spacing, atol=1e-3 * CLIP)
    np.testing.assert_array_equal(own_noise, noise)
    np.testing.assert_array_equal(
        flat(own_noised), ((flat(own_sums) + own_noise).astype(np.float32) * own_spacing)
    )


class NoiseOfEach(Shards):
    """A planted bug: every device adds a noise, here 1024 spacings, to its own sum before the sums
    are added up.
    """

    def sum_of(self, sums, *arguments):
        def noised(*own):
            total, counts = sums(*own)
            return OnGrid(
                jax.tree.map(lambda units: units + 2**10, total.units), total.spacing
            ), counts

        return super().sum_of(noised, *arguments)


@dataclasses.dataclass(frozen=True, eq=False)
class Forgetful(Seen):
    """A planted bug: one device adds no noise to its copy of the sum."""

    forgets: int = 1

    def add(self, total, noise):
        def here(units, noise_units):
            adds = lax.axis_index("records") != self.forgets
            return GaussianMechanism.add(
                OnGrid(units, total.spacing), Noise(noise_units * adds, noise.level)
            )

        mesh = Shards(tuple(jax.devices()[:2])).mesh
        noised = jax.shard_map(
            here, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
        )(total.units, noise.units)
        self.kept.append((total, noise, noised))
        return noised


@pytest.mark.thorough
def test_noise_on_every_device_is_caught():
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_release(SAMPLERS[0], 2, NoiseOfEach)


@pytest.mark.parametrize(
    ("forgets", "caught"), some_of([(0, "Arrays are not equal"), (1, "a way of its own")])
)
def test_a_device_that_forgets_its_noise_is_caught(forgets, caught):
    with pytest.raises(AssertionError, match=caught):
        check_release(SAMPLERS[0], 2, mechanism=Forgetful(CLIP, 2.0, forgets=forgets))


@pytest.mark.thorough
def test_local_latents_draw_what_they_draw_on_one_device():
    records = (np.random.default_rng(0).normal(size=N).astype(np.float32),)
    step = step_of(zoo.noisy_means, zoo.noisy_means_guide, records, SAMPLERS[0])
    assert step.estimator.needs_own_keys(step.model)
    sums, spacing, *_ = released(step, tuple(map(jnp.asarray, records)))
    own_sums, own_spacing, *_ = released(*spread(step, records, 8))
    np.testing.assert_allclose(flat(own_sums) * own_spacing, flat(sums) * spacing, atol=1e-3 * CLIP)


def test_a_step_moves_one_sum_and_no_record():
    """One all-reduce, of as many whole numbers as there are coordinates, and no other exchange."""
    records = zoo.logistic_data(N)
    step, arrays = spread(
        step_of(zoo.logistic, zoo.logistic_guide, records, SAMPLERS[0]), records, 8
    )
    hyper, start = Hyperparameters.of(step.mechanism), step.optimizer.init(step.model.initial)

    def one(records):
        state = DPVIState(start, jnp.int32(0), KEY)
        return step.step(state, records, step.draw(KEY, 0, hyper), hyper)

    text = jax.jit(one).lower(arrays).compile().as_text()
    sums = re.findall(r"= (.*?) all-reduce(?:-start)?\(", text)
    numbers = [
        int(np.prod([int(size) for size in shape.split(",") if size]))
        for shape in re.findall(r"s32\[(.*?)\]", sums[0])
    ]
    assert len(sums) == 1
    assert sum(numbers) == step.noise_size
    assert set(re.findall(EXCHANGES, text)) == {"all-reduce"}


@pytest.mark.thorough
def test_book_keeping_is_that_of_one_device(monkeypatch):
    """Gradients that one device never forms, several do not form either."""
    found, settled = [], clipped_sums._settled
    monkeypatch.setattr(
        clipped_sums,
        "_settled",
        lambda strategy, plan: (found.append(plan.rules), settled(strategy, plan))[1],
    )
    records = zoo.logistic_data(N)
    step = step_of(zoo.logistic, zoo.logistic_guide, records, SAMPLERS[0])
    for own, arrays in ((step, tuple(map(jnp.asarray, records))), spread(step, records, 2)):
        jax.eval_shape(releasing(own), KEY, arrays)
    assert "outer product" in {rule.rule for rule in found[0]}
    assert found == found[:1] * len(found)


@pytest.mark.thorough
def test_room_that_is_left_is_never_drawn():
    records = zoo.logistic_data(N)
    step = step_of(zoo.logistic, zoo.logistic_guide, records, PoissonSampler(N, 1.0, N), sigma=1.0)
    step, arrays = spread(step, records, 8)
    assert [len(shard.data) for shard in arrays[0].addressable_shards] == [8] * 8
    poisoned = tuple(
        array.at[N:].set(jnp.nan if array.dtype.kind == "f" else 99)
        for array in map(jnp.asarray, arrays)
    )
    (sums, *_), (sound, *_) = released(step, poisoned, arrays)
    np.testing.assert_array_equal(flat(sums), flat(sound))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(packing, "_SMALLEST_BLOCK", 128)


def packed(folder, encrypt, number):
    """A table, and a function that opens it as a file."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"dose": rng.random(number), "age": rng.random(number), "ill": rng.random(number) < 0.5}
    )
    frame.to_parquet(folder / "t.parquet")
    declared = {"target": "ill", "bounds": (0, 1)}
    key = folder / "key" if encrypt else None
    wb.data.pack(
        folder / "t.parquet",
        folder / "t.wbr",
        encrypt=encrypt,
        key_file=key,
        block_size=256,
        **declared,
    )
    table = wb.data.from_parquet(folder / "t.parquet", **declared)
    return table, lambda reading: wb.data.open(folder / "t.wbr", key_file=key, reading=reading)


@pytest.mark.parametrize("encrypt", some_of([False, True], 2, 1))
def test_of_a_file_each_device_has_the_rows_that_it_has_of_a_table(
    encrypt, tmp_path, small_blocks, monkeypatch
):
    table, opened = packed(tmp_path, encrypt, 400)
    shards, data, blocks = Shards(tuple(jax.devices())), opened("direct"), []
    scan = type(data.stored).scan
    monkeypatch.setattr(
        type(data.stored), "scan", lambda *given: (blocks.append(given[2]), scan(*given))[1]
    )
    for one, other in zip(shards.spread(data.train), shards.spread(table.train), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.sharding == other.sharding
    assert len(blocks) == 16  # of each array a part for each device
    assert max(map(len, blocks)) < data.stored.opened.form.blocks[0] / 3
    if encrypt:
        with pytest.raises(
            ArgumentError,
            match="devices=2: cannot spread the records of 't', which are read obliviously",
        ):
            wb.prepare(
                "logistic",
                opened("oblivious"),
                epsilon=1.0,
                delta=1e-5,
                execution=wb.Execution(devices=2),
            )


@pytest.mark.thorough
def test_a_fit_of_a_file_ends_at_the_bits_of_the_table(tmp_path, small_blocks):
    table, opened = packed(tmp_path, True, 400)
    given = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "iterations": 40,
        "seed": 1,
        "devices": 3,
        "ledger": False,
    }
    whole, result = (
        wb.fit("logistic", data, **grouped(given)) for data in (table, opened("direct"))
    )
    assert result.status == "done"
    for name, value in whole.params.items():
        np.testing.assert_array_equal(result.params[name], value)
    # which blocks each device has follows from the number of records
    assert not result.guarantee.against_storage
    assert wb.fit("logistic", opened("memory"), **grouped(given)).guarantee.against_storage


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["poisson", "shuffle"])
def test_a_fit_has_the_guarantee_and_nearly_the_parameters_of_one_device(sampler, tmp_path):
    settings = {"epsilon": 1.0, "iterations": 60, "seed": 1, "sampler": sampler}
    alone = wb.fit("logistic", "breast_cancer", **grouped(settings))
    result = wb.fit("logistic", "breast_cancer", **grouped(devices=3, **settings))
    assert result.guarantee == alone.guarantee
    for name, value in alone.params.items():
        np.testing.assert_allclose(result.params[name], value, atol=0.02)
    assert result.metrics == pytest.approx(alone.metrics, rel=0.02)
    assert result.settings["devices"] == ["cpu:0", "cpu:1", "cpu:2"]
    result.save(tmp_path / "saved")
    assert wb.load(tmp_path / "saved").settings["devices"] == result.settings["devices"]


@pytest.mark.thorough
def test_a_stopped_fit_goes_on_to_where_it_would_have_ended(tmp_path):
    settings = {"epsilon": 1.0, "iterations": 60, "seed": 2, "devices": "all"}
    whole = wb.fit("logistic", "breast_cancer", **grouped(settings))
    seen = []
    stopped = wb.fit(
        "logistic",
        "breast_cancer",
        **grouped(
            checkpoint=tmp_path / "run",
            on_snapshot=seen.append,
            stop=lambda: len(seen) > 2,
            **settings,
        ),
    )
    assert stopped.status == "cancelled"
    resumed = wb.resume(tmp_path / "run")
    assert resumed.status == "done"
    for name, value in whole.params.items():
        np.testing.assert_array_equal(resumed.params[name], value)


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4), (2, 8)])
def test_a_stopped_fit_goes_on_with_another_number_of_devices(
    before, after, private_data, tmp_path
):
    seen, run = [], tmp_path / "run"
    settings = {"epsilon": 1.0, "iterations": 200, "devices": before, "checkpoint": run}
    stopped = wb.fit(
        "logistic",
        private_data,
        **grouped(on_snapshot=seen.append, stop=lambda: len(seen) > 2, **settings),
    )
    taken = stopped.guarantee.steps_taken
    assert 0 < taken < 200
    resumed = wb.resume(run, data=private_data, devices=after, stop=lambda: True)
    # nothing was taken yet, so nothing is rounded otherwise
    np.testing.assert_equal(resumed.params, stopped.params)
    resumed = wb.resume(run, data=private_data, devices=after)
    assert (resumed.status, resumed.guarantee.epsilon) == ("done", 1.0)
    (spend,) = Ledger().spends()
    assert (spend.status, spend.taken) == ("settled", 200)


@pytest.mark.thorough
def test_steps_that_may_have_been_seen_are_not_taken_on_other_devices(private_data, tmp_path):
    """Rounded otherwise, they would have the same noise and other sums."""
    run, seen = tmp_path / "run", []
    settings = {"epsilon": 1.0, "iterations": 200, "checkpoint": run}
    wb.fit(
        "logistic",
        private_data,
        **grouped(on_snapshot=seen.append, stop=lambda: len(seen) > 1, devices=4, **settings),
    )
    former = {file: file.read_bytes() for file in run.iterdir()}
    assert (
        wb.resume(run, data=private_data, devices=1, stop=lambda: len(seen) > 1).status
        == "cancelled"
    )
    moved = checkpoints.newest(run)
    assert moved.facts["settings"]["devices"] == 1
    # steps after them were taken here
    assert not [file for file in run.iterdir() if former.get(file) == file.read_bytes()]

    seen.clear()
    with pytest.raises(ZeroDivisionError):
        wb.fit(
            "logistic",
            private_data,
            **grouped(
                on_snapshot=lambda snapshot: 1 // (snapshot.step == 0),
                devices=4,
                **({**settings, "checkpoint": tmp_path / "crashed"}),
            ),
        )
    assert checkpoints.newest(tmp_path / "crashed").repeats
    with pytest.raises(
        ArgumentError, match="interrupted on other devices, which round differently"
    ):
        resuming.prepare(tmp_path / "crashed", data=private_data, devices=1)
    resuming.prepare(tmp_path / "crashed", data=private_data)


@pytest.mark.thorough
def test_the_audit_stays_below_the_claim_and_sees_a_bug():
    settings = {"epsilon": 2.0, "trials": 1000, "iterations": 5, "seed": 0, "devices": "all"}
    sound = wb.audit("logistic", parts=["attack", "sensitivity"], **settings)
    assert sound.passed
    assert 0.2 < sound.lower_bound < 2.0
    assert not wb.audit("logistic", bug="no_clipping", parts=["attack"], **settings).passed
    shards = Shards(tuple(jax.devices()))
    assert summation.worst_move(shards=shards).ratio <= 1
    assert not reachable.tells(shards=shards)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": 9}, "devices=9: is more than there are: JAX sees 8"),
        ({"devices": 0}, "devices=0"),
        ({"devices": "every"}, "devices='every': must be a whole number of at least 1"),
        ({"devices": ["cpu:1", "cpu:1"]}, "must be different devices"),
        ({"devices": ["cpu:99"]}, "devices='cpu:99': no such device"),
        ({"devices": []}, "must be different"),
        ({"devices": ["cpu:1"], "device": "cpu"}, "leave one out"),
        ({"devices": "2x4"}, "devices='2x4': must be a whole"),
        ({"devices": [["cpu:0", "cpu:1"]]}, "no such device"),
        (
            {"devices": Mesh(np.array(jax.devices()).reshape(4, 2), ("records", "model"))},
            "mesh with exactly one axis",
        ),
    ],
)
def test_what_is_refused(changes, reason):
    with pytest.raises(ArgumentError, match=re.escape(reason)):
        wb.prepare("logistic", "breast_cancer", epsilon=1.0, **grouped(changes))


@pytest.mark.thorough
def test_a_mesh_a_number_and_all_are_ways_to_say_it():
    for devices in (Mesh(np.array(jax.devices()[:2]), ("records",)), 2, "2", ["cpu:0", "cpu:1"]):
        assert wb.prepare(
            "logistic", "breast_cancer", epsilon=1.0, execution=wb.Execution(devices=devices)
        ).spec.devices == tuple(jax.devices()[:2])
    assert (
        len(
            wb.prepare(
                "logistic", "breast_cancer", epsilon=1.0, execution=wb.Execution(devices="all")
            ).spec.devices
        )
        == 8
    )


# --- fits that are stepped together, spread over devices ------------------------------------------


def ends_of_lanes(step, lanes, count, records, **options):
    """All numbers with which each lane ends, an array a row, of fits with the same settings on
    ``count`` devices.
    """
    hyper = stacked([Hyperparameters.of(step.mechanism, average_from=3)] * lanes)
    start = starting_states(step, [key_from_seed(seed) for seed in range(lanes)], hyper)
    program = BatchedProgram(
        step, options.pop("room", lanes), devices=jax.devices()[:count], **options
    )
    state = program.run(start, records, hyper, 7).state
    if hasattr(
        program._chunk, "as_text"
    ):  # the steps, and not a function that also prepares epochs
        assert not re.search(EXCHANGES, program._chunk.as_text())
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((state.optim_state, state.average))]
    return np.concatenate([leaf.reshape(lanes, -1) for leaf in leaves], axis=1)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)
def test_a_lane_ends_at_the_bits_of_one_device(sampler):
    """Five lanes on four devices: two each on three of them, the last of which is a copy that
    nobody sees.
    """
    records = tuple(map(jnp.asarray, zoo.logistic_data(N)))
    mechanism = GaussianMechanism(CLIP, 2.0)
    step = assemble(
        zoo.logistic,
        zoo.logistic_guide,
        Adam(0.01),
        KEY,
        records,
        sampler=sampler,
        mechanism=mechanism,
    )
    alone = ends_of_lanes(step, 5, 1, records, shared=True)
    np.testing.assert_array_equal(ends_of_lanes(step, 5, 4, records, shared=True), alone)
    assert len(np.unique(alone, axis=0)) == 5  # noise and minibatches of its own for each


@pytest.mark.thorough
def test_fewer_lanes_than_devices_and_own_records_and_kept_epochs(monkeypatch):
    monkeypatch.setattr(compiling, "_WORDS_AHEAD", N // 8)
    records = tuple(map(jnp.asarray, zoo.logistic_data(N)))
    mechanism, own = GaussianMechanism(CLIP, 2.0), stacked([records] * 3)
    step = assemble(
        zoo.logistic,
        zoo.logistic_guide,
        Adam(0.01),
        KEY,
        records,
        sampler=SAMPLERS[1],
        mechanism=mechanism,
    )
    assert compiling.epochs_kept(step) is not None
    alone = ends_of_lanes(step, 3, 1, records, shared=True)
    np.testing.assert_array_equal(ends_of_lanes(step, 3, 8, own, shared=False), alone)
    small = dataclasses.replace(step, performance=step.performance._replace(microbatch_size=24))
    np.testing.assert_array_equal(
        ends_of_lanes(small, 3, 8, own, shared=False, room=9),
        ends_of_lanes(small, 3, 1, records, shared=True),
    )


@pytest.mark.thorough
def test_a_sweep_gives_the_same_fits_on_any_number_of_devices():
    stores = [Store(None), Store(None)]
    for store, devices in zip(stores, (None, "all"), strict=True):
        given = {
            "epsilons": [0.5, 1.0, 2.0],
            "seeds": [0],
            "iterations": 30,
            "on_progress": lambda progress: None,
        }
        wb.sweep(
            "logistic",
            "breast_cancer",
            store=store,
            **grouped({"devices": devices, **given}, direct=LISTS),
        )
    alone, spread_out = ({row["key"]: row for row in store.rows()} for store in stores)
    assert len(alone) == 3
    for key, row in alone.items():
        assert row["status"] == spread_out[key]["status"] == "done"
        assert row["metrics"] == spread_out[key]["metrics"]
        found = stores[1].parameters(key)
        for name, value in stores[0].parameters(key).items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": 9}, "devices=9: is more than there are: JAX sees 8"),
        ({"devices": "every"}, "must be a whole number"),
        (
            {"devices": Mesh(np.array(jax.devices()), ("records",))},
            'must be a mesh with exactly one axis, "lanes".',
        ),
        ({"devices": ["cpu:1"], "device": "cpu"}, "leave one out"),
    ],
)
def test_what_a_sweep_refuses(changes, reason):
    with pytest.raises(ArgumentError, match=re.escape(reason)):
        sweeping.prepare(
            "logistic",
            "breast_cancer",
            epsilons=1.0,
            iterations=10,
            **grouped(changes, direct=LISTS),
        )


@pytest.mark.thorough
def test_devices_of_a_sweep_are_said_as_those_of_a_fit_and_reach_its_lanes(monkeypatch):
    wanted, seen = tuple(jax.devices()[2:4]), []

    def program(step, lanes, *, shared, devices):
        seen.append((lanes, tuple(devices)))
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(running, "BatchedProgram", program)
    mesh = Mesh(np.array(wanted), ("lanes",))
    prepared = sweeping.prepare(
        "logistic",
        "breast_cancer",
        epsilons=[1.0, 2.0, 4.0],
        seeds=[0],
        iterations=10,
        execution=wb.Execution(devices=mesh),
    )
    assert devices_named(["cpu:2", "cpu:3"], axis="lanes") == prepared.grid.devices == wanted
    assert {run.spec.device for run in prepared.runs} == {wanted[0]}
    assert set(prepared.run().table["status"]) == {"failed"}
    assert seen == [(3, wanted), (2, wanted), (2, wanted)]  # one on each device is the least
    with pytest.raises(
        ArgumentError, match="devices=2: of this process, but an executor's workers have their own"
    ):
        prepared.run(executor=ThreadPoolExecutor(1))


@pytest.mark.thorough
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_steps_and_lanes_of_several_devices_lower_elsewhere(platform):
    records = zoo.logistic_data(N)
    step = step_of(zoo.logistic, zoo.logistic_guide, records, SAMPLERS[0])
    sharded, arrays = spread(step, records, 2)
    export.export(jax.jit(releasing(sharded)), platforms=[platform])(KEY, arrays)
    hyper = stacked([Hyperparameters.of(step.mechanism)] * 4)
    start = starting_states(step, [key_from_seed(seed) for seed in range(4)], hyper)
    program = BatchedProgram(step, 4, shared=True, devices=jax.devices()[:2])
    state, own, numbers = program._part(start, tuple(map(jnp.asarray, records)), hyper, 0)
    axes = (DPVIState(0, None, 0, 0, 0), None, None, 0)
    lanes = program._spread(compiling.chunk_of(step, 4, 2), axes, axes[0])
    module = export.export(jax.jit(lanes), platforms=[platform])(state, own, jnp.int32(4), numbers)
    assert module.nr_devices == 2
