import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.autoguide import (
    AutoDelta,
    AutoLaplaceApproximation,
    AutoMultivariateNormal,
    AutoNormal,
)
from scipy import stats

from tests import zoo
from tests.conftest import some_of
from workbench.clipping.separation import PrivacyModelError
from workbench.record_model.additivity import require_additive
from workbench.record_model.base_noise import RecordKey, record_keys, seeded, two_of
from workbench.record_model.splitting import split

KEY = jax.random.key(0)
X, Y = zoo.logistic_data(20)
SHAPES = zoo.shapes_of(X, Y)
(ONLY_X,) = zoo.normal_mean_data(20)
ONLY_X_SHAPES = zoo.shapes_of(ONLY_X)


def split_logistic(num_records=20):
    return split(zoo.logistic, zoo.logistic_guide, KEY, SHAPES, num_records=num_records)


def refusal(model, guide=zoo.normal_mean_guide, num_records=20, **options):
    with pytest.raises(PrivacyModelError) as caught:
        require_additive(
            split(model, guide, KEY, ONLY_X_SHAPES, num_records=num_records, **options), KEY
        )
    return str(caught.value)


# --- what is refused, and the words it is refused with --------------------------------------------


def same_losses_as_normal_mean(model, num_records=20):
    """Whether split and check accept ``model``, and each record's loss is that of the
    zoo's model.
    """
    guide = zoo.mean_field(mean=())
    losses = []
    for each in (model, zoo.normal_mean):
        seen = split(each, guide, KEY, ONLY_X_SHAPES, num_records=num_records)
        require_additive(seen, KEY)
        losses.append(seen.record_losses({"mean": jnp.array(0.3)}, (jnp.asarray(ONLY_X),), KEY))
    return np.allclose(*losses, rtol=1e-6)


@pytest.mark.thorough
def test_a_plate_of_all_records_that_are_handed_in_needs_no_num_records():
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("N", len(x)):
            numpyro.sample("x", dist.Normal(mean, 1), obs=x)

    assert same_losses_as_normal_mean(model)


@pytest.mark.thorough
def test_a_plate_of_num_records_need_not_subsample():
    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("N", num_records):
            numpyro.sample("x", dist.Normal(mean, 1), obs=x)

    assert same_losses_as_normal_mean(model)


def test_a_likelihood_of_all_records_without_a_plate():
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)

    assert same_losses_as_normal_mean(model)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [None, 20])
def test_a_plate_that_draws_its_own_minibatch_gets_the_one_that_was_drawn(size):
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("N", size or x.shape[0], subsample_size=5) as index:
            numpyro.sample("x", dist.Normal(mean, 1), obs=x[index])

    assert same_losses_as_normal_mean(model)


@pytest.mark.parametrize("size", [None, 20])
def test_numpyro_subsample_returns_the_minibatch_that_was_drawn(size):
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("N", size or x.shape[0], subsample_size=5):
            numpyro.sample("x", dist.Normal(mean, 1), obs=numpyro.subsample(x, event_dim=0))

    assert same_losses_as_normal_mean(model)


@pytest.mark.thorough
def test_bounds_of_a_parameter_may_be_arrays():
    low, high = jnp.array([-1.0, 0.0]), jnp.array([0.0, 2.0])

    def model(x):
        width = numpyro.param(
            "width", jnp.array([-0.5, 0.5]), constraint=constraints.interval(low, high)
        )
        theta = numpyro.sample("theta", dist.Uniform(low, high).to_event(1))
        with numpyro.plate("records", len(x)):
            numpyro.sample("x", dist.Normal(theta + width, 1).to_event(1), obs=x)

    seen = split(
        model, AutoDelta(model), jax.random.key(0), (np.zeros(2, np.float32),), num_records=8
    )
    # compiles the transforms again, outside of the trace they were made in
    require_additive(seen, jax.random.key(1))
    found = seen.constrain({name: jnp.array([0.0, 3.0]) for name in seen.initial})
    expected = np.array([-1, 0]) + np.array([1, 2]) / (1 + np.exp([0.0, -3.0]))
    np.testing.assert_allclose([found["width"], found["theta_auto_loc"]], [expected] * 2, rtol=1e-6)


def test_a_plate_inside_and_one_outside_of_that_of_the_records():
    def model(x):
        with numpyro.plate("sides", 2, dim=-2):
            mean = numpyro.sample("mean", dist.Normal(0, 1))
            with numpyro.plate("N", len(x), dim=-3), numpyro.plate("times", 4, dim=-1):
                numpyro.sample("x", dist.Normal(mean, 1), obs=x.reshape(-1, 2, 4))

    seen = split(
        model,
        zoo.mean_field(mean=(2, 1)),
        KEY,
        (jax.ShapeDtypeStruct((8,), jnp.float32),),
        num_records=20,
    )
    require_additive(seen, KEY)
    mean = np.array([[0.2], [0.7]])
    x = np.random.default_rng(0).normal(size=8)
    loss = seen.record_loss({"mean": jnp.asarray(mean, jnp.float32)}, (x.astype(np.float32),), KEY)
    assert float(loss) == pytest.approx(
        -stats.norm.logpdf(x.reshape(2, 4), mean, 1).sum(), rel=1e-5
    )


def test_two_subsampling_plates_are_refused():
    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1), obs=x)
        with numpyro.plate("clinics", 7, subsample_size=2):
            numpyro.sample("effect", dist.Normal(0, 1))

    message = refusal(model)
    assert "more than one subsampling plate ('records', 'clinics')" in message


@pytest.mark.parametrize("where", ["model", "guide"])
def test_a_term_that_depends_on_no_record_belongs_to_the_global_loss(where):
    """A prior by obs=, a soft sum to zero, a factor in the guide."""

    def of_the_mean(mean):
        numpyro.factor("penalty", -3 * mean**2)

    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        if where == "model":
            of_the_mean(mean)
            numpyro.sample("census", dist.Normal(mean, 0.1), obs=0.3)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1), obs=x)

    def guide(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.2), 0.5))
        if where == "guide":
            of_the_mean(mean)

    seen = split(model, guide, KEY, ONLY_X_SHAPES, num_records=20)
    require_additive(seen, KEY)
    shared, loss = seen.release_point(seen.initial, KEY)
    mean = float(shared["mean"])
    expected = stats.norm.logpdf(mean, 0.2, 0.5) - stats.norm.logpdf(mean)
    if where == "model":
        expected += 3 * mean**2 - stats.norm.logpdf(0.3, mean, 0.1)
    else:
        expected -= 3 * mean**2
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert set(shared) == {"mean"}


def test_a_factor_outside_the_record_plate_is_refused():
    def model(x, num_records=None):
        zoo.normal_mean(x, num_records)
        numpyro.factor("penalty", -jnp.sum(x**2))

    assert "site 'penalty' is observed outside the record plate" in refusal(model)


def test_a_latent_of_the_guide_alone_is_refused():
    def guide(x, num_records=None):
        zoo.normal_mean_guide(x, num_records)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("hidden", dist.Normal(x, 1))

    assert "site 'hidden' of the guide is not in the model" in refusal(zoo.normal_mean, guide)


def test_no_record_shares_base_noise_with_the_global_draws_or_with_another_record_or_site():
    def sites():
        return [numpyro.prng_key() for _ in range(3)]

    def of_a_record(key):
        return seeded(sites, key)()

    shared = [key for half in two_of(KEY) for key in seeded(sites, half)()]
    for half in two_of(record_keys(KEY, jnp.arange(50))):
        for own in jax.vmap(of_a_record, [RecordKey(None, 0)])(half):
            shared += list(own)
    assert len(
        {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in shared}
    ) == 2 * 3 * (1 + 50)


def test_a_record_draws_the_same_alone_and_in_a_minibatch():
    def model():
        return numpyro.sample("one", dist.Normal(0, 1)), numpyro.sample(
            "two", dist.Gamma(2.0).expand([3]).to_event(1)
        )

    own = record_keys(KEY, jnp.arange(20))
    together = jax.vmap(lambda key: seeded(model, key)(), [RecordKey(None, 0)])(own)
    alone = seeded(model, RecordKey(own.key, jnp.int32(7)))()
    for all_, one in zip(together, alone, strict=True):
        np.testing.assert_array_equal(all_[7], one)


def local_mean(x, num_records=None):
    """A latent in the plate, drawn around a global mean."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        hidden = numpyro.sample("hidden", dist.Normal(mean, 1))
        numpyro.sample("x", dist.Normal(hidden, 1), obs=x)


def test_a_local_latent_whose_guide_stands_outside_the_plate_is_refused():
    def guide(x, num_records=None):
        zoo.normal_mean_guide(x, num_records)
        numpyro.sample("hidden", dist.Normal(x, 1).to_event(1))

    message = refusal(local_mean, guide)
    assert (
        "site 'hidden' is inside the record plate 'records' in the model, but outside it in the "
        "guide" in message
    )


def test_automatic_guides_of_local_latents_are_refused():
    """Automatic guides make one for every local latent."""
    message = refusal(local_mean, AutoNormal(local_mean))
    assert "index of the record plate 'records'" in message
    assert "amortised" in message


@pytest.mark.thorough
@pytest.mark.parametrize(
    "model", some_of([local_mean, zoo.levels], first=1), ids=["scalar", "with an inner plate"]
)
def test_the_refusal_has_a_guide_to_paste(model):
    """Its record plate may be the second axis from the right, and some latents have an axis inside
    of it.
    """
    record = ONLY_X_SHAPES if model is local_mean else (jax.ShapeDtypeStruct((3,), jnp.float32),)
    with pytest.raises(PrivacyModelError) as caught:
        split(model, AutoNormal(model), KEY, record, num_records=20)
    pasted = {"numpyro": numpyro, "jnp": jnp, "dist": dist}
    exec(str(caught.value).partition("\n\n")[2], pasted)

    def guide(x, num_records=None):
        zoo.normal_mean_guide(x, num_records)
        pasted["guide"](x, num_records=num_records)

    seen = split(model, guide, KEY, record, num_records=20)
    require_additive(seen, KEY)
    assert seen.local_latents == (("hidden",) if model is local_mean else ("level", "state"))


@pytest.mark.thorough
def test_the_hessian_of_a_made_up_record_is_not_given_out():
    guide = AutoLaplaceApproximation(zoo.normal_mean)
    seen = split(zoo.normal_mean, guide, KEY, ONLY_X_SHAPES, num_records=20)
    params = seen.constrain(seen.initial)
    assert set(guide.median(params)) == {"mean"}
    for use in (
        lambda: guide.get_posterior(params),
        lambda: guide.sample_posterior(KEY, params),
        lambda: guide.quantiles(params, [0.5]),
    ):
        with pytest.raises(PrivacyModelError, match="Hessian of the private records"):
            use()


def test_records_that_do_not_come_by_position_are_refused():
    """Every record would see all of them."""
    everything = jnp.asarray(ONLY_X)

    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1), obs=everything)

    assert "site 'x' observes values of shape" in refusal(model)


def linear(x, y=None, *, observe=lambda y: y):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("obs", dist.Normal(w * x, 1), obs=None if y is None else observe(y))


@pytest.mark.parametrize("guide", [AutoNormal, None])
@pytest.mark.parametrize("forgets", ["obs=", "the values"])
def test_a_model_that_observes_nothing_is_told_so(forgets, guide):
    """And is not told how to write a guide for what it forgot to observe."""
    model = functools.partial(linear, observe=lambda y: None) if forgets == "obs=" else linear
    arguments = (jax.ShapeDtypeStruct((), jnp.float32),) * (2 if forgets == "obs=" else 1)

    def global_guide(x, y=None):
        numpyro.sample("w", dist.Normal(numpyro.param("loc", 0.0), 1))

    with pytest.raises(
        PrivacyModelError, match=r"^no site of the model is observed \('w', 'obs'\)"
    ):
        split(model, global_guide if guide is None else guide(model), KEY, arguments, num_records=9)


def test_an_observed_column_is_told_from_values_of_one_record():
    model = functools.partial(linear, observe=lambda y: y[:, None])
    with pytest.raises(
        PrivacyModelError, match=r"observes a column of shape \(N, 1\).*give it y\[:, 0\]"
    ):
        split(
            model,
            AutoNormal(model),
            KEY,
            (jax.ShapeDtypeStruct((), jnp.float32),) * 2,
            num_records=9,
        )


def test_a_guide_that_is_not_reparametrised_is_refused():
    def model(x, num_records=None):
        count = numpyro.sample("mean", dist.Poisson(3.0))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(count, 1), obs=x)

    def guide(x, num_records=None):
        numpyro.sample(
            "mean", dist.Poisson(numpyro.param("rate", 3.0, constraint=constraints.positive))
        )

    assert "site 'mean' of the guide is not reparametrised (Poisson)" in refusal(model, guide)


def test_a_latent_missing_from_the_guide_must_be_reparametrised():
    def model(x, num_records=None):
        zoo.normal_mean(x, num_records)
        numpyro.sample("class", dist.Bernoulli(0.5))

    assert (
        "site 'class' is missing from the guide and BernoulliProbs cannot be reparametrised"
        in refusal(model)
    )


def test_a_discrete_latent_is_refused_for_an_automatic_guide():
    """In numpyro's own words it would need funsor."""

    def model(x, num_records=None):
        means = numpyro.sample("means", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            component = numpyro.sample("component", dist.Bernoulli(0.5))
            numpyro.sample("x", dist.Normal(means[component], 1), obs=x)

    assert "site 'component' is a discrete latent (BernoulliProbs)" in refusal(
        model, AutoNormal(model)
    )


@pytest.mark.parametrize("part", ["value", "density"])
def test_a_guide_that_looks_at_records_is_refused(part):
    def guide(x, num_records=None):
        loc, scale = (
            numpyro.param("loc", 0.0),
            numpyro.param("scale", 1.0, constraint=constraints.positive),
        )
        numpyro.sample(
            "mean",
            dist.Normal(loc + jnp.mean(x), 1.0)
            if part == "value"
            else dist.Normal(loc, scale + x[0] ** 2),
        )

    assert "site 'mean' is global, but depends on the records" in refusal(zoo.normal_mean, guide)


def test_a_prior_that_looks_at_records_is_refused():
    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(jnp.mean(x), 1.0))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)

    assert "site 'mean' is global, but depends on the records" in refusal(model)


def test_a_dependence_that_vanishes_at_the_first_look_is_refused():
    """The placeholder record is zero, and so is this term, its value and its derivative."""

    def guide(x, num_records=None):
        loc = numpyro.param("loc", 0.0)
        numpyro.sample("mean", dist.Normal(loc + jnp.sum(x**3), 1.0))

    assert "depends on the records" in refusal(zoo.normal_mean, guide)


def test_use_of_the_plate_index_is_refused():
    """With the minibatch's records in hand, an index into the whole data set would pick others."""

    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        weights = jnp.linspace(0, 1, num_records)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]) as index:
            numpyro.sample("x", dist.Normal(mean * weights[index], 1), obs=x)

    assert "uses the index of the record plate 'records'" in refusal(model)


def test_a_complex_parameter_is_refused():
    def model(x):
        mean = numpyro.param("mean", jnp.array(1 + 1j))
        with numpyro.plate("N", len(x)):
            numpyro.sample("x", dist.Normal(mean.real, 1), obs=x)

    assert "parameter 'mean' is complex" in refusal(model, lambda x: None)


def test_a_parameter_for_each_record_is_refused():
    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            shift = numpyro.param("shift", jnp.zeros(num_records), event_dim=0)
            numpyro.sample("x", dist.Normal(mean + shift, 1), obs=x)

    assert "index of the record plate 'records'" in refusal(model)


def test_a_global_value_made_from_the_plate_index_is_refused():
    def guide(x, num_records=None):
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]) as index:
            pass
        numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0) + index[0], 1.0))

    assert "depends on the index of the record plate 'records'" in refusal(zoo.normal_mean, guide)


def test_another_subsampling_plate_in_the_guide_is_refused():
    def guide(x, num_records=None):
        zoo.normal_mean_guide(x, num_records)
        with numpyro.plate("rows", num_records, subsample_size=x.shape[0]):
            pass

    assert (
        "the guide subsamples in plate 'rows', but the model's record plate is 'records'"
        in refusal(zoo.normal_mean, guide)
    )


@pytest.mark.parametrize("what", ["model", "guide"])
def test_mutable_state_is_refused(what):
    def with_state(fn):
        def stateful(x, num_records=None):
            fn(x, num_records)
            numpyro.primitives.mutable("running_mean", {"value": jnp.zeros(())})

        return stateful

    model = with_state(zoo.normal_mean) if what == "model" else zoo.normal_mean
    guide = with_state(zoo.normal_mean_guide) if what == "guide" else zoo.normal_mean_guide
    message = refusal(model, guide)
    assert f"site 'running_mean' of the {what} is mutable state" in message


def test_keyword_arguments_may_stand_for_num_records():
    def model(x, **kwargs):
        zoo.normal_mean(x, **kwargs)

    assert split(model, zoo.normal_mean_guide, KEY, ONLY_X_SHAPES, num_records=20).plates.names == (
        "records",
    )


def test_a_plate_of_another_size_is_refused():
    def model(x, num_records=None):
        zoo.normal_mean(x, 99)

    assert "plate 'records' has size 99, but num_records is 20" in refusal(model)


def test_a_model_that_ignores_its_records_is_refused():
    def model(x, num_records=None):
        numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(0, 1), obs=x)

    assert "nothing to learn from records" in refusal(model)


# --- what it looks at -----------------------------------------------------------------------------


def test_shapes_and_types_are_all_it_takes():
    by_shapes = split_logistic()
    by_records = split(
        zoo.logistic,
        zoo.logistic_guide,
        KEY,
        (np.full(3, np.nan, np.float32), np.int32(-(2**31))),
        num_records=20,
    )
    jax.tree.map(np.testing.assert_array_equal, by_shapes.initial, by_records.initial)
    assert by_shapes.shared == by_records.shared


def test_starting_values_of_an_automatic_guide_come_from_no_record():
    """AutoNormal rejects starting points by their likelihood, which is not finite for records of
    NaN.
    """
    parts = [
        split(zoo.logistic, AutoNormal(zoo.logistic), KEY, record, num_records=20)
        for record in (SHAPES, (np.full(3, np.nan, np.float32), np.int32(7)))
    ]
    jax.tree.map(np.testing.assert_array_equal, parts[0].initial, parts[1].initial)


def test_an_automatic_guide_starts_where_the_stand_ins_are_impossible_records():
    """Ones stand in for records, and their likelihood must not decide where it starts."""

    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.LogNormal(mean, 1), obs=-x)

    seen = split(model, AutoNormal(model), KEY, ONLY_X_SHAPES, num_records=20)
    assert np.all(np.isfinite(seen.initial["mean_auto_loc"]))


def test_a_starting_value_computed_from_records_sees_the_stand_ins():
    def guide(x, num_records=None):
        numpyro.sample("mean", dist.Normal(numpyro.param("loc", jnp.mean(x)), 1.0))

    seen = split(zoo.normal_mean, guide, KEY, (np.full((), 1e6, np.float32),), num_records=20)
    assert float(seen.initial["loc"]) == 1


def bounded_by(bounds):
    def guide(x, num_records=None):
        loc = numpyro.param("loc", 0.5, constraint=constraints.interval(*bounds(x)))
        numpyro.sample("mean", dist.Normal(loc, 1.0))

    return split(zoo.normal_mean, guide, KEY, ONLY_X_SHAPES, num_records=20)


def test_bounds_of_a_parameter_may_be_made_inside_the_model():
    seen = bounded_by(lambda x: (jnp.zeros(()), jnp.arange(3.0)[2]))
    assert float(seen.initial["loc"]) == pytest.approx(np.log(0.25 / 0.75), abs=1e-6)
    assert float(jax.jit(seen.constrain)({"loc": jnp.float32(50)})["loc"]) == pytest.approx(2)


def test_bounds_of_a_parameter_made_of_records_are_refused():
    with pytest.raises(
        PrivacyModelError, match=r"the bounds of parameter 'loc' .* are made of records"
    ):
        bounded_by(lambda x: (0.0, 1 + jnp.max(x)))


# --- as many columns as records -------------------------------------------------------------------


def columns_and(plate_of_records):
    def model(x, num_records=None):
        with numpyro.plate("columns", x.shape[1]):
            weights = numpyro.sample("weights", dist.Normal(0, 1))
        with plate_of_records(x, num_records):
            numpyro.sample("y", dist.Normal(x @ weights, 1), obs=x[:, 0])

    return model


@pytest.mark.parametrize(
    "plate_of_records",
    [
        lambda x, num_records: numpyro.plate("N", len(x)),
        lambda x, num_records: numpyro.plate("N", num_records),
        lambda x, num_records: numpyro.plate("N", num_records, subsample_size=len(x)),
        lambda x, num_records: contextlib.nullcontext(),
    ],
)
def test_as_many_columns_as_records_are_no_records(plate_of_records):
    model = columns_and(plate_of_records)
    seen = split(model, AutoNormal(model), KEY, (np.zeros(20, np.float32),), num_records=20)
    assert seen.plates.names in (("N",), ())
    assert seen.initial["weights_auto_loc"].shape == (20,)
    assert seen.of_records == {"y"}


def test_other_keys_start_an_automatic_guide_elsewhere():
    starts = [
        split(
            zoo.logistic, AutoNormal(zoo.logistic), jax.random.key(n), SHAPES, num_records=20
        ).initial
        for n in (0, 1)
    ]
    assert not np.array_equal(starts[0]["weights_auto_loc"], starts[1]["weights_auto_loc"])


# --- what comes out -------------------------------------------------------------------------------


def test_u_holds_what_the_records_meet():
    seen = split_logistic()
    assert seen.shared == ("intercept", "weights")
    assert seen.shared_size == 4
    assert seen.plates.names == ("records",)


def test_u_leaves_out_hyper_parameters_that_no_record_touches():
    seen = split(zoo.hierarchical, zoo.hierarchical_guide, KEY, SHAPES, num_records=20)
    assert seen.shared == ("weights",)
    assert seen.shared_size == 3


@pytest.mark.thorough
def test_u_keeps_a_hyper_parameter_that_scales_the_weights_inside_the_model():
    """Written without centring, the records meet both factors."""

    def model(x, y=None, num_records=None):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        standard = numpyro.sample("standard", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        weights = numpyro.deterministic("weights", scale * standard)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    seen = split(model, AutoNormal(model), KEY, SHAPES, num_records=20)
    assert seen.shared == ("scale", "standard")
    latents = seen.latents(seen.initial, KEY)
    np.testing.assert_allclose(
        latents["weights"], latents["scale"] * latents["standard"], rtol=1e-6
    )


def test_u_holds_parameters_of_the_model():
    def model(x, num_records=None):
        numpyro.sample("mean", dist.Normal(0, 1))
        width = numpyro.param("width", 2.0, constraint=constraints.positive)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(0, width), obs=x)

    seen = split(model, zoo.normal_mean_guide, KEY, ONLY_X_SHAPES, num_records=20)
    assert seen.shared == ("width",)
    shared, _ = seen.release_point(seen.initial, KEY)
    assert float(shared["width"]) == pytest.approx(2.0)
    assert set(seen.initial) == {"width", "loc", "scale"}


def test_record_loss_is_the_logistic_loss():
    seen = split_logistic()
    weights, intercept = np.array([1.5, -0.5, 3.0], np.float32), np.float32(0.7)
    shared = {"weights": weights, "intercept": intercept}
    losses = jax.vmap(lambda x, y: seen.record_loss(shared, (x, y), KEY))(X, Y)
    np.testing.assert_allclose(
        losses, zoo.logistic_losses(weights, intercept, X, Y), rtol=1e-5, atol=1e-6
    )


def test_record_loss_does_not_depend_on_the_number_of_records():
    """The plate's scale belongs to the estimator, which divides by q instead."""
    shared = {"weights": jnp.ones(3), "intercept": jnp.ones(())}
    losses = [
        float(split_logistic(size).record_loss(shared, (X[0], Y[0]), KEY))
        for size in (2, 20, 10**6)
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def test_record_loss_keeps_scales_of_the_model_itself():
    def tempered(x, num_records=None):
        with numpyro.handlers.scale(scale=0.25):
            zoo.normal_mean(x, num_records)

    plain, scaled = (
        split(model, zoo.normal_mean_guide, KEY, ONLY_X_SHAPES, num_records=20)
        for model in (zoo.normal_mean, tempered)
    )
    shared = {"mean": jnp.array(0.3)}
    expected = 0.25 * plain.record_loss(shared, (ONLY_X[0],), KEY)
    assert float(scaled.record_loss(shared, (ONLY_X[0],), KEY)) == pytest.approx(
        float(expected), rel=1e-6
    )


def test_global_loss_is_log_q_minus_log_p():
    seen = split(zoo.normal_mean, zoo.normal_mean_guide, KEY, ONLY_X_SHAPES, num_records=20)
    params = seen.unconstrain({"loc": jnp.array(0.4), "scale": jnp.array(0.2)})
    shared, global_loss = seen.release_point(params, KEY)
    mean = float(shared["mean"])
    expected = stats.norm.logpdf(mean, 0.4, 0.2) - stats.norm.logpdf(mean, 0, zoo.PRIOR_SCALE)
    assert float(global_loss) == pytest.approx(expected, rel=1e-5)


def test_global_loss_counts_hyper_parameters_too():
    seen = split(zoo.hierarchical, zoo.hierarchical_guide, KEY, SHAPES, num_records=20)
    _, global_loss = seen.release_point(seen.initial, KEY)
    latents = seen.latents(seen.initial, KEY)
    scale, weights = float(latents["scale"]), np.asarray(latents["weights"])
    log_q = stats.lognorm.logpdf(scale, 0.1) + stats.norm.logpdf(weights, 0, 0.1).sum()
    log_p = stats.halfnorm.logpdf(scale) + stats.norm.logpdf(weights, 0, scale).sum()
    assert float(global_loss) == pytest.approx(log_q - log_p, rel=1e-4)


def test_terms_of_a_latent_missing_from_the_guide_cancel():
    def model(x, num_records=None):
        numpyro.sample("unused", dist.Normal(0, 1))
        zoo.normal_mean(x, num_records)

    plain, more = (
        split(fn, zoo.normal_mean_guide, KEY, ONLY_X_SHAPES, num_records=20)
        for fn in (zoo.normal_mean, model)
    )
    assert float(more.release_point(more.initial, KEY)[1]) == float(
        plain.release_point(plain.initial, KEY)[1]
    )
    assert more.shared == ("mean",)


def test_constrain_and_unconstrain_are_inverse():
    seen = split_logistic()
    constrained = seen.constrain(seen.initial)
    np.testing.assert_allclose(constrained["weights_scale"], np.full(3, 0.1), rtol=1e-6)
    back = seen.unconstrain(constrained)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), back, seen.initial
    )


def test_release_point_is_the_guide_drawn_once():
    seen = split_logistic()
    first, second, again = (
        seen.release_point(seen.initial, key)[0]
        for key in (*jax.random.split(KEY), jax.random.split(KEY)[0])
    )
    assert not np.array_equal(first["weights"], second["weights"])
    np.testing.assert_array_equal(first["weights"], again["weights"])
    assert np.all(np.abs(first["weights"]) < 1)  # standard deviation .1 around 0


@pytest.mark.parametrize("automatic", [AutoNormal, AutoMultivariateNormal])
def test_automatic_guides_work(automatic):
    seen = split(zoo.logistic, automatic(zoo.logistic), KEY, SHAPES, num_records=20)
    assert seen.shared == ("intercept", "weights")
    shared, global_loss = jax.jit(seen.release_point)(seen.initial, KEY)
    assert shared["weights"].shape == (3,)
    assert np.isfinite(global_loss)


def test_static_arguments_reach_model_and_guide():
    def model(x, num_records=None, width=None):
        mean = numpyro.sample("mean", dist.Normal(0, width))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("x", dist.Normal(mean, width), obs=x)

    def guide(x, num_records=None, width=None):
        numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0), width))

    seen = split(model, guide, KEY, ONLY_X_SHAPES, num_records=20, static={"width": 3.0})
    loss = seen.record_loss({"mean": jnp.array(0.0)}, (jnp.array(1.0),), KEY)
    assert float(loss) == pytest.approx(-stats.norm.logpdf(1.0, 0, 3.0), rel=1e-6)
