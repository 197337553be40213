"""Fits and tables that several test files look at; each is made once a session."""

import dataclasses
import functools
import gc
import itertools
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from matplotlib.figure import Figure

import workbench as wb
from tests import fakes
from workbench import _compiled, _memory
from workbench.cli import main
from workbench.fitting import fits
from workbench.inference import assemble
from workbench.ledger.file import LedgerFile
from workbench.noise.mechanism import GaussianMechanism
from workbench.results.fit_result import FitResult

# no test reads the developer's own key and ledger or writes them, by subprocesses neither
STATES = Path(tempfile.mkdtemp(prefix="workbench-tests-state-"))
SHARED_STATE = str(STATES / "shared")  # of fixtures that several tests look at
os.environ["WORKBENCH_STATE"] = SHARED_STATE
numbers = itertools.count()
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share their parent's folders
    os.environ["WORKBENCH_CACHE"] = tempfile.mkdtemp(prefix="workbench-tests-")
    PROGRAMS = _compiled.folder(Path(__file__).parents[1] / ".cache" / "xla")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(PROGRAMS)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    _compiled.tidy(PROGRAMS, 2**30)  # a whole run of the tests writes about a tenth
# what one test has compiled the others need not, nor the next run: also small programs, of which
# there are most
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# make test tries few examples, always the same; test-all many, others each time
settings.register_profile("few", deadline=None, derandomize=True)
settings.register_profile("many", deadline=None)
settings.load_profile("few")  # --hypothesis-profile comes after it

# jax.jit for what is looked at for its result and not its speed: quicker to compile
# later XLA has none
OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
quick_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, **OLDER_EMITTERS}
)

# a process of tests takes many fits of the same kinds: caches that are emptied would be filled
# again, and memory that is given back would be asked for again, a tenth of a made-up fit's time
_memory.FITS_BETWEEN = 500
_memory._trim = lambda: None
assemble.require_additive = fakes.require_additive

PLANTED = 123.456789
# of a fixture whose fit is looked at
EITHER_STEPS = ["made up", pytest.param("real", marks=pytest.mark.thorough)]
PRIVATE_BOUNDS = {"dose": (0, 200), "age": (0, 100)}


def pytest_unconfigure():
    shutil.rmtree(STATES, ignore_errors=True)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["WORKBENCH_CACHE"], ignore_errors=True)


def pytest_collection():
    gc.disable()  # what is imported stays


def pytest_collection_finish():
    gc.enable()
    gc.freeze()  # modules and tests stay
    gc.set_threshold(100_000, 50, 50)  # a collection looks at all that JAX keeps


def some_of(cases, each=2, first=0):
    """Parameters of a test of which every ``each``-th runs every time, beginning at ``first``, and
    all in the long run.
    """
    marks = [() if place % each == first else pytest.mark.thorough for place in range(len(cases))]
    tuples = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=mark) for case, mark in zip(tuples, marks, strict=True)]


def examples(many, few=None):
    """How many examples of a property are tried: ``many`` in the long run, ``few`` (a quarter)
    every time.
    """
    if settings.default.derandomize:
        many = many // 4 if few is None else few
    return settings(max_examples=many)


@dataclasses.dataclass(frozen=True)
class Watched(GaussianMechanism):
    """Notes the sums and counts that noise is added to, in whole numbers, and their spacings."""

    seen: list = dataclasses.field(default_factory=list)

    def add(self, total, noise):
        self.seen.append(total)
        return GaussianMechanism.add(total, noise)


@pytest.fixture(autouse=True)
def own_state(monkeypatch):
    """Each test begins with an empty ledger: what others spent on the same made-up records would be
    in its statements.
    """
    monkeypatch.setenv("WORKBENCH_STATE", str(STATES / str(next(numbers))))


@pytest.fixture
def shared_state(monkeypatch, own_state):
    """The ledger that fixtures of a module or of the session wrote to."""
    monkeypatch.setenv("WORKBENCH_STATE", SHARED_STATE)


@pytest.fixture(scope="session")
def private_frame():
    """240 made-up patients; the first training record's dose is ``PLANTED``, and it is the first
    row.
    """
    random = np.random.default_rng(7)
    dose, age = random.uniform(0, 200, 240), random.uniform(0, 100, 240)
    ill = random.random(240) < 1 / (1 + np.exp((dose - 100) / 20))
    dose[0] = PLANTED
    frame = pd.DataFrame({"dose": dose, "age": age, "ill": ill})
    while training_rows(frame)[0] != 0:  # a row's content decides its side
        frame.loc[0, "age"] = random.uniform(0, 100)
    return frame


def training_rows(frame, evaluation=False):
    """Places of the training rows of a frame like ``private_frame``, or of its evaluation rows."""
    data = wb.data.from_frame(frame, target="ill", bounds=PRIVATE_BOUNDS)
    kept = {row.tobytes() for row in (data.evaluation if evaluation else data.train)[0]}
    return [place for place, row in enumerate(data.schema.encode(frame)) if row.tobytes() in kept]


@pytest.fixture(scope="session")
def private_data(private_frame):
    return wb.data.from_frame(
        private_frame, target="ill", bounds=PRIVATE_BOUNDS, unit="patient", name="clinic"
    )


@pytest.fixture(scope="session")
def planted():
    """The planted dose, in its own unit and as the model sees it."""
    return PLANTED, float(np.float32(2 * PLANTED / 200 - 1))


@pytest.fixture(scope="session")
def done():
    return wb.fit("logistic", "breast_cancer", epsilon=1.0, iterations=300, seed=1)


@pytest.fixture(scope="session")
def guided(done):
    """``done`` with the guide's own posterior, as models have for which there is no noise-aware
    one.
    """
    return dataclasses.replace(
        done,
        draws=done.guide_draws,
        variational_draws={},
        posterior_kind="variational",
        posterior_note="a test",
    )


def stopped_fit(**options):
    """A fit that is stopped at the first look after a hundred of its 300 steps."""
    steps = [0]
    follow = wb.Execution(
        on_snapshot=lambda snapshot: steps.append(snapshot.step), stop=lambda: steps[-1] >= 100
    )
    return wb.fit(
        "logistic",
        "breast_cancer",
        epsilon=1.0,
        iterations=300,
        seed=1,
        execution=follow,
        **options,
    )


@pytest.fixture(scope="session", params=EITHER_STEPS)
def cancelled(request):
    with fakes.installed(request.param == "made up"):
        return stopped_fit()


@pytest.fixture(scope="session", params=EITHER_STEPS)
def secret(request, private_data):
    """(prepared fit, result) of a run with secret randomness on private evaluation records."""
    with fakes.installed(request.param == "made up"):
        prepared = fits.prepare("logistic", private_data, epsilon=2.0, iterations=40)
        snapshots = list(prepared.run())
        assert snapshots[-1].status == "done"
        return prepared, prepared.result()


@pytest.fixture
def checked_models(monkeypatch):
    """The first fit of a model has checked it for all tests that use this."""
    fakes.split_once(monkeypatch)


@pytest.fixture
def made_up_steps(request, monkeypatch):
    """Nothing is compiled by a fit of this test, nor are its steps the real ones, unless it is
    marked ``whole_fit``; its models are taken to be what they should in any case.
    """
    if request.node.get_closest_marker("whole_fit") is None:
        fakes.install(monkeypatch)
    else:
        fakes.trust_models(monkeypatch)


def shell_words(*arguments):
    """A command line's words: texts are split as the shell would, all else is one word."""
    return [
        word
        for argument in arguments
        for word in (shlex.split(argument) if isinstance(argument, str) else [str(argument)])
    ]


@pytest.fixture
def quick_report(monkeypatch):
    """Saved results have a report and a picture that say nothing: they take a second to make."""
    monkeypatch.setattr(FitResult, "report", lambda result: "a report")
    monkeypatch.setattr(FitResult, "plot", lambda *_: Figure(figsize=(1, 1)))


@pytest.fixture
def command(capsys):
    """Runs the command in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        capsys.readouterr()
        try:
            code = main.main(shell_words(*arguments))
        except SystemExit as ended:
            code = ended.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def place(private_frame, tmp_path, monkeypatch):
    """A working folder with a table of 200 records in ``clinic.csv``, and a folder and a ledger of
    the workbench's own.
    """
    private_frame.head(200).to_csv(tmp_path / "clinic.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    return tmp_path


def rewrite(path, **values):
    """Have all fits in a ledger's file so, with its checksum."""
    with LedgerFile(Path(path).absolute()).open(write=True) as database:
        for name, value in values.items():
            database.execute(f"UPDATE spends SET {name} = ?", (value,))


def refused(answer):
    """The one line of standard error of a ``command`` that found its arguments unusable."""
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err
