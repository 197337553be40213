"""Guarantees as their plans make them, without running a fit."""

from workbench.privacy.plan import PrivacySettings, make_plan


def promise(
    epsilon=1.0,
    sampler="poisson",
    *,
    delta=1e-5,
    steps=500,
    rate=0.05,
    records=2000,
    relation=None,
    look=0.0,
):
    settings = PrivacySettings(
        epsilon, delta, steps, rate, sampler, 1.0, records, None, relation, look=look
    )
    plan = make_plan(settings, records, look_size=100 if look else 0)
    return plan.guarantee(steps_taken=steps, unit="tumour", dimension=50, caveats=())
