"""What a fit gives back: the guarantee beside the posterior, the metrics with their label, and how it was made."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FitResult", "HistoryPoint"]


@dataclass(frozen=True)
class HistoryPoint:
    """Metrics at one step of a run."""

    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class FitResult:
    """The outcome of one fit. ``labels`` says of each part whether ``guarantee`` covers it.

    :param state: "done", "cancelled" or "failed". :param message: what went wrong, else "".
    :param guarantee: what is promised. :param model: name. :param model_options: its options.
    :param data: public facts about the data set. :param settings: all settings of the run.
    :param params: constrained parameters of guide and model, ``{name: array}``.
    :param draws: independent draws from the guide, ``{site: array[draws, ...]}``.
    :param coordinates: labels for the entries of vector-valued sites.
    :param history: metrics over steps. :param metrics: the last of them: "elbo" (nats per evaluation record) and the
        model's own, such as "auc".
    :param metrics_label: "public data" or "outside the guarantee": what the evaluation records make of the metrics.
    :param release_label: "covered"; or "outside the guarantee" where the data were prepared with private statistics.
    :param seconds: of training and evaluation, compilation included. :param finished: local time.
    """

    state: str
    message: str
    guarantee: Guarantee
    model: str
    model_options: dict[str, Any]
    data: dict[str, Any]
    settings: dict[str, Any]
    params: dict[str, np.ndarray]
    draws: dict[str, np.ndarray]
    coordinates: dict[str, list[str]]
    history: tuple[HistoryPoint, ...]
    metrics: dict[str, float]
    metrics_label: str
    seconds: float
    finished: str
    release_label: str = "covered"

    @property
    def labels(self) -> dict[str, str]:
        """What each part may be used for: "covered" by the guarantee, "public data" or "outside the guarantee".

        Parameters, draws and whatever is made of them are functions of the private release alone; metrics and curves are
        exact functions of the evaluation records.
        """
        release = dict.fromkeys(("params", "draws", "posterior", "summary"), self.release_label)
        return release | dict.fromkeys(("metrics", "history"), self.metrics_label)

    @functools.cached_property
    def posterior(self) -> Any:
        """The posterior draws as an ArviZ object (InferenceData in ArviZ 0.23, DataTree in 1.x)."""
        from workbench.results import arviz_adapter

        attributes = {
            "guarantee": self.guarantee.headline(),
            "label": self.release_label,
            "inference": "independent draws from a variational posterior (DP-VI)",
        }
        return arviz_adapter.to_posterior(self.draws, self.coordinates, attributes)

    def summary(self) -> pd.DataFrame:
        """Posterior mean, sd and 90 % highest-density interval of each quantity; ``labels`` says whether it is covered.

        The intervals are those of the variational posterior: they do not count the noise that privacy added to its
        location, so at small epsilon they are too narrow.
        """
        from workbench.results import arviz_adapter

        return arviz_adapter.summary(self.posterior)

    def plot(self) -> Figure:
        """Curves of ELBO and AUC over steps as a matplotlib Figure, with their label."""
        from workbench.plots import training_figure

        return training_figure(self)

    def report(self) -> str:
        """The report as one self-contained HTML page."""
        from workbench.results.report import render

        return render(self)

    def save(self, folder: str | Path) -> Path:
        """Write result.json, posterior.nc, curves.png and report.html into ``folder`` and return it."""
        from workbench.results.storage import save

        return save(self, folder)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"FitResult({self.state}, {self.model} on {self.data['name']}, epsilon={self.guarantee.epsilon:g}, {metrics})"
