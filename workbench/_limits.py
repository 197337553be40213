"""Limits of settings, each with its reason; the table of settings has them before JAX and NumPy are
imported.
"""

from __future__ import annotations

__all__ = [
    "LARGEST_CLIP",
    "MAX_EPSILON",
    "MOST_RECORDS",
    "MOST_STEPS",
    "READING_FAILURE",
    "SMALLEST_CLIP",
]

# above it a guarantee means nothing; plans keep a smaller one from about 20 on (privacy.plan)
MAX_EPSILON = 100.0
MOST_RECORDS = 2**30 - 1  # places of records are int32, and the sum of two of them must not wrap
MOST_STEPS = 2**31 - 1  # a state counts steps in int32
# squares of float32 below 1e-19 underflow, so a norm may be too small by about that much, and C
# must be far above it
SMALLEST_CLIP = 1e-12
LARGEST_CLIP = (
    1e35  # terms of a block of records are up to 512 C long together, and float32 ends at 3e38
)
# probability that an oblivious pass over records at rest ends the run: charged for each step
READING_FAILURE = 2.0**-128
