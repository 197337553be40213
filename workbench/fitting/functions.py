"""The compiled functions of a fit besides its steps."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from workbench.fitting.evaluation import Outputs, evaluation_of, predictor_of
from workbench.inference.compiling import Compiling, jit_seldom_called
from workbench.inference.state import Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.models.by_record import Said

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec

__all__ = ["CompiledFunctions"]


class CompiledFunctions:
    """The compiled functions of a fit and of its repetitions (``again``). The fit that needs one
    first compiles it.

    Fits that differ only in epsilon, delta, C, learning rate or randomness have the same programs,
    which ``inference.program_cache`` keeps for a while: the later ones are only traced.

    ``steps`` come from ``compiling.compile_ahead``; they are None until the holder of ``lock``
    compiles them.
    """

    def __init__(self, step: PrivateStep, spec: FitSpec) -> None:
        self._step, self._model = step, spec.model
        self._outcome = spec.model.outcome(spec.data)
        self._num_evaluation = spec.data.num_evaluation
        self._jit = functools.partial(
            jit_seldom_called, device=spec.device, noise_size=step.noise_size
        )
        self.steps: Compiling | None = None
        self.lock = threading.Lock()

    @functools.cached_property
    def compute(self) -> Callable[..., Outputs]:
        """The jitted part of ``PreparedFit.evaluator``, of unconstrained parameters, evaluation
        records and a key.
        """
        return self._jit(evaluation_of(self._step, self._model, self._num_evaluation))

    @functools.cached_property
    def said(self) -> Callable[..., Said]:
        """``evaluation.predictor_of``, jitted."""
        assert self._outcome is not None
        return self._jit(predictor_of(self._step, self._model, self._outcome))

    @functools.cached_property
    def draw(self) -> Callable[[dict[str, Any], jax.Array, int], dict[str, jax.Array]]:
        """Posterior draws: of (constrained) parameters, a key and how many."""
        model = self._step.model

        def latents(params: dict[str, Any], key: jax.Array, count: int) -> dict[str, jax.Array]:
            keys = jax.random.split(key, count)
            return jax.vmap(model.latents, in_axes=(None, 0))(model.unconstrain(params), keys)

        draw = self._jit(latents, static=2)
        return lambda params, key, count: draw(params, fast_child(key, Purpose.POSTERIOR), count)
