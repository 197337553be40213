"""Which rule of book-keeping takes the least time for a leaf, by shapes alone: the same on every
machine and in every run.

The constants were fitted to one matrix product on one core of a virtual EPYC (512 KiB of L2, 32 MiB
of shared L3), float32: 31 records, T from 4 to 128 places, p x d from 9 x 16 to 512 x 512. Of these
24 shapes the rule below picks the slower way for one, which costs 8 %; choosing by bytes (2 T T <=
p d) picked it for six, which cost up to 85 %. ``tests/benchmarks/layers.py --deep`` measures whole
networks.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.clipping._linear_uses import LinearUse

__all__ = ["are_few_long_rows", "as_by_vmap", "gram_is_faster", "records_at_once"]

# Nanoseconds. A multiplication and addition of the products between places; they took 0.037 to
# 0.069 from 16 places on.
_PRODUCT = 0.055
# An entry of a formed gradient: written, squared, summed; 0.5 where all gradients stay in the
# cache, 4 to 5 in memory.
_ENTRY_IN_CACHE, _ENTRY_IN_MEMORY = 0.5, 4.0
_CACHE = 2**25  # bytes

# Long rows that a record looks up, up to which products between them are faster than adding them up
# row by row: of 8 rows of 64 numbers they took 0.7 of the time, of 2 rows of 8192 numbers 0.6, of
# 16 rows of 64 as much, of 32 rows of 256 1.3.
_FEW_ROWS, _LONG = 8, 64

# Bytes of patches that stay in a core's own cache until they are multiplied. A decoder with 5 x 5
# kernels took 0.49 of the plain gradient so, 0.61 with 4 MiB, 0.91 with 16 and 1.49 with all at
# once.
_PATCHES_AT_ONCE = 2**20


def gram_is_faster(t: int, p: int, d: int, in_all: int) -> bool:
    """Whether products between T places take less time than forming gradients of p x d, and no more
    room.

    Both need one product of T p d more, for the gradients or for their sum.

    :param in_all: bytes of the gradients that are formed, of all records, which together do or do
        not stay in the cache.
    """
    in_memory = min(1.0, in_all / _CACHE)
    entry = _ENTRY_IN_CACHE + (_ENTRY_IN_MEMORY - _ENTRY_IN_CACHE) * in_memory
    return 2 * t * t <= p * d and t * t * (p + d) * _PRODUCT <= p * d * entry


def are_few_long_rows(t: int, d: int) -> bool:
    """Whether products between T rows of d numbers are faster than adding up what falls on the same
    row.
    """
    return 1 < t <= _FEW_ROWS and d >= _LONG


def as_by_vmap(linear_uses: Sequence[LinearUse]) -> bool:
    """Whether forming a leaf's gradients takes as long as vmap takes for them.

    Patches of few records at a time are faster. So is one product over all steps of a scan, where
    vmap adds to the gradient in every step. What a kernel is made of takes vmap another gradient
    for each record.
    """
    return all(
        use.operation.kind == "product" and not (use.use.lengths or use.frame.stages)
        for use in linear_uses
    )


def records_at_once(linear_uses: Sequence[LinearUse], size: int) -> int | None:
    """How many of ``size`` records have their patches of images made at once; None where there are
    no convolutions.

    A part of ``size`` where one is near: those that are left over would be compiled apart.
    """
    convolutions = [use for use in linear_uses if use.operation.kind == "convolution"]
    record_bytes = sum(
        s * t * p * 4 for s, t, p, _ in (use.operation.shape for use in convolutions)
    )
    if not record_bytes:
        return None
    most = max(1, _PATCHES_AT_ONCE // record_bytes)
    return next(
        (count for count in range(min(most, size), most // 2, -1) if size % count == 0), most
    )
