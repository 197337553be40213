"""matplotlib Figures for results and plans; no pyplot, no widgets."""

from workbench.plots.curves import TrainingCurves, png, training_figure
from workbench.plots.privacy import comparison_figure, epsilon_figure

__all__ = ["TrainingCurves", "comparison_figure", "epsilon_figure", "png", "training_figure"]
