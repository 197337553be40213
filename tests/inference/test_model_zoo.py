"""The zoo's models, whole: their split, their loss against numpyro's own ELBO, one step of DPVI."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoGuide
from numpyro.optim import Adam

from tests import zoo
from workbench.inference import DPVI
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.randomness import key_from_seed
from workbench.sampling import PoissonSampler

KEY = jax.random.key(1)
EVERY_CASE = pytest.mark.parametrize("name", zoo.ZOO)

# these tests look at results, not at speed: quicker to compile
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Drawn(handlers.Messenger):
    """Values of the latents that are drawn in its context, by site."""

    def __enter__(self):
        self.values = {}
        return super().__enter__()

    def postprocess_message(self, message):
        if message["type"] == "sample" and not message["is_observed"]:
            self.values[message["name"]] = message["value"]


@EVERY_CASE
def test_split_finds_what_records_meet(name):
    case, seen = zoo.ZOO[name], zoo.split_case(name)
    assert seen.plate == "records"
    assert seen.shared == case.shared
    assert seen.uses_base_noise == case.has_local_latents
    assert bool(seen.local_latents) == case.has_local_latents
    shared, _ = jax.eval_shape(seen.release_point, seen.initial, KEY)
    assert seen.shared_size == sum(leaf.size for leaf in jax.tree.leaves(shared))


@EVERY_CASE
def test_record_losses_and_global_loss_add_up_to_the_negative_elbo_of_numpyro(name):
    """numpyro sees all records in one call, and the very draws that went into our losses; all in double precision."""
    case = zoo.ZOO[name]
    if not case.covers_all_latents:
        pytest.skip("numpyro counts the prior of latents that the guide leaves out")
    with jax.enable_x64(True):
        seen = zoo.split_case_in_double_precision(name)
        records = case.records(np.float64)
        # an automatic guide remembers the plate of its first call, which has one record
        guide = handlers.block(seen.guide, hide=["records"]) if isinstance(seen.guide, AutoGuide) else seen.guide

        @quick_jit
        def both(params, records, key):
            with Drawn() as drawn:
                shared, global_loss = seen.release_point(params, key)
            global_draws = {name: value for name, value in drawn.values.items() if name not in seen.local_latents}
            if "_auto_latent" in global_draws:  # the others follow from it, and the guide has them as point masses
                global_draws = {"_auto_latent": global_draws["_auto_latent"]}

            def one(record, own_key):
                with Drawn() as drawn:
                    loss = seen.record_loss(shared, record, own_key)
                return loss, {name: jnp.squeeze(drawn.values[name], 0) for name in seen.local_latents}

            losses, local_draws = jax.vmap(one)(records, jax.random.split(key, zoo.NUM_RECORDS))
            expected = Trace_ELBO().loss(
                key,
                seen.constrain(params),
                seen.model,
                handlers.substitute(guide, data=global_draws | local_draws),
                *records,
                num_records=zoo.NUM_RECORDS,
                **case.static,
            )
            return jnp.sum(losses) + global_loss, expected

        ours, expected = both(seen.initial, records, KEY)
        assert ours.dtype == expected.dtype == np.float64
        np.testing.assert_allclose(ours, expected, rtol=1e-10)


@EVERY_CASE
def test_base_noise_matters_to_local_latents_alone(name):
    """Without local latents every record's loss is a function of u alone, to the last bit."""
    case, seen = zoo.ZOO[name], zoo.split_case(name)

    @quick_jit
    def losses(keys):
        shared, _ = seen.release_point(seen.initial, KEY)
        return jax.vmap(lambda key: jax.vmap(lambda *record: seen.record_loss(shared, record, key))(*case.records()))(keys)

    one, other = losses(jax.random.split(KEY))
    assert one.shape == (zoo.NUM_RECORDS,)
    assert np.all(np.isfinite(one))
    if case.has_local_latents:
        assert np.all(one != other)
    else:
        np.testing.assert_array_equal(one, other)


@EVERY_CASE
def test_one_step_moves_the_parameters_and_leaves_them_finite(name):
    case, seen = zoo.ZOO[name], zoo.split_case(name)
    trainer = DPVI(
        seen.model,
        seen.guide,
        Adam(0.01),
        sampler=PoissonSampler(zoo.NUM_RECORDS, 0.5, zoo.NUM_RECORDS),
        mechanism=GaussianMechanism(1.0, 1.0),
        **case.static,
    )
    records = case.records()
    state = trainer.init(key_from_seed(0), *records)
    before = trainer.get_params(state)
    state, loss = quick_jit(trainer.update)(state, *records)
    after = trainer.get_params(state)
    assert loss is None
    assert int(state.step) == 1
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for name, array in after.items():
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(array)), name
        moved = jax.tree.map(lambda old, new: np.any(old != new), before[name], array)
        assert any(jax.tree.leaves(moved)), name
