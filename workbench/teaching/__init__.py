"""Teaching pieces: small screens that a lecturer calls in one line, such as
``wb.teaching.clipping()``.
"""

from workbench.teaching.pieces import clipping, composition, privacy, samplers

__all__ = ["clipping", "composition", "privacy", "samplers"]
