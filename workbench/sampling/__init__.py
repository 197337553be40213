"""Minibatch samplers; each belongs to an accountant in ``workbench.privacy``."""

from workbench.sampling.minibatch import Minibatch, Sampler
from workbench.sampling.poisson import PoissonSampler

__all__ = ["Minibatch", "PoissonSampler", "Sampler"]
