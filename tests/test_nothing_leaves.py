"""Nothing un-noised leaves: of private records, the noised sum of clipped gradients is all that
anything else depends on.

A mechanism that is deaf, one that returns its noise and forgets the sum, takes the records out of a
run. What is then left of them in a step, a result file or on a screen would be a leak, to the last
bit.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.flatten_util import ravel_pytree
from numpyro.optim import SGD

import workbench as wb
from tests import zoo
from tests.conftest import examples, quick_jit, some_of, training_rows
from tests.widget_tree import inside, seen_by_a_user
from workbench.fitting import spec as fit_spec
from workbench.fitting.groups import grouped
from workbench.inference import DPVI, running_moments
from workbench.inference.state import Draws
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism, Noise
from workbench.sampling import Minibatch, PoissonSampler
from workbench.widgets import Workbench
from workbench.widgets.workbench import run_screen
from workbench.widgets.workbench.data_source import DataSource
from workbench.widgets.workbench.session import Session
from workbench.widgets.workbench.settings import Settings

# --- the core -------------------------------------------------------------------------------------


CASES = ["logistic", "bigrams", "local latents", "vae"]
OFTEN = [("logistic", "aligned"), ("logistic", "vanilla"), ("local latents", "aligned")]
EVERY_STEP = pytest.mark.parametrize(
    ("name", "gradient"),
    [
        pytest.param(*case, marks=() if case in OFTEN else pytest.mark.thorough)
        for case in itertools.product(CASES, ("aligned", "vanilla"))
    ],
)
MINIBATCH = Minibatch(jnp.array([4, 0, 2, 0, 0, 0], jnp.int32), jnp.arange(zoo.NUM_RECORDS) < 3)
CHANGED = 2  # a record of that minibatch
LEVEL = jnp.int32(10)


@dataclasses.dataclass(frozen=True)
class Watched(GaussianMechanism):
    """Notes the sums that it is given, and forgets them before it adds noise where ``seen["deaf"]``
    says so.
    """

    seen: dict = dataclasses.field(default_factory=dict)

    def add(self, total, noise):
        self.seen["totals"].append(ravel_pytree(total.units)[0])
        heard = jax.tree.map(
            lambda leaf: jnp.where(self.seen["deaf"], jnp.zeros_like(leaf), leaf), total.units
        )
        return GaussianMechanism.add(total._replace(units=heard), noise)


@functools.cache
def step_of(name, gradient):
    """(``step(records, noise, deaf)`` -> (flat next state, what gets noise in whole numbers),
    coordinates of the noise).

    Norms are counted too, and moments of the release are kept.
    """
    case, seen, mechanism = zoo.ZOO[name], zoo.split_case(name), Watched(1.0, 1.0)
    trainer = DPVI(
        seen.model,
        seen.guide,
        SGD(0.1),
        privacy=(PoissonSampler(zoo.NUM_RECORDS, 0.5, zoo.NUM_RECORDS), mechanism),
        estimator=gradient,
        **case.static,
    )
    start = trainer.init(key_from_seed(0), *case.records())
    private_step = trainer.private_step.with_options(counts_norms=True)
    hyper = trainer.hyper._replace(moments_from=jnp.int32(0))
    start = start._replace(
        moments=running_moments.empty(private_step.noise_size, True)._replace(pull=None)
    )

    @quick_jit
    def step(records, noise, deaf):
        mechanism.seen.update(deaf=deaf, totals=[])
        state = private_step.step(
            start, records, Draws(MINIBATCH, Noise(noise, LEVEL), jax.random.key(1)), hyper
        )
        return ravel_pytree(state._replace(key=None))[0], jnp.concatenate(mechanism.seen["totals"])

    return step, private_step.noised_coordinates


def with_record(records, record):
    """``records`` with another one in the place of ``CHANGED``."""
    changed = tuple(array.copy() for array in records)
    for array, value in zip(changed, record, strict=True):
        array[CHANGED] = value
    return changed


def neighbours(name):
    """Two sets of records that differ in one, which is a record that the case might make."""
    case = zoo.ZOO[name]
    others = tuple(map(np.asarray, case.make_records(np.random.default_rng(9))))
    return case.records(), with_record(case.records(), [array[CHANGED] for array in others])


def noise_for(size):
    return np.random.default_rng(2).normal(0, 2.0**21, size).astype(np.int32)


def assert_the_sum_alone_matters(step, size, records, other):
    """The noised sum of ``records`` can be had from ``other`` by other noise, and gives the same
    next state.
    """
    noise = noise_for(size)
    after, total = step(records, noise, False)
    _, other_total = step(other, noise, False)
    moved_noise = noise + np.asarray(total - other_total)
    np.testing.assert_array_equal(step(other, moved_noise, False)[0], after)
    np.testing.assert_array_equal(step(records, noise, True)[0], step(other, noise, True)[0])


@EVERY_STEP
def test_the_next_state_is_a_function_of_the_noised_sum(name, gradient):
    step, size = step_of(name, gradient)
    assert_the_sum_alone_matters(step, size, *neighbours(name))


@EVERY_STEP
def test_the_changed_record_changes_the_sum(name, gradient):
    """Or else the test above would be empty."""
    step, size = step_of(name, gradient)
    (after, total), (other_after, other_total) = (
        step(records, noise_for(size), False) for records in neighbours(name)
    )
    assert np.any(total != other_total)
    assert np.any(after != other_after)


NUMBERS = st.floats(-1e4, 1e4, width=32) | st.sampled_from([np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("gradient", ["aligned", "vanilla"])
@examples(30, few=10)
@given(x=hnp.arrays(np.float32, 3, elements=NUMBERS), y=st.integers(-(2**31), 2**31 - 1))
def test_any_record_reaches_the_next_state_through_the_noised_sum_alone(gradient, x, y):
    """Records that cannot be used among them: not finite, or no class."""
    step, size = step_of("logistic", gradient)
    records = zoo.ZOO["logistic"].records()
    assert_the_sum_alone_matters(step, size, records, with_record(records, [x, y]))


# --- snapshots and result files -------------------------------------------------------------------


@contextlib.contextmanager
def deafness():
    """Every mechanism returns its noise alone."""
    hearing = GaussianMechanism.add

    def add(total, noise):
        return hearing(total._replace(units=jax.tree.map(jnp.zeros_like, total.units)), noise)

    with mock.patch.object(GaussianMechanism, "add", staticmethod(add)):
        yield


def changed(frame, evaluation=False):
    """``frame`` with one record very different, in its target too, on the same side of
    the split.
    """
    rows = training_rows(frame, evaluation)
    row, changed = rows[0], frame.copy()
    changed.loc[row, "ill"] = not frame.ill[row]
    for step in range(100):  # a row's content decides its side
        changed.loc[row, ["dose", "age"]] = (
            [step / 10, 0.0] if frame.dose[row] > 100 else [200.0 - step / 10, 100.0]
        )
        if training_rows(changed, evaluation) == rows:
            return changed
    raise AssertionError


def dataset_of(frame):
    return wb.data.from_frame(
        frame,
        target="ill",
        bounds={"dose": (0, 200), "age": (0, 100)},
        unit="patient",
        name="clinic",
    )


@dataclasses.dataclass
class Left:
    """What a fit left behind, but for the time: snapshots by step, saved files."""

    snapshots: dict
    files: dict

    @property
    def values(self):
        return json.loads(self.files["result.json"])

    def assert_same(self, other):
        """How many snapshots there are depends on speed, but for the first and the last."""
        assert {0, 30} <= self.snapshots.keys() & other.snapshots.keys()
        for step in self.snapshots.keys() & other.snapshots.keys():
            assert self.snapshots[step] == other.snapshots[step]
        assert self.files == other.files

    def differences(self, other):
        """Names in result.json whose values differ."""
        return {name for name, value in self.values.items() if value != other.values[name]}


def fitted(frame, folder, **options):
    """What a fit with a seed leaves behind. The number of records is declared to be 300."""
    snapshots = {}

    def note(snapshot):
        known = {
            name: value
            for name, value in dataclasses.asdict(snapshot).items()
            if "seconds" not in name
        }
        snapshots[snapshot.step] = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), known)

    data = dataset_of(frame)
    given = {
        "epsilon": 2.0,
        "iterations": 30,
        "clip": 5.0,
        "num_records": 300,
        "seed": 1,
        "on_snapshot": note,
        **options,
    }
    result = wb.fit("logistic", data, **grouped(given))
    dataclasses.replace(result, seconds=0.0, finished="then", spend="a random name").save(folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(files) == {"result.json", "params.npz", "posterior.nc", "curves.png", "report.html"}
    # the file notes when it was made
    files["posterior.nc"] = {
        name: values.tolist() for name, values in wb.load(folder).draws.items()
    }
    return Left(snapshots, files)


@pytest.fixture(scope="module")
def deaf_fit(private_frame, tmp_path_factory):
    with deafness():
        return fitted(private_frame, tmp_path_factory.mktemp("deaf"))


@pytest.mark.parametrize("evaluation", some_of([False, True]))
def test_a_deaf_fit_leaves_the_same_whatever_a_record_is(
    deaf_fit, private_frame, tmp_path, evaluation
):
    """Byte for byte. Evaluation records are private as well, and are not looked at."""
    with deafness():
        fitted(changed(private_frame, evaluation), tmp_path).assert_same(deaf_fit)


@pytest.mark.thorough
def test_a_deaf_fit_leaves_the_same_without_one_of_the_records(deaf_fit, private_frame, tmp_path):
    """A record may be added or removed, so their number may not show where a number above it is
    declared.
    """
    with deafness():
        fitted(private_frame.drop(index=training_rows(private_frame)[100]), tmp_path).assert_same(
            deaf_fit
        )


@pytest.mark.thorough
def test_evaluation_records_show_where_the_user_asked_for_that(private_frame, tmp_path):
    """In the metrics alone, which every file marks as outside the guarantee."""
    with deafness():
        here = fitted(private_frame, tmp_path / "here", evaluate_private=True)
        there = fitted(
            changed(private_frame, evaluation=True), tmp_path / "there", evaluate_private=True
        )
    # the last two are hashes of what is written
    assert here.differences(there) == {"history", "metrics", "files", "digest"}
    assert {name for name, content in here.files.items() if content != there.files[name]} == {
        "result.json",
        "curves.png",
        "report.html",
    }
    assert here.snapshots[30]["metrics"] != there.snapshots[30]["metrics"]
    assert here.snapshots[30]["params"] == there.snapshots[30]["params"]


@pytest.mark.thorough
def test_training_records_show_in_the_parameters_of_a_fit_that_hears(
    deaf_fit, private_frame, tmp_path
):
    """In these and in the noised counts alone: all else that a fit says of itself is as if it had
    no records.
    """
    heard = fitted(private_frame, tmp_path)
    # the others are hashes of what is written
    assert heard.differences(deaf_fit) == {"gradient_norms", "files", "digest"}
    assert {name for name, content in heard.files.items() if content != deaf_fit.files[name]} == {
        "params.npz",
        "posterior.nc",
        "report.html",  # the posterior is in it
        "result.json",  # the digests of the others are
    }
    assert heard.snapshots[0] == deaf_fit.snapshots[0]
    assert heard.snapshots[30]["params"] != deaf_fit.snapshots[30]["params"]


# --- what a screen shows --------------------------------------------------------------------------


class Output:
    """What ``display`` shows under a screen."""

    def __call__(self, shown, **_):
        return self

    def update(self, content):
        self.last = content.data


def panels_of(frame, monkeypatch, state):
    """Everything on a screen after its fit, but for the time; every key is that of a seed.

    :param state: folder of the ledger.
    """
    output = Output()
    monkeypatch.setenv("WORKBENCH_STATE", str(state))
    monkeypatch.setattr(run_screen, "display", output)
    monkeypatch.setattr(fit_spec, "new_key", lambda share: key_from_seed(1))
    screen = seen_by_a_user(Workbench(data=dataset_of(frame), epsilon=20.0, iterations=30))
    screen._ipython_display_()
    for worker in (screen._outlooks, screen._compilations):
        assert worker.wait(180)
    screen.fit()
    assert screen.wait(180)
    for worker in (screen._outlooks, screen._compilations, screen.outcome._latest):
        assert worker.wait(180)
    shown = {}
    for number, part in enumerate(inside(screen.view)):
        for trait in ("value", "placeholder", "description", "options", "tooltip", "titles"):
            content = getattr(part, trait, None)
            shown[number, trait] = (
                bytes(content) if isinstance(content, memoryview) else repr(content)
            )
    names = {
        "posterior": screen.outcome.posterior,
        "picture": screen.outcome.image,
        "status": screen.live.status,
        "subject": screen.subject.view,
        "learnt": screen.outcome.learnt,
    }
    shown |= {
        name: shown.pop((inside(screen.view).index(part), "value")) for name, part in names.items()
    }
    assert "Done." in shown["status"]
    in_history = (inside(screen.view).index(screen.history.table), "value")
    for name in ("status", in_history):
        shown[name] = re.sub(r"( in |>)[\d.]+ s", "", shown[name])
    screen.close()
    return {**shown, "kept": output.last, "repr": repr(screen.result)}


@pytest.mark.thorough
def test_a_screen_shows_the_same_whatever_a_record_is(private_frame, monkeypatch, tmp_path):
    with deafness():
        here = panels_of(private_frame, monkeypatch, tmp_path / "here")
        there = panels_of(changed(private_frame), monkeypatch, tmp_path / "there")
    assert here == there
    heard = panels_of(private_frame, monkeypatch, tmp_path / "heard")
    differs = {name for name, content in heard.items() if content != here[name]}
    # which names what is clear of zero, and may be the same
    assert differs | {"learnt"} == {"posterior", "picture", "subject", "kept", "learnt"}


# --- what a notebook prints -----------------------------------------------------------------------


def holds_record(text, planted):
    """Whether ``text`` holds the planted dose, in its own unit or scaled, to four digits
    or more.
    """
    return any(f"{value:.6f}"[:6] in text for value in planted)


def test_what_a_notebook_prints_holds_no_record(private_data, planted, secret):
    prepared, result = secret
    session = Session(lambda: prepared)
    session.prepared = prepared
    source = DataSource("clinic", "data", lambda: private_data, "clinic", False)
    chosen = Settings(model="logistic", data=source, privacy={"epsilon": 1.0})
    for shown in (
        private_data,
        prepared,
        prepared.plan,
        session,
        session.progress(),
        result,
        chosen,
        chosen.key,
    ):
        for text in (repr(shown), str(shown), f"{shown}"):
            assert not holds_record(text, planted)
            assert "array" not in text


def test_a_record_that_is_printed_would_be_found(private_data, planted):
    assert all(holds_record(str(value), planted) for value in planted)
    assert holds_record(str(private_data.train[0][0]), planted)
