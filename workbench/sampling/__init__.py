"""Minibatch samplers. Each has an accountant in ``workbench.privacy``, except Feistel, which is for
comparison only.
"""

from workbench.sampling.feistel import FeistelSampler
from workbench.sampling.minibatch import Minibatch, Preparation, Sampler
from workbench.sampling.poisson import PoissonSampler
from workbench.sampling.random_allocation import RandomAllocationSampler
from workbench.sampling.shuffle import ShuffleSampler
from workbench.sampling.without_replacement import WithoutReplacementSampler

__all__ = [
    "FeistelSampler",
    "Minibatch",
    "PoissonSampler",
    "Preparation",
    "RandomAllocationSampler",
    "Sampler",
    "ShuffleSampler",
    "WithoutReplacementSampler",
]
