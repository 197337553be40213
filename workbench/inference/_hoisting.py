"""Moving random draws out of a loop: what depends on a key alone can be computed for many steps at
once.

A guide draws its base noise wherever its sample sites stand, one small kernel after another. Here
the jaxpr of a step is cut in two: what depends on the key (and constants) alone, and the rest,
which takes the results of the first as arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from workbench.clipping.jaxprs import flat_jaxpr, is_literal, rebuilt

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["hoist"]


def hoist(
    fn: Callable[[Any, Any], Any], key: PyTree, late_inputs: PyTree
) -> tuple[Callable[[Any], list[Any]], Callable[..., Any]]:
    """Cut ``fn(key, late_inputs)`` into ``early(key)`` and ``late(early(key), late_inputs)``, which
    together compute the same.

    :param key: pytree of arrays (or their shapes and types) that the early part may depend on.
        :param late_inputs: the others.
    """
    key_leaves, key_treedef = jax.tree.flatten(key)
    rest_leaves, rest_treedef = jax.tree.flatten(late_inputs)
    result_treedef = None  # found while tracing, which is done once: a step is long to trace

    def flat(*arguments: jax.Array) -> list[Any]:
        nonlocal result_treedef
        key_values = jax.tree.unflatten(key_treedef, arguments[: len(key_leaves)])
        result = fn(key_values, jax.tree.unflatten(rest_treedef, arguments[len(key_leaves) :]))
        leaves, result_treedef = jax.tree.flatten(result)
        return leaves

    closed = flat_jaxpr(flat, *key_leaves, *rest_leaves)
    jaxpr = closed.jaxpr
    keys, late_variables = jaxpr.invars[: len(key_leaves)], jaxpr.invars[len(key_leaves) :]

    from_key, from_rest = set(keys), set(late_variables)
    early_equations, late_equations = [], []
    for equation in jaxpr.eqns:
        inputs = {atom for atom in equation.invars if not is_literal(atom)}
        if inputs & from_rest or equation.effects:
            from_rest.update(equation.outvars)
            late_equations.append(equation)
        elif inputs & from_key:
            from_key.update(equation.outvars)
            early_equations.append(equation)
        else:  # constants alone: in both parts, where they are needed
            early_equations.append(equation)
            late_equations.append(equation)
    met = [atom for equation in late_equations for atom in equation.invars] + list(jaxpr.outvars)
    handed_over = list(
        dict.fromkeys(atom for atom in met if not is_literal(atom) and atom in from_key)
    )

    def half(invars: list, outvars: list, equations: list) -> Callable[..., list[Any]]:
        program = rebuilt(jaxpr, [*jaxpr.constvars, *invars], outvars, equations)
        needed, _ = dce_jaxpr(program, [True] * len(outvars), instantiate=True)
        run = jaxpr_as_fun(ClosedJaxpr(needed, ()))
        return lambda *arguments: run(*closed.consts, *arguments)

    early = half(list(keys), handed_over, early_equations)
    late = half([*handed_over, *late_variables], list(jaxpr.outvars), late_equations)

    def rejoined(drawn: list[Any], late_inputs: PyTree) -> Any:
        return jax.tree.unflatten(result_treedef, late(*drawn, *jax.tree.leaves(late_inputs)))

    return lambda key: early(*jax.tree.leaves(key)), rejoined
