"""matplotlib Figures for results; no pyplot, no widgets."""

from workbench.plots.curves import TrainingCurves, png, training_figure

__all__ = ["TrainingCurves", "png", "training_figure"]
