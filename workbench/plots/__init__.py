"""matplotlib Figures for results, plans and experiments; no pyplot, no widgets."""

from workbench.plots.checks import points_check_figure, predictive_check_figure
from workbench.plots.curves import TrainingCurves, training_figure
from workbench.plots.groups import group_effects_figure
from workbench.plots.images import image_grid_figure, latent_grid_figure, reconstructions_figure
from workbench.plots.mixtures import mixture_figure
from workbench.plots.plates import plate_figure, plate_words
from workbench.plots.posterior import coefficients_figure, forest_figure, pair_figure
from workbench.plots.privacy import comparison_figure, epsilon_figure
from workbench.plots.style import png
from workbench.plots.utility import calibration_figure, trend_figure, utility_figure

__all__ = [
    "TrainingCurves",
    "calibration_figure",
    "coefficients_figure",
    "comparison_figure",
    "epsilon_figure",
    "forest_figure",
    "group_effects_figure",
    "image_grid_figure",
    "latent_grid_figure",
    "mixture_figure",
    "pair_figure",
    "plate_figure",
    "plate_words",
    "png",
    "points_check_figure",
    "predictive_check_figure",
    "reconstructions_figure",
    "training_figure",
    "trend_figure",
    "utility_figure",
]
