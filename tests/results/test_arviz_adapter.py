"""Draws as an ArviZ object, under ArviZ 0.23 and 1.x alike."""

import warnings

import h5py
import numpy as np
import pytest
import xarray

from workbench.results import arviz_adapter
from workbench.results.chains import Chains
from workbench.results.summaries import summary

LABELS = ["age", "dose <mg>", "a, b [c]"]


@pytest.fixture(scope="module")
def posterior(draws):
    return arviz_adapter.to_posterior(
        draws, {"weights": LABELS, "absent": ["x"]}, {"label": "covered"}
    )


def test_independent_draws_are_four_chains(posterior, draws):
    weights = posterior["posterior"]["weights"]
    assert weights.shape == (4, 1000, 3)
    assert np.array_equal(weights.values.reshape(4000, 3), draws["weights"])
    assert posterior["posterior"].attrs["chains"] == "independent draws in 4 equal parts"


def test_arviz_says_how_chains_agree(posterior):
    """It did not take one chain, and warned."""
    arviz = arviz_adapter._arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = arviz.summary(posterior, round_to="none")
    assert np.all(np.abs(table["r_hat"].astype(float) - 1) < 0.01)
    assert np.all(table["ess_bulk"].astype(float) > 3000)


def test_entries_carry_their_labels(posterior):
    assert posterior["posterior"]["weights"].coords["weights_entry"].values.tolist() == LABELS


def test_attributes_are_kept_with_the_draws(posterior):
    assert posterior["posterior"].attrs["label"] == "covered"


def test_draws_survive_a_file(posterior, draws, tmp_path):
    arviz_adapter.save_draws(posterior, tmp_path / "draws.nc")
    loaded = arviz_adapter.load_draws(tmp_path / "draws.nc")
    assert set(loaded) == set(draws)
    for name, value in draws.items():
        assert np.array_equal(loaded[name], value)
        assert loaded[name].dtype == value.dtype


def test_a_model_without_global_latents_has_an_empty_posterior(tmp_path):
    """The parameters of a variational auto-encoder are learnt, not drawn."""
    posterior = arviz_adapter.to_posterior({}, {}, {"guarantee": "epsilon 1"})
    assert posterior["posterior"].attrs["guarantee"] == "epsilon 1"
    assert summary({}, {}).shape == (0, 4)
    arviz_adapter.save_draws(posterior, tmp_path / "posterior.nc")
    assert arviz_adapter.load_draws(tmp_path / "posterior.nc") == {}


@pytest.mark.parametrize("chains", [Chains(16, 512), Chains(25, 4000)])
def test_draws_of_markov_chains_survive_a_file_in_their_order(draws, tmp_path, chains):
    posterior = arviz_adapter.to_posterior(draws, {}, {}, chains)
    arviz_adapter.save_draws(posterior, tmp_path / "draws.nc")
    loaded = arviz_adapter.load_draws(tmp_path / "draws.nc")
    assert all(np.array_equal(loaded[name], draws[name]) for name in draws)


def test_a_file_of_a_former_version_has_one_chain(draws, tmp_path):
    group = xarray.Dataset({name: (["chain", "draw"], draws["intercept"][None]) for name in "ab"})
    group.to_netcdf(tmp_path / "draws.nc", group="posterior", engine="h5netcdf")
    loaded = arviz_adapter.load_draws(tmp_path / "draws.nc")
    assert np.array_equal(loaded["b"], draws["intercept"])


def test_draws_in_other_chains_than_stated_are_refused(posterior, tmp_path):
    arviz_adapter.save_draws(posterior, tmp_path / "draws.nc")
    with h5py.File(tmp_path / "draws.nc", "a") as file:
        file["posterior"].attrs["markov"] = 25
    with pytest.raises(ValueError, match="in other chains"):
        arviz_adapter.load_draws(tmp_path / "draws.nc")


@pytest.mark.parametrize("kind", ["of this ArviZ", "DataTree"])
def test_arviz_reads_the_file(posterior, draws, tmp_path, kind):
    data = posterior
    if kind == "DataTree":
        import xarray

        group = posterior["posterior"]
        data = xarray.DataTree.from_dict(
            {"posterior": getattr(group, "to_dataset", lambda: group)()}
        )
    arviz_adapter.save_draws(data, tmp_path / "draws.nc")
    loaded = arviz_adapter._arviz().from_netcdf(tmp_path / "draws.nc")["posterior"]
    assert loaded.attrs["label"] == "covered"
    assert loaded["weights"].coords["weights_entry"].values.tolist() == LABELS
    assert np.array_equal(loaded["weights"].values.reshape(4000, 3), draws["weights"])


def test_long_tails_are_told_from_those_of_a_normal_distribution():
    generator = np.random.default_rng(5)
    normal, long = generator.normal(size=(1000, 3)), generator.normal(size=(1000, 3))
    long[:10, 1] *= 20  # one draw in a hundred is as far out as a wide prior lets it
    assert not arviz_adapter.words_on_tails(
        {"weights": normal, "intercept": normal[:, 0], "none": np.zeros((1000, 0))}
    )
    assert "Some have longer tails" in arviz_adapter.words_on_tails({"weights": long})
    assert not arviz_adapter.words_on_tails({"constant": np.ones(1000)})
