"""Checks that a model means what is computed of it: a term for each record, and a global part
without records.

A step calls the model with one record at a time. That is the model that its author wrote only if
the log density of several records is the sum of each one's, in any order, and if priors, guide and
parameters do not depend on how many there are. Cox's partial likelihood as one factor, x -
x.mean(0), or a prior whose scale uses len(x) are other models when one record is all there is. This
is found with made-up records, values of parameters and latents, so nothing private decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.extend.random import define_prng_impl
from jax.interpreters.partial_eval import dce_jaxpr

from workbench._compiler import compiler_options
from workbench.clipping.jaxprs import constants
from workbench.clipping.separation import PrivacyModelError
from workbench.record_model._precision import coarsest, in_float32
from workbench.record_model._same_program import is_same_program
from workbench.record_model._sites import in_words
from workbench.record_model.model import Record, RecordModel
from workbench.record_model.plates import readable
from workbench.record_model.splitting import PER_RECORD_PARAMETERS
from workbench.record_model.traces import drawn, is_latent, log_density

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["require_additive"]

Array = jax.Array
COUNT = 3
# sets of made-up records with finite densities that decide; sets that are tried
_ENOUGH, _MOST = (2, 16)
# programs that compare models of this process, which pass: many fits have the same
_PASSED: set[bytes] = set()
_ENTRIES = 2**19  # of made-up records, at most: what a network makes of them must fit into memory
_FLOAT32 = float(np.finfo(np.float32).eps)
_SPREAD = 0.3  # of made-up parameters around their starting values, unconstrained


def _one_word(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    dtype = np.dtype(f"uint{bit_width}")
    return jnp.broadcast_to(key[0].astype(dtype) * dtype.type(0x9D), shape)


# Keys whose draws are one number wherever they are drawn: dropout of one record is then that of
# three.
_SAME_DRAWS = define_prng_impl(
    key_shape=(1,),
    seed=lambda seed: jnp.full((1,), seed, jnp.uint32),
    split=lambda key, shape: jnp.broadcast_to(key, (*shape, 1)),
    random_bits=_one_word,
    fold_in=lambda key, data: key,
    name="dpvi_same_draws",
    tag="same",
)


def require_additive(model: RecordModel, key: Array, minibatch: int | None = None) -> None:
    """Compare three made-up records with each alone; and many, if the model does something else for
    them.

    Many are as many as SVI would hand in: a minibatch, if the model's plate takes one, or all N
    records. If the model for many is not that for three in other sizes, or if it uses the index of
    the record plate, many are compared too.

    :param key: of made-up values. :param minibatch: records in a usual one; N by default.
    :raises PrivacyModelError: naming the site, and what to write instead.
    """
    few = _traced(model, key, COUNT)
    _require_sums(model, key, few)
    count, minibatch = model.num_records, minibatch or model.num_records
    try:
        many = _traced(model, key, count := minibatch if few.facts["subsamples"] else count)
    except PrivacyModelError:
        many = _traced(model, key, count := minibatch)  # its author calls it with minibatches
    if count <= COUNT or (
        is_same_program(few.jaxpr, many.jaxpr, (COUNT, count)) and not model.uses_index
    ):
        return
    most = max(COUNT + 1, _ENTRIES // max(1, sum(array.size for array in model.blank_record)))
    if count > most:
        fewer = _traced(model, key, most)
        if not is_same_program(fewer.jaxpr, many.jaxpr, (most, count)):
            raise PrivacyModelError(
                f"the model or guide does something else with {count} records than with {most} "
                f"or {COUNT} (a branch on len(x), say), and a step calls it with one at a time. "
                "Write the same whatever len(x) is."
            )
        many = fewer
    _require_sums(model, key, many)


class _Traced(NamedTuple):
    """``compare`` for some ``records``. :param program: before it is lowered. :param facts: of the
    sites.
    """

    records: int
    program: Any
    facts: dict[str, Any]

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """Of what its results need."""
        closed = self.program.jaxpr
        return ClosedJaxpr(
            dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)[0],
            closed.consts,
        )


def _traced(model: RecordModel, key: Array, count: int) -> _Traced:
    facts: dict[str, Any] = {}

    def compare(
        params: PyTree, key: Array, number: Array, rounding: Array, records: Record
    ) -> dict[str, Any]:
        result, site_facts = _compare(
            model, params, jax.random.fold_in(key, number), rounding, records, count
        )
        facts.update(site_facts)
        return result

    records = tuple(
        jax.ShapeDtypeStruct((count, *array.shape), array.dtype) for array in model.blank_record
    )
    arguments = model.initial, key, np.uint32(0), np.float32(0), records
    try:
        with readable("model or guide"):
            program = jax.jit(compare).trace(*arguments)
    except PrivacyModelError:
        raise
    except Exception as error:
        shapes = ", ".join(str(array.shape) for array in records)
        raise PrivacyModelError(
            f"the model or guide takes one record, but not {count} (arrays of shape {shapes}): "
            f"{type(error).__name__}: {error}"
        ) from error
    _require_shapes(facts["shapes"])
    return _Traced(count, program, facts)


def _fine(traced: _Traced) -> tuple[Any, float]:
    """The program in float32 at least, lowered, and its rounding; as it is where it looks at the
    bits of coarser numbers.
    """
    closed = traced.program.jaxpr
    if (rounding := coarsest(closed)) <= _FLOAT32:
        return traced.program.lower(), rounding
    arguments, structure = jax.tree.flatten(traced.program.in_avals[0])
    results = jax.tree.structure(traced.program.out_info)

    def compare(*arguments: PyTree) -> Any:
        return jax.tree.unflatten(results, in_float32(closed, jax.tree.leaves(arguments)))

    try:
        return jax.jit(compare).lower(*jax.tree.unflatten(structure, arguments)), _FLOAT32
    except Exception:
        return traced.program.lower(), rounding


def _require_sums(model: RecordModel, key: Array, traced: _Traced) -> None:
    """Compare ``traced.records`` made-up records with each alone."""
    program = hashlib.sha256(str(traced.program.jaxpr).encode())
    for constant in constants(traced.program.jaxpr):
        program.update(
            np.asarray(constant).tobytes()
            if hasattr(constant, "dtype")
            else repr(constant).encode()
        )
    if program.digest() in _PASSED:
        return
    fine, rounding = _fine(traced)
    run = fine.compile(compiler_options(jax.default_backend(), 0, level=0, calls=_MOST))
    random = np.random.default_rng(0)
    evidence: dict[str, int] = {}
    for number in range(_MOST):
        params = jax.tree.map(
            lambda leaf: (
                np.asarray(leaf) + (_SPREAD * random.normal(size=leaf.shape)).astype(leaf.dtype)
            ),
            model.initial,
        )
        records = tuple(_made_up(model, random, number, traced.records))
        results = jax.tree.map(
            np.asarray, run(params, key, np.uint32(number), np.float32(rounding), records)
        )
        for name, numbers in results.items():
            evidence[name] = evidence.get(name, 0) + _judge(
                model, name, numbers, traced.records, rounding
            )
        if min(evidence.values(), default=_ENOUGH) >= _ENOUGH:
            break
    undecided = sorted(name.split(" ", 2)[2] for name, finite in evidence.items() if finite == 0)
    if undecided and model.uses_index:
        raise PrivacyModelError(_index_of_plate(model))
    outside = [name for name in undecided if name in traced.facts["outside"]]
    if outside:
        raise PrivacyModelError(
            f"site {outside[0]!r} is in no plate, and its density was not finite for any made-up "
            "record, so it cannot be "
            "checked that each record has its own term. Move it inside `with "
            'numpyro.plate("records", len(x)):`.'
        )
    _PASSED.add(program.digest())


# ---- made-up values ------------------------------------------------------------------------------


def _made_up(
    model: RecordModel, random: np.random.Generator, number: int, count: int
) -> Iterator[np.ndarray]:
    """Record arrays of set ``number``: of one kind in the first sets, of mixed kinds in
    the others.
    """
    for array in model.blank_record:
        kind = number if number < len(_KINDS) else int(random.integers(len(_KINDS)))
        shape = (count, *array.shape)
        if jnp.issubdtype(array.dtype, jnp.inexact):
            values = _KINDS[kind](random, shape)
        elif array.dtype == bool:
            values = random.integers(0, 2, shape)
        else:
            # codes, which may be indices or begin at one
            values = random.integers(number % 2, 2 + kind % 3, shape)
        yield values.astype(array.dtype)


_KINDS = (
    lambda random, shape: random.normal(size=shape),
    lambda random, shape: random.uniform(0.1, 0.9, shape),
    lambda random, shape: random.uniform(0.5, 3, shape),
    lambda random, shape: random.integers(0, 2, shape),
    lambda random, shape: random.integers(1, 5, shape),
    lambda random, shape: -random.uniform(0.5, 3, shape),
    lambda random, shape: (lambda weights: weights / weights.sum(-1, keepdims=True))(
        random.uniform(0.1, 1, shape)
    ),
    lambda random, shape: (
        np.sort(random.uniform(0.5, 5, shape), axis=-1)
        if len(shape) > 1
        else random.normal(9, 1, shape)
    ),
)


# ---- what is compared ----------------------------------------------------------------------------


def _compare(
    model: RecordModel, params: PyTree, key: Array, rounding: Array, records: Record, count: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers of each site, and what is known of the sites while they are traced.

    :param rounding: by which part of their size the records' latents are moved, to see what
        rounding does.
    :param count: of ``records``.
    """
    records = tuple(map(jnp.asarray, records))
    first, second = jax.random.split(key)
    same = jax.random.wrap_key_data(jax.random.key_data(key)[:1], impl=_SAME_DRAWS)
    start = model.constrain(params)
    shapes: dict[str, list[Any]] = {}
    plates: set[Any] = set()

    def traced(values: dict[str, Any], key: Array, records: Record, count: int) -> dict[str, dict]:
        pair = model.traces(values, key, records, count, layers_key=same)
        for role, trace in zip(("guide", "model"), pair, strict=True):
            for name, site in trace.items():
                if site["type"] == "plate":
                    plates.add(site["declared"])
                if site["type"] == "param":
                    declared = jax.tree.map(jnp.shape, site["args"][0] if site["args"] else None)
                    shapes.setdefault(f"{role} parameter {name}", []).append(declared)
                elif is_latent(site) and name not in model.of_records:
                    shapes.setdefault(f"{role} latent {name}", []).append(site["fn"].shape())
        return dict(zip(("guide", "model"), pair, strict=True))

    single_trace = traced(start, first, tuple(array[:1] for array in records), 1)
    fixed = start | {
        name: value
        for name, value in _latents(single_trace).items()
        if name not in model.of_records
    }
    record_values = {}
    if any(name in model.of_records for name in _latents(single_trace)):
        several = traced(fixed, second, records, count)
        record_values = {
            name: value for name, value in _latents(several).items() if name in model.of_records
        }
        axes = {name: _axis(model, several, name, count) for name in record_values}

    def terms(values: dict[str, Any], records: Record, count: int) -> dict[str, Any]:
        numbers: dict[str, Any] = {}
        for role, trace in traced(fixed | values, second, records, count).items():
            for name, site in trace.items():
                if name in model.of_records:
                    continue
                if site["type"] == "sample":
                    numbers[f"{role} global {name}"] = _density(site, single_trace[role].get(name))
                elif site["type"] == "deterministic":
                    numbers[f"{role} global {name}"] = _digest(site["value"])
            for name, term in model.record_terms(trace).items():
                numbers[f"{role} record {name}"] = jnp.sum(term), jnp.sum(jnp.abs(term))
        return numbers

    def reordered(order: Array) -> dict[str, Any]:
        values = {name: jnp.take(value, order, axes[name]) for name, value in record_values.items()}
        return terms(values, tuple(array[order] for array in records), count)

    def alone(index: Array) -> dict[str, Any]:
        values = {
            name: jax.lax.dynamic_slice_in_dim(value, index, 1, axes[name])
            for name, value in record_values.items()
        }
        return terms(values, tuple(array[index][None] for array in records), 1)

    orders = jnp.stack([jnp.arange(count), jnp.flip(jnp.arange(count))])
    together, single = jax.vmap(reordered)(orders), jax.vmap(alone)(jnp.arange(count))
    moved = {
        name: value * (1 - rounding).astype(jnp.result_type(value, jnp.float32))
        for name, value in record_values.items()
    }
    rounded = (
        terms(
            {name: value.astype(record_values[name].dtype) for name, value in moved.items()},
            records,
            count,
        )
        if record_values
        else {}
    )
    if differing := sorted(set(together) ^ set(single)):
        raise PrivacyModelError(
            f"site {differing[0].split(' ', 2)[2]!r} is not there for every number of records: a "
            "step sees one record at a time, and there it would be another model. Write the same "
            "sites whatever len(x) is."
        )
    outside = {
        name
        for trace in single_trace.values()
        for name, site in trace.items()
        if site["type"] == "sample" and name in model.of_records and not model.frames_of(site)
    }
    result = {name: (together[name], single[name], rounded.get(name)) for name in together}
    return result, {
        "shapes": shapes,
        "outside": outside,
        "subsamples": (model.num_records, 1) in plates,
    }


def _density(site: dict[str, Any], drawn: dict[str, Any] | None) -> Array:
    """``log_density`` at what site ``drawn`` drew: some flows have no inverse, and keep what they
    drew.
    """
    try:
        return log_density(site)
    except NotImplementedError:
        if drawn is None or not drawn["intermediates"]:
            raise
        return log_density({**site, "intermediates": drawn["intermediates"]})


def _digest(value: PyTree) -> Array:
    leaves = [jnp.asarray(leaf, jnp.float32).ravel() for leaf in jax.tree.leaves(value)]
    flat = jnp.concatenate(leaves) if leaves else jnp.zeros(1)
    return jnp.vdot(flat, 1 + jnp.sin(jnp.arange(flat.size)))


def _latents(traces: dict[str, dict]) -> dict[str, Array]:
    return drawn(traces["guide"]) | drawn(traces["model"])


def _axis(model: RecordModel, traces: dict[str, dict], name: str, count: int) -> int:
    """The axis of records of a latent's value."""
    site = traces["model"].get(name) or traces["guide"][name]
    (frame,) = model.frames_of(site)
    axis = site["value"].ndim - site["fn"].event_dim + frame.dim
    if site["value"].shape[axis] != count:
        raise PrivacyModelError(
            f"site {name!r} has {site['value'].shape[axis]} entries in plate {frame.name!r} for "
            f"{count} records: give it one for each record, and other axes of their own."
        )
    return axis


# ---- judgements ----------------------------------------------------------------------------------


def _require_shapes(shapes: dict[str, list[Any]]) -> None:
    for name, observed in shapes.items():
        if any(shape != observed[0] for shape in observed):
            role, kind, site = name.split(" ", 2)
            raise PrivacyModelError(
                f"{kind} {site!r} of the {role} is outside the plate of the records, but its "
                "shape depends on how many "
                "there are. If it belongs to each record, move it inside `with "
                'numpyro.plate("records", len(x)):`; '
                "otherwise take its shape from public constants."
            )


def _judge(
    model: RecordModel, name: str, numbers: Sequence[np.ndarray], count: int, rounding: float
) -> bool:
    """Whether these made-up records say something about a site. :raises PrivacyModelError: if they
    refute it.

    A thousand roundings of the term, and of the latents that it is taken at, may lie between the
    sum and the terms alone. They say nothing where that is half as much as the term itself: at a
    scale of 1e-30 a location is never hit again.

    :param rounding: of the coarsest numbers that are computed with.
    """
    role, kind, site = name.split(" ", 2)
    tolerance = min(0.05, 1000 * rounding)
    if kind == "global":
        together, single = (np.asarray(result, float).ravel() for result in numbers[:2])
        values = np.concatenate([together, single])
        finite = bool(np.isfinite(values).all())
        if (not finite and np.isfinite(values).any()) or (
            finite and np.ptp(values) > tolerance * (1 + np.abs(values).max())
        ):
            raise PrivacyModelError(
                f"site {site!r} of the {role} is global, but changes with the number of records "
                "that are handed in (len(x), or a mean over them): a step calls the model with "
                "one record at a time. Use num_records, the public N, which the model may take "
                f"as an argument: def model(x, num_records=None). "
                f"{_index_of_plate(model) if model.uses_index else ''}"
            )
        return finite
    (together, sizes), (single, single_sizes) = (
        tuple(np.asarray(array, float) for array in result) for result in numbers[:2]
    )
    is_finite = [bool(np.isfinite(result).all()) for result in (together, single)]
    difference = np.abs(together - single.sum()).max() if all(is_finite) else np.inf
    magnitude = max(sizes.max(), single_sizes.sum(), 1e-3) if all(is_finite) else 0.0
    if not any(is_finite):
        return False
    of_latents = 0.0
    if numbers[2] is not None:  # the same at latents moved by a rounding
        moved = float(np.asarray(numbers[2][0]))
        if not (is_finite[0] or np.isfinite(moved)):
            return False  # a rounding may be what took the sum beyond all numbers
        if is_finite[0] and np.isfinite(moved):
            of_latents = tolerance / rounding * np.abs(moved - together[0])
    if difference > tolerance * magnitude + of_latents:
        if model.uses_index:
            raise PrivacyModelError(_index_of_plate(model))
        raise PrivacyModelError(
            f"site {site!r} of the {role} has no term for each record: the log density of "
            f"{count} made-up records is not the sum of each one's, in any order. Something "
            "looks across records: a mean, a standard deviation, a sort, a cumulative sum or "
            "softmax over records, a branch on len(x), values of shape (N, 1) beside others of "
            "shape (N,), or a likelihood of all of them at once (Cox's partial likelihood). A "
            "step calls the model with one record at a time. Scale by public constants before "
            "the model, x = (x - centre) / width, and write a likelihood that is a product over "
            "records."
        )
    return of_latents <= 0.5 * magnitude


def _index_of_plate(model: RecordModel) -> str:
    return (
        f"The model or guide uses the index of the record plate {in_words(model.plates.names)}: "
        "it is called with the minibatch's records, so index only record arrays with it. "
        f"{PER_RECORD_PARAMETERS}"
    )
