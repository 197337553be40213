import os
import stat

import jax
import numpy as np
import optax
import pytest
from numpyro.optim import Adam

from tests import zoo
from workbench._validate import ArgumentError
from workbench.inference import DPVI, load_state, save_state
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

RECORDS = zoo.normal_mean_data(30)


def trainer(optim=None, **options):
    return DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        optim or Adam(0.05),
        privacy=(PoissonSampler(30, 0.3, 30), GaussianMechanism(1.0, 1.0)),
        **options,
    )


def plain(state):
    return state._replace(key=jax.random.key_data(state.key))


@pytest.mark.thorough  # tests/fitting/test_run_log.py goes on with whole fits
@pytest.mark.parametrize("optim", [Adam(0.05), optax.adam(0.05)], ids=["numpyro", "optax"])
def test_a_restored_state_goes_on_bit_for_bit(tmp_path, optim):
    """In an object that has never seen the run, from a key that does not matter."""
    first = trainer(optim, average_from=1)
    half = first.run(key_from_seed(4), 4, *RECORDS, progress_bar=False).state
    save_state(half, tmp_path / "half.npz")
    whole = first.run(key_from_seed(4), 5, *RECORDS, progress_bar=False, init_state=half).state
    second = trainer(optim, average_from=1)
    restored = load_state(tmp_path / "half.npz", second.init(key_from_seed(99), *RECORDS))
    resumed = second.run(
        key_from_seed(99), 5, *RECORDS, progress_bar=False, init_state=restored
    ).state
    jax.tree.map(np.testing.assert_array_equal, plain(resumed), plain(whole))


def test_only_the_owner_can_read_the_key(tmp_path):
    path = save_state(trainer().init(key_from_seed(0), *RECORDS), tmp_path / "state.npz")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state.npz"]


def test_a_state_of_another_optimiser_is_refused(tmp_path):
    path = save_state(trainer().init(key_from_seed(0), *RECORDS), tmp_path / "state.npz")
    other = trainer(optax.sgd(0.1))
    with pytest.raises(ArgumentError, match=r"^path=.*another model or optimiser"):
        load_state(path, other.init(key_from_seed(0), *RECORDS))


def test_a_missing_or_damaged_file_is_named(tmp_path):
    path, like = tmp_path / "state.npz", trainer().init(key_from_seed(0), *RECORDS)
    for content in (None, b"", b"PK no archive"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ArgumentError, match=r"^path=.*state\.npz"):
            load_state(path, like)
