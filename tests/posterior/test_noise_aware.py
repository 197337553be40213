"""The posterior that counts the privacy noise, against worlds in which the answer is known."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.optim import Adam

from tests import zoo
from tests.conftest import some_of
from workbench.inference import DPVI, running_moments
from workbench.inference.running_moments import Moments, moments_in
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.posterior import noise_aware
from workbench.posterior.joint_prior import JointPrior
from workbench.posterior.noise_aware import NoNoiseAwarePosterior, Prior, draw, prior_of
from workbench.record_model.splitting import split
from workbench.sampling import PoissonSampler

RATE, STEPS = 0.1, 700


def released(random, curvature, prior, noise, spread):
    """(theta, moments of a run): theta from the prior, the score of its records, noised gradients
    at points around it.
    """
    size = len(curvature)
    theta = prior.mean + random.normal(size=size) / np.sqrt(prior.precision)
    score = random.multivariate_normal(np.zeros(size), curvature)  # at theta, of all records
    points = theta + 0.05 * random.normal(size=size) + spread * random.normal(size=(STEPS, size))
    of_minibatches = random.multivariate_normal(
        np.zeros(size), (1 - RATE) / RATE * curvature, STEPS
    )
    gradients = (
        score
        - (points - theta) @ curvature
        + of_minibatches
        + noise * random.normal(size=points.shape)
    )
    return theta, moments_of(points, gradients)


def moments_of(points, gradients):
    rows = np.concatenate([np.ones((len(points), 1)), points - points[0], gradients], axis=1)
    return Moments(points[0], rows[:, : 1 + points.shape[1]].T @ rows)


def drawn(moments, prior, spread, noise, seed=0, count=1000):
    return draw(
        moments,
        prior,
        np.full(len(prior.mean), spread),
        step_noise=noise,
        sampling_rate=RATE,
        count=count,
        generator=np.random.default_rng(seed),
    )


def shared_curvature(size, level, share):
    return level * ((1 - share) * np.eye(size) + share * np.ones((size, size)))


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_with_little_noise_it_is_the_exact_posterior(share):
    random, prior = (
        np.random.default_rng(1),
        Prior(np.array([0.5, -1.0, 0.0, 2.0]), np.full(4, 0.25)),
    )
    curvature = shared_curvature(4, 100.0, share)
    theta = prior.mean + random.normal(size=4)
    score = random.multivariate_normal(np.zeros(4), curvature)
    points = theta + 0.1 * random.normal(size=(20_000, 4))
    found = drawn(
        moments_of(points, score - (points - theta) @ curvature), prior, 0.1, 0.5, count=4000
    )
    covariance = np.linalg.inv(curvature + np.diag(prior.precision))
    mean = covariance @ (score + curvature @ theta + prior.precision * prior.mean)
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.mean(0), mean, atol=0.1 * deviations.max())
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.08 * deviations.max() ** 2)


@pytest.mark.thorough
@pytest.mark.parametrize("noise", some_of([30.0, 150.0, 600.0], 3, 1))
@pytest.mark.parametrize("share", some_of([0.0, 0.3], first=1))
def test_intervals_hold_the_truth_about_as_often_as_they_say(noise, share):
    """The guide's own would hold it in .39 to .88 of cases here."""
    random, prior, inside = np.random.default_rng(2), Prior(np.zeros(5), np.ones(5)), []
    for seed in range(40):
        theta, moments = released(random, shared_curvature(5, 60.0, share), prior, noise, 0.13)
        low, high = np.quantile(
            drawn(moments, prior, 0.13, noise, seed, count=400), [0.05, 0.95], axis=0
        )
        inside.append((low < theta) & (theta < high))
    assert 0.85 <= np.mean(inside) <= 0.985


def test_more_noise_widens_intervals_and_never_beyond_the_prior():
    """On average over three runs where they learn little: the width of one is then that of the
    prior give or take one in a hundred.
    """
    prior = Prior(np.zeros(3), np.full(3, 4.0))

    def width(noise, seed):
        _, moments = released(
            np.random.default_rng(seed), np.diag([50.0, 60.0, 70.0]), prior, noise, 0.13
        )
        return drawn(moments, prior, 0.13, noise, seed, count=4000).std(0).mean()

    widths = [
        np.mean([width(noise, seed) for seed in range(runs)])
        for noise, runs in ((1.0, 1), (100.0, 1), (1e4, 3), (1e8, 3))
    ]
    assert np.all(np.diff(widths) > -0.01)
    assert widths[-1] < 1.1 * 0.5
    assert widths[0] == pytest.approx(64**-0.5, rel=0.15)


@pytest.mark.thorough
def test_the_scale_of_quantities_does_not_matter():
    """In other units of theta, everything changes by them alone, and by rounding, which chains
    amplify: so within chance.
    """
    prior, curvature = Prior(np.zeros(3), np.ones(3)), shared_curvature(3, 60.0, 0.4)
    _, moments = released(np.random.default_rng(4), curvature, prior, 100.0, 0.13)
    unit = 1e-3
    factors = np.concatenate([[1.0], np.full(3, unit), np.full(3, 1 / unit)])
    other = Moments(moments.origin * unit, moments.sums * np.outer(factors[:4], factors))
    of_other = Prior(prior.mean, prior.precision / unit**2)
    plain = np.concatenate([drawn(moments, prior, 0.13, 100.0, seed) for seed in range(5)])
    scaled = (
        np.concatenate(
            [drawn(other, of_other, 0.13 * unit, 100.0 / unit, seed) for seed in range(5)]
        )
        / unit
    )
    np.testing.assert_allclose(scaled.mean(0), plain.mean(0), atol=0.1 * plain.std(0).max())
    np.testing.assert_allclose(scaled.std(0), plain.std(0), rtol=0.05)


@pytest.mark.thorough
def test_draws_repeat_with_their_generator_and_blocks_do_not_show():
    prior = Prior(np.zeros(2), np.ones(2))
    _, moments = released(np.random.default_rng(5), np.diag([40.0, 80.0]), prior, 100.0, 0.13)
    few, many = (
        drawn(moments, prior, 0.13, 100.0, count=3),
        drawn(moments, prior, 0.13, 100.0, count=1201),
    )
    assert few.shape == (3, 2)
    assert many.shape == (1201, 2)
    np.testing.assert_array_equal(many, drawn(moments, prior, 0.13, 100.0, count=1201))
    assert len(np.unique(many[:, 0])) == 1201


def test_blocks_of_draws_have_one_size(monkeypatch):
    """A Markov chain would be compiled for each size."""
    sizes, of_quadratics = [], noise_aware.of_quadratics

    def spy(prior, known, *rest):
        sizes.append(len(known))
        return of_quadratics(prior, known, *rest)

    monkeypatch.setattr(noise_aware, "of_quadratics", spy)
    prior = Prior(np.zeros(1), np.ones(1))
    _, moments = released(np.random.default_rng(5), np.diag([40.0]), prior, 100.0, 0.13)
    for count in (1, 1000, 1201):
        sizes.clear()
        assert drawn(moments, prior, 0.13, 100.0, count=count).shape == (count, 1)
        assert len(set(sizes)) == 1
        assert max(sizes) <= 512


def test_one_quantity_has_no_correlations():
    prior = Prior(np.zeros(1), np.ones(1))
    _, moments = released(np.random.default_rng(6), np.array([[50.0]]), prior, 50.0, 0.13)
    assert drawn(moments, prior, 0.13, 50.0).shape == (1000, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda moments: moments_of(np.eye(9, 2), np.eye(9, 2)),
            "it takes 10 steps after the first three tenths",
        ),
        (
            lambda moments: moments._replace(origin=np.full(2, np.nan)),
            "not finite, or are all of one point",
        ),
        (
            lambda moments: moments._replace(sums=moments.sums * np.inf),
            "not finite, or are all of one point",
        ),
        (
            lambda moments: moments_of(np.ones((20, 2)), np.ones((20, 2))),
            "not finite, or are all of one point",
        ),
        (
            lambda moments: running_moments.empty(2),
            "it takes 10 steps after the first three tenths",
        ),
    ],
)
def test_moments_that_say_nothing_are_refused(change, reason):
    prior = Prior(np.zeros(2), np.ones(2))
    _, moments = released(np.random.default_rng(7), np.diag([40.0, 80.0]), prior, 100.0, 0.13)
    with pytest.raises(NoNoiseAwarePosterior, match=reason):
        drawn(change(moments), prior, 0.13, 100.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spread": np.array([0.1, 0.0])}, "a quantity that does not vary"),
        ({"spread": np.array([0.1, np.nan])}, "a quantity that does not vary"),
        ({"step_noise": 0.0, "sampling_rate": 1.0}, "have no noise"),
        ({"step_noise": np.inf}, "more than can be counted"),
    ],
)
def test_guides_and_noise_of_no_size_are_refused(change, reason):
    prior = Prior(np.zeros(2), np.ones(2))
    _, moments = released(np.random.default_rng(7), np.diag([40.0, 80.0]), prior, 100.0, 0.13)
    usual = {"spread": np.full(2, 0.1), "step_noise": 100.0, "sampling_rate": RATE, "count": 10}
    with pytest.raises(NoNoiseAwarePosterior, match=reason):
        draw(moments, prior, generator=np.random.default_rng(0), **usual | change)


def test_minibatches_move_steep_directions_more():
    """Their noise has the curvature's covariance: at q n = 2 its mean adds half of the data's own
    to each direction.
    """
    random, prior, steps, rate = (
        np.random.default_rng(3),
        Prior(np.zeros(3), np.full(3, 1e-6)),
        20_000,
        1e-4,
    )
    curvature = np.array([10.0, 100.0, 1000.0])
    points = 10 * random.normal(size=(steps, 3))
    gradients = -points * curvature + np.sqrt((1 - rate) / rate * curvature) * random.normal(
        size=(steps, 3)
    )
    found = draw(
        moments_of(points, gradients),
        prior,
        curvature**-0.5,
        step_noise=1.0,
        sampling_rate=rate,
        count=4000,
        generator=random,
    )
    np.testing.assert_allclose(
        found.std(0), np.sqrt((1 + (1 - rate) / rate / steps) / curvature), rtol=0.06
    )


@pytest.mark.parametrize("singular", ["steps", "one point"])
def test_hardly_any_information_gives_about_the_prior(singular):
    """Fewer steps than unknowns, and points on a line."""
    random, prior = np.random.default_rng(8), Prior(np.zeros(6), np.ones(6))
    points = (
        random.normal(size=(12, 6)) * 0.1
        if singular == "steps"
        else 0.1 * random.normal(size=(300, 1)) * np.ones(6)
    )
    found = drawn(moments_of(points, 1e4 * random.normal(size=points.shape)), prior, 0.1, 1e4)
    assert np.all(np.isfinite(found))
    assert 0.7 < found.std(0).mean() < 1.2


# ---- the prior of a model ------------------------------------------------------------------------


def model_with(prior):
    def model(x, num_records=None):
        location = prior()
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(location, 1), obs=x)

    return model


def split_with(prior, names):
    def guide(x, num_records=None):
        for name, shape in names.items():
            numpyro.sample(
                name,
                dist.Normal(numpyro.param(f"{name}_loc", jnp.zeros(shape)), 0.1).to_event(
                    len(shape)
                ),
            )

    return split(
        model_with(prior),
        guide,
        jax.random.key(0),
        (jax.ShapeDtypeStruct((), jnp.float32),),
        num_records=100,
    )


def test_the_prior_is_the_models():
    found = prior_of(
        split_with(
            lambda: (
                numpyro.sample("b", dist.Normal(jnp.array([1.0, 2.0]), 0.5).to_event(1)).sum()
                + numpyro.sample("a", dist.Normal(-3.0, 4.0))
            ),
            {"a": (), "b": (2,)},
        )
    )
    np.testing.assert_allclose(found.mean, [-3, 1, 2])
    np.testing.assert_allclose(found.precision, [1 / 16, 4, 4])


def of_parameter():
    return numpyro.param("m", 0.0) + numpyro.sample("a", dist.Normal(0, 1))


def of_another():
    return numpyro.sample("a", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), 1))


def with_a_function():
    return numpyro.deterministic("twice", 2 * numpyro.sample("a", dist.Normal(0, 1)))


def test_a_function_of_latents_changes_no_prior():
    found = prior_of(split_with(with_a_function, {"a": ()}))
    np.testing.assert_array_equal([*found.mean, *found.precision], [0, 1])


@pytest.mark.parametrize(
    ("prior", "names", "all_names", "scale", "reach"),
    [
        (lambda: numpyro.sample("a", dist.Laplace(0, 1)), {"a": ()}, ("a",), 1.4, 2**0.5),
        (lambda: numpyro.sample("a", dist.HalfNormal(1)), {"a": ()}, ("a",), 0.58, 0.0),
        (lambda: numpyro.sample("a", dist.Cauchy(0, 1)), {"a": ()}, ("a",), 3.8, 0.0),
        (of_another, {"a": (), "mu": ()}, ("a", "mu"), 2**0.5, 1.0),
    ],
)
def test_other_priors_are_joint_ones_with_their_typical_scale(
    prior, names, all_names, scale, reach
):
    """And u is dithered by standard deviations at most; not at all where it has bounds or these are
    infinite.
    """
    found = prior_of(split_with(prior, names))
    assert isinstance(found, JointPrior)
    assert found.names == all_names
    assert found.precision**-0.5 == pytest.approx(scale, rel=0.06)
    np.testing.assert_allclose(found.reach, [reach], rtol=1e-6)


@pytest.mark.thorough
def test_with_hardly_any_noise_another_prior_is_multiplied_with_the_likelihood():
    """Against integration: one gradient, of a likelihood with curvature 2 and its mode at 1."""
    prior = prior_of(split_with(lambda: numpyro.sample("a", dist.Laplace(0, 1)), {"a": ()}))
    points = 0.5 + 0.2 * np.random.default_rng(1).normal(size=(20_000, 1))
    found = draw(
        moments_of(points, 2 * (1 - points)),
        prior,
        np.array([0.7]),
        step_noise=0.01,
        sampling_rate=1.0,
        count=1001,
        generator=np.random.default_rng(2),
    )
    grid = np.linspace(-8, 8, 4001)
    density = np.exp(-np.abs(grid) - (grid - 1) ** 2)
    mean = np.sum(grid * density) / density.sum()
    deviation = np.sqrt(np.sum((grid - mean) ** 2 * density) / density.sum())
    assert found.shape == (1001, 1)
    assert found.mean() == pytest.approx(mean, abs=5 * deviation / 1001**0.5)
    assert found.std() == pytest.approx(deviation, rel=0.12)


def records_with_latents(x, num_records=None):
    mean = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(numpyro.sample("own", dist.Normal(mean, 1)), 1), obs=x)


def guide_of_all(x, num_records=None):
    numpyro.sample("a", dist.Normal(numpyro.param("a_loc", 0.0), 0.1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("own", dist.Normal(x / 2, 0.7))


def test_records_with_latents_of_their_own_are_refused():
    record = (jax.ShapeDtypeStruct((), jnp.float32),)
    with pytest.raises(NoNoiseAwarePosterior, match="records have latents of their own"):
        prior_of(
            split(records_with_latents, guide_of_all, jax.random.key(0), record, num_records=100)
        )


def around_a_parameter():
    return numpyro.sample("a", dist.Normal(numpyro.param("m", 0.0), 1))


def around_many():
    return numpyro.sample(
        "a", dist.Normal(numpyro.sample("b", dist.Normal(0, 1).expand([120]).to_event(1)).sum(), 1)
    )


@pytest.mark.parametrize(
    ("prior", "names", "reason"),
    [
        (of_parameter, {"a": ()}, "m is a parameter without a prior"),
        (around_a_parameter, {"a": ()}, "m is a parameter without a prior"),
        (of_another, {"a": ()}, "the guide does not draw mu"),
        (
            lambda: numpyro.sample("a", dist.Dirichlet(jnp.ones(2)))[0],
            {"a": (2,)},
            "not free of each other",
        ),
        (
            lambda: numpyro.sample("a", dist.Normal(0, 1).expand([101]).to_event(1)).sum(),
            {"a": (101,)},
            "more than 100 quantities",
        ),
        (
            around_many,
            {"a": (), "b": (120,)},
            "more than 120 quantities",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_reason(prior, names, reason):
    with pytest.raises(NoNoiseAwarePosterior, match=reason):
        prior_of(split_with(prior, names))


# ---- moments -------------------------------------------------------------------------------------


def test_moments_are_those_of_all_steps_that_count():
    random = np.random.default_rng(9)
    points, gradients = (
        40 + 0.01 * random.normal(size=(30_000, 2)),
        1e3 * random.normal(size=(30_000, 2)),
    )

    def body(moments, step):
        number, point, gradient = step
        return running_moments.with_release(
            moments, {"a": point}, {"a": gradient}, None, number >= 5000
        ), None

    steps = jnp.arange(30_000), jnp.float32(points), jnp.float32(gradients)
    found, _ = jax.lax.scan(body, running_moments.empty(2), steps)
    expected = moments_of(
        np.float32(points[5000:]).astype(float), np.float32(gradients[5000:]).astype(float)
    )
    assert found.steps == 25_000
    for mine, theirs in zip(found.centred(), expected.centred(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.02, atol=0.02 * np.abs(theirs).mean())


def test_moments_are_kept_beside_arrays():
    moments = running_moments.empty(3)
    mine, others = moments_in({"weights": np.ones(2), **running_moments.arrays_of(moments)})
    assert list(others) == ["weights"]
    assert jax.tree.all(jax.tree.map(np.array_equal, mine, moments))
    assert moments_in({"weights": np.ones(2)}) == (None, {"weights": pytest.approx(np.ones(2))})
    assert running_moments.arrays_of(None) == {}


# ---- in a run ------------------------------------------------------------------------------------

COUNT = 60
RECORDS = zoo.logistic_data(COUNT)


def runner(noise_multiplier=0.0, rate=1.0, clip=1e6):
    sampler = PoissonSampler(COUNT, rate, COUNT)
    return DPVI(
        zoo.logistic,
        zoo.logistic_guide,
        Adam(0.05),
        privacy=(sampler, GaussianMechanism(clip, noise_multiplier)),
    )


def steps_of(dpvi, key, count, moments_from):
    """The state after ``count`` steps, and the points and parameters that they saw."""
    dpvi.init(key_from_seed(99), *RECORDS)
    step, hyper = dpvi.private_step, dpvi.hyper._replace(moments_from=jnp.int32(moments_from))

    @jax.jit
    def taken(state):
        draws = step.draw(key, state.step, hyper)
        params = step.optimizer.get_params(state.optim_state)
        return step.step(state, RECORDS, draws, hyper), step.model.release_point(
            params, draws.base_noise
        )[0]

    state, points = step.init(key, hyper), []
    for _ in range(count):
        state, point = taken(state)
        points.append(point)
    return step, state, points


def test_a_run_keeps_the_moments_of_points_and_gradients():
    """Of all records without noise: gradients by the formula of logistic regression."""
    step, state, points = steps_of(runner(), key_from_seed(1), 6, 2)
    x, y = (np.asarray(array, float) for array in RECORDS)
    flat = np.array(
        [np.concatenate([np.ravel(point[name]) for name in step.model.shared]) for point in points],
        float,
    )
    gradients = []
    for point in points:
        logits = x @ np.asarray(point["weights"], float) + float(point.get("intercept", 0.0))
        of_weights = x.T @ (y - 1 / (1 + np.exp(-logits)))
        parts = {"weights": of_weights, "intercept": np.sum(y - 1 / (1 + np.exp(-logits)))}
        gradients.append(np.concatenate([np.ravel(parts[name]) for name in step.model.shared]))
    expected = moments_of(flat[2:], np.array(gradients)[2:])
    assert state.moments.steps == 4
    for mine, theirs in zip(state.moments.centred(), expected.centred(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=1e-2)


def test_moments_hold_the_noise_of_the_release():
    """With noise far above any gradient, they are its moments: no un-noised sum enters them."""
    noise = 1e3
    _, state, _ = steps_of(runner(noise, 0.5, 1.0), key_from_seed(2), 40, 0)
    variance = state.moments.centred()[1] ** 2 * 40
    assert 0.2 < variance.mean() / (noise / 0.5) ** 2 < 3


@pytest.mark.thorough
def test_points_are_dithered_between_the_starts_of_moments_and_average():
    """By the given sizes, up and down, and by nothing before and after; moments are of the points
    where gradients are.
    """
    dpvi = runner()
    dpvi.init(key_from_seed(99), *RECORDS)
    step, key = dpvi.private_step, key_from_seed(5)
    size = jnp.resize(jnp.array([0.5, 0.0, 0.25]), step.noise_size)
    hyper = dpvi.hyper._replace(moments_from=jnp.int32(1), average_from=jnp.int32(3), dither=size)
    state = step.init(key, hyper)
    for number in range(5):
        draws = step.draw(key, state.step, hyper)
        u = step.model.release_point(
            step.optimizer.get_params(state.optim_state), draws.base_noise
        )[0]
        flat, moved = (
            jax.flatten_util.ravel_pytree(each)[0]
            for each in (u, step.dithered(u, state, draws, hyper))
        )
        expected = np.where(number in (1, 2), size, 0.0)
        np.testing.assert_allclose(np.abs(moved - flat), expected, atol=1e-6)
        state = step.step(state, RECORDS, draws, hyper)
        if number == 1:
            np.testing.assert_allclose(state.moments.origin, moved, rtol=1e-6)


@pytest.mark.thorough
def test_a_run_without_moments_has_none():
    dpvi = runner()
    state = dpvi.init(key_from_seed(3), *RECORDS)
    assert state.moments is None
    assert dpvi.update(state, *RECORDS)[0].moments is None


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_moments_are_of_single_precision_whatever_is_released(kind):
    """A loop of steps needs one type; with x64 the ones would be of another."""
    with jax.enable_x64(True):
        release = {"a": jnp.ones(2, kind), "b": jnp.ones((), kind)}
        found = running_moments.with_release(
            running_moments.empty(3), release, release, None, jnp.bool_(True)
        )
        assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float32")}


# ---- found by an attack --------------------------------------------------------------------------


def split_of(model, guide=None):
    from numpyro.infer.autoguide import AutoNormal

    return split(
        model,
        AutoNormal(model) if guide is None else guide,
        jax.random.key(0),
        (jax.ShapeDtypeStruct((2,), jnp.float32),),
        num_records=50,
        static={},
    )


def test_a_factor_outside_the_plate_counts():
    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.factor("soft", -0.5 * ((mean + 0.5) / 0.01) ** 2)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1.0).expand([2]).to_event(1), obs=x)

    prior = prior_of(split_of(model))
    assert not isinstance(prior, Prior)
    low, high = (
        float(prior.log_density(jnp.array([place]), jnp.zeros(1))) for place in (0.5, -0.5)
    )
    assert high - low > 1000


@pytest.mark.thorough
@pytest.mark.parametrize("wide", [dist.Gamma(0.1, 0.1), dist.LogNormal(0, 10)])
def test_a_prior_over_many_powers_of_ten_is_refused(wide):
    def model(x, num_records=None):
        scale = numpyro.sample("scale", wide)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(0, scale).expand([2]).to_event(1), obs=x)

    with pytest.raises(NoNoiseAwarePosterior, match="powers of ten"):
        prior_of(split_of(model)).typical  # noqa: B018 - what every draw asks for


@pytest.mark.thorough
def test_a_prior_with_two_modes_is_refused():
    def model(x, num_records=None):
        modes = dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.array([-1.0, 1.0]), 0.1)
        )
        mean = numpyro.sample("mean", modes)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1.0).expand([2]).to_event(1), obs=x)

    with pytest.raises(NoNoiseAwarePosterior, match="mixture"):
        prior_of(split_of(model))
