"""Fits whose parameters are in parts too. ``test_sharding.py`` runs this file with eight of XLA's simulated devices."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from jax import export, lax
from jax.sharding import Mesh, PartitionSpec
from numpyro import optim
from numpyro.optim import Adam, optax_to_numpyro

import workbench as wb
from tests import zoo
from tests.conftest import some_of
from tests.fitting import test_one_shot
from workbench import ArgumentError
from workbench.fitting import checkpoints, resuming
from workbench.fitting.baseline import without_privacy
from workbench.fitting.devices import grid_named
from workbench.inference import _norms, compiling
from workbench.inference._optimizers import ELEMENTWISE
from workbench.inference.assemble import assemble
from workbench.inference.parts import Parts
from workbench.inference.sharding import Shards
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid
from workbench.sampling import PoissonSampler

N, INPUTS, OUTPUTS, CLIP, KEY = 61, 240, 280, 1.0, key_from_seed(0)
EXCHANGES = "all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
GRIDS = [(2, 2), (1, 4), (4, 2), (2, 4)]


@dataclasses.dataclass(frozen=True, eq=False)
class Seen(GaussianMechanism):
    """Keeps sum, noise and release of each addition while a step is traced."""

    kept: list = dataclasses.field(default_factory=list)

    def add(self, total, noise):
        noised = super().add(total, noise)
        self.kept.append([flat(total.units), noise.units, flat(noised)])
        return noised


class Watched(Parts):
    """Hands what the mechanism of each device has seen out of the function that is mapped over the devices."""

    def _mapped(self, of_device, taken, given):
        if of_device != self._on_device:
            return super()._mapped(of_device, taken, given)
        kept = self.own.mechanism.kept

        def watched(*arguments):
            following = of_device(*arguments)
            return following, kept.pop()

        mapped = super()._mapped(watched, taken, (given, PartitionSpec(self.shards.axes)))

        def step(*arguments):
            following, seen = mapped(*arguments)
            kept.append(seen)
            return following

        return step


def flat(tree):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def network(x, num_records=None):
    """More coordinates than noise is drawn for at once, all of them parameters without a prior."""
    kernel = numpyro.param("kernel", lambda key: 0.1 * jax.random.normal(key, (INPUTS, OUTPUTS)))
    bias = numpyro.param("bias", jnp.zeros(OUTPUTS))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(x[:, :1] * (x @ kernel + bias), 1.0).to_event(1), obs=jnp.zeros((len(x), OUTPUTS)))


def no_guide(x, num_records=None):
    pass


def step_of(kind, mechanism, optimizer=None, **changes):
    """(a step of ``kind``, its records): "network", whose gradient is direct, or a "regression" with latents."""
    if kind == "network":
        model, guide, records = network, no_guide, (np.random.default_rng(0).normal(size=(N, INPUTS)).astype(np.float32),)
    else:
        model, guide, records = zoo.logistic, zoo.logistic_guide, zoo.logistic_data(N)
    given = {"sampler": PoissonSampler(N, 0.4, 50), "mechanism": mechanism}
    step = assemble(model, guide, Adam(0.01) if optimizer is None else optimizer, KEY, records, **given)
    return dataclasses.replace(step, counts_norms=True, keeps_moments=kind != "network", **changes), records


def start_of(step, **options):
    hyper = Hyperparameters.of(step.mechanism, **options)
    return step.init(KEY, hyper), hyper


def placed(step, **options):
    """(the state before the first step, on the devices; a step as a compiled function of state and records)."""
    state, hyper = start_of(step, **options)
    state = step.shards.replicated(state) if step.parts is None else step.parts.split(state)
    one = lambda state, records: step.step(state, records, step.draw(state.key, state.step, hyper), hyper)  # noqa: E731
    return state, one


def taken(step, records, steps=1, **options):
    """(the state after some steps, as of one device; the same as devices have it)."""
    state, one = placed(step, **options)
    one = jax.jit(one)
    for _ in range(steps):
        state = one(state, step.shards.spread(records))
    return (state if step.parts is None else step.parts.joined(state)), state


def released(step, records):
    """(sum, noise and release of each addition in a step, the state after it as devices have it)."""
    state, one = placed(step, moments_from=0)

    def watched(state, records):
        step.mechanism.kept.clear()
        following = one(state, records)
        return list(step.mechanism.kept), following

    return jax.jit(watched)(state, step.shards.spread(records))


@functools.cache
def whole_release(kind, devices):
    """Sum, noise and release of devices in a row, the sum's followed by those of counts."""
    kept, _ = released(*step_of(kind, Seen(CLIP, 2.0), shards=Shards(devices)))
    return [np.concatenate(arrays) for arrays in zip(*kept, strict=True)]


def check_release(kind, grid, shards=Shards, mechanism=Seen):
    """Devices in a grid release what as many in a row release, bit for bit; each coordinate has its noise, once."""
    rows, columns = grid
    devices = tuple(jax.devices()[: rows * columns])
    step, records = step_of(kind, mechanism(CLIP, 2.0), shards=shards(devices, columns))
    vars(step)["parts"] = Watched(step)
    (kept,), state = released(step, records)
    for name, own, whole in zip(("sum", "noise", "release"), kept, whole_release(kind, devices), strict=True):
        for row, mine in enumerate(np.asarray(own).reshape(rows, -1)):
            np.testing.assert_array_equal(mine[: len(whole)], whole, f"{name} of row {row}")
    for leaf in jax.tree.leaves((state.optim_state, state.moments)):
        parts = {}
        for shard in leaf.addressable_shards:
            np.testing.assert_array_equal(parts.setdefault(str(shard.index), shard.data), shard.data, "another way")


@pytest.mark.parametrize(
    ("kind", "grid"), some_of([(kind, grid) for kind in ("network", "regression") for grid in GRIDS], 12, 6)
)
def test_a_grid_releases_what_as_many_devices_release_and_noise_is_added_once(kind, grid):
    check_release(kind, grid)


class NoiseOfEach(Shards):
    """A planted bug: every device adds a noise, here 1024 spacings, to its own sum before the sums are added up."""

    def sum_here(self, *arguments):
        total, counts = super().sum_here(*arguments)
        return OnGrid(jax.tree.map(lambda units: units + 2**10, total.units), total.spacing), counts


class NoiseOfRows(Seen):
    """A planted bug: each row has a noise of its own."""

    def add(self, total, noise):
        return super().add(total, Noise(noise.units + lax.axis_index("records"), noise.level))


class Forgetful(Seen):
    """A planted bug: the second part has no noise."""

    def add(self, total, noise):
        return super().add(total, Noise(noise.units * (lax.axis_index("parameters") != 1), noise.level))


class Repeated(Seen):
    """A planted bug: all parts have the noise of the first."""

    def noise_part(self, key, size, number, parts, level):
        return super().noise_part(key, size, 0 * number, parts, level)


class Unadded(Seen):
    """A planted bug: noise is drawn, and not added to the second part."""

    def add(self, total, noise):
        seen = super().add(total, noise)
        bare = jnp.where(lax.axis_index("parameters") == 1, total.units, total.units + noise.units)
        return seen * 0 + bare.astype(jnp.float32) * total.spacing


@pytest.mark.parametrize(
    ("bugs", "caught"),
    some_of([
        ({"shards": NoiseOfEach}, "sum of row 0"), ({"mechanism": NoiseOfRows}, "noise of row 1"),
        ({"mechanism": Forgetful}, "noise of row 0"), ({"mechanism": Repeated, "kind": "network"}, "noise of row 0"),
    ], 4, 1),
)  # fmt: skip
def test_planted_bugs_are_caught(bugs, caught):
    with pytest.raises(AssertionError, match=caught):
        check_release(bugs.pop("kind", "regression"), (2, 2), **bugs)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["network", "regression"])
def test_a_step_ends_where_that_of_as_many_devices_ends(kind):
    """Up to the rounding of the optimiser's arithmetic, which XLA may join differently; what is not added would be seen."""
    options = {"moments_from": 0, "average_from": 1}
    ends = []
    for parts, mechanism in ((1, GaussianMechanism), (2, GaussianMechanism), (2, Unadded)):
        step, records = step_of(kind, mechanism(CLIP, 2.0), shards=Shards(tuple(jax.devices()[:4]), parts))
        end, _ = taken(step, records, 3, **options)
        ends.append(
            np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves((end.optim_state, end.average, end.moments))])
        )
        assert np.asarray(end.moments.norms)[0] == 3
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-4, atol=2e-6)
    assert np.abs(ends[2] - ends[0]).max() > 1e-2


def exchanges(kind, grid, **changes):
    """{kind of exchange: numbers in each} of a compiled step, and the step."""
    step, records = step_of(
        kind, GaussianMechanism(CLIP, 2.0), shards=Shards(tuple(jax.devices()[: np.prod(grid)]), grid[1])
    )
    step = dataclasses.replace(step, **changes)
    state, one = placed(step, moments_from=0)
    text = jax.jit(one).lower(state, step.shards.spread(records)).compile().as_text()
    found = {}
    for shape, name in re.findall(rf"= (.*?) ({EXCHANGES})(?:-start)?\(", text):
        found.setdefault(name, []).append(re.fullmatch(r"([a-z0-9]+)\[(\d+)\].*", shape).groups())
    return step, found


def test_a_step_gathers_parameters_and_scatters_one_sum():
    """Nothing else is exchanged, but the few counts of norms."""
    step, found = exchanges("network", (2, 4))
    width = step.parts.width
    assert step.parts.is_direct
    assert 0 <= 4 * width - step.noised_coordinates < 4 * 9024
    sums = [("s32", str(width)), ("f32", str(_norms.RANGES))]
    assert found == {"all-gather": [("f32", str(4 * width))], "reduce-scatter": sums[:1], "all-reduce": sums}
    _, found = exchanges("network", (1, 4), counts_norms=False)
    assert found == {"all-gather": [("f32", str(4 * width))], "reduce-scatter": sums[:1]}


@pytest.mark.thorough
def test_a_step_with_a_guide_gathers_what_was_released_too():
    step, found = exchanges("regression", (2, 2))
    assert not step.parts.is_direct
    whole, noised = (str(2 * size) for size in (step.parts.width, step.parts.noise_width))
    sums = [("s32", str(step.parts.noise_width))]
    assert found == {"all-gather": [("f32", whole), ("f32", noised)], "reduce-scatter": sums, "all-reduce": sums}


def test_a_device_keeps_its_part_and_no_more():
    step, records = step_of("network", GaussianMechanism(CLIP, 2.0), shards=Shards(tuple(jax.devices()), 4))
    _, state = taken(step, records, average_from=0)
    vectors = [leaf for leaf in jax.tree.leaves((state.optim_state, state.average)) if leaf.ndim]
    assert len(vectors) == 4
    for vector in vectors:
        assert {shard.data.shape for shard in vector.addressable_shards} == {(step.parts.width,)}
        assert vector.sharding.spec == PartitionSpec("parameters")


def test_records_of_a_grid_are_where_those_of_a_row_are():
    array, devices = np.arange(N), tuple(jax.devices())
    row, grid = (Shards(devices, parts).spread([array])[0] for parts in (1, 4))
    of_device = [{shard.device: np.asarray(shard.data) for shard in each.addressable_shards} for each in (row, grid)]
    assert set(of_device[0]) == set(devices)
    np.testing.assert_equal(*of_device)


def test_no_device_has_all_of_a_state_while_no_step_is_taken():
    prepared = wb.prepare("neural_classifier", "breast_cancer", epsilon=1.0, iterations=10, devices="1x4")
    vectors = [leaf for leaf in jax.tree.leaves((prepared.state.optim_state, prepared.step.model.initial)) if leaf.ndim]
    assert {type(leaf) for leaf in vectors} == {np.ndarray}
    _, state = prepared.on_device
    assert {leaf.sharding.spec for leaf in jax.tree.leaves(state.optim_state) if leaf.ndim} == {PartitionSpec("parameters")}


def test_a_gradient_is_direct_only_where_the_parameters_alone_are_released():
    def with_prior(x, num_records=None):
        network(x, num_records)
        numpyro.factor("prior", -1.0 * jnp.sum(numpyro.param("bias", jnp.zeros(OUTPUTS))))

    shards = Shards(tuple(jax.devices()[:2]), 2)
    records = (np.zeros((N, INPUTS), np.float32),)
    given = {"sampler": PoissonSampler(N, 0.4, 50), "mechanism": GaussianMechanism(CLIP, 2.0)}
    steps = [assemble(model, no_guide, Adam(0.01), KEY, records, **given) for model in (network, with_prior)]
    plain, prior = (dataclasses.replace(step, shards=shards, keeps_moments=False) for step in steps)
    assert (plain.parts.is_direct, prior.parts.is_direct) == (True, False)
    assert not dataclasses.replace(plain, keeps_moments=True).parts.is_direct
    vanilla, _ = step_of("regression", GaussianMechanism(CLIP, 2.0), shards=shards)
    assert not dataclasses.replace(vanilla, keeps_moments=False).parts.is_direct


# --- the optimiser ---------------------------------------------------------------------------------------------------------

MADE = {
    optim.Adagrad: (0.1,), optim.Adam: (0.1,), optim.ClippedAdam: (0.1,), optim.Momentum: (0.1, 0.9), optim.RMSProp: (0.1,),
    optim.RMSPropMomentum: (0.1,), optim.SGD: (0.1,),
}  # fmt: skip


def ends_of_parts(optimizer):
    """Three steps on made-up gradients of all sizes: (of a tree; of two parts of one vector, each by itself)."""
    rng = np.random.default_rng(0)
    tree = lambda: {name: rng.normal(size=shape).astype(np.float32) for name, shape in (("a", (7, 5)), ("b", (6,)))}  # noqa: E731
    start, gradients = tree(), [jax.tree.map(lambda leaf, own=10.0**size: own * leaf, tree()) for size in (-3, 3, 0)]
    vectors = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(each)]) for each in (start, *gradients)]
    ends = []
    for each, *others in ((start, *gradients), *zip(*(np.split(vector, [23]) for vector in vectors), strict=True)):
        state = optimizer.init(each)
        for gradient in others:
            state = jax.jit(lambda g, s: optimizer.update(g, s, value=jnp.nan))(gradient, state)
        ends.append(np.asarray(flat(optimizer.get_params(state))))
    return ends[0], np.concatenate(ends[1:])


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_an_optimiser_that_is_let_in_treats_each_parameter_by_itself(kind):
    whole, parts = ends_of_parts(kind(*MADE[kind]))
    np.testing.assert_array_equal(parts, whole)


def test_the_trial_finds_an_optimiser_that_does_not():
    whole, parts = ends_of_parts(optax_to_numpyro(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))))
    assert np.abs(parts - whole).max() > 1e-3


# --- fits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("model", "grid"), [("logistic", "2x2"), ("neural_classifier", "1x4"), ("gmm", "2x2")])
def test_a_fit_has_the_guarantee_and_nearly_the_parameters_of_as_many_devices(model, grid, tmp_path):
    settings = {"epsilon": 1.0, "iterations": 60, "seed": 1}
    row = wb.fit(model, "breast_cancer", devices=4, **settings)
    result = wb.fit(model, "breast_cancer", devices=grid, **settings)
    assert (result.status, result.guarantee) == ("done", row.guarantee)
    for name, value in row.params.items():
        np.testing.assert_allclose(result.params[name], value, atol=1e-4)
    assert result.gradient_norms == row.gradient_norms
    assert result.posterior_kind == row.posterior_kind
    result.save(tmp_path / "saved")
    assert wb.load(tmp_path / "saved").settings["devices"] == result.settings["devices"]


@pytest.mark.thorough
def test_a_fit_from_sums_takes_its_step_on_a_grid():
    settings = {"epsilon": 1.0, "estimator": "statistics", "draws": 50, "seed": 1}
    row, grid = (wb.fit(test_one_shot.LINE, test_one_shot.records(), devices=devices, **settings) for devices in (4, "2x2"))
    np.testing.assert_array_equal(grid.params["sums"], row.params["sums"])


@pytest.mark.thorough
def test_other_estimators_and_the_baseline_run_on_a_grid():
    settings = {"epsilon": 1.0, "iterations": 20, "seed": 1}
    for estimator in ("vanilla", "aligned"):
        found = [
            wb.fit("neural_classifier", "breast_cancer", estimator=estimator, devices=devices, **settings)
            for devices in (4, "2x2")
        ]
        for name, value in found[0].params.items():
            np.testing.assert_allclose(found[1].params[name], value, atol=1e-4)
    prepared = wb.prepare("logistic", "breast_cancer", devices="2x2", **settings)
    assert prepared.step.parts is not None
    scores = [dict(without_privacy(each)) for each in (prepared, wb.prepare("logistic", "breast_cancer", **settings))]
    assert scores[0].keys() == scores[1].keys()  # their minibatches are not seeded
    assert scores[0]["elbo"] == pytest.approx(scores[1]["elbo"], rel=0.1)


@pytest.mark.thorough
def test_a_stopped_fit_goes_on_to_where_it_would_have_ended(tmp_path):
    settings = {"epsilon": 1.0, "iterations": 60, "seed": 2, "devices": "2x2"}
    whole, seen = wb.fit("neural_classifier", "breast_cancer", **settings), []
    stopped = wb.fit(
        "neural_classifier", "breast_cancer", checkpoint=tmp_path / "run", on_snapshot=seen.append,
        stop=lambda: len(seen) > 2, **settings,
    )  # fmt: skip
    assert stopped.status == "cancelled"
    resumed = wb.resume(tmp_path / "run")
    assert resumed.settings["devices"] == [["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"]]
    for name, value in whole.params.items():
        np.testing.assert_array_equal(resumed.params[name], value)


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "after"), [("2x2", 1), (1, "2x4"), (4, "1x4"), ("4x2", "2x2")])
def test_a_stopped_fit_goes_on_with_other_devices(before, after, private_data, tmp_path):
    seen, run = [], tmp_path / "run"
    settings = {"epsilon": 1.0, "iterations": 200, "devices": before, "checkpoint": run}
    stopped = wb.fit("logistic", private_data, on_snapshot=seen.append, stop=lambda: len(seen) > 2, **settings)
    assert 0 < stopped.guarantee.steps_taken < 200
    state = checkpoints.newest(run).arrays()
    resumed = wb.resume(run, data=private_data, devices=after, stop=lambda: True)
    np.testing.assert_equal(resumed.params, stopped.params)
    again = checkpoints.newest(run).arrays()
    assert set(again) == set(state)
    for name, array in state.items():  # apart and put together again, bit for bit
        np.testing.assert_array_equal(np.asarray(again[name]), np.asarray(array))
    assert wb.resume(run, data=private_data, devices=after).status == "done"


@pytest.mark.thorough
def test_steps_that_may_have_been_seen_are_not_taken_on_another_grid(private_data, tmp_path):
    with pytest.raises(ZeroDivisionError):
        wb.fit("logistic", private_data, on_snapshot=lambda snapshot: 1 // (snapshot.step == 0), devices="2x2",
               epsilon=1.0, iterations=200, checkpoint=tmp_path / "crashed")  # fmt: skip
    assert checkpoints.newest(tmp_path / "crashed").repeats
    for devices in (4, "1x4", 1):
        with pytest.raises(ArgumentError, match="interrupted on other devices"):
            resuming.prepare(tmp_path / "crashed", data=private_data, devices=devices)
    resuming.prepare(tmp_path / "crashed", data=private_data)


def grid_of(*names, shape=(4, 2)):
    return Mesh(np.array(jax.devices()).reshape(shape), names)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": "4x4"}, "devices='4x4': is more than there are: JAX sees 8"),
        ({"devices": "2x"}, "devices='2x': must be a whole number"), ({"devices": "0x2"}, "devices='0x2': must be"),
        ({"devices": [["cpu:0", "cpu:1"], ["cpu:2"]]}, "must be rows of equal length"), ({"devices": [[]]}, "rows of equal"),
        ({"devices": [["cpu:0", "cpu:0"]]}, "must be different devices"), ({"devices": [["cpu:9"]]}, "no such device"),
        ({"devices": [["cpu:1", "cpu:2"]], "device": "cpu"}, "leave one out"),
        ({"devices": grid_of("records", "model")}, '"records", or with "records" and "parameters".'),
        ({"devices": grid_of("parameters", "records")}, '"records", or with "records" and "parameters".'),
        ({"devices": "2x2", "optimizer": optax.adam(0.1)}, "optimizer='_NumPyroOptim': must be one of Adagrad, Adam,"),
    ],
)  # fmt: skip
def test_what_is_refused(changes, reason):
    with pytest.raises(ArgumentError, match=re.escape(reason)):
        wb.prepare("logistic", "breast_cancer", epsilon=1.0, **changes)


def test_parameters_of_several_types_or_too_many_are_refused():
    def mixed(x, num_records=None):
        network(x + numpyro.param("half", jnp.zeros((), jnp.float16)), num_records)

    def half(x, num_records=None):
        mean = numpyro.param("half", jnp.zeros(INPUTS, jnp.float16))
        with numpyro.plate("records", num_records, len(x)):
            numpyro.factor("x", -jnp.sum((x - mean) ** 2, axis=1))

    records = (np.zeros((N, INPUTS), np.float32),)
    given = {"sampler": PoissonSampler(N, 0.4, 50), "mechanism": GaussianMechanism(CLIP, 2.0)}
    for model, reason in ((mixed, "several types: float16, float32"), (half, "half precision: float16")):
        step = assemble(model, no_guide, Adam(0.01), KEY, records, **given)
        step = dataclasses.replace(step, shards=Shards(tuple(jax.devices()), 2))
        with pytest.raises(ArgumentError, match=f"devices='4x2': cannot split parameters of {reason}"):
            _ = step.parts
    step, _ = step_of("regression", GaussianMechanism(CLIP, 2.0), shards=Shards(tuple(jax.devices()), 2))
    step = dataclasses.replace(step, model=dataclasses.replace(step.model, shared_size=2**31))
    with pytest.raises(ArgumentError, match=r"devices='4x2': cannot split .* must be fewer than 2"):
        _ = step.parts


def test_what_takes_one_axis_refuses_two():
    with pytest.raises(ArgumentError, match="devices='2x2': must be a whole number"):
        wb.audit("logistic", epsilon=1.0, trials=100, iterations=2, devices="2x2")
    with pytest.raises(ArgumentError, match='exactly one axis, "lanes"'):
        wb.sweep("logistic", "breast_cancer", epsilons=[1.0], devices=grid_of("records", "parameters"))
    for wrong, reason in (({"parts": 3}, "parts=3: must divide"), ({"parts": 0}, "parts=0")):
        with pytest.raises(ArgumentError, match=reason):
            Shards(tuple(jax.devices()), **wrong)
    step, _ = step_of("regression", GaussianMechanism(CLIP, 0.0), shards=Shards(tuple(jax.devices()), 2))
    with pytest.raises(ArgumentError, match="noise_multiplier=0: must be above 0"):
        _ = step.parts


def test_the_ways_to_say_it():
    wanted, grid = tuple(jax.devices()), [["cpu:0", "cpu:1"], ["cpu:2", "cpu:3"], ["cpu:4", "cpu:5"], ["cpu:6", "cpu:7"]]
    for devices in (grid_of("records", "parameters"), "4x2", grid):
        assert grid_named(devices) == (wanted, 2)
        assert wb.prepare("logistic", "breast_cancer", epsilon=1.0, devices=devices).settings.devices == grid
    assert grid_named("8x1") == grid_named(8) == (wanted, 1)
    assert grid_named("1x1") == (wanted[:1], 1)


@pytest.mark.parametrize("platform", some_of(["cuda", "tpu"]))
def test_steps_in_parts_lower_elsewhere(platform):
    step, records = step_of("network", GaussianMechanism(CLIP, 2.0), shards=Shards(tuple(jax.devices()[:4]), 2))
    state, hyper = start_of(step)
    chunk = compiling.chunk_of(step, 4)
    arguments = step.parts.split(state), step.shards.spread(records), jnp.int32(4), hyper
    assert export.export(jax.jit(chunk), platforms=[platform])(*arguments).nr_devices == 4
