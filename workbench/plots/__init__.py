"""matplotlib Figures for results, plans and experiments; no pyplot, no widgets. Names load on first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import _lazy

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.plots.checks import (
        covered_check_figure,
        points_check_figure,
        predictive_check_figure,
    )
    from workbench.plots.curves import training_figure
    from workbench.plots.groups import group_effects_figure
    from workbench.plots.images import image_grid_figure, latent_grid_figure, reconstructions_figure
    from workbench.plots.mixtures import mixture_figure
    from workbench.plots.plates import plate_figure, plate_words
    from workbench.plots.posterior import (
        answers_figure,
        coefficients_figure,
        forest_figure,
        pair_figure,
    )
    from workbench.plots.privacy import comparison_figure, epsilon_figure, norms_figure
    from workbench.plots.responses import (
        effect_figure,
        proportions_figure,
        rootogram_figure,
        survival_check_figure,
    )
    from workbench.plots.style import png, svg
    from workbench.plots.utility import calibration_figure, trend_figure, utility_figure

_HOMES = {
    "answers_figure": "posterior",
    "calibration_figure": "utility",
    "coefficients_figure": "posterior",
    "comparison_figure": "privacy",
    "covered_check_figure": "checks",
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
