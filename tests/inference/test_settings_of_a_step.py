"""That settings reach a step: what differs, and not to the last bit, so these are
compiled quickly.
"""

import functools

import jax.numpy as jnp
import numpy as np
from numpyro.optim import SGD

from tests import zoo
from tests.inference.test_svi import after
from workbench.inference import DPVI
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

RECORDS = zoo.normal_mean_data(60)


@functools.cache
def params(clip, clipping="flat", clip_schedule=None):
    """Both parameters after one step and after two, float[2, 2]."""
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        SGD(0.05),
        privacy=(PoissonSampler(60, 0.2, 60), GaussianMechanism(clip, 1.0, clipping)),
        estimator="vanilla",
        clip_schedule=clip_schedule,
    )
    found = (after(steps, trainer, records=RECORDS) for steps in (1, 2))
    return np.array([[each["loc"], each["scale"]] for each in found])


def test_a_clip_schedule_scales_clip_and_noise_together():
    """At C_t = C / 2 a step is that of a trainer with C / 2, noise included; NaN makes NaN, never
    an unclipped sum.
    """
    halved = params(1.0, clip_schedule=lambda step: jnp.where(step < 1, 0.5, jnp.nan))
    np.testing.assert_allclose(halved[0], params(0.5)[0], rtol=1e-5)
    assert not np.any(np.isfinite(halved[1]))


def test_the_step_clips_as_the_mechanism_says():
    """With the same noise, from the same start: the three ways lead to three places."""
    flat, *others = (params(0.5, way) for way in ("flat", "automatic", "per_leaf"))
    assert not any(np.allclose(flat, other) for other in others)
