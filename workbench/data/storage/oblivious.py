"""Minibatches from an encrypted file, with reads and writes that tell nothing about which records
are in them.

A span of steps is read at a time. Its minibatches are drawn first, in memory. Then records travel
in two passes, by way of a scratch file with a cell for each pair of a group of records and a bucket
of steps:

1. Groups of records are read one after another. Of each group every bucket gets a cell of the same
   size, which holds the group's records for the minibatches of these steps, and otherwise nothing:
   all cells are sealed.
2. The cells of a bucket are read, and its records put where its minibatches have them.

Which bytes are read and written, and in which order, follows from the number of places in the file,
the sampler's public facts, the steps and the memory that is allowed: from no record, and from no
draw. The sampler's own randomness does what two oblivious shuffles around a scan do in the
algorithms of Sasy and Ohrimenko (2019): it spreads the copies of a group over the steps, so cells a
little larger than their mean suffice, as in a bucket shuffle with dummies.

*Overflow.* The number of copies of a group of g records in s steps is a sum of coins of rate q, g s
of them for Poisson sampling. Random allocation and sampling without replacement draw no independent
coins, but the moment-generating function of their sum is no larger (Bernoulli's inequality;
Hoeffding 1963, theorem 4), so Chernoff's bound holds for all three. It keeps the probability that
any cell of a span overflows below ``READING_FAILURE``. If one does, nothing of the span is written
or used, and the run ends. The plan charges that probability to delta.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench import _validate
from workbench._limits import READING_FAILURE
from workbench.data.storage.blocks import Blocks, RecordsError, Seal
from workbench.data.storage.form import TRAIN, Form

if TYPE_CHECKING:
    from workbench.data.storage.reading import DrawnAhead, Stored

__all__ = ["SAMPLERS", "Layout", "cell_size", "layout_of", "minibatches", "scratch_file"]

SAMPLERS = ("poisson", "random_allocation", "without_replacement")
# bytes of memory for each place of a minibatch in a span, of which its draw and its order take a
# quarter
_OF_DRAWS = 256
# bytes of a group and of a bucket: larger ones miss the processor's caches more often
_ENOUGH = 2**24
# a group and a bucket take one part in this of the memory each, and as much again while they are
# read
_ROOM = 16


def cell_size(group: int, steps: int, rate: float, log_failure: float) -> int:
    """The smallest number that copies of ``group`` records in ``steps`` steps exceed with
    probability at most e^log_failure.

    By Chernoff's bound for a binomial variable of group x steps trials: P(K >= k) <= e^(-n D(k / n
    || q)).
    """
    trials = group * steps
    low, high = min(trials, math.ceil(trials * rate)), trials  # K > trials is impossible
    while low < high:
        middle = (low + high) // 2
        if -trials * _divergence((middle + 1) / trials, rate) <= log_failure:
            high = middle
        else:
            low = middle + 1
    return max(1, low)


def _divergence(fraction: float, rate: float) -> float:
    """D(share || rate) of coins, in nats."""
    if rate >= 1:
        return 0.0
    if fraction >= 1:
        return -math.log(rate)
    return fraction * math.log(fraction / rate) + (1 - fraction) * (
        math.log1p(-fraction) - math.log1p(-rate)
    )


@dataclass(frozen=True)
class Layout:
    """How a span of steps travels. Everything follows from public numbers.

    :param steps: in a bucket. :param buckets: in a span.
    :param group: blocks of the file in a group. :param groups: of the file. :param cell: records in
        a cell.
    """

    steps: int
    buckets: int
    group: int
    groups: int
    cell: int

    @property
    def span(self) -> int:
        """Steps in a span."""
        return self.steps * self.buckets


def layout_of(
    form: Form, *, capacity: int, rate: float, at_once: int, steps: int, memory: int
) -> Layout:
    """The layout for a file.

    :param capacity: M of the sampler. :param rate: its q. :param at_once: steps that are brought at
        once.
    :param steps: of the run. :param memory: bytes that may be taken.
    :raises ArgumentError: naming ``memory``, if a minibatch or a block takes more than its share.
    """
    room, of_block = memory // _ROOM, capacity * at_once * form.record.itemsize
    if max(of_block, form.block_size) > room or capacity * at_once > memory // _OF_DRAWS:
        needed = (
            max(_ROOM * of_block, _ROOM * form.block_size, _OF_DRAWS * capacity * at_once) / 2**30
        )
        raise _validate.ArgumentError(
            "memory",
            memory / 2**30,
            f"is too little to read minibatches of {capacity} places obliviously, which takes "
            f"{needed:.3g} GiB.",
        )
    room = min(room, max(_ENOUGH, of_block, form.block_size))
    groups = -(-form.blocks[0] // (room // form.block_size))
    group = -(-form.blocks[0] // groups)
    # a span of 1 / q steps has about as many copies as there are records, if memory has room for
    # its draws
    wanted = min(math.ceil(1 / rate), steps, memory // _OF_DRAWS // capacity)
    span = max(1, -(-wanted // at_once)) if wanted >= at_once else 1
    bucket = min(span, room // of_block)
    buckets = -(-span // bucket)
    log_failure = math.log(READING_FAILURE) - math.log(groups * buckets)
    cell = cell_size(group * form.per_block, bucket * at_once, rate, log_failure)
    return Layout(bucket * at_once, buckets, group, groups, cell)


def minibatches(
    stored: Stored, names: tuple[str, ...], draws: DrawnAhead, first: int, last: int
) -> Iterator[tuple[int, list[np.ndarray], np.ndarray]]:
    """As ``Stored.minibatches``, read and written as the module says.

    :raises ArgumentError: naming ``sampler``, for one whose draws are not known to spread evenly;
        or ``memory``.
    :raises RecordsError: if a block was altered, the disk is full, or a cell overflows.
    """
    if draws.name not in SAMPLERS:
        raise _validate.ArgumentError(
            "sampler",
            draws.name,
            f"cannot be used with oblivious reading; use one of: {', '.join(SAMPLERS)}.",
        )
    form = stored.opened.form
    layout = layout_of(
        form,
        capacity=draws.capacity,
        rate=draws.sampling_rate,
        at_once=draws.at_once,
        steps=last,
        memory=stored.memory,
    )
    entry = np.dtype([("place", "<i4"), ("record", form.record)])
    with scratch_file(stored.scratch) as (handle, path):
        seal = Seal(os.urandom(32), os.urandom(32))  # of this scratch file alone
        for number in range(first // layout.span, -(-last // layout.span)):
            cells = Blocks(handle, path, 0, layout.cell * entry.itemsize, number, seal)
            masks = _spread(stored, draws, number * layout.span, layout, cells, entry)
            for bucket in range(layout.buckets):
                begin = number * layout.span + bucket * layout.steps
                if begin + layout.steps <= first or begin >= last:
                    continue
                rows = _collected(
                    layout,
                    cells,
                    bucket,
                    np.zeros(layout.steps * draws.capacity, form.record),
                    entry,
                )
                for step in range(begin, min(begin + layout.steps, last), draws.at_once):
                    if step + draws.at_once > first:
                        rows_of_step = slice(
                            (step - begin) * draws.capacity,
                            (step - begin + draws.at_once) * draws.capacity,
                        )
                        offset = step - number * layout.span
                        of_step = [np.ascontiguousarray(rows[name][rows_of_step]) for name in names]
                        yield step, of_step, masks[offset : offset + draws.at_once]


def _spread(
    stored: Stored, draws: DrawnAhead, begin: int, layout: Layout, cells: Blocks, entry: np.dtype
) -> np.ndarray:
    """The first pass: records from the file into cells. :return: the masks of the span's
    minibatches.
    """
    form, train = stored.opened.form, stored.opened.section(TRAIN)
    drawn = [draws(begin + offset) for offset in range(0, layout.span, draws.at_once)]
    masks = np.concatenate([mask for _, mask in drawn])
    records = np.concatenate([indices for indices, _ in drawn])[masks]
    positions = np.flatnonzero(masks.reshape(-1))
    del drawn
    of_group, of_bucket = layout.group * form.per_block, layout.steps * draws.capacity
    cell_of = (records // of_group) * layout.buckets + positions // of_bucket
    order = np.argsort(cell_of, kind="stable")
    counts = np.bincount(cell_of, minlength=layout.groups * layout.buckets)
    if counts.max() > layout.cell:
        raise RecordsError(
            stored.opened.path, "minibatches were drawn that its oblivious reading has no room for."
        )
    ends = np.cumsum(counts)
    for group in range(layout.groups):
        begin_block = group * layout.group
        count = min(layout.group, form.blocks[0] - begin_block)
        content = np.frombuffer(train.read(begin_block, count), form.record)
        for bucket in range(layout.buckets):
            number = group * layout.buckets + bucket
            members = order[ends[number] - counts[number] : ends[number]]
            cell = np.zeros(layout.cell, entry)
            cell["place"] = -1
            cell["place"][: len(members)] = positions[members] % of_bucket
            cell["record"][: len(members)] = content[records[members] - group * of_group]
            cells.write(number, cell.view(np.uint8))
    return masks


def _collected(
    layout: Layout, cells: Blocks, bucket: int, rows: np.ndarray, entry: np.dtype
) -> np.ndarray:
    """The second pass: a bucket's records, where its minibatches have them. :param rows: to be
    filled.
    """
    for group in range(layout.groups):
        cell = np.frombuffer(cells.read(group * layout.buckets + bucket), entry)
        filled = cell["place"] >= 0
        rows[cell["place"][filled]] = cell["record"][filled]
    return rows


@contextlib.contextmanager
def scratch_file(folder: Path) -> Iterator[tuple[int, Path]]:
    """(an open file without a name, where it was made); it vanishes with the process."""
    try:
        handle, name = tempfile.mkstemp(prefix=".records-", suffix=".scratch", dir=folder)
    except OSError as error:
        raise RecordsError(
            folder, f"no scratch file can be made here ({error.strerror})."
        ) from error
    try:
        os.unlink(name)
        yield handle, Path(name)
    finally:
        os.close(handle)
