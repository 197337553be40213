"""A fit without XLA: for tests of screens and commands, whose subject is what is around the steps.

Settings, plan, calibration, ledger, checkpoints, the loop over chunks and the statement are real.
The steps, the predictions that are scored and the posterior's draws are made up, in NumPy. They are
functions of key and step, as the real ones are: a resumed fit ends where a whole one does, and two
fits with secret keys differ. Each lane of a sweep takes the steps of a fit alone.
"""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import io
import math
import pickle
import types
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workbench.fitting import functions, one_shot, posterior, prepared, scoring
from workbench.fitting.evaluation import evaluation_of
from workbench.inference import assemble, running_moments
from workbench.inference.batched import BatchedProgram
from workbench.inference.compiling import Compilation, Compiling, interval_of
from workbench.inference.state import DPVIState
from workbench.models import by_record
from workbench.noise.chacha20 import fast_key
from workbench.posterior import gram_chain, noise_aware
from workbench.record_model import additivity, splitting
from workbench.sweeps import running

SIZE = 0.01  # of a made-up step
MOST = 500  # models that are kept of each of the following
_splits = {}  # of models that made-up fits have had
_priors = {}  # of the same, with the starting values by which they are known
_shapes = {}  # of what an evaluation gives: it takes longer to trace than a whole made-up fit does
_outcomes = {}  # of the same models, whether they predict what is scored
_additive = set()  # what is known of models that were compared
_codes = {}  # of functions that are known by them, so that none takes another's place


def install(monkeypatch):
    """Fits of this test take made-up steps."""
    split_once(monkeypatch)
    monkeypatch.setattr(scoring, "has_shape", has_shape)
    monkeypatch.setattr(gram_chain, "draws_of", draws_of)
    monkeypatch.setattr(prepared, "lower", lower)
    monkeypatch.setattr(prepared, "compile_ahead", compile_ahead)
    monkeypatch.setattr(BatchedProgram, "_compiled", lambda program, *part: chunk_of_lanes)
    monkeypatch.setattr(running, "starting_states", starting_states)
    for owner, name, of in (
        (functions.CompiledFunctions, "compute", compute),
        (functions.CompiledFunctions, "draw", draw),
        (functions.CompiledFunctions, "said", said),
        (running._Group, "_evaluate", evaluate_lanes),
    ):
        stand_in = functools.cached_property(of)
        stand_in.__set_name__(owner, name)
        monkeypatch.setattr(owner, name, stand_in)


def trust_models(monkeypatch):
    """Models are taken to be what they should."""
    monkeypatch.setattr(assemble, "require_additive", lambda *arguments: None)
    monkeypatch.setattr(assemble, "_require_separate_records", lambda *arguments: None)


def split_once(monkeypatch):
    """Models are taken to be what they should, and equal ones are split once."""
    trust_models(monkeypatch)
    for module in (assemble, one_shot):
        monkeypatch.setattr(module, "split", split)
    monkeypatch.setattr(posterior, "prior_of", prior_of)


@contextlib.contextmanager
def installed(wanted=True):
    """Fits within take made-up steps, if they are ``wanted``: for fixtures of more than
    one test.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        if wanted:
            install(monkeypatch)
        yield monkeypatch


class Content(pickle.Pickler):
    """Writes what models, guides and constants hold: functions by their names or, within others, by
    their code and what they close over, and data classes by their fields; not what they have
    computed meanwhile, nor which objects are one.
    """

    def __init__(self, file):
        super().__init__(file)
        self.fast = True

    def reducer_override(self, value):
        if isinstance(value, types.FunctionType) and "<" in value.__qualname__:
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            _codes[id(value.__code__)] = value.__code__
            return tuple, (id(value.__code__), value.__defaults__, value.__kwdefaults__, cells)
        if isinstance(value, type) or not dataclasses.is_dataclass(value):
            return NotImplemented
        return type(value), tuple(getattr(value, each.name) for each in dataclasses.fields(value))


def content(*values):
    """Equal bytes for values that hold the same; None where that cannot be told."""
    file = io.BytesIO()
    try:
        Content(file).dump(values)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        return None
    return file.getvalue()


def require_additive(model, key, minibatch=None):
    """``additivity.require_additive``, once for equal models that are what they should be."""
    shapes = [(array.shape, str(array.dtype)) for array in model.blank_record]
    facts = shapes, model.num_records, minibatch, jax.config.jax_enable_x64
    question = content(model.model, model.guide, model.layout, sorted(model.static.items()), facts)
    if question is None or question not in _additive:
        additivity.require_additive(model, key, minibatch)
    if question is not None:
        _additive.add(question)


def split(model, guide, key, record, **facts):
    """``splitting.split``, once for equal models, guides and shapes: all begin where the first one
    did.
    """
    static, layout = sorted(facts["static"].items()), facts.get("layout")
    question = content(model, guide, str(record), facts["num_records"], layout, static)
    if question is None:
        return splitting.split(model, guide, key, record, **facts)
    if question not in _splits:
        if len(_splits) == MOST:
            _splits.clear()
        _splits[question] = splitting.split(model, guide, key, record, **facts)
    return _splits[question]


def prior_of(model):
    """``noise_aware.prior_of``, once for what ``split`` gave once."""
    start = model.initial
    if id(start) not in _priors:
        if len(_priors) == MOST:
            _priors.clear()
        _priors[id(start)] = start, noise_aware.prior_of(model)
    return _priors[id(start)][1]


def has_shape(outcome, said, arrays, start, key):
    """``by_record.has_shape``, once for what ``split`` gave once."""
    predict = inspect.getclosurevars(said).nonlocals["model"].predict
    facts = content(predict, outcome, [(array.shape[1:], str(array.dtype)) for array in arrays])
    if facts is None:
        return by_record.has_shape(outcome, said, arrays, start, key)
    question = id(start), facts
    if question not in _outcomes:
        if len(_outcomes) == MOST:
            _outcomes.clear()
        _outcomes[question] = start, by_record.has_shape(outcome, said, arrays, start, key)
    return _outcomes[question][1]


def draws_of(chains, quantities, count):
    """``_ellipses.draws_of`` of chains that moved a little only, and are said to agree."""
    chains.adapt(30)
    draws = []
    for _ in range(math.ceil(count / len(chains.states))):
        chains.sweep(1)
        draws.append(quantities())
    return np.concatenate(draws)[:count], 1.0


def words(key):
    """An entry of the key that NumPy's generators take."""
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return [int(word) for word in np.asarray(jax.random.key_data(key) if is_key else key).ravel()]


class Lowered:
    """As ``compiling.Lowered``, of steps that nobody traced."""

    def __init__(self, step, hyper, state, records, interval):
        parts = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves((state, records))]
        facts = repr(
            (
                parts,
                sorted(step.model.initial),
                repr(step.model.static),
                hyper.average_from is None,
                interval,
            )
        )
        self.digest = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()


def chunk(state, records, *brought):
    """Add small normal numbers to every parameter, those of step number t from the run's key and t.

    :param brought: of a block of records at rest, its mask and first step; then, as for all, limit
        and hyper.
    """
    limit = brought[-2]
    leaves, tree = jax.tree.flatten((state.optim_state, state.average))
    values = [np.array(leaf) for leaf in leaves if is_float(leaf)]
    moved = iter(walk(values, words(state.key), int(state.step), int(limit)))
    leaves = [
        jax.device_put(next(moved).astype(leaf.dtype), leaf.device) if is_float(leaf) else leaf
        for leaf in leaves
    ]
    optim_state, average = jax.tree.unflatten(tree, leaves)
    moments = counted(state.moments, int(limit) - int(state.step))
    return state._replace(
        optim_state=optim_state,
        average=average,
        moments=moments,
        step=jnp.asarray(limit, jnp.int32),
    )


def counted(moments, steps):
    """``moments`` with ``steps`` more steps of made-up counts of norms; one of the lanes' too."""
    if moments is None or moments.norms is None:
        return moments
    made = np.full(moments.norms.shape[-1], 10.0, np.float32)
    made[0] = 1
    return moments._replace(norms=moments.norms + steps * made)


def walk(values, key, first, last):
    """Float arrays after the steps from number ``first`` to ``last``."""
    size = sum(value.size for value in values)
    cuts = np.cumsum([value.size for value in values])[:-1]
    for step in range(first, last):
        moved = np.random.default_rng([*key, step]).standard_normal(size, np.float32) * SIZE
        values = [
            old + new.reshape(old.shape)
            for old, new in zip(values, np.split(moved, cuts), strict=True)
        ]
    return values


def by_lane(tree):
    """The entries of the first axis of each leaf, as trees of NumPy arrays."""
    leaves, shape = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    return [jax.tree.unflatten(shape, own) for own in zip(*leaves, strict=True)]


def of_lanes(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def chunk_of_lanes(state, records, limit, hyper):
    """``chunk`` of each lane."""
    ends = []
    for key, values in zip(state.key, by_lane((state.optim_state, state.average)), strict=True):
        leaves, tree = jax.tree.flatten(values)
        moved = iter(
            walk(
                [leaf for leaf in leaves if is_float(leaf)], words(key), int(state.step), int(limit)
            )
        )
        ends.append(tree.unflatten([next(moved) if is_float(leaf) else leaf for leaf in leaves]))
    optim_state, average = jax.device_put(of_lanes(ends))
    moments = counted(state.moments, int(limit) - int(state.step))
    return state._replace(
        optim_state=optim_state,
        average=average,
        moments=moments,
        step=jnp.asarray(limit, jnp.int32),
    )


def starting_states(step, keys, hyper):
    """All lanes begin where the model was split."""
    moments = None
    if hyper.moments_from is not None:
        moments = running_moments.empty(
            step.noise_size if step.options.keeps_moments else None, step.options.counts_norms
        )
    start = (
        step.optimizer.init(step.model.initial),
        None if hyper.average_from is None else step.model.initial,
        moments,
    )
    optim_state, average, moments = of_lanes([jax.tree.map(np.asarray, start)] * len(keys))
    number, key = jax.device_put(np.int32(0)), jnp.stack(list(keys))
    return DPVIState(jax.device_put(optim_state), number, key, *jax.device_put((average, moments)))


def is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def lower(step, hyper, state, records, interval):
    return Lowered(step, hyper, state, records, interval)


def compile_ahead(step, hyper, state, records, steps, within=None):
    step.require_records(records)
    lowered, compiled = Future(), Future()
    lowered.set_result(Lowered(step, hyper, state, records, interval_of(steps)))
    compiled.set_result(Compilation(chunk, 0.01))
    return Compiling(lowered, compiled)


def compute(program):
    return outputs_of(program._step, program._model, program._num_evaluation)


def evaluate_lanes(group):
    evaluate = outputs_of(group.step, group.spec.model, group.spec.data.num_evaluation)

    def all_lanes(params, keys, constants, records):
        each = [records] * len(keys) if group._evaluation_is_shared else by_lane(records)
        return of_lanes([evaluate(*lane) for lane in zip(by_lane(params), each, keys, strict=True)])

    return all_lanes


def outputs_of(step, model, num_evaluation):
    """Predictions at random, an ELBO and a log-likelihood that depend on the parameters."""

    def outputs(params, records, key):
        leaves = jax.tree.leaves((params, records))
        asked = model.model, model.predict, *((np.shape(leaf), str(leaf.dtype)) for leaf in leaves)
        if asked not in _shapes:
            real = evaluation_of(step, model, num_evaluation)
            _shapes[asked] = jax.eval_shape(real, params, records, key)
        _, log_likelihood, predictions = _shapes[asked]
        spread = float(np.mean([np.mean(np.abs(leaf)) for leaf in jax.tree.leaves(params)]))
        score = np.float32(-1 - 1 / (1 + spread))
        if predictions is not None:
            predictions = (
                np.random.default_rng(words(key))
                .uniform(0.01, 0.99, predictions.shape)
                .astype(np.float32)
            )
            if predictions.ndim > 1:  # classes
                predictions /= predictions.sum(-1, keepdims=True)
        return score, None if log_likelihood is None else score, predictions

    return outputs


def said(program):
    """Numbers from 0 to 1 at random."""
    outcome = program._outcome

    def made_up(records, params, key):
        random, size = np.random.default_rng(words(key)), len(records[0])
        shape = outcome.prediction_shape
        return (
            None if shape is None else random.uniform(0.01, 0.99, (size, *shape)),
            np.log(random.uniform(0.01, 0.99, size)) if outcome.uses_densities else None,
        )

    return made_up


def draw(program):
    """Positive numbers, which any scale may be too."""

    model = program._step.model

    def latents(params, key, count):
        found = jax.eval_shape(model.latents, model.initial, fast_key(key))
        random = np.random.default_rng(words(key))
        return {
            name: np.abs(random.standard_normal((count, *leaf.shape))).astype(leaf.dtype)
            for name, leaf in found.items()
        }

    return latents
