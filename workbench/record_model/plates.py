"""Which plates of a model hold the records, found by tracing it with one, two and three of them.

What follows the number of records that are handed in holds records: a plate that subsamples, a
plate of len(x), a plate of ``num_records`` in a model that is usually called with all of them.
Nothing is computed, so no made-up value decides.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.autoguide import (
    AutoDAIS,
    AutoGuide,
    AutoGuideList,
    AutoLaplaceApproximation,
    AutoSemiDAIS,
)
from numpyro.infer.initialization import init_to_sample

from workbench.clipping.separation import PrivacyModelError
from workbench.record_model._networks import NetworkWatch
from workbench.record_model.traces import family, is_inside, is_subsampling, trace_of

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "Layout",
    "Plates",
    "abstract_trace",
    "automatic_parts",
    "by_position",
    "find_plates",
    "imputed_names",
    "readable",
    "require_automatic",
    "require_observed",
    "takes_num_records",
]

COUNTS = (1, 2, 3)
# record arrays -> a call's arguments
Layout = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], dict[str, Any]]]


class Plates(NamedTuple):
    """The plates of the records.

    :param names: of all of them. :param full: of those with one entry for each record, subsampling
        or not.
    """

    names: tuple[str, ...]
    full: tuple[str, ...]


def by_position(arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The layout of a model whose first arguments are the record arrays."""
    return tuple(arrays), {}


def takes_num_records(fn: Callable) -> bool:
    """Whether ``fn`` takes an argument ``num_records``; what has no signature to read, as some
    built-in callables, does.
    """
    target = getattr(fn, "model", fn)  # an AutoGuide passes its arguments on to its model
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "num_records" or p.kind is p.VAR_KEYWORD for p in parameters)


# ---- errors that JAX raises where a model looks at values ----------------------------------------

_LIBRARIES = tuple(
    f"/{name}/"
    for name in ("jax", "jaxlib", "numpyro", "numpy", "flax", "equinox", "workbench/inference")
)


def _user_line(error: BaseException) -> str:
    """ "file.py, line 3: `K = int(x.max())`", the innermost line outside of libraries."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(library in frame.filename.replace("\\", "/") for library in _LIBRARIES)
    ]
    if not frames:
        return ""
    last = frames[-1]
    line = last.line or linecache.getline(last.filename, last.lineno or 0).strip()
    return f"{last.filename.rpartition('/')[2]}, line {last.lineno}: `{line}` "


@contextlib.contextmanager
def readable(subject: str) -> Iterator[None]:
    """:raises PrivacyModelError: naming the caller's line, for Python that needs the values of
    records or latents.
    """
    try:
        yield
    except (
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerArrayConversionError,
        jax.errors.NonConcreteBooleanIndexError,
    ) as error:
        raise PrivacyModelError(
            f"the {subject} needs the values of records or latents while it is traced: "
            f"{_user_line(error)}cannot run in JAX. Numbers such as how many groups there are "
            "(np.unique, max) are public constants here: pass them by keyword. For the rest "
            "write jnp.where instead of if, and jnp instead of np."
        ) from error


# ---- finding plates ------------------------------------------------------------------------------


def abstract_trace(
    model: Callable,
    layout: Layout,
    record: tuple[Any, ...],
    kwargs: dict[str, Any],
    count: int,
    **options: Any,
) -> dict:
    """The trace of ``model`` for ``count`` records of the shapes of ``record``. Values are
    abstract.

    :param options: of ``trace_of``.
    """
    trace: dict[str, Any] = {}

    def run(key: jax.Array, *arrays: jax.Array) -> None:
        inner, outer = jax.random.split(key)
        # priors without draws (improper ones) start as an automatic guide starts them
        started = handlers.substitute(handlers.seed(model, inner), substitute_fn=init_to_sample)
        args, more = layout(arrays)
        trace.update(trace_of(started, outer, {}, args, {**kwargs, **more}, count, **options))

    shapes = [jax.ShapeDtypeStruct((count, *array.shape), array.dtype) for array in record]
    with NetworkWatch():
        jax.eval_shape(run, jax.eval_shape(lambda: jax.random.key(0)), *shapes)
    return trace


def find_plates(
    model: Callable,
    layout: Layout,
    record: tuple[Any, ...],
    kwargs: dict[str, Any],
    num_records: int,
) -> Plates:
    """The plates that follow the number of records.

    :raises PrivacyModelError: several plates subsample; a plate of the records has a size that is
        neither N nor follows the number of records; one is inside another; the model takes one
        record but not two.
    """
    trace = functools.partial(_shown, model, layout, record)
    following: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    try:
        traces = [trace(kwargs, count) for count in COUNTS]
        following = _following(traces, COUNTS)
    except Exception:
        if not takes_num_records(model):
            raise
    if not following and takes_num_records(model):
        # Perhaps they are of size num_records. Called with all records, they are those that follow
        # both numbers: a plate of something else may have N entries by chance.
        counts = num_records, num_records + 1
        with contextlib.suppress(Exception):  # a model that only takes minibatches has none
            full = _following(
                [trace({**kwargs, "num_records": count}, count) for count in counts], counts
            )
        traces = [trace(kwargs, count, full) for count in COUNTS]
        following = _following(traces, COUNTS)
    _check_plates(traces[0], following, num_records)
    full = tuple(name for name in following if traces[0][name]["args"][1] == 1)
    return Plates(following, full)


def _shown(
    model: Callable,
    layout: Layout,
    record: tuple[Any, ...],
    kwargs: dict[str, Any],
    count: int,
    full: tuple[str, ...] = (),
) -> dict:
    """``abstract_trace``, with errors that a reader understands."""
    try:
        with readable("model"):
            return abstract_trace(model, layout, record, kwargs, count, full=full)
    except PrivacyModelError:
        raise
    except Exception as error:
        shapes = ", ".join(str((count, *array.shape)) for array in record)
        note = (
            f"(The model was called with {count} made-up record(s), that is with arrays of shape "
            f"{shapes}.)"
        )
        if count == 1:
            error.add_note(note)
            raise
        raise PrivacyModelError(
            f"the model takes one record, but not {count}: {type(error).__name__}: {error}. Its "
            "plate and its "
            "arrays must have one entry for each record that is handed in: "
            'numpyro.plate("records", len(x)). '
            f"{note}"
        ) from error


def _following(traces: Sequence[dict], counts: Sequence[int]) -> tuple[str, ...]:
    """The plates whose numbers of entries are as ``counts``."""
    names = [
        name
        for name, site in traces[0].items()
        if site["type"] == "plate" and all(name in traced for traced in traces)
    ]
    sizes = {name: [trace[name]["args"][1] for trace in traces] for name in names}
    return tuple(
        name
        for name, plate_sizes in sizes.items()
        if [size * counts[0] for size in plate_sizes]
        == [plate_sizes[0] * count for count in counts]
    )


def _check_plates(trace: dict, plates: tuple[str, ...], num_records: int) -> None:
    """:param trace: for one record."""
    subsampling = [name for name in plates if is_subsampling(trace[name])]
    if len(subsampling) > 1 and len({trace[name]["args"][0] for name in subsampling}) > 1:
        raise PrivacyModelError(
            "the model has more than one subsampling plate "
            f"({', '.join(map(repr, subsampling))}): exactly one may be the records."
        )
    for name in plates:
        size, here = trace[name]["args"]
        if size not in (here, num_records):
            raise PrivacyModelError(
                f"plate {name!r} has size {size}, but num_records is {num_records}: pass "
                f"num_records on to the plate, or write numpyro.plate({name!r}, len(x)) with x a "
                "record array."
            )
    for name, site in trace.items():
        if site["type"] == "sample":
            both = [frame.name for frame in site["cond_indep_stack"] if frame.name in plates]
            if len(both) > 1:
                raise PrivacyModelError(
                    f"site {name!r} is inside several plates of the records "
                    f"({', '.join(map(repr, both))}): it has a term for each pair of records, "
                    "which cannot be clipped per record."
                )


# ---- automatic guides ----------------------------------------------------------------------------


def automatic_parts(guide: Callable) -> list[AutoGuide]:
    """An automatic guide and the automatic guides that it is made of; none for other guides."""
    if not isinstance(guide, AutoGuide):
        return []
    inner = guide._guides if isinstance(guide, AutoGuideList) else []
    return [guide, *(member for child in inner for member in automatic_parts(child))]


def imputed_names(trace: dict) -> set[str]:
    """Latents that numpyro.sample makes of the missing entries of an observed
    site (``obs_mask``).
    """
    ending = "_unobserved"
    return {
        name
        for name, site in trace.items()
        if site["type"] == "sample"
        and name.endswith(ending)
        and trace.get(name.removesuffix(ending) + "_observed", {}).get("is_observed")
    }


def require_observed(trace: dict) -> None:
    """:raises PrivacyModelError: for a model without any observed site."""
    if not any(site["type"] == "sample" and site["is_observed"] for site in trace.values()):
        names = ", ".join(repr(name) for name, site in trace.items() if site["type"] == "sample")
        raise PrivacyModelError(
            f"no site of the model is observed ({names}), so there is nothing to learn from: "
            "write obs= for what was "
            'measured, as in numpyro.sample("obs", ..., obs=y) inside numpyro.plate("records", '
            "len(x)), and give its values "
            "with the records."
        )


def require_automatic(
    guide: AutoGuide, plates: tuple[str, ...], trace_guided: Callable[[Any], dict]
) -> set[str]:
    """The latents of missing observations, which an automatic guide must leave out.

    :param trace_guided: traces a guide's model for one record.
    :raises PrivacyModelError: for a guide that looks at the likelihood; a discrete latent; a latent
        of each record, with a guide to paste.
    """
    hidden: set[str] = set()
    for member in automatic_parts(guide):
        if isinstance(member, (AutoDAIS, AutoSemiDAIS)):
            raise PrivacyModelError(
                f"{type(member).__name__} runs on the likelihood of the records inside the guide, "
                "so its draws would be released without noise. Use AutoMultivariateNormal or "
                "AutoIAFNormal instead."
            )
        trace = trace_guided(member.model)
        hidden |= imputed_names(trace)
        latents = {
            name: site
            for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"] and name not in hidden
        }
        for name, site in latents.items():
            if site["fn"].support.is_discrete:
                raise PrivacyModelError(
                    f"site {name!r} is a discrete latent ({family(site['fn'])}), which an "
                    "automatic guide cannot have: sum it out in the model, as the mixture in "
                    "models/gmm.py does."
                )
        inside = {name: site for name, site in latents.items() if is_inside(site, plates)}
        if inside:
            require_observed(trace)
            raise _of_each_record(type(member).__name__, inside, plates, trace)
        if isinstance(member, AutoLaplaceApproximation):
            member.get_transform = _without_hessian
    return hidden


def _without_hessian(params: PyTree) -> Any:
    raise PrivacyModelError(
        "the covariance of AutoLaplaceApproximation is a Hessian of the private records, which a "
        "private fit does not have: it would be that of one made-up record. guide.median(params) "
        "is what was learnt. For a covariance fit AutoMultivariateNormal."
    )


def _of_each_record(
    guide: str, latents: dict[str, dict], plates: tuple[str, ...], trace: dict
) -> PrivacyModelError:
    """Why it is refused, with an amortised guide to paste."""
    lines, plate, dim = [], "", -1
    for latent, site in latents.items():
        frame = next(frame for frame in site["cond_indep_stack"] if frame.name in plates)
        plate, dim, shape = (
            frame.name,
            frame.dim,
            [*site["fn"].batch_shape, *site["fn"].event_shape],
        )
        axis = len(site["fn"].batch_shape) + frame.dim
        record_shape = shape[:axis] + shape[axis + 1 :]
        expression = (
            "jnp.moveaxis((features @ "
            f"each).reshape({', '.join(['len(x)', *map(str, record_shape)])}), 0, {axis})"
        )
        drawn = "dist.Normal(loc, jnp.exp(log_scale))"
        if site["fn"].event_shape:
            drawn += f".to_event({len(site['fn'].event_shape)})"
        if not _is_real(site["fn"].support):
            drawn = f"dist.TransformedDistribution({drawn}, biject_to(constraints...))"
        width = int(np.prod(record_shape))
        lines += [
            f'        weights = numpyro.param("{latent}_weights", jnp.zeros((2, '
            f"features.shape[1], {width})))",
            f"        loc, log_scale = ({expression} for each in weights)",
            f'        numpyro.sample("{latent}", {drawn})',
        ]
    size = "num_records, subsample_size=len(x)" if is_subsampling(trace[plate]) else "len(x)"
    dim_argument = "" if dim == -1 else f", dim={dim}"
    return PrivacyModelError(
        f"{guide} would have parameters for each record's {', '.join(map(repr, latents))}, by "
        f"the index of the record plate {plate!r}, learnt from that record alone. Use an "
        "amortised guide, whose networks all records share. Paste this, with your model's "
        "arguments, and add a numpyro.sample for each global latent:",
        "def guide(x, *args, num_records=None, **kwargs):\n"
        "    features = jnp.concatenate([x.reshape(len(x), -1), jnp.ones((len(x), 1))], axis=1)\n"
        f'    with numpyro.plate("{plate}", {size}{dim_argument}):\n' + "\n".join(lines),
    )


def _is_real(support: constraints.Constraint) -> bool:
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support is constraints.real
