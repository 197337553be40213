"""Draws as an ArviZ object, under ArviZ 0.23 and 1.x alike."""

import numpy as np
import pytest

from workbench.results import arviz_adapter

LABELS = ["age", "dose <mg>", "a, b [c]"]


@pytest.fixture(scope="module")
def draws():
    random = np.random.default_rng(5)
    skewed = random.gamma(1.5, 2.0, (4000, 3))
    return {
        "weights": skewed.astype(np.float32),
        "intercept": random.normal(-1, 3, 4000).astype(np.float32),
    }


@pytest.fixture(scope="module")
def posterior(draws):
    return arviz_adapter.to_posterior(
        draws, {"weights": LABELS, "absent": ["x"]}, {"label": "covered"}
    )


@pytest.fixture(scope="module")
def table(posterior):
    return arviz_adapter.summary(posterior)


def test_draws_are_one_chain(posterior, draws):
    weights = posterior["posterior"]["weights"]
    assert weights.shape == (1, 4000, 3)
    assert np.array_equal(weights.values[0], draws["weights"])


def test_entries_carry_their_labels(posterior):
    assert posterior["posterior"]["weights"].coords["weights_entry"].values.tolist() == LABELS


def test_attributes_are_kept_with_the_draws(posterior):
    assert posterior["posterior"].attrs["label"] == "covered"


def test_summary_names_its_columns_after_the_interval(table):
    assert list(table.columns) == ["mean", "sd", "hdi_90%_low", "hdi_90%_high"]
    assert arviz_adapter.INTERVAL == 0.9


def test_summary_has_one_row_a_scalar(table):
    assert sorted(table.index) == sorted(["intercept", *(f"weights[{label}]" for label in LABELS)])


def test_mean_and_sd_agree_with_numpy(table, draws):
    for place, label in enumerate(LABELS):
        row = table.loc[f"weights[{label}]"]
        assert row["mean"] == pytest.approx(draws["weights"][:, place].mean(dtype=float), rel=1e-5)
        assert row["sd"] == pytest.approx(draws["weights"][:, place].std(dtype=float), rel=1e-3)


def test_interval_is_the_narrowest_with_its_probability(table, draws):
    values = np.sort(draws["weights"][:, 0].astype(float))
    kept = int(np.ceil(0.9 * len(values)))
    widths = values[kept:] - values[:-kept]
    low, high = table.loc["weights[age]", ["hdi_90%_low", "hdi_90%_high"]]
    assert high - low == pytest.approx(widths.min(), rel=0.01)
    assert np.mean((values >= low) & (values <= high)) == pytest.approx(0.9, abs=0.005)


def test_numbers_are_not_rounded(table, draws):
    exact = draws["intercept"].mean(dtype=float)
    assert table.loc["intercept", "mean"] == pytest.approx(exact, rel=1e-5)
    assert table.loc["intercept", "mean"] != round(exact, 3)


def test_draws_survive_a_file(posterior, draws, tmp_path):
    arviz_adapter.save_draws(posterior, tmp_path / "draws.nc")
    loaded = arviz_adapter.load_draws(tmp_path / "draws.nc")
    assert set(loaded) == set(draws)
    for name, value in draws.items():
        assert np.array_equal(loaded[name], value)
        assert loaded[name].dtype == value.dtype


def test_two_draws_are_enough_for_a_summary(draws):
    few = {name: value[:2] for name, value in draws.items()}
    table = arviz_adapter.summary(arviz_adapter.to_posterior(few, {"weights": LABELS}, {}))
    assert table.loc["intercept", "mean"] == pytest.approx(few["intercept"].mean(), rel=1e-5)


def test_a_model_without_global_latents_has_an_empty_posterior(tmp_path):
    """The parameters of a variational auto-encoder are learnt, not drawn."""
    posterior = arviz_adapter.to_posterior({}, {}, {"guarantee": "epsilon 1"})
    assert posterior["posterior"].attrs["guarantee"] == "epsilon 1"
    table = arviz_adapter.summary(posterior)
    assert (len(table), len(table.columns)) == (0, 4)
    arviz_adapter.save_draws(posterior, tmp_path / "posterior.nc")
    assert arviz_adapter.load_draws(tmp_path / "posterior.nc") == {}


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
    assert np.array_equal(loaded["weights"].values[0], draws["weights"])


def test_long_tails_are_told_from_those_of_a_normal_distribution():
    generator = np.random.default_rng(5)
    normal, long = generator.normal(size=(1000, 3)), generator.normal(size=(1000, 3))
    long[:10, 1] *= 20  # one draw in a hundred is as far out as a wide prior lets it
    assert not arviz_adapter.words_on_tails(
        {"weights": normal, "intercept": normal[:, 0], "none": np.zeros((1000, 0))}
    )
    assert "Some have longer tails" in arviz_adapter.words_on_tails({"weights": long})
    assert not arviz_adapter.words_on_tails({"constant": np.ones(1000)})
