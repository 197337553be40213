"""The examples of NumPyro, fitted: a step's gradient is that of numpyro's own ELBO for the same
draws of the latents.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import Trace_ELBO
from numpyro.optim import SGD

from tests import zoo
from tests.conftest import quick_jit
from tests.record_model import examples_of_numpyro
from tests.record_model.examples_of_numpyro import EXAMPLES, REFUSED, N
from workbench.clipping import PrivacyModelError, clipped_sum
from workbench.inference.assemble import assemble
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.base_noise import record_keys
from workbench.sampling import PoissonSampler

KEY = jax.random.key(7)
CLIP = 1e6


def thorough_unless_quick(examples):
    return [
        pytest.param(name, marks=[] if each.quick else pytest.mark.thorough)
        for name, each in examples.items()
    ]


def step_of(example):
    return assemble(
        example.model,
        example.made_guide(),
        SGD(1.0),
        key_from_seed(0),
        example.records,
        sampler=PoissonSampler(N, 1.0, N),
        mechanism=GaussianMechanism(CLIP, 0.0),
        static=example.static,
    )


def gradients(step, example):
    """(that of a private step without noise on all records, numpyro's), for the same draws."""
    model, records = step.model, tuple(map(jnp.asarray, example.records))
    places = jnp.arange(N)

    def release(loss, u):
        def of_one(u, drawn):
            record, place = drawn
            return loss(u, (record, record_keys(KEY, place)))

        return clipped_sum(of_one, u, (records, places), jnp.ones(N, bool), CLIP)[0]

    def negative_elbo(params):
        with zoo.Drawn() as shared_draws:
            shared, _ = model.release_point(params, KEY)

        def of_one(record, place):
            with zoo.Drawn() as draws:
                model.record_loss(shared, record, record_keys(KEY, place))
            return {name: draws.values[name] for name in model.local_latents}

        local = {}
        if model.local_latents:
            guide_trace, _ = model._traces(model.constrain(params), KEY)
            for name, value in jax.vmap(of_one)(records, places).items():
                site = guide_trace[name]
                axis = site["value"].ndim - site["fn"].event_dim + model.frames_of(site)[0].dim
                local[name] = jnp.moveaxis(jnp.squeeze(value, axis + 1), 0, axis)
        values = {
            name: value
            for name, value in shared_draws.values.items()
            if name not in model.of_records
        }
        if (
            "_auto_latent" in values
        ):  # the others follow from it, and the guide has them as point masses
            values = {"_auto_latent": values["_auto_latent"]}
        guide = handlers.substitute(model.guide, data=values | local)
        # plates that draw their own minibatch take all records, as the step does
        whole = handlers.substitute(
            model.model, data=dict.fromkeys(model.plates.names, jnp.arange(N))
        )
        return Trace_ELBO().loss(
            KEY, model.constrain(params), whole, guide, *records, **example.static
        )

    def both(params):
        return step.estimator.gradient(model, params, KEY, 1.0, release), jax.grad(negative_elbo)(
            params
        )

    return quick_jit(both)(model.initial)


@pytest.mark.filterwarnings(
    "ignore:Site .*:UserWarning",
    "ignore:subsample_size does not match:UserWarning",
    # missing values, which numpyro counts with a gradient of zero
    "ignore:Found vars in model but not guide:UserWarning",
    "ignore:Found plate statements in guide but not model:UserWarning",  # the model's are in a scan
)
@pytest.mark.parametrize("name", thorough_unless_quick(EXAMPLES))
def test_the_gradient_is_that_of_svi(name):
    example = EXAMPLES[name]
    ours, theirs = gradients(step_of(example), example)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(theirs))
    assert np.isfinite(size)
    assert size > 0
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5 * size),
        ours,
        theirs,
    )


@pytest.mark.parametrize("name", thorough_unless_quick(REFUSED))
def test_it_is_refused_and_says_why(name):
    example = REFUSED[name]
    with pytest.raises(PrivacyModelError, match=example.why):
        step_of(example)


def test_the_page_of_the_documentation_has_these_examples():
    """``python tests/record_model/examples_of_numpyro.py`` writes it."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "examples_of_numpyro.md"
    assert page.read_text(encoding="utf-8") == examples_of_numpyro.page()
    assert len(EXAMPLES) >= 40
