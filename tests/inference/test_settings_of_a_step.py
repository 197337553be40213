"""That settings reach a step: what differs, and not to the last bit, so these are
compiled quickly.
"""

import jax.numpy as jnp
import numpy as np
from numpyro.optim import SGD

from tests import zoo
from tests.inference.test_svi import NUM_RECORDS, after, logistic
from workbench.inference import DPVI
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler


def test_a_clip_schedule_scales_clip_and_noise_together():
    """At C_t = C / 2 a step is that of a trainer with C / 2, noise included; NaN makes NaN, never
    an unclipped sum.
    """
    halved = logistic(clip=1.0, clip_schedule=lambda step: jnp.where(step < 1, 0.5, jnp.nan))
    found = after(1, halved)
    for name, value in after(1, logistic(clip=0.5)).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)
    assert not np.any(np.isfinite(after(2, halved)["weights_loc"]))


def test_the_step_clips_as_the_mechanism_says():
    """Without noise, from the same start: the three ways lead to three places."""
    found = []
    for clipping in ("flat", "automatic", "per_leaf"):
        privacy = (
            PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS),
            GaussianMechanism(0.5, 0.0, clipping),
        )
        trainer = DPVI(zoo.logistic, zoo.logistic_guide, SGD(0.05), privacy=privacy)
        found.append(after(2, trainer)["weights_loc"])
    assert not np.allclose(found[0], found[1])
    assert not np.allclose(found[0], found[2])
