"""Reading and rebuilding jaxprs: what ``bookkeeping`` and ``inference._hoisting`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.extend.core.primitives import scan_p
from jax.interpreters.partial_eval import dce_jaxpr

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "Environment",
    "aval",
    "constants",
    "equations",
    "evaluate",
    "flat_jaxpr",
    "inner_jaxpr",
    "is_literal",
    "primitives",
    "rebuilt",
    "scan_again",
    "scan_counts",
]

_INLINED = {"jit": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr"}
_OWN_DERIVATIVES = dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), "call_jaxpr")


def aval(atom: Var | Literal) -> Any:
    """Shape and type of a jaxpr's variable."""
    return atom.aval


def is_literal(atom: Var | Literal) -> bool:
    """Whether an operand is a constant written into the equation."""
    return isinstance(atom, Literal)


def rebuilt(
    jaxpr: Jaxpr, invars: Sequence[Var], outvars: Sequence[Any], equations: Sequence[JaxprEqn]
) -> Jaxpr:
    """A jaxpr of some of ``jaxpr``'s equations, with constants as arguments."""
    effects = frozenset().union(*(equation.effects for equation in equations))
    return jaxpr.replace(
        constvars=[],
        invars=list(invars),
        outvars=list(outvars),
        eqns=list(equations),
        effects=effects,
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )


def evaluate(jaxpr: Jaxpr, equation: JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """One equation of ``jaxpr`` on ``inputs``; JAX's own evaluator, because how a primitive is
    bound changes by version.
    """
    values: dict[Any, Any] = {
        v: value for v, value in zip(equation.invars, inputs, strict=True) if not is_literal(v)
    }
    single = rebuilt(jaxpr, list(values), equation.outvars, [equation])
    return jaxpr_as_fun(ClosedJaxpr(single, ()))(*values.values())


class Environment:
    """Values of a jaxpr's variables while it is evaluated."""

    def __init__(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> None:
        self.values: dict[Var, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self.values.update(zip(closed.jaxpr.invars, arguments, strict=True))

    def read(self, atoms: Sequence[Any]) -> list[Any]:
        """Values of ``atoms``, literals included."""
        return [atom.val if isinstance(atom, Literal) else self.values[atom] for atom in atoms]

    def write(self, variables: Sequence[Var], values: Sequence[Any]) -> None:
        """Set what an equation returned."""
        self.values.update(zip(variables, values, strict=True))


def scan_counts(equation: JaxprEqn) -> tuple[int, int]:
    """How many operands of a scan are constants of its body, and how many are carried; the others
    are scanned.
    """
    params = equation.params
    if "num_consts" in params:  # jax 0.10
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()
    return len(constants), len(carried)


def scan_again(
    equation: JaxprEqn,
    inputs: Sequence[Any],
    body: Callable[[ClosedJaxpr, list[Any], Any], tuple[list[Any], Any]],
    more: PyTree = None,
) -> tuple[list[Any], Any]:
    """A scan on ``inputs``, its body evaluated by ``body(jaxpr, arguments, part of more) ->
    (results, what else to stack)``.

    :param more: pytree that is scanned too. :return: (results of the scan, what else was stacked).
    """
    constants, carries = scan_counts(equation)

    def step(
        carry: list[Any], scanned: tuple[list[Any], Any]
    ) -> tuple[list[Any], tuple[list[Any], Any]]:
        outputs, besides = body(
            equation.params["jaxpr"], [*inputs[:constants], *carry, *scanned[0]], scanned[1]
        )
        return outputs[:carries], (outputs[carries:], besides)

    start, steps = (
        list(inputs[constants : constants + carries]),
        list(inputs[constants + carries :]),
    )
    how = {name: equation.params[name] for name in ("length", "reverse", "unroll")}
    carry, (stacked, besides) = lax.scan(step, start, (steps, more), **how)
    return [*carry, *stacked], besides


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """All equations of ``jaxpr`` and of what is nested in it."""
    yield from jaxpr.eqns
    for inner in _nested(jaxpr):
        yield from equations(inner.jaxpr)


def primitives(jaxpr: Jaxpr) -> set[str]:
    """Names of all operations in ``jaxpr`` and in what is nested in it."""
    return {equation.primitive.name for equation in equations(jaxpr)}


def constants(closed: ClosedJaxpr) -> list[Any]:
    """All constants, arrays and scalars, that the results of ``closed`` depend on, also those
    nested in it.
    """
    needed, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    used = {atom for equation in needed.eqns for atom in equation.invars if not is_literal(atom)}
    used.update(atom for atom in needed.outvars if not is_literal(atom))
    values = [
        value
        for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        if variable in used
    ]
    values += [
        atom.val
        for equation in needed.eqns
        for atom in equation.invars
        if isinstance(atom, Literal)
    ]
    return values + [value for inner in _nested(needed) for value in constants(inner)]


def _nested(jaxpr: Jaxpr) -> list[ClosedJaxpr]:
    """The jaxprs right below the equations of ``jaxpr``."""
    jaxprs = []
    for equation in jaxpr.eqns:
        values = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
        jaxprs += [
            value if isinstance(value, ClosedJaxpr) else ClosedJaxpr(value, ())
            for value in values
            if _is_jaxpr(value)
        ]
    return jaxprs


def _is_jaxpr(value: object) -> bool:
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def inner_jaxpr(equation: JaxprEqn) -> ClosedJaxpr | None:
    """What a call does: one of jit or remat, or of a function with its own derivative. None for
    other operations.
    """
    key = (_INLINED | _OWN_DERIVATIVES).get(equation.primitive.name)
    inner = None if key is None else equation.params[key]
    return inner if inner is None or isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def _inlined(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """``closed`` on ``arguments``, its nested jit and remat calls opened: traced again, it gives
    one flat jaxpr.
    """
    environment = Environment(closed, arguments)
    for equation in closed.jaxpr.eqns:
        inputs = environment.read(equation.invars)
        inner = inner_jaxpr(equation)
        if inner is not None and equation.primitive.name in _INLINED:
            outputs = _inlined(inner, inputs)
        elif equation.primitive is scan_p:
            outputs, _ = scan_again(
                equation, inputs, lambda inner, operands, _: (_inlined(inner, operands), None)
            )
        else:
            outputs = evaluate(closed.jaxpr, equation, inputs)
        environment.write(equation.outvars, outputs)
    return environment.read(closed.jaxpr.outvars)


def flat_jaxpr(fn: Callable, *arguments: PyTree) -> ClosedJaxpr:
    """The jaxpr of ``fn`` (flat arguments and results), without nested calls and without what its
    results do not need.
    """
    nested = jax.make_jaxpr(fn)(*arguments)
    opened = jax.make_jaxpr(lambda *args: _inlined(nested, args))(*arguments)
    needed, _ = dce_jaxpr(opened.jaxpr, [True] * len(opened.jaxpr.outvars), instantiate=True)
    return ClosedJaxpr(needed, opened.consts)
