"""Models that are other models when one record is all there is are refused before any step; the
others are not.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from numpyro.infer.autoguide import AutoBNAFNormal, AutoNormal

from tests import zoo
from tests.conftest import some_of
from workbench.clipping import PrivacyModelError
from workbench.inference import DPVI
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model import additivity
from workbench.record_model.additivity import require_additive
from workbench.record_model.splitting import split
from workbench.sampling import PoissonSampler

KEY = jax.random.key(4)
X, Y = zoo.logistic_data(20)
WEIGHTS = zoo.mean_field(weights=(3,))


def weights_of(prior_scale=1.0):
    return numpyro.sample("weights", dist.Normal(jnp.zeros(3), prior_scale).to_event(1))


def checked(model, guide=WEIGHTS, records=(X, Y), num_records=20):
    require_additive(
        split(model, guide, KEY, zoo.shapes_of(*records), num_records=num_records), KEY
    )


def refusal(model, *arguments, **options):
    with pytest.raises(PrivacyModelError) as caught:
        checked(model, *arguments, **options)
    return str(caught.value)


# --- a term that looks across records -------------------------------------------------------------


def regression(look):
    """Logistic regression on ``look(x)``."""

    def model(x, y):
        weights = weights_of()
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=look(x) @ weights), obs=y)

    return model


ACROSS = {
    "centred": lambda x: x - x.mean(0),
    "standardised": lambda x: (x - x.mean(0)) / x.std(0),
    "softmax": lambda x: jax.nn.softmax(x, axis=0),
    "cumulative sum": lambda x: jnp.cumsum(x, axis=0),
    "sorted": lambda x: jnp.sort(x, axis=0),
    "ranks": lambda x: jnp.argsort(jnp.argsort(x, axis=0), axis=0) / 1.0,
    "differences of time": lambda x: jnp.diff(x, axis=0, prepend=0.0),
    "largest": lambda x: x / jnp.abs(x).max(),
    "a little of the mean": lambda x: x + 0.01 * x.mean(0),
    "turned round": lambda x: x[::-1],
    "the first": lambda x: x - x[0],
}


@pytest.mark.parametrize("name", some_of(list(ACROSS)))
def test_a_likelihood_that_looks_across_records_is_refused(name):
    message = refusal(regression(ACROSS[name]))
    assert "site 'y' of the model has no term for each record" in message
    assert "by public constants" in message


def only_with_several(x, y):
    regression(lambda x: x)(x, y)
    if len(x) > 1:
        numpyro.factor("pair", jnp.sum(x[0] * x[1]))


def named_by_their_number(x, y):
    weights = weights_of()
    with numpyro.plate("N", len(x)):
        numpyro.sample(f"y {len(x)}", dist.Bernoulli(logits=len(x) * (x @ weights)), obs=y)


@pytest.mark.parametrize("model", [only_with_several, named_by_their_number])
def test_a_site_that_depends_on_the_number_of_records_is_refused(model):
    assert "not there for every number of records" in refusal(model)


# --- another model for more than three records ----------------------------------------------------


def branching(look=lambda x: x, scale=lambda x: 1.0, index=lambda index: 0.0 * index):
    def model(x, y):
        weights = weights_of(scale(x))
        with numpyro.plate("G", 5):
            group = numpyro.sample("group", dist.Normal(0, 1))
        with numpyro.plate("N", 20, subsample_size=len(x) if look(x) is x else 10) as places:
            logits = look(x) @ weights
            numpyro.sample(
                "y", dist.Bernoulli(logits=logits + group[index(places).astype(int)]), obs=y
            )

    return model


MANY = {
    "likelihood": (
        regression(lambda x: 2 * x if len(x) > 5 else x),
        "the log density of 20 made-up records",
    ),
    "prior": (branching(scale=lambda x: 1 / max(len(x), 5)), "changes with the number of records"),
    "index": (
        branching(index=lambda places: places // 4),
        "uses the index of the record plate 'N'",
    ),
    "index of all": (
        regression(lambda x: x[jnp.arange(len(x)) // 7 * 7]),
        "the log density of 3 made-up records",
    ),
}


def first_five(x, y):
    numpyro.factor("f", dist.Bernoulli(logits=x[:5] @ weights_of()).log_prob(y[:5]).sum())


@pytest.mark.parametrize("name", some_of(list(MANY), 4))
def test_another_model_for_more_records_is_refused(name):
    model, words = MANY[name]
    assert words in refusal(model, AutoNormal(model))


def test_a_factor_of_the_first_five_records_is_refused():
    assert "the log density of 20 made-up records" in refusal(first_five)


def test_another_model_for_more_records_than_are_compared_is_refused():
    model = regression(lambda x: 2 * x if len(x) > 500_000 else x)
    assert "does something else with 1000000 records than with" in refusal(
        model, num_records=1_000_000
    )


@pytest.mark.thorough
def test_a_model_of_minibatches_is_compared_for_a_minibatch():
    def model(x, y, num_records=None):
        assert len(x) < 15
        weights = weights_of()
        with numpyro.plate("N", num_records, subsample_size=len(x)):
            numpyro.sample(
                "y", dist.Bernoulli(logits=x @ weights * (2 if len(x) > 9 else 1)), obs=y
            )

    seen = split(model, lambda x, y: WEIGHTS(x), KEY, zoo.shapes_of(X, Y), num_records=20)
    require_additive(seen, KEY, minibatch=8)
    with pytest.raises(PrivacyModelError, match="the log density of 12 made-up records"):
        require_additive(seen, KEY, minibatch=12)


def in_parts(x, y):
    """Another program for more than eight records, but the same model."""
    weights = weights_of()
    with numpyro.plate("N", len(x)):
        logits = jax.lax.map(lambda one: one @ weights, x, batch_size=8)
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


@pytest.mark.thorough
def test_records_in_parts_of_eight_are_the_same_model(monkeypatch):
    compared = []
    monkeypatch.setattr(
        additivity, "_require_sums", lambda model, key, traced: compared.append(traced.records)
    )
    checked(in_parts)
    checked(regression(lambda x: x))
    assert compared == [3, 20, 3]
    monkeypatch.undo()
    checked(in_parts)


def cox(time, x, event):
    """The partial likelihood, one factor."""
    weights = weights_of()
    risk = (x @ weights)[jnp.argsort(-time)]
    at_risk = jax.lax.cumlogsumexp(risk)
    numpyro.factor("partial", jnp.sum((risk - at_risk) * event[jnp.argsort(-time)]))


def test_cox_partial_likelihood_is_refused():
    time = np.random.default_rng(0).uniform(1, 2, 20).astype(np.float32)
    assert "site 'partial' of the model has no term for each record" in refusal(
        cox, records=(time, X, Y)
    )


def gaussian_process(x, y):
    length = numpyro.sample("weights", dist.Normal(jnp.zeros(3), 1).to_event(1))
    distance = ((x[:, None] - x) / jnp.exp(length)) ** 2
    numpyro.sample(
        "y", dist.MultivariateNormal(0, jnp.exp(-distance.sum(-1)) + jnp.eye(len(x))), obs=y / 1.0
    )


@pytest.mark.thorough
def test_a_gaussian_process_over_records_is_refused():
    assert "site 'y'" in refusal(gaussian_process)


def test_a_guide_that_mixes_records_is_refused():
    def guide(x, num_records=None):
        numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.1), 0.5))
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            numpyro.sample("hidden", dist.Normal(numpyro.param("slope", 0.7) * (x - x.mean()), 0.3))

    assert "site 'hidden' of the guide has no term for each record" in refusal(
        zoo.noisy_means, guide, records=(X[:, 0],)
    )


def test_latents_of_records_that_meet_are_refused():
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("N", len(x)):
            hidden = numpyro.sample("hidden", dist.Normal(mean, 1))
            numpyro.sample("x", dist.Normal(hidden - hidden.mean(), 1), obs=x)

    def guide(x):
        numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.1), 0.5))
        with numpyro.plate("N", len(x)):
            numpyro.sample("hidden", dist.Normal(numpyro.param("slope", 0.7) * x, 0.3))

    assert "site 'x' of the model has no term for each record" in refusal(
        model, guide, records=(X[:, 0],)
    )


# --- a global part that depends on their number ---------------------------------------------------


def test_a_prior_whose_scale_uses_the_number_of_records_is_refused():
    def model(x, y):
        weights = weights_of(1 / len(x))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    message = refusal(model)
    assert (
        "site 'weights' of the model is global, but changes with the number of records" in message
    )
    assert "num_records" in message


def test_a_penalty_that_counts_records_is_refused():
    def model(x, y):
        weights = weights_of()
        numpyro.factor("penalty", -len(x) * jnp.sum(weights**2))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    assert "site 'penalty' of the model is global, but changes" in refusal(model)


def test_a_guide_whose_width_uses_the_number_of_records_is_refused():
    def guide(x, y):
        loc = numpyro.param("loc", jnp.zeros(3))
        numpyro.sample("weights", dist.Normal(loc, 1 / np.sqrt(len(x))).to_event(1))

    assert "site 'weights' of the guide is global, but changes" in refusal(
        regression(lambda x: x), guide
    )


@pytest.mark.parametrize("kind", ["parameter", "latent"])
def test_one_number_for_each_record_outside_of_their_plate_is_refused(kind):
    def model(x):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        if kind == "parameter":
            shift = numpyro.param("shift", jnp.zeros(len(x)))
        else:
            shift = numpyro.sample("shift", dist.Normal(jnp.zeros(len(x)), 1).to_event(1))
        with numpyro.plate("N", len(x)):
            numpyro.sample("x", dist.Normal(mean + shift, 1), obs=x)

    message = refusal(model, zoo.mean_field(mean=()), records=(X[:, 0],))
    assert f"{kind} 'shift' of the model is outside the plate of the records" in message


def test_init_checks_before_any_step():
    def begun(look):
        trainer = DPVI(
            regression(look),
            WEIGHTS,
            numpyro.optim.Adam(0.1),
            privacy=(PoissonSampler(20, 0.5, 20), GaussianMechanism(1.0, 1.0)),
        )
        trainer.init(key_from_seed(1), X, Y)

    with pytest.raises(PrivacyModelError, match="has no term for each record"):
        begun(ACROSS["centred"])
    begun(lambda x: x)


# --- what is not refused --------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(list(zoo.ZOO), 16))
def test_the_zoo_is_additive(name):
    require_additive(zoo.split_case(name), KEY)


def survival(time, x, event):
    weights = weights_of()
    rate = jnp.exp(x @ weights)
    numpyro.factor("censored", event * jnp.log(rate) - rate * time)


def half(x):
    return x.astype(jnp.bfloat16)


LIKELIHOODS = {
    "survival": (survival, (np.ones(20, np.float32), X, Y)),
    "proportions": (
        lambda x, y: numpyro.sample(
            "y", dist.Beta(*jnp.exp(jnp.stack([x @ weights_of(), x[:, 0]]))), obs=y
        ),
        (X, np.full(20, 0.5, np.float32)),
    ),
    "simplices": (
        lambda y: numpyro.sample("y", dist.Dirichlet(jnp.exp(weights_of())), obs=y),
        (np.full((20, 3), 1 / 3, np.float32),),
    ),
    "positive": (
        lambda x, y: numpyro.sample("y", dist.Gamma(2, jnp.exp(x @ weights_of())), obs=y),
        (X, np.full(20, 0.5, np.float32)),
    ),
    "above ten": (
        lambda x, y: numpyro.sample(
            "y", dist.Pareto(7 + 0 * x[:, 0], jnp.exp(x @ weights_of())), obs=y
        ),
        (X, np.full(20, 10.5, np.float32)),
    ),
    "counts in half precision": (
        lambda x, y: numpyro.sample(
            "y", dist.Poisson(jnp.exp(half(x) @ half(weights_of()))), obs=y
        ),
        (X, Y),
    ),
}


def attentive(x, weights):
    """Operations of many kinds in half precision."""
    x, weights = half(x), half(weights)
    scores = jax.nn.softmax(x[:, :, None] * x[:, None])
    x = jnp.einsum("nij,nj->ni", scores, x)
    x = jax.lax.cond(weights[0] > 0, jnp.tanh, lambda x: jax.nn.relu(x) + half(jnp.ones(3)), x)
    x, _ = jax.lax.scan(lambda x, _: (jax.nn.gelu(x + 1), None), x, length=2)
    x = jax.lax.fori_loop(
        0, jnp.int32(weights[1] > 0) + 1, lambda _, x: x * half(jnp.float32(0.5)), x
    )
    return x.at[:, 0].add(1) @ weights


@pytest.mark.parametrize("mixed", [0, 0.01])
def test_nothing_hides_in_half_precision(mixed):
    def model(x, y):
        weights = weights_of()
        with numpyro.plate("N", len(x)):
            numpyro.sample(
                "y",
                dist.Bernoulli(logits=attentive(x + mixed * x.mean(0), weights).astype(float)),
                obs=y,
            )

    if mixed:
        assert "site 'y' of the model has no term for each record" in refusal(model)
    else:
        checked(model)


@pytest.mark.parametrize("name", some_of(list(LIKELIHOODS), 3))
def test_made_up_records_suit_likelihoods(name):
    model, records = LIKELIHOODS[name]
    checked(model, records=records)


@pytest.mark.thorough
def test_a_density_that_no_made_up_record_has_is_taken_on_trust_inside_a_plate_alone():
    def likelihood(x, weights):
        return dist.Uniform(weights[0] + 1e6, 1e6 + 100).expand([len(x)])

    def model(x):
        weights = weights_of()
        with numpyro.plate("N", len(x)):
            numpyro.sample("x", likelihood(x, weights), obs=x)

    def without_plate(x):
        numpyro.sample("x", likelihood(x, weights_of()), obs=x)

    checked(model, records=(X[:, 0],))
    assert "site 'x' is in no plate" in refusal(without_plate, records=(X[:, 0],))


def test_automatic_guides_pass():
    model = regression(lambda x: x)
    checked(model, AutoNormal(model))


@pytest.mark.thorough
def test_a_guide_whose_flow_has_no_inverse_passes():
    model = regression(lambda x: x)
    checked(model, AutoBNAFNormal(model, hidden_factors=[2]))


def autoencoder(look):
    """NumPyro's example, with stax; (model, guide). The model decodes ``look(z)``."""
    pixels, latent = 400, 20
    decode = stax.serial(
        stax.Dense(40, W_init=stax.randn()),
        stax.Softplus,
        stax.Dense(pixels, W_init=stax.randn()),
        stax.Sigmoid,
    )
    scales = stax.serial(stax.Dense(latent, W_init=stax.randn()), stax.Exp)
    heads = stax.FanOut(2), stax.parallel(stax.Dense(latent, W_init=stax.randn()), scales)
    encode = stax.serial(stax.Dense(40, W_init=stax.randn()), stax.Softplus, *heads)

    def model(x):
        decoded = numpyro.module("decoder", decode, (len(x), latent))
        with numpyro.plate("batch", len(x)):
            z = numpyro.sample("z", dist.Normal(0, 1).expand([latent]).to_event(1))
            numpyro.sample("x", dist.Bernoulli(decoded(look(z))).to_event(1), obs=x)

    def guide(x):
        mean, deviation = numpyro.module("encoder", encode, (len(x), pixels))(x)
        with numpyro.plate("batch", len(x)):
            numpyro.sample("z", dist.Normal(mean, deviation).to_event(1))

    return model, guide


def autoencoded(look, width):
    with jax.enable_x64(width is np.float64):
        images = (np.random.default_rng(0).random((8, 400)) < 0.3).astype(width)
        checked(*autoencoder(look), (images,), num_records=8)


@pytest.mark.parametrize("width", some_of([np.float32, np.float64]))
def test_what_only_rounding_tells_apart_passes(width):
    """Made-up weights give scales of 1e-30: a latent is then its location, of which each rounding
    is 1e20 scales off.
    """
    autoencoded(lambda z: z, width)


@pytest.mark.parametrize(
    ("across", "width"),
    some_of(
        list(
            itertools.product(
                ["centred", "a little of the mean", "softmax"], (np.float32, np.float64)
            )
        ),
        5,
    ),
)
def test_a_decoder_that_looks_across_records_is_refused(across, width):
    with pytest.raises(PrivacyModelError, match="has no term for each record"):
        autoencoded(ACROSS[across], width)
