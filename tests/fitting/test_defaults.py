"""The settings that a caller leaves out."""

import dataclasses

import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench.fitting import fits
from workbench.fitting.defaults import complete

NAMES = ("iterations", "sampling_rate", "batch_size", "clip", "learning_rate", "average")


def completed(num_records=500, advice=(), **given):
    return complete(dict.fromkeys(NAMES) | given, dict(advice), num_records)


def test_the_rule_in_numbers():
    assert completed() == {
        "iterations": 800,
        "sampling_rate": 0.1,
        "batch_size": None,
        "clip": 1.0,
        "learning_rate": pytest.approx(800**-0.5),
        "average": True,
    }


@pytest.mark.parametrize(
    ("num_records", "rate"), [(50, 0.1), (10_000, 0.1), (20_000, 0.05), (1_000_000, 0.001)]
)
def test_a_minibatch_is_a_tenth_of_the_records_but_no_more_than_a_thousand(num_records, rate):
    assert completed(num_records)["sampling_rate"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("num_records", "steps"),
    [(2, 200), (1000, 1000), (1001, 1100), (39_067, 3400), (10**6, 10_000)],
)
def test_steps_grow_with_the_cube_root_of_the_records(num_records, steps):
    assert completed(num_records)["iterations"] == steps


def test_what_the_caller_gives_goes_before_the_models_advice():
    advice = {"iterations": 7, "clip": 3.0, "learning_rate": 0.5, "average": False, "batch_size": 9}
    given = {
        "iterations": 11,
        "clip": 2.0,
        "learning_rate": 0.1,
        "average": True,
        "sampling_rate": 0.3,
    }
    assert completed(advice=advice, **given) == {**given, "batch_size": None}


def test_the_models_advice_goes_before_the_rule():
    advice = {"iterations": 7, "clip": 3.0, "learning_rate": 0.5, "average": False, "batch_size": 9}
    assert completed(advice=advice) == {**advice, "sampling_rate": None}


def test_a_learning_rate_follows_the_steps_that_the_caller_gives():
    assert completed(iterations=400)["learning_rate"] == pytest.approx(0.05)


def test_epochs_count_minibatches():
    assert completed(60_000, {"epochs": 20, "batch_size": 128})["iterations"] == 9375
    assert completed(1000, {"epochs": 2}, sampling_rate=0.01)["iterations"] == 200


def test_a_minibatch_is_never_larger_than_the_data():
    assert completed(100, {"batch_size": 128})["batch_size"] == 100


def test_the_logistic_model_clips_at_a_share_of_the_largest_gradient_that_grows_as_noise_shrinks():
    data = wb.data.load("breast_cancer")
    advice = wb.models.get("logistic").advice
    shares = {
        (458, 24.0): 0.7,
        (458, 80.0): 0.7,
        (10**5, 2.0): 0.05 * (2e5 / 30) ** (1 / 3),
        (10**6, 1.0): 1.0,
    }
    for (num_records, epsilon), share in shares.items():
        assert advice(data, num_records, epsilon)["clip"] == pytest.approx(share * 31**0.5)
    prepared = fits.prepare("logistic", data, epsilon=1.0)
    assert prepared.privacy.clip == pytest.approx(0.1 * (458 / 30) ** (1 / 3) * 31**0.5)
    assert (prepared.privacy.iterations, prepared.settings.average) == (800, True)


def test_categories_count_once_however_many_features_they_become():
    frame = pd.DataFrame(
        {"age": [1.0, 2.0, 3.0, 4.0] * 10, "town": list("abcd") * 10, "ill": [0, 1, 0, 1] * 10}
    )
    data = wb.data.from_frame(frame, target="ill", schema={"age": (0, 9), "town": list("abcd")})
    assert wb.models.get("logistic").advice(data, 1000, 1.0) == {
        "clip": pytest.approx(0.7 * 3**0.5),
        "largest_clip": pytest.approx(3**0.5),
    }


@pytest.mark.parametrize(
    ("num_records", "epsilon", "share"),
    [(100, 1.0, 0.1 * (100 / (2 * 10) ** 0.5) ** (1 / 3)), (10**5, 1.0, 1.0)],
)
def test_noise_on_every_feature_of_a_category_makes_c_smaller(num_records, epsilon, share):
    """Where there is little noise, the bias of clipping counts, and that does not depend on it."""
    towns = list("abcdefghij")
    frame = pd.DataFrame({"age": [1.0, 2.0] * 20, "town": towns * 4, "ill": [0, 1] * 20})
    data = wb.data.from_frame(frame, target="ill", schema={"age": (0, 9), "town": towns})
    advice = wb.models.get("logistic").advice(data, num_records, epsilon)
    assert advice["clip"] == pytest.approx(share * 3**0.5)


def test_defaults_may_be_a_function_of_the_data_set():
    data = wb.data.load("breast_cancer")
    model = wb.models.Model(
        "own",
        "Own.",
        lambda x, y, num_records: None,
        defaults=lambda data, *_: {"clip": len(data.classes)},
    )
    assert model.advice(data, 458, 1.0) == {"clip": 2}


@pytest.mark.parametrize(
    ("model", "data"),
    some_of([("logistic", "breast_cancer"), ("vae", "digits"), ("gmm", "mixture")], 3),
)
def test_defaults_follow_the_declared_size_and_not_the_exact_one(model, data):
    """Under add_or_remove_one the exact number of records is itself private."""
    whole = wb.data.load(data)
    one_less = dataclasses.replace(whole, train=tuple(array[:-1] for array in whole.train))
    declared = 1000
    first, second = (
        fits.prepare(model, each, epsilon=1.0, privacy=wb.Privacy(num_records=declared))
        for each in (whole, one_less)
    )
    assert first.privacy == second.privacy
    assert first.settings == second.settings
