"""The part "sensitivity": how far one record can move the sum that a step releases.

No statistics are needed: minibatch and base noise are fixed and the privacy noise is zero, so two
sums differ only because their records differ. The claim is an l2 norm of at most C where a record
is added or removed, and 2 C where one is replaced, for all records. So the audit tries records that
are huge, tiny, not finite, constant, or that cancel, in every precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench.auditing.bugs import Watched, silent
from workbench.auditing.canaries import Canaries, Rows
from workbench.auditing.result import Check
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.noise.key_use import throw_away
from workbench.sampling import Minibatch

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from jaxtyping import PyTree

__all__ = ["PRECISIONS", "adversarial_records", "check", "worst_ratio"]

PRECISIONS = ("float32", "bfloat16", "float64")

_TOLERANCE = 1e-3  # of C, for the rounding of the difference of two sums
_SIZES = (1e3, 1e9, 1e18, 1e30, 1e-30)  # factors of a record
_CANCELLING = (1.0, 1e4, 1e9)  # values of a record, with both signs
_PATTERNS = {
    "pairs": lambda count: (-1.0) ** np.arange(count),
    "halves": lambda count: np.where(np.arange(count) < count / 2, 1.0, -1.0),
}
_FILLS = (0.0, 1e4, 1e38, math.nan, math.inf, -math.inf)  # values of a record


# make_step(key, records): a step, and the mechanism that it was given
MakeStep = Callable[[jax.Array, Rows], tuple[PrivateStep, Watched]]


class Worst(NamedTuple):
    """The largest move of the sum that was found, relative to what is allowed, and the record that
    caused it.
    """

    ratio: float
    record: str


def adversarial_records(template: Rows) -> Iterator[tuple[str, Rows]]:
    """Extreme records made from ``template`` (arrays with first axis 1), by name. Whole numbers are
    left unchanged.
    """

    def changed(change: Callable[[np.ndarray], np.ndarray]) -> Rows:
        with np.errstate(all="ignore"):
            return tuple(
                np.asarray(change(array), array.dtype)
                if np.issubdtype(array.dtype, np.floating)
                else array
                for array in template
            )

    yield "a canary", template
    for size in _SIZES:
        yield f"a canary times {size:g}", changed(lambda array: array * size)  # noqa: B023
    for value in _FILLS:
        yield f"a record of {value:g}", changed(lambda array: np.full_like(array, value))  # noqa: B023
    for axis in range(1, max(array.ndim for array in template)):
        for size in _CANCELLING:
            for pattern, signs in _PATTERNS.items():

                def cancelling(array: np.ndarray) -> np.ndarray:
                    if axis >= array.ndim:  # noqa: B023
                        return array
                    shape = [1] * array.ndim
                    shape[axis] = -1  # noqa: B023
                    values = signs(array.shape[axis]).reshape(shape) * size  # noqa: B023
                    return np.broadcast_to(values, array.shape)

                yield (
                    f"a record of {size:g} that cancels along axis {axis} in {pattern}",
                    changed(cancelling),
                )


def _released(step: PrivateStep, watched: Watched, start: DPVIState) -> Callable[..., jax.Array]:
    """A function ``(params, records, mask bool[N])``: the sum of a real step on the records in the
    mask, without noise.
    """
    hyper = Hyperparameters.of(watched)
    drawn = silent(jax.jit(step.draw)(start.key, start.step, hyper))

    def release(params: PyTree, records: tuple[jax.Array, ...], mask: jax.Array) -> jax.Array:
        minibatch = Minibatch(jnp.arange(mask.shape[0], dtype=jnp.int32), mask)
        watched.begin(minibatch)
        state = start._replace(optim_state=step.optimizer.init(params))
        step.step(state, records, drawn._replace(minibatch=minibatch), hyper)
        return watched.noised_sum()

    return jax.jit(release)


def _begun(
    make_step: MakeStep,
    canaries: Canaries,
    record: Rows,
    key: jax.Array,
    precision: str = "float32",
) -> tuple[PrivateStep, Watched, DPVIState]:
    """A step for the other records and ``record`` more in this precision, with its mechanism and
    starting state.
    """
    throw_away(key)
    rows = tuple(np.concatenate(pair) for pair in zip(canaries.others, record, strict=True))
    step, watched = make_step(key, _in(precision, rows))
    return step, watched, step.init(key, Hyperparameters.of(watched), step.model.initial)


def _in(precision: str, tree: PyTree) -> Any:
    """``tree`` with its floating-point leaves in another precision."""

    def cast(leaf: ArrayLike) -> Any:
        leaf = jnp.asarray(leaf)
        return leaf.astype(precision) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def worst_ratio(
    make_step: MakeStep, canaries: Canaries, clip: float, key: jax.Array, precision: str
) -> Worst:
    """The largest move of the sum by one record, relative to C, or to 2 C if it is replaced.

    Each adversarial record is put in the first, middle and last place, among ``canaries.others``
    and among copies of itself.
    """
    wide: AbstractContextManager = jax.enable_x64(True) if precision == "float64" else nullcontext()
    with wide:
        size = len(canaries.others[0]) + 1
        single = tuple(array[:1] for array in canaries.present)
        step, watched, state = _begun(make_step, canaries, single, key, precision)
        params = _in(precision, step.unconstrained(state))
        release = _released(step, watched, state)

        def sum_of(rows: Rows, mask: np.ndarray) -> np.ndarray:
            return np.asarray(release(params, _in(precision, rows), jnp.asarray(mask)), np.float64)

        templates = (
            [single]
            if canaries.absent is None
            else [single, tuple(array[:1] for array in canaries.absent)]
        )
        records = [named for template in templates for named in adversarial_records(template)]
        positions = sorted({0, size // 2, size - 1})
        everyone = np.ones(size, bool)
        worst = Worst(0.0, "nothing")

        def note(move: np.ndarray, allowed: float, words: str) -> None:
            nonlocal worst
            ratio = float(np.linalg.norm(move)) / allowed
            if not ratio <= worst.ratio:
                worst = Worst(math.inf if math.isnan(ratio) else ratio, f"{words} ({precision})")

        for position in positions:
            without = everyone.copy()
            without[position] = False
            sums: dict[str, np.ndarray] = {}
            for name, record in records:
                beside = tuple(
                    np.insert(column, min(position, len(column)), entry[0], axis=0)
                    for column, entry in zip(canaries.others, record, strict=True)
                )
                copies = tuple(np.repeat(array, size, axis=0) for array in record)
                for rows, company in ((beside, "the others"), (copies, "copies of itself")):
                    there = sum_of(rows, everyone)
                    note(
                        there - sum_of(rows, without),
                        clip,
                        f"{name} in place {position} beside {company}, removed",
                    )
                    if company == "the others":
                        for replaced, sum_there in sums.items():
                            note(
                                there - sum_there,
                                2 * clip,
                                f"{name} in place {position} instead of {replaced}",
                            )
                        sums[name] = there
        return worst


def check(
    make_step: MakeStep,
    canaries: Canaries,
    clip: float,
    key: jax.Array,
    precisions: tuple[str, ...] = PRECISIONS,
) -> Check:
    """Check that no record moves the sum by more than C (2 C if it is replaced), in any precision.

    :param make_step: makes a step for n + 1 records and its mechanism, once for each precision.
    """
    cases = [worst_ratio(make_step, canaries, clip, key, precision) for precision in precisions]
    worst = max(cases, key=lambda case: case.ratio)
    finding = (
        f"the released sum moves by at most {worst.ratio:.5g} times the allowed distance: "
        f"{worst.record}."
    )
    return Check("sensitivity", worst.ratio <= 1 + _TOLERANCE, finding, worst.ratio)
