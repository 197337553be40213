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
from tests.conftest import quick_jit, some_of
from workbench.inference import DPVI
from workbench.inference.state import Draws
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise
from workbench.sampling import Minibatch, PoissonSampler

KEY = jax.random.key(1)
EVERY_CASE = pytest.mark.parametrize("name", some_of(list(zoo.ZOO), 12))
STEPPING = pytest.mark.parametrize("name", some_of(list(zoo.ZOO), 40))  # each compiles a whole step


@EVERY_CASE
def test_split_finds_what_records_meet(name):
    case, seen = zoo.ZOO[name], zoo.split_case(name)
    assert seen.plates.names == ("records",)
    assert seen.shared == case.shared
    assert seen.uses_base_noise == case.has_local_latents
    assert bool(seen.local_latents) == case.has_local_latents
    shared, _ = jax.eval_shape(seen.release_point, seen.initial, KEY)
    assert seen.shared_size == sum(leaf.size for leaf in jax.tree.leaves(shared))


@functools.cache
def evaluated(name):
    """(our negative ELBO, numpyro's for the same draws, record losses, record losses for another
    key), float64.

    numpyro counts the prior of latents that a guide leaves out, and warns: there its number is
    None.
    """
    case = zoo.ZOO[name]
    with jax.enable_x64(True):
        seen = zoo.split_case_in_double_precision(name)
        # an automatic guide remembers the plate of its first call, which has one record
        guide = (
            handlers.block(seen.guide, hide=["records"])
            if isinstance(seen.guide, AutoGuide)
            else seen.guide
        )

        @quick_jit
        def evaluate(params, records, key):
            with zoo.Drawn() as drawn:
                shared, global_loss = seen.release_point(params, key)
            global_draws = {
                name: value
                for name, value in drawn.values.items()
                if name not in seen.local_latents
            }
            if (
                "_auto_latent" in global_draws
            ):  # the others follow from it, and the guide has them as point masses
                global_draws = {"_auto_latent": global_draws["_auto_latent"]}

            def one(record, own_key):
                with zoo.Drawn() as drawn:
                    loss = seen.record_loss(shared, record, own_key)
                return loss, {
                    name: jnp.squeeze(drawn.values[name], 0) for name in seen.local_latents
                }

            keys = jax.random.split(key, (2, zoo.NUM_RECORDS))
            losses, local_draws = jax.vmap(one)(records, keys[0])
            other_losses, _ = jax.vmap(one)(records, keys[1])
            negative_elbo = jnp.sum(losses) + global_loss
            if not case.covers_all_latents:
                return negative_elbo, None, losses, other_losses
            expected = Trace_ELBO().loss(
                key,
                seen.constrain(params),
                seen.model,
                handlers.substitute(guide, data=global_draws | local_draws),
                *records,
                num_records=zoo.NUM_RECORDS,
                **case.static,
            )
            return negative_elbo, expected, losses, other_losses

        return jax.tree.map(np.asarray, evaluate(seen.initial, case.records(np.float64), KEY))


@pytest.mark.parametrize(
    "name",
    some_of([name for name, case in zoo.ZOO.items() if case.covers_all_latents], 20, first=2),
)
def test_record_losses_and_global_loss_add_up_to_the_negative_elbo_of_numpyro(name):
    """numpyro sees all records in one call, and the very draws that went into our losses."""
    ours, expected, *_ = evaluated(name)
    assert ours.dtype == expected.dtype == np.float64
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.mark.thorough
@EVERY_CASE
def test_base_noise_matters_to_local_latents_alone(name):
    """Without local latents every record's loss is a function of u alone, to the last bit."""
    _, _, losses, other_losses = evaluated(name)
    assert losses.shape == (zoo.NUM_RECORDS,)
    assert np.all(np.isfinite(losses))
    if zoo.ZOO[name].has_local_latents:
        assert np.all(losses != other_losses)
    else:
        np.testing.assert_array_equal(losses, other_losses)


def trainer_of(name):
    seen = zoo.split_case(name)
    return DPVI(
        seen.model,
        seen.guide,
        Adam(0.01),
        privacy=(
            PoissonSampler(zoo.NUM_RECORDS, 0.5, zoo.NUM_RECORDS),
            GaussianMechanism(1.0, 1.0),
        ),
        **zoo.ZOO[name].static,
    )


def assert_moved_and_finite(before, after):
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for name, array in after.items():
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(array)), name
        moved = jax.tree.map(lambda old, new: np.any(old != new), before[name], array)
        assert any(jax.tree.leaves(moved)), name


@STEPPING
def test_one_step_under_jit_moves_every_parameter_and_leaves_it_finite(name):
    """With draws made by hand, because ChaCha20 takes a second to compile."""
    trainer, records = trainer_of(name), zoo.ZOO[name].records()
    state = trainer.init(key_from_seed(0), *records)
    before = trainer.get_params(state)
    minibatch = Minibatch(jnp.array([4, 0, 2, 0, 0, 0], jnp.int32), jnp.arange(zoo.NUM_RECORDS) < 3)
    noise = (
        np.random.default_rng(0)
        .normal(0, 2.0**21, trainer.private_step.noise_size)
        .astype(np.int32)
    )
    draws = Draws(minibatch, Noise(jnp.asarray(noise), jnp.int32(10)), KEY)
    state = quick_jit(trainer.step)(state, records, draws)
    assert int(state.step) == 1
    assert_moved_and_finite(before, trainer.get_params(state))


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(["grouped logistic", "vae flax_module"]))
def test_update_under_jit_draws_and_takes_a_step(name):
    trainer, records = trainer_of(name), zoo.ZOO[name].records()
    state = trainer.init(key_from_seed(0), *records)
    before = trainer.get_params(state)
    state, loss = quick_jit(trainer.update)(state, *records)
    assert loss is None
    assert int(state.step) == 1
    assert_moved_and_finite(before, trainer.get_params(state))
