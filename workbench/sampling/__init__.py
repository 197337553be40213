"""Minibatch samplers; each belongs to an accountant in ``workbench.privacy``."""

from workbench.sampling.poisson import Minibatch, PoissonSampler

__all__ = ["Minibatch", "PoissonSampler"]
