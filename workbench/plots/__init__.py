"""matplotlib Figures for results, plans and experiments; no pyplot, no widgets. Names load on first use."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "calibration_figure": "utility",
    "coefficients_figure": "posterior",
    "comparison_figure": "privacy",
    "effect_figure": "responses",
    "epsilon_figure": "privacy",
    "forest_figure": "posterior",
    "group_effects_figure": "groups",
    "image_grid_figure": "images",
    "latent_grid_figure": "images",
    "mixture_figure": "mixtures",
    "norms_figure": "privacy",
    "pair_figure": "posterior",
    "plate_figure": "plates",
    "plate_words": "plates",
    "png": "style",
    "points_check_figure": "checks",
    "predictive_check_figure": "checks",
    "proportions_figure": "responses",
    "reconstructions_figure": "images",
    "rootogram_figure": "responses",
    "survival_check_figure": "responses",
    "svg": "style",
    "training_figure": "curves",
    "trend_figure": "utility",
    "utility_figure": "utility",
}

__all__ = [
    "calibration_figure",
    "coefficients_figure",
    "comparison_figure",
    "effect_figure",
    "epsilon_figure",
    "forest_figure",
    "group_effects_figure",
    "image_grid_figure",
    "latent_grid_figure",
    "mixture_figure",
    "norms_figure",
    "pair_figure",
    "plate_figure",
    "plate_words",
    "png",
    "points_check_figure",
    "predictive_check_figure",
    "proportions_figure",
    "reconstructions_figure",
    "rootogram_figure",
    "survival_check_figure",
    "svg",
    "training_figure",
    "trend_figure",
    "utility_figure",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"workbench.plots.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
