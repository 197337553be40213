"""Steps are made of what JAX can lower for GPUs and TPUs. That takes no such machine."""

import jax
import jax.numpy as jnp
import pytest
from jax import export

import workbench as wb
from tests.conftest import some_of
from workbench.inference.batched import stacked
from workbench.inference.compiling import chunk_of

CASES = [
    ("logistic", "breast_cancer"),
    ("gmm", "mixture"),
    ("vae", "digits"),
    ("hierarchical_logistic", "hierarchical"),
    ("neural_classifier", "digits"),
]


def lowered(function, platform, *arguments):
    return export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module()


@pytest.mark.thorough
@pytest.mark.parametrize(("model", "data"), some_of(CASES, 6))
@pytest.mark.parametrize("platform", some_of(["cuda", "tpu"]))
def test_steps_and_lanes_lower_elsewhere(model, data, platform):
    prepared = wb.prepare(model, data, epsilon=1.0, iterations=100)
    records, state = prepared.on_device
    arguments = state, records, jnp.int32(4), prepared.hyper
    assert "stablehlo" in lowered(chunk_of(prepared.step, 4), platform, *arguments)
    lanes = (
        stacked([state, state]),
        records,
        jnp.int32(4),
        stacked([prepared.hyper, prepared.hyper]),
    )
    assert "stablehlo" in lowered(
        jax.vmap(chunk_of(prepared.step, 4, 2), in_axes=(0, None, None, 0)), platform, *lanes
    )


def test_what_has_no_such_lowering_is_seen():
    with pytest.raises(NotImplementedError, match="eig"):
        lowered(lambda x: jnp.linalg.eigvals(x).real, "tpu", jnp.eye(3))
