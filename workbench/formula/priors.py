"""Priors as text, such as "Normal(0, 2)", and side by side as one distribution of a vector."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, ExpTransform, biject_to

from workbench import _validate

__all__ = ["Beside", "LogarithmOver", "moved", "prior_of", "side_by_side", "text_of"]


def text_of(prior: dist.Distribution) -> str:
    """A distribution as ``prior_of`` reads it; for one whose arguments are not all numbers only its
    name.
    """
    try:
        values = [float(value) for value in _arguments(prior)]
    except (TypeError, ValueError, AttributeError):
        return type(prior).__name__
    return f"{type(prior).__name__}({', '.join(f'{value:.12g}' for value in values)})"


def _arguments(prior: dist.Distribution) -> list[Any]:
    names = [
        name for name in inspect.signature(type(prior)).parameters if name in prior.arg_constraints
    ]
    return [getattr(prior, name) for name in names]


def prior_of(argument: str, declared: Any) -> dist.Distribution:
    """The distribution of one number that ``declared`` is or describes.

    >>> from workbench.formula.priors import prior_of, text_of
    >>> text_of(prior_of("priors['age']", "StudentT(3, 0, scale=2)"))
    'StudentT(3, 0, 2)'

    :param argument: its name in errors.
    :raises ArgumentError: naming ``argument``, for anything but a distribution of
        ``numpyro.distributions`` of one number, whose arguments are numbers, or its text.
    """
    rule = (
        "must be a distribution of one number with numbers as arguments, such as dist.Normal(0, "
        "2) or 'Normal(0, 2)'."
    )
    prior = declared
    if isinstance(declared, str):
        try:
            call = ast.parse(declared.strip(), mode="eval").body
            assert isinstance(call, ast.Call)
            name = (
                ast.unparse(call.func).removeprefix("numpyro.distributions.").removeprefix("dist.")
            )
            kind = getattr(dist, name, None) if name.isidentifier() else None
            assert isinstance(kind, type)
            assert issubclass(kind, dist.Distribution)
            numbers = [float(ast.literal_eval(node)) for node in call.args]
            named = {str(node.arg): float(ast.literal_eval(node.value)) for node in call.keywords}
            prior = kind(*numbers, **named, validate_args=True)
        except (AssertionError, SyntaxError, ValueError, TypeError, AttributeError) as error:
            reason = (
                f" ({error})"
                if isinstance(error, (TypeError, AttributeError)) or "parameter" in str(error)
                else ""
            )
            raise _validate.ArgumentError(argument, declared, rule + reason) from None
    is_one = (
        isinstance(prior, dist.Distribution) and prior.batch_shape == () and prior.event_shape == ()
    )
    if (
        not is_one
        or "(" not in text_of(prior)
        or prior.support is None
        or prior.support.is_discrete
    ):
        raise _validate.ArgumentError(argument, declared, rule)
    return prior


class Beside(dist.Distribution):
    """Independent distributions of one number each, as one of a vector, or of a matrix whose rows
    they are.

    :param marginals: on one support, that of the first.
    :param columns: of the matrix; 0 for a vector.
    """

    def __init__(
        self,
        marginals: Sequence[dist.Distribution],
        columns: int = 0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.marginals = tuple(marginals)
        shape = (len(self.marginals), columns) if columns else (len(self.marginals),)
        super().__init__(event_shape=shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Of the whole vector."""
        return constraints.independent(self.marginals[0].support, len(self.event_shape))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws, sample_shape + event_shape."""
        keys, row_shape = jax.random.split(key, len(self.marginals)), self.event_shape[1:]
        drawn = [
            marginal.sample(subkey, sample_shape + row_shape)
            for marginal, subkey in zip(self.marginals, keys, strict=True)
        ]
        return jnp.stack(drawn, axis=-1 - len(row_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """The sum over the entries."""
        axis = -len(self.event_shape)
        rows = jnp.moveaxis(value, axis, 0)
        log_densities = [
            marginal.log_prob(row) for marginal, row in zip(self.marginals, rows, strict=True)
        ]
        return sum(
            log_density if axis == -1 else log_density.sum(-1) for log_density in log_densities
        )


def side_by_side(marginals: Sequence[dist.Distribution], columns: int = 0) -> dist.Distribution:
    """The distribution of a vector whose entries have these, or of a matrix with that many columns
    whose rows have them.

    Normal ones make a normal one, which is quicker, and which the noise-aware posterior knows in
    closed form.
    """
    kind = type(marginals[0])
    if kind not in (dist.Normal, dist.HalfNormal) or any(
        type(marginal) is not kind for marginal in marginals
    ):
        return Beside(marginals, columns)
    values = [
        np.array([float(value) for value in entries], np.float32)
        for entries in zip(*map(_arguments, marginals), strict=True)
    ]
    if columns:
        values = [np.repeat(value[:, None], columns, axis=1) for value in values]
    return kind(*values).to_event(1 + bool(columns))


def moved(prior: dist.Distribution, shift: jax.Array) -> dist.Distribution:
    """The distribution of a draw of ``prior``, on all real numbers, plus ``shift``; a normal one of
    a normal one.
    """
    base, dimensions = prior, len(prior.event_shape)
    while isinstance(base, (dist.Independent, dist.ExpandedDistribution)):
        base = base.base_dist
    if type(base) is dist.Normal:
        scale = jnp.broadcast_to(base.scale, shift.shape)
        return dist.Normal(base.loc + shift, scale).to_event(dimensions)
    real = constraints.independent(constraints.real, dimensions)
    return dist.TransformedDistribution(prior, AffineTransform(shift, 1.0, domain=real))


class _RealOver(constraints.Constraint):
    """All real numbers, of which guides draw ``factor`` times as large ones."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: jax.Array) -> jax.Array:
        return constraints.real(x)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.zeros_like(prototype)

    def tree_flatten(self) -> Any:
        return (), ((), {"factor": self.factor})


@biject_to.register(_RealOver)
def _over(constraint: _RealOver) -> AffineTransform:
    return AffineTransform(0.0, 1 / constraint.factor)


class LogarithmOver(dist.TransformedDistribution):
    """log(x) / factor for x of a distribution of positive numbers. Guides draw log(x)."""

    pytree_aux_fields = ("factor",)

    def __init__(self, base: dist.Distribution, factor: float, **options: Any) -> None:
        self.factor = factor
        super().__init__(base, [ExpTransform().inv, AffineTransform(0.0, 1 / factor)], **options)

    @property
    def support(self) -> constraints.Constraint:
        return _RealOver(self.factor)
