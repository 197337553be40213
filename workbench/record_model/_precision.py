"""A function of bfloat16 or float16 numbers evaluated in float32, so that its rounding hides
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.typing import ArrayLike

from workbench.clipping.jaxprs import (
    Environment,
    aval,
    equations,
    evaluate,
    inner_jaxpr,
    is_literal,
    scan_again,
)

__all__ = ["coarsest", "in_float32"]


def coarsest(closed: ClosedJaxpr) -> float:
    """The rounding of the coarsest type of number that is computed with."""
    types = {
        atom.dtype
        for equation in equations(closed.jaxpr)
        for atom in map(aval, equation.outvars)
        if hasattr(atom, "dtype")
    }
    return max(
        (float(jnp.finfo(dtype).eps) for dtype in types if jnp.issubdtype(dtype, jnp.floating)),
        default=1e-7,
    )


def in_float32(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """``closed`` on ``arguments`` with float32 for every coarser type of number.

    Functions with their own derivative are opened: nothing is differentiated. What looks at the
    bits of a coarse number fails, with an error of JAX's.
    """
    environment = Environment(closed, list(map(_widened, arguments)))
    for variable in closed.jaxpr.constvars:
        environment.values[variable] = _widened(environment.values[variable])
    for equation in closed.jaxpr.eqns:
        inputs = list(map(_widened, environment.read(equation.invars)))
        environment.write(equation.outvars, _again(closed, equation, inputs))
    return list(map(_widened, environment.read(closed.jaxpr.outvars)))


def _again(closed: ClosedJaxpr, equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if (inner := inner_jaxpr(equation)) is not None:
        return in_float32(inner, inputs)
    if name == "scan":
        return scan_again(
            equation, inputs, lambda body, values, _: (in_float32(body, values), None)
        )[0]
    if name == "cond":
        branches = [
            lambda *values, branch=branch: in_float32(branch, values)
            for branch in params["branches"]
        ]
        return lax.switch(inputs[0], branches, *inputs[1:])
    if name == "while":
        of_test, of_body = params["cond_nconsts"], params["body_nconsts"]
        test, body, start = (
            inputs[:of_test],
            inputs[of_test : of_test + of_body],
            inputs[of_test + of_body :],
        )
        return lax.while_loop(
            lambda carried: in_float32(params["cond_jaxpr"], [*test, *carried])[0],
            lambda carried: in_float32(params["body_jaxpr"], [*body, *carried]),
            start,
        )
    if name == "reduce_precision":
        return inputs
    operands = [
        Literal(value, jax.typeof(value)) if is_literal(atom) else atom
        for atom, value in zip(equation.invars, inputs, strict=True)
    ]
    wider = {key: _wider(value) for key, value in params.items()}
    return evaluate(closed.jaxpr, equation.replace(invars=operands, params=wider), inputs)


def _wider(param: Any) -> Any:
    """A type, or the function by which a reduction or a scatter combines two numbers; others as
    they are.
    """
    if isinstance(param, (ClosedJaxpr, Jaxpr)):
        closed = param if isinstance(param, ClosedJaxpr) else ClosedJaxpr(param, ())
        shapes = [
            jax.ShapeDtypeStruct(aval(variable).shape, _wider(aval(variable).dtype))
            for variable in closed.jaxpr.invars
        ]
        wider = jax.make_jaxpr(lambda *arguments: in_float32(closed, arguments))(*shapes)
        return wider if param is closed else wider.jaxpr
    return np.dtype(np.float32) if _is_coarse(param) else param


def _is_coarse(dtype: object) -> bool:
    return (
        isinstance(dtype, np.dtype)
        and jnp.issubdtype(dtype, jnp.floating)
        and float(jnp.finfo(dtype).eps) > 1e-6
    )


def _widened(value: ArrayLike) -> Any:
    return jnp.asarray(value, jnp.float32) if _is_coarse(getattr(value, "dtype", None)) else value
