import json
import subprocess

import numpy as np
import pytest

from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.privacy import accounting, other_accountants


def epsilon(accountant, sigma, q, steps, delta, **options):
    settings = {"noise_multiplier": sigma, "sampling_rate": q, "steps": steps, "delta": delta}
    return accounting.epsilon(accountant=accountant, **settings, **options)


def test_orders_that_are_left_out_are_no_news(caplog, capfd):
    """dp-accounting warns of each, which in a notebook looks like a fault; without them the bound
    is only larger.
    """
    with caplog.at_level("WARNING"):
        accounting.epsilon(
            sampling_rate=0.1, noise_multiplier=0.7, steps=10, delta=1e-5, accountant="rdp"
        )
    assert caplog.records == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ((4.0, 0.01, 10_000, 1e-5), 1.03549),
        ((1.1, 0.004266666666666667, 14_062, 1e-5), 2.59656),
        ((0.8, 0.001, 1000, 1e-6), 1.46188),
        ((6.0, 0.01, 10_000, 1e-5), 0.65915),
    ],
)
def test_rdp_of_poisson_minibatches(settings, reference):
    assert epsilon("rdp", *settings) == pytest.approx(reference, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "reference"),
    [((2.3647, 0.01, 1000, 1e-5), 2.974), ((1.5, 128 / 60_000, 9360, 1 / 60_000), 3.5106)],
)
def test_rdp_without_replacement_has_twice_the_sensitivity(settings, reference):
    assert epsilon("rdp", *settings, sampler="without_replacement") == pytest.approx(
        reference, rel=1e-4
    )


def test_the_conversion_of_2017_gives_the_numbers_of_its_time():
    """Poisson .82273; shuffled epochs by the formula of zero-concentrated privacy, rho + 2 sqrt(rho
    log 1/delta).
    """
    assert epsilon("rdp_classic", 6.0, 0.01, 10_000, 1e-5) == pytest.approx(0.82273, abs=1e-5)
    shuffled = epsilon(
        "rdp_classic", 6.0, 0.01, 10_000, 1e-5, sampler="shuffle", relation="replace_special"
    )
    assert shuffled == pytest.approx(9.38643, abs=1e-5)


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement", "shuffle"])
@pytest.mark.parametrize(
    ("sigma", "q", "steps"), [(2.0, 0.05, 300), (30.0, 1.0, 100), (0.9, 0.002, 2000)]
)
def test_every_upper_bound_is_above_the_tight_one(sampler, sigma, q, steps):
    tight, today, classic = (
        epsilon(accountant, sigma, q, steps, 1e-5, sampler=sampler)
        for accountant in ("pld", "rdp", "rdp_classic")
    )
    assert tight <= today <= classic


def test_no_steps_cost_nothing():
    assert epsilon("rdp", 1.0, 0.1, 0, 1e-5) == epsilon("fourier", 1.0, 0.1, 0, 1e-5) == 0


def test_schedules_are_composed():
    split = epsilon("rdp", [2.0, 2.0], 0.05, [100, 200], 1e-5)
    assert split == pytest.approx(epsilon("rdp", 2.0, 0.05, 300, 1e-5), rel=1e-9)


# ---- the Fourier accountant ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "reference"), some_of([("add_or_remove_one", 2.446734), ("replace_one", 4.907398)])
)
def test_fourier_gives_its_published_values(relation, reference):
    value = epsilon("fourier", 2.0, 0.01, 10_000, 1e-6, relation=relation)
    assert value == pytest.approx(reference, abs=2e-6)


def test_fourier_is_not_believed_where_it_is_wrong():
    """By itself it says .22 here, where the truth is .468."""
    with pytest.raises(
        ArgumentError, match=r"^accountant='fourier': not reliable here: .*miss 1 by"
    ):
        epsilon("fourier", 0.8, 0.001, 1000, 1e-6)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (((2.0, 1.0, 10, 1e-6), {}), "not defined at q = 1"),
        (((0.3, 0.5, 1000, 1e-6), {}), "epsilon is above 100"),
        (((2.0, 0.1, 10, 1e-6), {"sampler": "shuffle"}), "is for Poisson minibatches only"),
    ],
)
def test_fourier_refuses_with_the_reason(settings, reason):
    numbers, options = settings
    with pytest.raises(ArgumentError, match=f"^accountant='fourier': .*{reason}"):
        epsilon("fourier", *numbers, **options)


def test_fourier_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(other_accountants, "_FOURIER_SECONDS", 0.01)
    with pytest.raises(ArgumentError, match="did not answer within"):
        epsilon("fourier", 2.0, 0.01, 100, 1e-6)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"epsilon": 1.0, "epsilon_on_twice_the_points": 1.5, "mass_defect": 0.0},
            "1.5 on twice the points",
        ),
        (
            {"epsilon": np.nan, "epsilon_on_twice_the_points": np.nan, "mass_defect": 0.0},
            "nan on twice the points",
        ),
        (
            {"epsilon": 0.01, "epsilon_on_twice_the_points": 0.01, "mass_defect": 0.0},
            "loss distributions give",
        ),
        (
            {"epsilon": 1.0, "epsilon_on_twice_the_points": 1.0, "mass_defect": 1e-3},
            "miss 1 by 1.0e-03",
        ),
    ],
)
def test_an_answer_that_contradicts_itself_is_not_believed(monkeypatch, answer, reason):
    done = subprocess.CompletedProcess([], 0, stdout=json.dumps(answer), stderr="")
    monkeypatch.setattr(other_accountants.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ArgumentError, match=reason):
        epsilon("fourier", 2.0, 0.01, 100, 1e-6)


def test_an_error_of_its_own_is_told(monkeypatch):
    done = subprocess.CompletedProcess(
        [], 1, stdout="", stderr="Traceback\nEpsilon out of [-L,L] window"
    )
    monkeypatch.setattr(other_accountants.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ArgumentError, match="not reliable here: Epsilon out of"):
        epsilon("fourier", 2.0, 0.01, 100, 1e-6)
