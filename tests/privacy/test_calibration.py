import json
import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.privacy import _cache, accounting
from workbench.privacy.accounting import epsilon
from workbench.privacy.calibration import max_sampling_rate, max_steps, noise_multiplier

# (epsilon, delta, q, T) and the smallest sigma, found with dp-accounting's PLD by bisection
REFERENCES = [
    ((1.0, 1e-5, 0.01, 1000), 1.4147),
    ((0.5, 1.6666666666666667e-05, 0.0021333333333333334, 9380), 1.5779),
]

PLANS = [
    (1.0, 1e-3, 0.1, 2000),
    (0.1, 1e-5, 0.01, 100),
    (8.0, 1e-6, 0.5, 50),
    (3.0, 1e-5, 1.0, 20),
]


def calibrated(target, delta, q, steps):
    return noise_multiplier(epsilon=target, delta=delta, sampling_rate=q, steps=steps)


def forward(sigma, delta, q, steps):
    return epsilon(noise_multiplier=sigma, sampling_rate=q, steps=steps, delta=delta)


@pytest.mark.parametrize(("settings", "reference"), REFERENCES)
def test_sigma_agrees_with_references(settings, reference):
    """The references' buckets of 1e-4 overstate epsilon by up to .03 %; narrower ones confirm the
    smaller sigma.
    """
    target, delta, q, steps = settings
    sigma = calibrated(*settings)
    assert sigma == pytest.approx(reference, rel=3e-4)
    one_step = from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=2e-5)
    assert one_step.self_compose(steps).get_epsilon_for_delta(delta) <= target * (1 + 1e-4)


@pytest.mark.parametrize("settings", PLANS)
def test_sigma_keeps_the_promise_and_nothing_smaller_does(settings):
    target, delta, q, steps = settings
    sigma = calibrated(*settings)
    assert forward(sigma, delta, q, steps) <= target
    assert forward(0.999 * sigma, delta, q, steps) > target


def test_sigma_has_five_digits():
    sigma = calibrated(1.0, 1e-5, 0.01, 1000)
    assert float(f"{sigma:.4e}") == sigma


def test_sigma_is_never_below_a_fifth():
    sigma = calibrated(100.0, 1e-3, 0.01, 1)
    assert sigma == 0.2
    assert forward(sigma, 1e-3, 0.01, 1) <= 1000.0


def test_a_smaller_epsilon_needs_more_noise():
    assert (
        calibrated(0.5, 1e-3, 0.1, 100)
        > calibrated(1.0, 1e-3, 0.1, 100)
        > calibrated(2.0, 1e-3, 0.1, 100)
    )


def test_a_target_out_of_reach_is_refused_with_advice():
    with pytest.raises(ArgumentError, match=r"^epsilon=.*choose fewer steps"):
        calibrated(1e-5, 1e-12, 1.0, 10_000)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.inf),
        ("delta", 0.0),
        ("sampling_rate", 0.0),
        ("steps", 0),
        ("sampler", "poison"),
        ("relation", "replace_one"),
    ],
)
def test_unusable_arguments_are_named(argument, value):
    settings = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 10, argument: value}
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        noise_multiplier(**settings)


# ---- other samplers ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["without_replacement", "shuffle"])
@pytest.mark.parametrize(
    ("target", "rate", "steps"), [(1.0, 0.1, 100), (0.2, 0.01, 1000), (30.0, 0.5, 20)]
)
def test_every_sampler_keeps_its_own_promise(sampler, target, rate, steps):
    sigma = noise_multiplier(
        sampler=sampler, epsilon=target, delta=1e-5, sampling_rate=rate, steps=steps
    )
    plan = {"sampler": sampler, "sampling_rate": rate, "steps": steps, "delta": 1e-5}
    assert epsilon(noise_multiplier=sigma, **plan) <= target
    assert epsilon(noise_multiplier=0.999 * sigma, **plan) > target


def test_a_blanked_record_needs_half_the_noise_of_a_replaced_one():
    plan = {"sampler": "shuffle", "epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.1, "steps": 100}
    blanked, replaced = (
        noise_multiplier(relation=relation, **plan)
        for relation in ("replace_special", "replace_one")
    )
    assert blanked == pytest.approx(replaced / 2, rel=1e-4)


@pytest.mark.parametrize("target", some_of([1e-3, 100.0]))
@pytest.mark.parametrize("steps", [1, 10**6])
def test_extreme_targets_are_calibrated(target, steps):
    sigma = noise_multiplier(epsilon=target, delta=1e-9, sampling_rate=0.01, steps=steps)
    assert epsilon(noise_multiplier=sigma, sampling_rate=0.01, steps=steps, delta=1e-9) <= target


# ---- the most steps, the largest sampling rate ---------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "sigma", "rate", "target"),
    [
        ("poisson", 1.5, 0.01, 1.0),
        ("without_replacement", 4.0, 0.05, 3.0),
        ("shuffle", 30.0, 0.1, 2.0),
    ],
)
def test_one_step_more_would_break_the_promise(sampler, sigma, rate, target):
    plan = {"sampler": sampler, "noise_multiplier": sigma, "sampling_rate": rate, "delta": 1e-5}
    steps = max_steps(epsilon=target, **plan)
    assert epsilon(steps=steps, **plan) <= target < epsilon(steps=steps + 1, **plan)


def test_very_many_steps_are_found_to_a_ten_thousandth():
    plan = {"noise_multiplier": 50.0, "sampling_rate": 0.01, "delta": 1e-5}
    steps = max_steps(epsilon=1.0, **plan)
    assert steps > 10**6
    assert epsilon(steps=steps, **plan) <= 1.0 < epsilon(steps=math.ceil(1.0005 * steps), **plan)


def test_steps_without_end_stop_at_a_hundred_million():
    assert max_steps(epsilon=50.0, delta=1e-3, noise_multiplier=1e5, sampling_rate=1e-4) == 10**8


def test_a_single_step_that_costs_too_much_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^epsilon=0.01: .*one step alone costs, 0\.\d+ .*more noise"
    ):
        max_steps(epsilon=0.01, delta=1e-5, noise_multiplier=1.0, sampling_rate=0.01)


@pytest.mark.parametrize("sampler", ["poisson", "without_replacement"])
def test_a_larger_sampling_rate_would_break_the_promise(sampler):
    plan = {"sampler": sampler, "noise_multiplier": 3.0, "steps": 500, "delta": 1e-5}
    rate = max_sampling_rate(epsilon=1.5, **plan)
    assert epsilon(sampling_rate=rate, **plan) <= 1.5 < epsilon(sampling_rate=1.001 * rate, **plan)


def test_enough_noise_lets_everybody_in():
    assert max_sampling_rate(epsilon=1.0, delta=1e-5, noise_multiplier=100.0, steps=10) == 1.0


def test_a_sampling_rate_out_of_reach_is_refused():
    with pytest.raises(ArgumentError, match=r"^epsilon=1e-12: no sampling rate"):
        max_sampling_rate(epsilon=1e-12, delta=1e-12, noise_multiplier=0.5, steps=1000)


# ---- what is kept on disk ------------------------------------------------------------------------


@pytest.fixture
def searches(monkeypatch, tmp_path):
    """Counts forward calls of the bound, with an empty cache on disk and none in memory."""
    from workbench.privacy import calibration

    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    calls = []
    bound = accounting.bound.__wrapped__

    def counted(*arguments):
        calls.append(arguments)
        return bound(*arguments)

    monkeypatch.setattr(accounting, "bound", counted)
    calibration._smallest_noise.cache_clear()
    yield calls
    calibration._smallest_noise.cache_clear()


SETTINGS = (1.0, 1e-4, 0.2, 30)


def forget():
    from workbench.privacy import calibration

    calibration._smallest_noise.cache_clear()


def test_a_plan_is_searched_for_once_and_then_only_verified(searches):
    sigma = calibrated(*SETTINGS)
    first = len(searches)
    forget()
    assert calibrated(*SETTINGS) == sigma
    assert first > 3
    assert len(searches) == first + 1


@pytest.mark.parametrize("forged", [0.3, -1.0, math.nan, 1e300])
def test_a_forged_number_on_disk_is_not_believed(searches, tmp_path, forged):
    sigma = calibrated(*SETTINGS)
    (file,) = tmp_path.glob("calibration/*.json")
    file.write_text(file.read_text().replace(f'"value": {sigma}', f'"value": {json.dumps(forged)}'))
    forget()
    assert calibrated(*SETTINGS) == sigma


def test_what_a_wrong_accountant_stored_is_found_out(searches, tmp_path):
    plan = {
        "sampler": "without_replacement",
        "epsilon": 1.0,
        "delta": 1e-5,
        "sampling_rate": 0.1,
        "steps": 100_000,
    }
    _cache.write(
        ["noise_multiplier", 1.0, 1e-5, "without_replacement", "replace_one", 0.1, 100_000], 102.25
    )
    sigma = noise_multiplier(**plan)
    assert 225 < sigma < 245
    forget()
    assert noise_multiplier(**plan) == sigma


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": 1, "value": 2.0}', '{"value": 2.0}'])
def test_a_damaged_file_is_no_error(searches, tmp_path, content):
    sigma = calibrated(*SETTINGS)
    (file,) = tmp_path.glob("calibration/*.json")
    file.write_text(content)
    forget()
    assert calibrated(*SETTINGS) == sigma


def test_a_folder_that_cannot_be_written_is_no_error(searches, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    assert calibrated(*SETTINGS) > 0


def test_the_cache_lies_where_the_system_keeps_such_files(monkeypatch, tmp_path):
    monkeypatch.delenv("WORKBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _cache.folder() == tmp_path / "dpvi-workbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _cache.folder().parts[-2:] == (".cache", "dpvi-workbench")


@pytest.mark.parametrize(
    ("search", "argument", "value"),
    [
        (max_steps, "noise_multiplier", [1.0, 2.0]),
        (max_steps, "sampling_rate", (0.1, 0.2)),
        (max_sampling_rate, "noise_multiplier", np.array([1.0, 2.0])),
        (noise_multiplier, "sampling_rate", [0.1]),
    ],
)
def test_a_schedule_is_refused_and_not_read_as_its_first_phase(search, argument, value):
    plan = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "sampling_rate": 0.1,
        "noise_multiplier": 1.0,
        "steps": 100,
    }
    plan.pop(
        {
            max_steps: "steps",
            max_sampling_rate: "sampling_rate",
            noise_multiplier: "noise_multiplier",
        }[search]
    )
    with pytest.raises(ArgumentError) as caught:
        search(**{**plan, argument: value})
    assert caught.value.argument == argument
