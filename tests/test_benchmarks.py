"""The benchmarks of networks: sizes as published, contenders that take the same step, minibatches
that fit.
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import descent
import layers
from networks import NETWORKS
from peers import environment

PUBLISHED = {
    "fcnn": 5_352,
    "mnist_cnn": 26_010,
    "cifar_cnn": 605_226,
    "imdb_lstm": 1_081_002,
    "embedding": 160_098,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_published_number_of_parameters_and_a_scalar_loss(name):
    network = NETWORKS[name]
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PUBLISHED.get(
        name, network.num_parameters
    )
    x, y = network.records(3)
    assert jax.eval_shape(network.loss, params, (x[0], y[0])).shape == ()


def test_private_and_naive_steps_agree_where_there_is_no_noise():
    network = NETWORKS["fcnn"]
    quiet = replace(network, noise_multiplier=0.0, clip=0.1)
    records = (jnp.asarray(array) for array in network.records(4))
    arguments = (descent.begun(network), jax.random.key(0), *records)
    steps = [
        layers.naive(quiet),
        layers.one_by_one(quiet),
        layers.private(quiet, "auto", noisy=False),
    ]
    found = [jax.jit(step)(*arguments) for step in steps]
    start = ravel_pytree(arguments[0][0])[0]
    moves = [np.asarray(ravel_pytree(params)[0] - start) for params, _ in found]
    assert np.abs(moves[0]).max() > 0
    for move in moves[1:]:
        np.testing.assert_allclose(move, moves[0], rtol=1e-4, atol=1e-8)


def test_a_vector_is_cut_into_leaves_in_their_order():
    tree = {"b": jnp.zeros((2, 2)), "a": jnp.zeros(3)}
    cut = descent.apart(jnp.arange(7.0), tree)
    assert cut["a"].tolist() == [0, 1, 2]
    assert cut["b"].tolist() == [[3, 4], [5, 6]]


@pytest.mark.thorough
def test_the_largest_minibatch_fits_and_a_somewhat_larger_one_does_not():
    network = NETWORKS["fcnn"]
    step = layers.non_private(network)
    limit = 2**20
    size = layers.largest_minibatch(network, layers.Program(step, secure=False), limit)

    def needed(size):
        return descent.Steps(step, network, size, jax.random.key(0)).peak_bytes()

    assert needed(size) <= limit < needed(int(1.05 * size))


@pytest.mark.parametrize("peer", environment.PEERS)
def test_every_peer_has_its_requirements(peer):
    lines = (environment.HERE / f"{peer}-requirements.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith(("#", "--"))]
    assert all("==" in pin for pin in pins)


@pytest.mark.parametrize("script", ["accuracy", "estimators", "samplers", "speed"])
def test_scripts_import(script):
    assert callable(importlib.import_module(script).main)
