"""Fits with clip="auto"."""

import dataclasses

import numpy as np
import numpyro
import pandas as pd
import pytest

import workbench as wb
from workbench._validate import ArgumentError
from workbench.cli.main import main
from workbench.fitting import prepare
from workbench.fitting.groups import grouped
from workbench.results._location_noise import step_noise
from workbench.results.code import code_of

pytestmark = pytest.mark.usefixtures("checked_models")

SMALL = {"epsilon": 8.0, "delta": 1e-3, "iterations": 60, "ledger": False}


@pytest.fixture(scope="module")
def done():
    """A fit that begins with a C of 1 / 100 of what it should be."""
    table = wb.data.load("breast_cancer")
    model = dataclasses.replace(
        wb.models.get("logistic"), defaults={"clip": 0.02, "largest_clip": 3.0}
    )
    return wb.fit(model, table, clip="auto", **SMALL)


def test_a_fit_says_which_c_it_chose_and_that_the_guarantee_covers_it(done):
    norms = done.gradient_norms
    assert norms.adapted_from == pytest.approx(0.02)
    assert 0.1 < norms.clip <= 3.0
    assert norms.words().startswith(f"The run adapted C from 0.02 to {norms.clip:.3g}. ")
    assert done.guarantee.adapts_clip
    assert (
        "clipped to a norm C that started at 0.02 and was then adapted from noised counts"
        in done.guarantee.statement()
    )
    assert done.settings["adapts_clip"]
    assert 'clip="auto"' in code_of(done).replace("'", '"')


def test_what_follows_c_takes_the_adapted_one(done):
    assert done.posterior_kind == "noise-aware"
    noise = done.guarantee.noise_multiplier / done.settings["sampling_rate"]
    assert step_noise(done) == pytest.approx(noise * done.gradient_norms.clip)


def test_the_plan_costs_what_a_plan_with_one_c_costs():
    plans = [
        prepare("logistic", "breast_cancer", clip=clip, **SMALL).plan for clip in (1.0, "auto")
    ]
    assert plans[0].mechanism.noise_multiplier == plans[1].mechanism.noise_multiplier
    assert plans[0].epsilon_after(30) == plans[1].epsilon_after(30)


@pytest.mark.thorough
def test_a_run_that_pauses_in_the_warm_up_ends_as_one_that_does_not():
    ends = []
    for pauses in (False, True):
        fit = prepare("logistic", "breast_cancer", clip="auto", seed=1, **SMALL)
        if pauses:
            snapshots = fit.run(stop=lambda fit=fit: fit._last is not None and fit._last.step > 0)
            assert list(snapshots)[-1].status == "cancelled"
        assert list(fit.run())[-1].status == "done"
        ends.append(fit.result())
    assert ends[0].gradient_norms == ends[1].gradient_norms
    np.testing.assert_array_equal(ends[0].params["weights_loc"], ends[1].params["weights_loc"])


@pytest.mark.thorough
def test_a_stop_before_anything_was_counted_gives_the_guides_posterior():
    fit = prepare("logistic", "breast_cancer", clip="auto", seed=1, **SMALL)
    list(fit.run(stop=lambda: True))
    result = fit.result()
    assert result.gradient_norms is None
    assert result.posterior_kind == "variational"


def test_it_takes_flat_clipping_and_room_for_counts():
    with pytest.raises(ArgumentError, match=r'^clip=.auto.: takes clipping="flat"'):
        prepare(
            "logistic",
            "breast_cancer",
            clip="auto",
            **SMALL,
            privacy=wb.Privacy(clipping="automatic"),
        )
    with pytest.raises(ArgumentError, match=r"^clip=.often.:"):
        prepare("logistic", "breast_cancer", clip="often", **SMALL)


@pytest.mark.thorough
def test_a_sweep_has_both_kinds_and_they_end_as_alone():
    data = wb.data.load("breast_cancer")
    swept = wb.sweep(
        "logistic",
        data,
        epsilons=8.0,
        delta=1e-3,
        iterations=60,
        clips=[1.0, "auto"],
        seeds=[3],
        baselines=["non-private"],
    )
    rows = (
        swept.table[swept.table["method"] == "dp-vi"]
        if "dp-vi" in set(swept.table["method"])
        else swept.table
    )
    assert sorted(rows["clip"].isna()) == [False, *[True] * (len(rows) - 1)]
    assert (swept.table["status"] == "done").all()


@pytest.mark.thorough
def test_the_command_line_takes_the_word(tmp_path, capsys):
    arguments = (
        "fit --model logistic --data breast_cancer --epsilon 8 --delta 1e-3 --iterations 60 "
        "--no-ledger"
    )
    assert (
        main([*arguments.split(), "--clip", "auto", "--json", "--out", str(tmp_path / "run")]) == 0
    )
    capsys.readouterr()
    assert wb.load(tmp_path / "run").guarantee.adapts_clip


def test_a_checkpoint_names_the_setting_as_fit_takes_it(tmp_path):
    fit = prepare("logistic", "breast_cancer", clip="auto", **SMALL)
    assert fit.privacy.as_arguments()["clip"] == "auto"
    assert "adapts_clip" not in fit.privacy.as_arguments()
    again = prepare("logistic", "breast_cancer", **grouped(SMALL, **fit.privacy.as_arguments()))
    assert again.privacy == fit.privacy


def test_the_class_for_numpyro_users_has_one_c():
    fit = prepare("logistic", "breast_cancer", clip="auto", **SMALL)
    with pytest.raises(ArgumentError, match=r"^privacy=.adapts_clip=True"):
        wb.inference.DPVI(
            fit.model.model, fit.model.guide, numpyro.optim.Adam(0.1), privacy=fit.privacy
        )


@pytest.mark.thorough
def test_rows_of_a_person_add_up_to_the_largest_gradient():
    alone = prepare("logistic", "breast_cancer", clip="auto", **SMALL)
    frame = pd.DataFrame(
        {"x": np.linspace(0, 1, 60), "who": np.repeat(np.arange(20), 3), "ill": [0, 1] * 30}
    )
    visits = wb.data.from_frame(
        frame, target="ill", schema={"x": (0, 1)}, unit_id="who", max_rows=3
    )
    together = prepare("logistic", visits, clip="auto", **{**SMALL, "delta": 1e-2})
    assert alone.spec.largest_clip == pytest.approx((alone.data.train[0].shape[1] + 1) ** 0.5)
    assert together.spec.largest_clip == pytest.approx(3 * 2**0.5)
    # persons, whose gradients count
    assert together.step.model.num_records == together.step.sampler.num_records <= 20
