"""Posteriors made of what a fit released: they count the noise, the clipping and where the fit
stopped.
"""

from workbench.posterior.convergence import Convergence, convergence_of

__all__ = ["Convergence", "convergence_of"]
