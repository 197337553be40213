"""Whether a function of records does the same whatever their number is, read off its jaxprs for few
records and for many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from workbench.clipping.jaxprs import aval

__all__ = ["is_same_program"]


def is_same_program(few: ClosedJaxpr, many: ClosedJaxpr, counts: tuple[int, int]) -> bool:
    """Whether two jaxprs differ in sizes alone, each of which is the same in both or proportional
    to the number of records.

    Then what holds for few records holds for many, but for a size that is a number of records by
    chance. The converse is not true: ``jax.lax.map(f, x, batch_size=32)`` is the sum of its
    records, in another way for more than 32.

    :param counts: of records.
    """
    return _Comparison(*counts).programs(few, many)


class _Comparison:
    def __init__(self, few: int, many: int) -> None:
        self._few, self._many = few, many
        self._partner: dict[Var, Var] = {}

    def programs(self, few: Any, many: Any) -> bool:
        """Of jaxprs, nested ones included."""
        # from jax 0.11.2 on an open jaxpr is a closed one without constants
        (few, of_few), (many, of_many) = (
            (getattr(program, "jaxpr", program), getattr(program, "consts", ()))
            for program in (few, many)
        )
        return (
            self.values(of_few, of_many)
            and len(few.eqns) == len(many.eqns)
            and self._made([*few.constvars, *few.invars], [*many.constvars, *many.invars])
            and all(map(self._equations, few.eqns, many.eqns))
            and self._read(few.outvars, many.outvars)
        )

    def _equations(self, few: JaxprEqn, many: JaxprEqn) -> bool:
        return (
            few.primitive is many.primitive
            and self._read(few.invars, many.invars)
            and self._made(few.outvars, many.outvars)
            and self.values(few.params, many.params)
        )

    def _made(self, few: Sequence[Var], many: Sequence[Var]) -> bool:
        self._partner.update(zip(few, many, strict=False))
        return len(few) == len(many) and all(map(self._shapes, few, many))

    def _read(self, few: Sequence[Any], many: Sequence[Any]) -> bool:
        return len(few) == len(many) and all(map(self._atoms, few, many))

    def _atoms(self, few: Var | Literal, many: Var | Literal) -> bool:
        if isinstance(few, Literal) or isinstance(many, Literal):
            return (
                isinstance(few, Literal)
                and isinstance(many, Literal)
                and self.values(few.val, many.val)
            )
        return self._partner.get(few) is many

    def _shapes(self, few: Var | Literal, many: Var | Literal) -> bool:
        of_few, of_many = aval(few), aval(many)
        return getattr(of_few, "dtype", None) == getattr(of_many, "dtype", None) and self.values(
            getattr(of_few, "shape", ()), getattr(of_many, "shape", ())
        )

    def values(self, few: Any, many: Any) -> bool:
        """Of anything that an equation or a jaxpr holds."""
        if isinstance(few, (ClosedJaxpr, Jaxpr)):
            return isinstance(many, type(few)) and self.programs(few, many)
        if isinstance(few, Mapping):
            return few.keys() == many.keys() and all(
                self.values(few[key], many[key]) for key in few
            )
        if isinstance(few, (tuple, list)):
            return (
                isinstance(many, (tuple, list))
                and len(few) == len(many)
                and all(map(self.values, few, many))
            )
        if isinstance(few, (jax.Array, np.ndarray, np.generic)) and np.ndim(few):
            return self._arrays(few, many)
        if isinstance(few, (bool, np.bool_)):
            return bool(few == many)
        if isinstance(few, (int, np.integer)) or np.issubdtype(
            getattr(few, "dtype", object), np.integer
        ):
            return bool(few == many or few * self._many == many * self._few)
        if isinstance(few, (float, np.floating)) or np.issubdtype(
            getattr(few, "dtype", object), np.floating
        ):
            return math.isclose(few, many, rel_tol=1e-6) or (math.isnan(few) and math.isnan(many))
        # of a function with its own derivative, what it computes is compared, its rule is not
        return callable(few) or hasattr(few, "call_wrapped") or few == many

    def _arrays(self, few: Any, many: Any) -> bool:
        """The entries that both have, where one has more of them."""
        if not (self.values(few.shape, np.shape(many)) and few.dtype == many.dtype):
            return False
        if jax.dtypes.issubdtype(few.dtype, jax.dtypes.prng_key):
            few, many = jax.random.key_data(few), jax.random.key_data(many)
        common = tuple(map(slice, few.shape))
        return bool(np.array_equal(np.asarray(few), np.asarray(many)[common]))
