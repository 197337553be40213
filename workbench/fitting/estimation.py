"""How a fit comes from what it releases: the protocol of ``gradients.Gradients`` and
``one_shot.OneShot``.

Plan, ledger, checkpoints, sweeps and screens know nothing of it: for them a fit is noised steps
and their end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.inference.training import Snapshot
from workbench.posterior.convergence import Convergence
from workbench.privacy.gradient_norms import GradientNorms
from workbench.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from workbench.data import Dataset
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.spec import FitSpec
    from workbench.models import Model

__all__ = ["Estimation", "Inferred", "Metrics"]

Metrics = Callable[[Mapping[str, Any]], dict[str, float]]  # of unconstrained parameters


class Inferred(NamedTuple):
    """What a result says about a posterior.

    :param guide: draws from the guide; none where there is none. :param draws: noise-aware ones,
        else None.
    :param note: why there are no noise-aware draws, or what is wrong with them.
    :param norms: how long the records' gradients were. :param cautions: what makes the answer
        doubtful, worst first. :param convergence: whether the run had arrived, where it tells.
    """

    guide: dict[str, np.ndarray]
    draws: dict[str, np.ndarray] | None
    note: str
    norms: GradientNorms | None = None
    cautions: tuple[str, ...] = ()
    convergence: Convergence | None = None


class Estimation(Protocol):
    """How a fit takes its steps, and what follows from their end."""

    @property
    def released(self) -> str:
        """What steps release, as ``Guarantee.released`` has it."""

    @property
    def fixed_settings(self) -> dict[str, Any]:
        """Settings that nobody can choose with it."""

    def of_model(
        self, model: Model, data: Dataset, constants: Mapping[str, Any], num_records: int
    ) -> Estimation:
        """The same for a model on other scales."""

    def private_step(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> PrivateStep:
        """The step, with starting values for the run with ``key``."""

    def hyper(self, spec: FitSpec, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        """What ``step`` takes as arguments besides state, records and draws."""

    def evaluator(self, fit: PreparedFit, deviation: float) -> Metrics:
        """Metrics on the evaluation records. :param deviation: standard deviation of the noise."""

    def posterior(self, fit: PreparedFit, last: Snapshot) -> Inferred:
        """What the end of a run says about the posterior."""

    def sites(self, step: PrivateStep) -> tuple[str, ...]:
        """Names of the latent sites that the release is about."""
