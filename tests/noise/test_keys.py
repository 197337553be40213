"""Secret keys: shown nowhere, used for one run, and gone when the run is over."""

import contextlib
import copy
import dataclasses
import io
import json
import os
import pickle
import subprocess
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.optim import Adam

import workbench as wb
from tests import zoo
from tests.conftest import rewrite, some_of
from workbench import ArgumentError
from workbench.fitting import checkpoints, fits
from workbench.fitting.groups import grouped
from workbench.inference import DPVI, compiling, load_state, save_state
from workbench.inference.checkpoint import load_arrays
from workbench.inference.state import DPVIState
from workbench.inference.svi import DPVIRunResult
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import id_of
from workbench.noise.chacha20 import is_secret, key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy import calibration
from workbench.sampling import PoissonSampler

RECORDS = zoo.logistic_data(30)
OTHERS = zoo.logistic_data(30)[0] + 1, zoo.logistic_data(30)[1]


def words_of(key):
    """The key's words as anything that prints arrays of them would write them."""
    return [str(word) for word in np.asarray(jax.random.key_data(key)).ravel()]


def shows(text, key):
    return any(word in text for word in words_of(key))


def trainer(**changes):
    target = {"epsilon": 1.0, "delta": 1e-3, "iterations": 20, "sampling_rate": 0.2}
    return DPVI(zoo.logistic, zoo.logistic_guide, Adam(0.05), **{**target, **changes})


@pytest.fixture(scope="module")
def begun():
    """(key, trainer, result of five of its steps)."""
    key, dpvi = new_key(), trainer()
    return key, dpvi, dpvi.run(key, 5, *RECORDS, progress_bar=False)


# ---- what is shown -------------------------------------------------------------------------------


def test_no_way_of_printing_shows_a_key(begun):
    key, _, result = begun
    assert is_secret(result.state.key)
    held = (
        key,
        jnp.stack([key, key]),
        result,
        result.state,
        {"key": [key]},
        dataclasses.make_dataclass("Any", ["key"])(key),
    )
    for value in held:
        for text in (repr(value), str(value), f"{value}", f"{value!r:>10}"):
            assert "secret key" in text
            assert not shows(text, key)
    assert repr(jax.random.key(7)).startswith("Array(")  # JAX's own are as they were


def test_notebooks_and_tracebacks_with_local_variables_do_not_either(begun):
    from IPython.core.ultratb import VerboseTB
    from IPython.lib.pretty import pretty

    key, _, result = begun
    assert not shows(pretty(result), key)

    def fails(state, own):
        raise ZeroDivisionError

    try:
        fails(result.state, key)
    except ZeroDivisionError:
        kind, error, trace = sys.exc_info()
    texts = [
        "".join(traceback.TracebackException(kind, error, trace, capture_locals=True).format()),
        VerboseTB(theme_name="nocolor").text(kind, error, trace),
    ]
    with contextlib.suppress(ImportError):
        from rich import console
        from rich import pretty as rich_pretty
        from rich import traceback as rich_traceback

        assert not shows(rich_pretty.pretty_repr(result), key)
        page = console.Console(file=io.StringIO(), width=200)
        page.print(rich_traceback.Traceback.from_exception(kind, error, trace, show_locals=True))
        texts.append(page.file.getvalue())
    for text in texts:
        assert "secret key" in text
        assert not shows(text, key)


def test_reading_the_state_of_another_optimiser_shows_no_key(begun, tmp_path):
    """Its arrays are local variables where that fails."""
    key, _, result = begun
    path = save_state(result.state, tmp_path / "state.npz")
    assert not shows(repr(load_arrays(path)), key)
    other = DPVI(
        zoo.logistic,
        zoo.logistic_guide,
        numpyro.optim.SGD(0.1),
        epsilon=1.0,
        iterations=9,
        sampling_rate=0.2,
    )
    with pytest.raises(ArgumentError) as caught:
        load_state(path, other.init(key_from_seed(0), *RECORDS))
    told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert not shows("".join(told.format()), key)


@pytest.mark.thorough
def test_results_carry_no_key_however_they_are_copied(secret):
    prepared, result = secret
    words = np.asarray(jax.random.key_data(prepared.key))
    # functions, which pickle takes by name
    plain = dataclasses.replace(result, released=None, definition=None)
    for content in (
        pickle.dumps(plain),
        pickle.dumps(copy.copy(plain)),
        repr(result).encode(),
        repr(prepared).encode(),
    ):
        assert words.tobytes() not in content
        assert not shows(str(content), prepared.key)
    for value in [*vars(result).values(), *jax.tree.leaves(result.params)]:
        assert not isinstance(value, (DPVIState, DPVIRunResult))
        assert not (
            isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        )


def test_states_are_not_pickled(begun):
    with pytest.raises((pickle.PicklingError, TypeError, AttributeError)):
        pickle.dumps(begun[2])


# ---- one run for a key ---------------------------------------------------------------------------


def test_a_secret_key_begins_one_run(begun):
    key, dpvi, _ = begun
    for again in (
        lambda: dpvi.run(key, 5, *RECORDS),
        lambda: dpvi.init(key, *RECORDS),
        lambda: trainer().run(key, 5, *OTHERS),
        lambda: DPVI(zoo.logistic, zoo.logistic_guide, Adam(0.1), privacy=dpvi.plan).init(
            key, *RECORDS
        ),
    ):
        with pytest.raises(
            ArgumentError, match=r"^key=<secret key>: has already begun a run in this process"
        ):
            again()


def test_what_was_refused_has_not_begun():
    key = new_key()
    with pytest.raises(ArgumentError, match="records"):
        trainer().init(key, RECORDS[0], RECORDS[1][:7])
    state = trainer().init(key, *RECORDS)
    assert int(state.step) == 0


def test_no_step_is_drawn_twice_with_a_secret_key(monkeypatch, tmp_path):
    key, dpvi = new_key(), trainer()
    start = dpvi.init(key, *RECORDS)
    first = dpvi.run(key, 5, *RECORDS, progress_bar=False, init_state=start).state
    saved = save_state(first, tmp_path / "state.npz")
    second = dpvi.run(key, 2, *RECORDS, progress_bar=False, init_state=first).state
    later, _ = dpvi.update(second, *map(jnp.asarray, RECORDS))
    assert int(later.step) == 8
    loaded = load_state(saved, dpvi.init(key_from_seed(1), *RECORDS))
    for state in (start, first, second, loaded):
        with pytest.raises(ArgumentError, match=r"^state='step \d': .* has already reached step 8"):
            dpvi.run(key, 1, *OTHERS, init_state=state)
        with pytest.raises(ArgumentError, match="reached step 8"):
            dpvi.update(state, *map(jnp.asarray, OTHERS))


def test_a_state_of_another_process_goes_on_once(tmp_path, monkeypatch):
    from workbench.noise import key_use

    key, dpvi = new_key(), trainer()
    saved = save_state(dpvi.init(key, *RECORDS), tmp_path / "state.npz")
    for name in ("_drawn", "_secret"):  # as another process has them
        monkeypatch.setattr(key_use, name, type(getattr(key_use, name))())
    state = load_state(saved, dpvi.init(key_from_seed(1), *RECORDS))
    promise = dpvi.guarantee(state)
    assert not promise.secure_randomness
    with pytest.raises(ArgumentError, match="already begun a run"):
        dpvi.init(state.key, *RECORDS)
    dpvi.run(key, 3, *RECORDS, progress_bar=False, init_state=state)
    with pytest.raises(ArgumentError, match="reached step 3"):
        dpvi.run(key, 3, *OTHERS, progress_bar=False, init_state=state)


def test_keys_of_seeds_are_used_again():
    dpvi = trainer()
    states = [dpvi.init(key_from_seed(2), *RECORDS) for _ in range(2)]
    for state in (states[0], states[0], states[1]):
        dpvi.update(state, *map(jnp.asarray, RECORDS))


def test_children_of_keys_begin_one_run_each(begun):
    _, dpvi, _ = begun
    first, second = jax.random.split(new_key())
    state = dpvi.init(first, *RECORDS)
    dpvi.init(second, *RECORDS)
    with pytest.raises(ArgumentError, match=r"^key=.*has already begun a run in this process"):
        dpvi.init(first, *OTHERS)
    dpvi.update(state, *RECORDS)
    with pytest.raises(ArgumentError, match=r"^state="):
        dpvi.update(state, *OTHERS)


def test_a_compiled_function_makes_no_keys():
    with pytest.raises(TypeError, match=r"new_key\(\) was called in a function that JAX compiles"):
        jax.jit(lambda: jax.random.key_data(new_key()))()


def test_the_guarantee_says_what_is_not_seen(begun):
    _, dpvi, result = begun
    promise = dpvi.guarantee(result.state)
    assert promise.secure_randomness
    assert "not under jit and not in other processes (a fork, a saved state)" in promise.caveats[0]
    traced = jax.jit(lambda key: dpvi.init(key, *map(jnp.asarray, RECORDS)))(new_key())
    unseen = dpvi.guarantee(traced)
    assert not unseen.secure_randomness
    assert unseen.caveats[0].startswith("The run began inside a JAX transformation")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_forked_child_does_not_call_its_parents_keys_secret():
    from workbench.noise import key_use

    new_key()
    child = os.fork()
    if not child:
        os._exit(len(key_use._secret) > 0)  # JAX itself must not run in a fork
    assert os.waitpid(child, 0)[1] == 0
    assert key_use._secret


# ---- the program of a fit ------------------------------------------------------------------------

SCALE = 1.0
WIDTH = np.linspace(0.5, 1.5, 29, dtype=np.float32)  # not as long as there are records


def spread():
    return SCALE


class Prior:
    scale = 1.0

    def width(self):
        return self.scale

    def __call__(self):
        return self.scale


PRIOR = Prior()


@jax.jit
def jitted(value):
    return value * jnp.sum(jnp.asarray(WIDTH)) / 30


def level(how):
    """A model of one number; ``how`` gives the deviation of its prior."""

    def model(x, num_records=None):
        mean = numpyro.sample("mean", dist.Normal(0.0, how()))
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)

    return model


def level_guide(x, num_records=None):
    numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0), 1.0))


def digest_of(how, optim=None):
    mechanism = GaussianMechanism(1.0, 1.0)
    dpvi = DPVI(
        level(how),
        level_guide,
        optim or Adam(0.1),
        privacy=(PoissonSampler(30, 0.3, 30), mechanism),
    )
    x = jnp.ones(30)
    state = dpvi.init(key_from_seed(0), x)
    return compiling.lower(dpvi.private_step, dpvi.hyper, state, (x,), 40).digest


CHANGES = {
    "a global constant": (lambda: SCALE, "SCALE", 2.0),
    "a global of a global helper": (lambda: spread(), "SCALE", 2.0),
    "a global helper": (lambda: spread(), "spread", lambda: 2.0),
    "a bound method": (PRIOR.width, PRIOR, 2.0),
    "a callable object": (PRIOR, PRIOR, 2.0),
    "an array": (lambda: jnp.sum(jnp.asarray(WIDTH) * jnp.arange(29)), "WIDTH", WIDTH[::-1].copy()),
}


@pytest.mark.parametrize("name", some_of(list(CHANGES), 6))
def test_the_digest_of_a_program_covers_whatever_it_read(name, monkeypatch):
    how, place, value = CHANGES[name]
    before = digest_of(how)
    assert digest_of(how) == before
    if isinstance(place, str):
        monkeypatch.setitem(globals(), place, value)
    else:
        monkeypatch.setattr(place, "scale", value)
    assert digest_of(how) != before


def test_the_digest_of_a_program_covers_its_optimiser():
    assert digest_of(spread, Adam(lambda step: 0.1)) != digest_of(spread, Adam(lambda step: 0.2))


def test_constants_count_where_jax_makes_arguments_of_them():
    held = np.arange(4.0, dtype=np.float32)

    def lowered(constants):
        return compiling.Lowered(jax.jit(lambda x: x).lower(1.0), constants, False).digest

    assert lowered((held,)) != lowered((held + 1,))
    assert lowered((jax.random.key(1),)) != lowered((jax.random.key(2),))


def ill(x, y=None, num_records=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, spread()).expand([2]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def a_mean(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, 10))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)


@pytest.mark.thorough
def test_a_model_that_takes_other_arrays_of_the_same_data_is_another_plan():
    before = wb.data.from_arrays(np.linspace(-1, 1, 120).reshape(60, 2), bounds=(-1, 1))
    x, held_out = before.train[0], before.evaluation[0]
    more = {
        "arrays": ("x", "before", "after"),
        "evaluation": (held_out, held_out[:, 0], held_out[:, 1]),
    }
    data = dataclasses.replace(before, train=(x, x[:, 0], x[::-1, 1].copy()), **more)
    plans = set()
    for which in ("before", "after"):
        model = wb.models.Model("mean", "A mean.", a_mean, arrays=(which,))
        wb.fit(model, data, epsilon=1.0, delta=1e-3, iterations=5, sampling_rate=0.5, seed=3)
        plans = {spend.plan for spend in Ledger().spends()}
    assert len(plans) == 2


@pytest.mark.thorough
def test_a_changed_program_is_neither_resumed_nor_taken_for_the_same(private_data, monkeypatch):
    """The same noise on other sums: their difference would be the clipped sum itself."""
    settings = {
        "epsilon": 1.0,
        "delta": 1e-4,
        "iterations": 400,
        "sampling_rate": 0.2,
        "clip": 1.0,
        "seed": 3,
    }
    model = wb.models.Model("ill", "Whether somebody is ill.", ill)

    def stopped():
        prepared, chunks = fits.prepare(model, private_data, **grouped(settings)), iter(range(99))
        list(prepared.run(lambda: next(chunks) >= 1))
        return prepared.run_log.folder

    folder = stopped()
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    with pytest.raises(ArgumentError, match="another plan, version, model or kind of machine"):
        wb.resume(folder, model=model, data=private_data)
    assert not Ledger().budget_status("clinic").repeated_seeds
    stopped()
    assert Ledger().budget_status("clinic").repeated_seeds == (3,)


# ---- what stays on the disk ----------------------------------------------------------------------


def a_state(seed=0):
    return DPVIState({"loc": jnp.zeros(2)}, jnp.int32(3), key_from_seed(seed))


def a_run(name="run", *, public=True, finished=False, parent=None, **facts):
    """The folder of a run that left one checkpoint, or its release."""
    keeper = checkpoints.Checkpoints(
        (parent or checkpoints.runs()) / name,
        {
            "format": checkpoints.FORMAT,
            "is_public": public,
            "spend": None,
            "ledger": None,
            "origin": {},
            **facts,
        },
        9,
        lambda step: None,
    )
    keeper.write(a_state(), 9, {})
    if finished:
        keeper.finish({"loc": np.zeros(2)}, {})
    return keeper.folder


def test_finished_and_public_fits_do_not_drive_out_a_private_one(monkeypatch):
    monkeypatch.setattr(checkpoints, "_RUNS_KEPT", 2)
    private = a_run("private", public=False)
    public = [a_run(f"public-{number}") for number in range(4)]
    for place, folder in enumerate((private, *public)):
        os.utime(folder, (place, place))
    finished = [a_run(f"finished-{number}", finished=True) for number in range(4)]
    assert private.exists()
    assert [folder.exists() for folder in public] == [False, False, True, True]
    assert [folder.exists() for folder in finished] == [False, False, True, True]


def test_a_clock_that_went_back_deletes_no_release_of_its_own(monkeypatch):
    monkeypatch.setattr(checkpoints, "_RUNS_KEPT", 2)
    for number in range(2):
        os.utime(a_run(f"old-{number}", finished=True), (2e9, 2e9))
    newest = [a_run(f"new-{number}", finished=True) for number in range(2)]
    assert all((folder / "finished.npz").exists() for folder in newest)
    assert not (checkpoints.runs() / "old-0").exists()


def test_a_kill_after_the_release_leaves_no_key_for_long(monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr(checkpoints, "_drop_states", lambda run: None)
        killed.setattr(checkpoints, "_prune", lambda run: None)
        folder = a_run("killed", finished=True)
    (folder / ".step-000000000007.npz.partial").write_bytes(b"of a kill amid writing")
    assert checkpoints.holds_key(folder)
    assert checkpoints.newest(folder).is_finished
    a_run("other", finished=True)
    assert [file.name for file in folder.iterdir()] == ["finished.npz"]


def test_a_kill_amid_writing_leaves_no_key_for_long():
    folder = a_run()
    partial = folder / ".step-000000000002.npz.partial"
    partial.write_bytes(b"of a kill amid writing")
    a_run()
    assert not partial.exists()


def test_a_fit_does_not_mix_its_checkpoints_with_those_of_another(private_data, tmp_path):
    folder = a_run("mine", public=False, parent=tmp_path)
    prepared = fits.prepare(
        "logistic",
        private_data,
        epsilon=1.0,
        iterations=40,
        execution=wb.Execution(checkpoint=folder),
    )
    with pytest.raises(ArgumentError, match=r"^checkpoint=.*holds another fit"):
        next(prepared.run())
    assert not Ledger().path.exists()


def test_damaged_checkpoints_are_refused_in_a_sentence():
    random = np.random.default_rng(0)
    folder = a_run()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with contextlib.suppress(ArgumentError):  # some bits are not looked at
            found = checkpoints.newest(folder)
            assert found.arrays()[".step"] == 3


@pytest.mark.parametrize("part", ["facts", "arrays", "another key"])
def test_an_edited_checkpoint_is_not_opened(part, monkeypatch, tmp_path):
    folder = a_run(origin={"arguments": ["--model", "mine.py:model"]})
    (path,) = folder.iterdir()
    assert checkpoints.newest(folder).facts["origin"]["arguments"] == ["--model", "mine.py:model"]
    with np.load(path) as file:
        arrays = dict(file)
    if part == "facts":
        arrays["facts"] = np.array(str(arrays["facts"]).replace("mine.py", "other.py"))
    elif part == "arrays":
        arrays[".step"] = arrays[".step"] - 1
    np.savez(path, **arrays)
    if part == "another key":
        (tmp_path / "state").mkdir()
        folder = folder.rename(tmp_path / "run")
        monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    with pytest.raises(
        ArgumentError, match=r"^path=.*was edited, or was not written with the secret key in"
    ):
        checkpoints.newest(folder).arrays()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, None, "5"])
def test_a_checkpoint_of_another_format_is_refused_with_what_to_do(number):
    folder = a_run(format=number)
    with pytest.raises(
        ArgumentError,
        match=r"must be a checkpoint of format 5: start a new fit, and forget this one",
    ):
        wb.resume(folder)


def test_a_shell_runs_no_file_that_an_edited_checkpoint_names(command, tmp_path):
    folder = a_run(
        origin={"arguments": ["--data", "adult", "--epsilon", "1", "--model", "mine.py:model"]}
    )
    (path,) = folder.iterdir()
    ran, other = tmp_path / "ran", tmp_path / "other.py"
    other.write_text(f"open({str(ran)!r}, 'w').close()\n")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["facts"] = np.array(str(arrays["facts"]).replace("mine.py", str(other)))
    np.savez(path, **arrays)
    code, out, err = command("resume", folder)
    assert (code, out) == (2, "")
    assert "was edited" in err
    assert not ran.exists()
    shown = command("resume")[1]
    assert "To delete the keys in them" in shown or "to delete the keys in them" in shown
    assert str(folder) in shown


@pytest.mark.usefixtures("made_up_steps")
def test_a_run_is_forgotten_with_its_key_and_counts_what_it_may_have_taken(command, private_data):
    prepared, chunks = (
        fits.prepare("logistic", private_data, epsilon=1.0, delta=1e-4, iterations=400),
        iter(range(99)),
    )
    list(prepared.run(lambda: next(chunks) >= 1))
    folder, taken = prepared.run_log.folder, prepared.result().guarantee.steps_taken
    words = np.asarray(jax.random.key_data(prepared.key)).tobytes()
    assert words in b"".join(file.read_bytes() for file in folder.iterdir())
    said = f"The run's secret key stays in {folder}: "
    assert said in prepared.result().message
    # as after a crash further on
    rewrite(Ledger().path, status="reserved", owner="gone", taken=None, reached=300)
    assert Ledger().spends()[0].counted == 400
    code, out, err = command("resume", "--forget", folder)
    assert (code, err) == (0, "")
    assert "cannot be resumed" in out
    assert "Ledger: fit 1 counts 300 of 400 planned steps." in out
    assert taken < 300
    assert not folder.exists()
    (spend,) = Ledger().spends()
    assert (spend.status, spend.counted) == ("recovered", 300)
    assert "must be the folder of a fit" in command("resume", "--forget", folder)[2]
    assert "name the run to forget" in command("resume", "--forget")[2]


def test_a_run_that_is_going_on_is_not_forgotten(private_data):
    book, dpvi = Ledger(), trainer()
    dpvi.init(new_key(), *RECORDS)
    fit = dpvi.plan.guarantee(steps_taken=20, unit="record", dimension=8, caveats=())
    (spend,) = book.reserve(id_of(private_data), [fit], model="logistic")
    folder = a_run(public=False, spend=spend, ledger=str(book.path))
    with pytest.raises(ArgumentError, match="belongs to a fit that is running: stop it first"):
        wb.forget(folder)
    assert checkpoints.holds_key(folder)


# ---- the number of records -----------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_steps")
def test_a_run_without_a_ledger_that_is_going_on_is_not_forgotten(private_data):
    prepared = fits.prepare("logistic", private_data, epsilon=1.0, iterations=200, ledger=False)
    steps = prepared.run(stop=lambda: True)
    running = fits.prepare(
        "logistic", private_data, epsilon=1.0, iterations=200, ledger=False
    ).run()
    for _ in range(2):
        next(running)
    (folder,) = checkpoints.saved_runs()
    with pytest.raises(ArgumentError, match="belongs to a fit that is running"):
        wb.forget(folder)
    running.close()
    list(steps)
    wb.forget(folder)
    assert not checkpoints.holds_key(folder)


@pytest.mark.usefixtures("made_up_steps")
def test_no_file_tells_a_private_number_of_records(private_data, monkeypatch, tmp_path):
    """With the same declared number, all that is written has one size and no digest that a guess
    can be tried on.
    """
    settings = {
        "epsilon": 1.0,
        "delta": 1e-4,
        "iterations": 400,
        "sampling_rate": 0.2,
        "num_records": 250,
        "clip": 1.0,
    }
    plans, sizes, names = [], [], []
    smaller = private_data.subset(private_data.num_train - 1)
    for place, data in enumerate((private_data, smaller)):
        calibration._smallest_noise.cache_clear()
        monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / str(place)))
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / f"cache-{place}"))
        prepared, chunks = fits.prepare("logistic", data, **grouped(settings)), iter(range(99))
        list(prepared.run(lambda chunks=chunks: next(chunks) >= 0))
        (file,) = prepared.run_log.folder.iterdir()
        facts = checkpoints.newest(prepared.run_log.folder).facts
        plans.append((prepared, facts["plan"]))
        # NumPy takes four bytes for a character
        sizes.append(file.stat().st_size - 4 * len(json.dumps(facts)))
        written = [each for each in (tmp_path / f"cache-{place}").rglob("*") if each.is_file()]
        names.append([(each.name, each.read_bytes()) for each in written])
        assert str(data.num_train) not in json.dumps(
            {name: facts[name] for name in ("settings", "model", "origin")}
        )
        assert Ledger().spends()[0].plan == facts["plan"]
    assert names[0] == names[1]
    assert sizes[0] == sizes[1]
    # what the digest is of is known to everybody but the key: with another key it is another one
    prepared, plan = plans[0]
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "0"))
    assert prepared._digest(to_run=False) == plan
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "another"))
    assert prepared._digest(to_run=False) != plan


def test_importing_starts_no_device():
    """Or programs that fork before they fit would hang, and a device could not be chosen after the
    import.
    """
    script = (
        "import workbench.fitting.resuming; from jax._src import xla_bridge; "
        "print(xla_bridge.backends_are_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
