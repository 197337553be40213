"""matplotlib Figures for results, plans and experiments; no pyplot, no widgets. Names load on first use."""

from __future__ import annotations

from typing import Any

from workbench import _lazy

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

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)
