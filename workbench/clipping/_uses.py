"""Where leaves enter a jaxpr: each route from a leaf to an operation that a record enters too.

On its route a leaf may be rearranged, and it may be prepared: joined with other leaves, scaled by a
mask, multiplied by another leaf. Whatever no record enters is the same for all records, so a
record's gradient for the leaf follows from that for what is made of it (``_preparation``). Any
other equation stops the search.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.extend.core.primitives import dot_general_p, scan_p

from workbench.clipping.jaxprs import aval, evaluate, scan_counts

__all__ = ["STACKED", "Preparation", "Use", "Value", "View", "over_turns", "uses_of", "viewed"]

Array = jax.Array

_VIEWS = {
    "reshape",
    "transpose",
    "squeeze",
    "broadcast_in_dim",
    "copy",
    "convert_element_type",
}
_PARTS = {"slice", "split"}  # views of some of the entries
_SUMS = {"add", "add_any"}  # each operand's gradient is the result's
# Functions of entries whose derivative is made by jax.jvp. None has its own rule of
# differentiation.
ENTRYWISE = {
    "add",
    "add_any",
    "mul",
    "div",
    "sub",
    "neg",
    "exp",
    "exp2",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "logistic",
    "sin",
    "cos",
    "square",
    "sqrt",
    "rsqrt",
    "cbrt",
    "integer_pow",
    "pow",
    "abs",
    "max",
    "min",
    "erf",
    "select_n",
}
_OTHERS = {"concatenate", "stack", "reduce_sum", "broadcast_in_dim"}
_MOST_ROUTES = 6  # of one leaf into one array: a network of kernels can have any number
STACKED = None  # in a list of steps: from here on, each turn of a scan sees its own part


class Value(NamedTuple):
    """An array that no record enters, as an expression of leaves and constants.

    :param apart: of the scans around, which give each turn its own part; the array has an axis for
        each of them in front.
    :param number: of a leaf. :param constant: an array.
    :param equation: of ``jaxpr``, whose result number ``position`` it is otherwise.
    :param operands: of the equation.
    """

    apart: tuple[bool, ...]
    number: int | None = None
    constant: Any = None
    equation: JaxprEqn | None = None
    jaxpr: Jaxpr | None = None
    position: int = 0
    operands: tuple[Value, ...] = ()

    def array(self, leaves: Sequence[Array]) -> Array:
        """The value of the expression, from those of the leaves of u."""
        if self.number is not None:
            return jnp.asarray(leaves[self.number])
        if self.equation is None:
            return jnp.asarray(self.constant)
        assert self.jaxpr is not None
        arrays = [operand.array(leaves) for operand in self.operands]
        function = functools.partial(_result, self.jaxpr, self.equation, self.position)
        return over_turns(function, [operand.apart for operand in self.operands])(*arrays)


class View(NamedTuple):
    """A step that only rearranges entries, or takes some of them."""

    equation: JaxprEqn
    jaxpr: Jaxpr
    position: int

    def __call__(self, operand: Array) -> Array:
        """The entries of the operand, rearranged, or those that are taken."""
        return _result(self.jaxpr, self.equation, self.position, operand)


class Preparation(NamedTuple):
    """A step that makes another array of the leaf and of what no record enters.

    :param sides: the operands that are what the leaf has become. :param operands: all of them.
    """

    equation: JaxprEqn
    jaxpr: Jaxpr
    sides: tuple[int, ...]
    operands: tuple[Value, ...]


class Use(NamedTuple):
    """One route of a leaf to an operation.

    :param path: places of the scans around it, outermost first, and of the equation itself.
    :param equation: None where the leaf is a result. :param side: which operand the leaf is.
    :param steps: views and preparations from leaf to operand, with STACKED where a scan is entered
        that takes it apart.
    :param lengths: of the scans. :param stacked: which of the scans take the leaf apart.
    :param problem: why book-keeping cannot follow it; "" where it can. :param first: its first
        preparation, in words.
    """

    path: tuple[int, ...]
    equation: JaxprEqn | None
    side: int
    steps: tuple[Any, ...]
    lengths: tuple[int, ...]
    stacked: tuple[bool, ...]
    problem: str = ""
    first: str = ""


class _Route(NamedTuple):
    """A leaf so far. :param first: as in ``Use``."""

    number: int
    steps: tuple[Any, ...] = ()
    stacked: tuple[bool, ...] = ()
    first: str = ""

    def after(self, *steps: Any) -> _Route:
        return self._replace(steps=(*self.steps, *steps))


def _result(jaxpr: Jaxpr, equation: JaxprEqn, index: int, *operands: Array) -> Array:
    return evaluate(jaxpr, equation, operands)[index]


def over_turns(function: Callable, apart: Sequence[tuple[bool, ...]]) -> Any:
    """Map a function of arrays over the turns of the scans that take any of its operands apart."""
    for level in reversed(range(len(apart[0]) if apart else 0)):
        axes = [0 if operand[level] else None for operand in apart]
        if any(axis == 0 for axis in axes):
            function = jax.vmap(function, in_axes=axes)
    return function


def viewed(leaf: Array, steps: Sequence[Any], depth: int = 0) -> Array:
    """Apply views to ``leaf``, which has ``depth`` axes of scans in front."""
    for step in steps:
        if step is STACKED:
            depth += 1
            continue
        view = step
        for _ in range(depth):
            view = jax.vmap(view)
        leaf = view(leaf)
    return leaf


def uses_of(closed: ClosedJaxpr, num_leaves: int) -> list[list[Use]]:
    """The uses of each of the first ``num_leaves`` arguments of a flat jaxpr, through preparations
    and into scans.
    """
    uses: list[list[Use]] = [[] for _ in range(num_leaves)]
    leaves = list(enumerate(closed.jaxpr.invars[:num_leaves]))
    fixed = {variable: Value((), number) for number, variable in leaves}
    _walk(closed, {variable: (_Route(number),) for number, variable in leaves}, fixed, uses)
    return uses


def _walk(
    closed: ClosedJaxpr,
    routes: dict[Var, tuple[_Route, ...]],
    fixed: dict[Var, Value],
    uses: list[list[Use]],
    path: tuple[int, ...] = (),
    lengths: tuple[int, ...] = (),
) -> None:
    """:param routes: by which leaves come to a variable. :param fixed: the variables that no record
    enters.
    """
    jaxpr, outside = closed.jaxpr, (False,) * len(lengths)
    for variable, constant in zip(jaxpr.constvars, closed.consts, strict=True):
        fixed[variable] = Value(outside, constant=constant)
    for index, equation in enumerate(jaxpr.eqns):
        operands = [
            Value(outside, constant=atom.val) if isinstance(atom, Literal) else fixed.get(atom)
            for atom in equation.invars
        ]
        operand_routes = [
            () if isinstance(atom, Literal) else routes.get(atom, ()) for atom in equation.invars
        ]
        passed: Sequence[tuple[_Route, ...]] | None = None
        values = tuple(operand for operand in operands if operand is not None)
        if len(values) == len(operands) and not equation.effects:
            turns = [operand.apart for operand in values]
            apart = tuple(any(levels) for levels in zip(*turns, strict=True)) if turns else outside
            for result, variable in enumerate(equation.outvars):
                fixed[variable] = Value(apart, None, None, equation, jaxpr, result, values)
            passed = _passed_on(equation, jaxpr, operand_routes, values)
        if passed is not None:
            routes.update(zip(equation.outvars, passed, strict=True))
            continue
        here = (*path, index)
        hits = [(side, route) for side, entering in enumerate(operand_routes) for route in entering]
        carried: set[int] = set()
        if equation.primitive is scan_p:
            constants, carries = scan_counts(equation)
            carried = set(range(constants, constants + carries))
            inner, ambiguous = _entered(equation, operand_routes, carried)
            within = {
                variable: operand._replace(apart=(*operand.apart, side >= constants))
                for side, (variable, operand) in enumerate(
                    zip(equation.params["jaxpr"].jaxpr.invars, operands, strict=True)
                )
                if operand is not None and side not in carried
            }
            if not ambiguous:
                if inner:
                    _walk(
                        equation.params["jaxpr"],
                        inner,
                        within,
                        uses,
                        here,
                        (*lengths, equation.params["length"]),
                    )
                hits = [hit for hit in hits if hit[0] in carried]
        for side, route in hits:
            problem = (
                ""
                if equation.primitive is not scan_p
                else "is what scan carries"
                if side in carried
                else "enters scan"
            )
            peers = [
                peer
                for position, entering in enumerate(operand_routes)
                if position != side
                for peer in entering
            ]
            if not problem and peers:
                problem = _meeting(route, peers)
            uses[route.number].append(
                Use(here, equation, side, route.steps, lengths, route.stacked, problem, route.first)
            )
    for atom in jaxpr.outvars:
        for route in routes.get(atom, ()) if isinstance(atom, Var) else ():
            problem = "leaves scan as it is" if path else "is the loss itself"
            uses[route.number].append(
                Use(path, None, 0, route.steps, lengths, route.stacked, problem, route.first)
            )


def _entered(
    equation: JaxprEqn, operand_routes: Sequence[tuple[_Route, ...]], carried: set[int]
) -> tuple[dict[Var, tuple[_Route, ...]], bool]:
    """The routes into a scan's body, and whether a leaf enters both whole and in parts."""
    constants, _ = scan_counts(equation)
    inner: dict[Var, tuple[_Route, ...]] = {}
    manners: dict[int, set[bool]] = {}
    for side, (variable, entering) in enumerate(
        zip(equation.params["jaxpr"].jaxpr.invars, operand_routes, strict=True)
    ):
        if entering and side not in carried:
            is_stacked = side >= constants
            step = (STACKED,) if is_stacked else ()
            inner[variable] = tuple(
                route.after(*step)._replace(stacked=(*route.stacked, is_stacked))
                for route in entering
            )
            for route in entering:
                manners.setdefault(route.number, set()).add(is_stacked)
    return inner, any(len(manner) > 1 for manner in manners.values())


def _meeting(route: _Route, peers: Sequence[_Route]) -> str:
    return (
        "meets another leaf"
        if any(peer.number != route.number for peer in peers)
        else "meets itself"
    )


# --- steps on the way -----------------------------------------------------------------------------


def _is_view(equation: JaxprEqn) -> bool:
    """Does the equation only rearrange its one operand's entries, or take some of them?"""
    if len(equation.invars) != 1:
        return False
    before, after = aval(equation.invars[0]), [aval(variable) for variable in equation.outvars]
    if not all(_real(operand) for operand in (before, *after)):
        return False
    name = equation.primitive.name
    return name in _PARTS or (name in _VIEWS and after[0].size == before.size)


def _real(operand: jax.core.ShapedArray) -> bool:
    return jnp.issubdtype(operand.dtype, jnp.floating)


def _passed_on(
    equation: JaxprEqn,
    jaxpr: Jaxpr,
    operand_routes: Sequence[tuple[_Route, ...]],
    operands: tuple[Value, ...],
) -> list[tuple[_Route, ...]] | None:
    """The routes on to each result of an equation that no record enters; None where they end here.

    The gradient of a sum of products is a sum over the routes: one for each operand of a product.
    """
    if not any(operand_routes):
        return None
    name, result = equation.primitive.name, aval(equation.outvars[0])
    if _is_view(equation):
        if (
            name == "convert_element_type"
        ):  # its gradient is converted back, which loses nothing here
            return [operand_routes[0]]
        return [
            tuple(route.after(View(equation, jaxpr, index)) for route in operand_routes[0])
            for index in range(len(equation.outvars))
        ]
    entered = [side for side, entering in enumerate(operand_routes) if entering]
    # operations on entries take scalars, and repeat what has one entry along an axis
    ranks = {aval(equation.invars[side]).ndim for side in entered}
    are_full = all(aval(equation.invars[side]).shape == result.shape for side in entered)
    alike = len(entered) == 2 and equation.invars[entered[0]] is equation.invars[entered[1]]
    if not _real(result) or any(not _real(aval(equation.invars[side])) for side in entered):
        return None
    if name in _SUMS and are_full:
        on = [route for entering in operand_routes for route in entering]
    elif (
        (name in ENTRYWISE and ranks <= {0, result.ndim})
        or name in _OTHERS
        or (equation.primitive is dot_general_p and len(entered) == 2)
    ):
        together = (
            [tuple(entered)] if alike and name in ENTRYWISE else [(side,) for side in entered]
        )
        on = [
            route.after(Preparation(equation, jaxpr, sides, operands))
            for sides in together
            for route in operand_routes[sides[0]]
        ]
    else:
        return None
    if any(sum(peer.number == route.number for peer in on) > _MOST_ROUTES for route in on):
        return None
    met = [
        [
            route
            for position, entering in enumerate(operand_routes)
            if position != side
            for route in entering
        ]
        for side in entered
    ]
    words = {}
    for side, peers in zip(entered, met, strict=True):
        for route in operand_routes[side]:
            words[route.number] = route.first or (
                _meeting(route, peers) if peers else f"enters {name}"
            )
    return [tuple(route._replace(first=route.first or words[route.number]) for route in on)]
