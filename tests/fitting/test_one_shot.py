"""A linear regression that is fitted from one release of noised sums."""

import dataclasses

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.stats import kstest

import workbench as wb
from tests.conftest import quick_jit, some_of
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.fitting.baseline import without_privacy
from workbench.fitting.groups import grouped
from workbench.fitting.spec import resolve
from workbench.fitting.sums import is_better, usual_norm
from workbench.ledger import Ledger
from workbench.models import LinearPredictor, Model, NormalResiduals
from workbench.noise.chacha20 import key_from_seed
from workbench.posterior.statistics import Scales, statistic
from workbench.results.code import code_of

pytestmark = pytest.mark.usefixtures("checked_models")

SLOPES = np.float32([0.3, -0.2, 0.0])


def line(x, y=None, num_records=None, deviation=0.5):
    """A regression with an intercept."""
    weights = numpyro.sample("weights", dist.Normal(0, deviation).expand([x.shape[-1]]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, deviation))
    scale = numpyro.sample("scale", dist.HalfNormal(0.3))
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights + intercept, scale), obs=y)


def rmse(target, predictions):
    return {"rmse": float(np.sqrt(np.mean((target - predictions) ** 2)))}


LINE = Model(
    "line",
    "A line.",
    line,
    predict=lambda values, x: x @ values["weights"] + values["intercept"],
    arrays=("x", "y"),
    linear=LinearPredictor("weights", "intercept", residuals=NormalResiduals("scale")),
    score=rmse,
)


def records(size=1500, seed=0, is_public=True, **facts):
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (size, 3)).astype(np.float32)
    y = np.clip(0.2 + x @ SLOPES + 0.15 * random.normal(size=size), -1, 1).astype(np.float32)
    held = size // 5
    return wb.data.Dataset(
        "made up",
        "Made up.",
        (x[held:], y[held:]),
        (x[:held], y[:held]),
        ("a", "b", "c"),
        "y",
        evaluation_is_public=True,
        is_public=is_public,
        **facts,
    )


ONE = {"epsilon": 1.0, "estimator": "statistics", "draws": 200}


@pytest.fixture(scope="module")
def fitted():
    return wb.fit(LINE, records(), seed=1, **grouped(ONE))


def test_a_fit_is_one_step_with_all_records(fitted):
    guarantee = fitted.guarantee
    assert (fitted.status, guarantee.steps, guarantee.steps_taken, guarantee.sampling_rate) == (
        "done",
        1,
        1,
        1.0,
    )
    assert (guarantee.epsilon, guarantee.relation, guarantee.released) == (
        1.0,
        "add_or_remove_one",
        "sums",
    )
    assert guarantee.clip == usual_norm(3, 1200, 1.0)
    assert "comes from a single release, of sums over all records" in guarantee.statement()
    assert "DP-VI" not in guarantee.statement()
    assert fitted.settings["estimator"] == "statistics"
    assert {name: value.shape for name, value in fitted.params.items()} == {"sums": (16,)}


def test_the_posterior_finds_the_line(fitted):
    assert (fitted.posterior_kind, fitted.posterior_note, fitted.released) == (
        "noise-aware",
        "",
        ("intercept", "scale", "weights"),
    )
    assert {name: value.shape for name, value in fitted.draws.items()} == {
        "intercept": (200,),
        "scale": (200,),
        "weights": (200, 3),
    }
    for truth, draws in zip(
        [*SLOPES, 0.2], [*fitted.draws["weights"].T, fitted.draws["intercept"]], strict=True
    ):
        assert abs(draws.mean() - truth) < 4 * draws.std()
        assert draws.std() < 0.05
    assert fitted.interval_warning == ""
    assert "count the privacy noise" in fitted.interval_words
    assert fitted.guide_draws is fitted.draws
    assert list(fitted.coefficients()["mean"]) == pytest.approx([0.2, *SLOPES], abs=0.1)


@pytest.mark.thorough
def test_metrics_are_of_the_posterior(fitted):
    assert sorted(fitted.metrics) == ["log_likelihood", "rmse"]
    assert fitted.metrics_label == "public data"
    assert [point.step for point in fitted.history] == [1]
    x, y = records().evaluation
    predicted = fitted.predict()
    np.testing.assert_allclose(
        predicted, x @ fitted.draws["weights"].mean(0) + fitted.draws["intercept"].mean(), atol=1e-4
    )
    assert fitted.metrics["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - y) ** 2)), abs=1e-5)
    densities = dist.Normal(
        np.asarray(x @ fitted.draws["weights"].T + fitted.draws["intercept"]), fitted.draws["scale"]
    ).log_prob(y[:, None])
    expected = np.mean(np.log(np.mean(np.exp(np.asarray(densities, float)), axis=1)))
    assert fitted.metrics["log_likelihood"] == pytest.approx(expected, abs=1e-4)
    assert fitted.score(records()) == pytest.approx(fitted.metrics, abs=1e-4)


@pytest.mark.thorough
def test_a_saved_result_is_the_same(fitted, tmp_path):
    loaded = wb.load(fitted.save(tmp_path))
    assert loaded.guarantee == fitted.guarantee
    assert loaded.summary().equals(fitted.summary())
    assert loaded.posterior_kind == "noise-aware"
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_all_pictures_can_be_drawn(fitted):
    for name in fitted.pictures:
        assert fitted.plot(name) is not None


@pytest.mark.thorough
def test_its_code_repeats_it(fitted):
    found = {"model": LINE, "data": records()}
    exec("\n".join(line for line in code_of(fitted).splitlines() if " = ...  #" not in line), found)
    np.testing.assert_array_equal(found["result"].params["sums"], fitted.params["sums"])
    assert found["result"].guarantee == fitted.guarantee
    np.testing.assert_array_equal(found["result"].draws["weights"], fitted.draws["weights"])


@pytest.mark.thorough
def test_what_is_released_is_the_sum_with_noise_of_the_stated_size():
    """In 60 releases of the same records, by the step itself."""
    prepared = fits.prepare(LINE, records(), seed=0, **grouped(ONE))
    step, hyper = prepared.step, prepared.hyper
    x, y = records().train
    exact = np.asarray(statistic(x, y, prepared.privacy.clip), float).sum(0)
    deviation = prepared.plan.mechanism.standard_deviation

    @quick_jit
    def sums_of(state):
        end = step.step(state, (x, y), step.draw(state.key, state.step, hyper), hyper)
        return step.get_params(end)["sums"]

    starts = [step.init(key_from_seed(1000 + seed), hyper) for seed in range(60)]
    errors = [(np.asarray(sums_of(state), float) * len(x) - exact) / deviation for state in starts]
    assert kstest(np.ravel(errors), "norm").pvalue > 1e-3
    assert np.std(errors) == pytest.approx(1.0, abs=0.07)


@pytest.mark.parametrize("place", some_of([0, 7]))
def test_a_record_less_moves_the_release_by_at_most_the_norm(place):
    """With the same noise, by whole fits of neighbouring tables that declare the same number of
    records.
    """
    whole = records(200)
    x, y = (np.array(array) for array in whole.train)
    x[place], y[place] = (np.inf, -1e9, 3.0), 50.0  # as nobody declared
    without = tuple(np.delete(array, place, 0) for array in (x, y))
    sums = []
    for arrays in ((x, y), without):
        data = dataclasses.replace(whole, train=arrays)
        prepared = fits.prepare(LINE, data, seed=3, **grouped(num_records=160, **ONE))
        step, hyper = prepared.step, prepared.hyper

        @quick_jit
        def end(state, records, step=step, hyper=hyper):
            return step.step(state, records, step.draw(state.key, state.step, hyper), hyper)

        params = step.get_params(end(prepared.state, data.train))
        sums.append(np.asarray(params["sums"], float) * 160)
    moved = np.linalg.norm(sums[0] - sums[1])
    assert 0 < moved <= prepared.privacy.clip * 1.01


def test_the_ledger_has_it_before_the_release(tmp_path):
    book = Ledger(tmp_path / "ledger.sqlite")
    wb.fit(LINE, records(is_public=False), ledger=book, **grouped(ONE))
    (spend,) = book.spends()
    assert (spend.status, spend.guarantee.epsilon, spend.guarantee.released) == (
        "settled",
        1.0,
        "sums",
    )


@pytest.mark.thorough
def test_a_fit_that_did_not_begin_has_the_prior():
    stopped = wb.fit(LINE, records(), seed=1, **grouped(stop=lambda: True, **ONE))
    assert (stopped.status, stopped.guarantee.steps_taken, stopped.metrics) == ("cancelled", 0, {})
    assert np.std(stopped.draws["weights"]) == pytest.approx(0.5, rel=0.15)


@pytest.mark.thorough
def test_without_privacy_it_is_least_squares():
    prepared = fits.prepare(LINE, records(), seed=1, **grouped(ONE))
    x, y = (array.astype(float) for array in records().train)
    theta = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    held, target = records().evaluation
    expected = np.sqrt(np.mean((held @ theta[:-1] + theta[-1] - target) ** 2))
    scores = without_privacy(prepared)
    assert scores.label == "outside the guarantee"
    assert scores["rmse"] == pytest.approx(expected, rel=0.003)


# ---- which fits have it --------------------------------------------------------------------------


def test_it_is_chosen_where_no_setting_of_steps_is_given_and_there_is_little_noise():
    assert resolve(LINE, records(), epsilon=16.0).settings.estimator == "statistics"
    assert resolve(LINE, records(), epsilon=1.0).settings.estimator == "aligned"
    for given in (
        {"iterations": 1000},
        {"clip": 2.0},
        {"sampler": "shuffle"},
        {"estimator": "aligned"},
        {"average": True},
    ):
        spec = resolve(LINE, records(), epsilon=16.0, **given)
        assert (spec.settings.estimator, spec.estimation.released) == ("aligned", "gradients")
        assert spec.privacy.iterations > 1
    assert resolve("logistic", "breast_cancer", epsilon=1.0).settings.estimator == "aligned"


def test_a_model_that_declares_no_scale_keeps_dp_vi():
    plain = dataclasses.replace(LINE, linear=LinearPredictor("weights", "intercept"))
    assert resolve(plain, records(), epsilon=16.0).settings.estimator == "aligned"
    with pytest.raises(
        ArgumentError, match=r"^estimator='statistics': .* line and .*: the model declares no"
    ):
        resolve(plain, records(), **ONE)
    with pytest.raises(ArgumentError, match="estimator='statistics': cannot be used with logistic"):
        resolve("logistic", "breast_cancer", **ONE)


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"iterations": 2}, "iterations"),
        ({"sampling_rate": 0.5}, "sampling_rate"),
        ({"batch_size": 10}, "batch_size"),
        ({"sampler": "without_replacement"}, "sampler"),
        ({"clipping": "automatic"}, "clipping"),
        ({"clip": "auto"}, "clip"),
        ({"clip": 1.0}, "clip"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"average": True}, "average"),
    ],
)
def test_settings_of_steps_are_refused(given, argument):
    with pytest.raises(ArgumentError) as caught:
        resolve(LINE, records(), **ONE, **given)
    assert caught.value.argument == argument


@pytest.mark.thorough
def test_a_norm_that_is_given_decides_the_scales(fitted):
    other = wb.fit(LINE, records(), seed=1, clip=3.0, **grouped(ONE))
    assert other.guarantee.clip == 3.0
    np.testing.assert_allclose(other.draws["weights"].mean(0), SLOPES, atol=0.1)


def test_sweeps_take_steps():
    with pytest.raises(ArgumentError, match="estimators"):
        wb.sweep(LINE, records(), epsilons=1.0, estimators=["statistics"])


def test_the_rule_of_the_default_is_the_noise_that_least_squares_has():
    """Against the spread of least squares with noise in X'y alone, for the columns and residuals
    that the rule assumes.
    """
    random, size = np.random.default_rng(0), 2000
    for epsilon, chosen in ((1.0, False), (30.0, True)):
        clip = usual_norm(5, size, epsilon)
        sigma = wb.privacy.noise_multiplier(epsilon=epsilon, delta=1e-4, sampling_rate=1.0, steps=1)
        x = random.uniform(-1, 1, (size, 5))
        noise = sigma * clip / (np.sqrt(2) * Scales.of(clip).target) * random.normal(size=(4000, 5))
        moved = np.linalg.solve(x.T @ x, noise.T).std()
        assert is_better(5, size, epsilon, 1e-4) == chosen == (moved < 0.1 * np.sqrt(3 / size))


@pytest.mark.parametrize("columns", [1, 5, 40])
def test_the_usual_norm_lowers_weights_only_where_noise_is_large(columns):
    squares = [
        Scales.of(usual_norm(columns, 1000, epsilon)).squares for epsilon in (0.1, 1.0, 10.0, 1e6)
    ]
    assert squares == sorted(squares)
    assert squares[0] == pytest.approx(1 + 0.4 * columns)
    assert squares[-1] == pytest.approx(1 + columns)


# ---- formulas ------------------------------------------------------------------------------------


def stays(size=1500, seed=0):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": random.uniform(0, 100, size), "ward": random.choice(["a", "b"], size)}
    )
    mean = 20 + 0.1 * frame["age"] + 4 * (frame["ward"] == "b")
    return frame.assign(days=np.clip(mean + 3 * random.normal(size=size), 0, 50))


SCHEMA = {"days": (0, 50), "age": (0, 100), "ward": ["a", "b"]}


@pytest.mark.thorough
def test_a_formula_with_normal_residuals_has_it():
    found = wb.fit(
        "days ~ age + ward",
        stays(),
        family="gaussian",
        schema=SCHEMA,
        epsilon=16.0,
        seed=1,
        ledger=False,
        training=wb.Training(draws=400),
        execution=wb.Execution(checkpoint=False),
    )
    assert found.settings["estimator"] == "statistics"
    table = found.coefficients()
    for name, truth in {"intercept": 20.0, "age": 0.1, "ward=b": 4.0}.items():
        (row,) = table[
            [str(label).startswith(name.partition("=")[0]) for label in table.index]
        ].itertuples()
        assert abs(row.mean - truth) < 4 * row.sd, table
    assert found.draws["sigma"].mean() * 25 == pytest.approx(3.0, abs=1.0)
    assert found.predict(pd.DataFrame({"age": [50.0], "ward": ["b"]}))[0] == pytest.approx(
        29.0, abs=1.0
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("days ~ age", {"family": "student_t"}),
        ("days ~ age", {"family": "gaussian", "link": "log"}),
        ("days ~ age + (1 | ward)", {"family": "gaussian"}),
        ("days ~ age", {"family": "gaussian", "priors": {"age": "StudentT(3, 0, 1)"}}),
    ],
)
def test_other_formulas_keep_dp_vi(formula, options):
    model = wb.models.formula(formula, schema=SCHEMA, **options)
    spec = resolve(model, model.dataset(stays(1500)), epsilon=16.0)
    assert (spec.settings.estimator, spec.estimation.released) == ("aligned", "gradients")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "terms",
    [
        "age + ward",
        "age * ward",
        "poly(age, 3)",
        "poly(age, 3, raw=True)",
        "bs(age, df=5)",
        "0 + age",
        "0 + ward",
    ],
)
def test_the_columns_of_a_formula_keep_the_bounds_that_sums_need(terms):
    model = wb.models.formula(f"days ~ {terms}", family="gaussian", schema=SCHEMA)
    x, y = model.view(model.dataset(stays(400))).train
    assert np.abs(x).max() <= 1
    assert np.square(x).sum(1).max() <= model.linear.residuals.squares * (1 + 1e-6)
    assert model.linear.residuals.bounds == ((-50, 50) if terms == "0 + age" else (0, 50))
    assert (y.min() >= 0, y.max() <= 50) == (True, True)
    # which checks that the likelihood is normal around these columns, with these bounds
    assert (
        resolve(model, model.dataset(stays(400)), epsilon=1.0, estimator="statistics").estimation
        is not None
    )
