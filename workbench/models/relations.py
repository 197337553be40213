"""The dependencies between the sites of a NumPyro model, found by tracing it on blank records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample
from numpyro.infer.inspect import get_model_relations
from numpyro.ops.provenance import eval_provenance

from workbench._numbers import count, shown

if TYPE_CHECKING:
    from workbench.data import Dataset
    from workbench.models.model import Model

__all__ = [
    "Records",
    "blank",
    "dependence",
    "distributions_of",
    "records_of",
    "relations_of",
    "trace_of",
]

Records = Sequence[tuple[tuple[int, ...], Any]]  # shape and type of one record's part in each array
_KNOWN = ("sample", "deterministic", "param")
_ARRAY = "array "  # before the names of arrays, which sites may have too


def records_of(dataset: Dataset) -> Records:
    """The shapes and types of a data set's records."""
    return [(array.shape[1:], array.dtype) for array in dataset.train]


def relations_of(
    model: Model, records: Records, constants: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """(the model's relations as ``numpyro.infer.inspect.get_model_relations`` gives them, a label
    for each of its plates).

    Besides, "inputs" has the sites that depend on each array that the model does not describe,
    record arrays and constants, and "sizes" the sizes of sites and inputs without their plates.
    Inputs stand in "plate_sample" too.

    :param model: ``Model``. :param constants: of the data set, public.
    :param records: what ``model.view`` returns has these. A plate is labelled with its size where
        two invented numbers of records leave it the same.
    """
    few, more = (
        trace_of(model.model, *blank(model, records, constants, number)) for number in (2, 3)
    )
    labels, public = {}, {}
    for name, site in few.items():
        if site["type"] == "plate":
            size, subsample_size = site["args"]
            subsampled = subsample_size not in (None, size)
            if name in more and more[name]["args"] == site["args"] and not subsampled:
                public[name] = size
            labels[name] = (
                "records" if subsampled else f"{name}: {count(size)}" if name in public else name
            )
    relations = get_model_relations(model.model, *blank(model, records, constants, 2))
    names = {
        name: _distribution(site["fn"]) for name, site in few.items() if site["type"] == "sample"
    }
    sizes = {
        name: _size(_own_shape(site))
        for name, site in few.items()
        if name in more and _own_shape(site) == _own_shape(more[name])
    }
    inputs, plates = {}, {name: list(inside) for name, inside in relations["plate_sample"].items()}
    arrays = _arrays(model, *blank(model, records, constants, 2))
    for name, users in _users(model, records, constants, few).items():
        shape = list(arrays[name].shape)
        is_record = name not in constants
        for plate, inside in plates.items():
            fits = (
                plate not in public
                if is_record
                else shape[:1] == [public.get(plate.replace("__CLONE", ""))]
            )
            if set(users) <= set(inside) and fits:
                inside.insert(0, name)
                shape = shape if is_record else shape[1:]
                break
        inputs[name] = users
        sizes[name] = _size(shape[1:] if is_record else shape)
    details = {
        "sample_dist": {**relations["sample_dist"], **names},
        "plate_sample": plates,
        "inputs": inputs,
        "sizes": sizes,
    }
    return {**relations, **details}, labels


def distributions_of(
    model: Model, records: Records, constants: Mapping[str, Any]
) -> dict[str, str]:
    """The distribution of each site with its parameters: their values, or what they depend on.

    >>> data = wb.data.load("breast_cancer")
    >>> model = wb.models.get("logistic")
    >>> distributions_of(model, records_of(data), {})["weights"]
    'Normal(loc 0, scale 5)'
    """
    args, keywords = blank(model, records, constants, 2)
    abstract = trace_of(model.model, args, keywords)

    def parameters_of_sites() -> dict[str, dict[str, Any]]:
        with handlers.trace() as sites:
            _started(model.model)(*args, **keywords)
        return {
            name: _parameters(site["fn"])
            for name, site in sites.items()
            if site["type"] == "sample"
        }

    concrete = jax.jit(
        parameters_of_sites
    )()  # one program: op by op, each operation of the model would be compiled
    distributions = {}
    depends = dependence(model, args, keywords, abstract)
    for name, site in abstract.items():
        if site["type"] == "sample":
            parameters = depends[name]
            values = concrete[name]
            used = {parameter: _words(parameters[parameter], abstract) for parameter in values}
            fixed = [
                f"{parameter} {_value(values[parameter])}"
                for parameter in values
                if not used[parameter]
            ]
            dependent = [
                f"{parameter} from {used[parameter]}" for parameter in values if used[parameter]
            ]
            sources = _words(parameters[""], abstract)
            description = (
                f"({', '.join(fixed + dependent)})"
                if values
                else f", given {sources}"
                if sources
                else ""
            )
            distributions[name] = _distribution(abstract[name]["fn"]) + description
    return distributions


# ---- tracing -------------------------------------------------------------------------------------


def blank(
    model: Model, records: Records, constants: Mapping[str, Any], number: int
) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """The arguments of a call with ``number`` blank records."""
    from workbench.record_model.plates import takes_num_records

    # the core need not be there to look at a model
    from workbench.record_model.threads import separate_handler_stacks

    separate_handler_stacks()
    arrays = tuple(np.zeros((number, *shape), dtype) for shape, dtype in records)
    size = {"num_records": 2 * number} if takes_num_records(model.model) else {}
    return arrays, {**model.options, **constants, **size}


def _started(model: Callable) -> Any:
    # improper priors have no draws
    return handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_sample)


def trace_of(model: Callable, records: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """The trace of ``model``. Nothing is computed, so its values are abstract."""
    trace: dict[str, Any] = {}
    jax.eval_shape(
        lambda: trace.update(handlers.trace(_started(model)).get_trace(*records, **keywords))
    )
    return trace


def _arrays(model: Any, records: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Record arrays and array-valued constants by the names of the model's arguments."""
    try:
        named = [
            name
            for name, parameter in inspect.signature(model.model).parameters.items()
            if parameter.kind is not parameter.VAR_POSITIONAL
        ]
    except (TypeError, ValueError):
        named = []
    labels = (
        named
        if len(named) >= len(records)
        else [f"array {number}" for number in range(1, len(records) + 1)]
    )
    constants = {
        name: value
        for name, value in keywords.items()
        if hasattr(value, "dtype") and np.ndim(value)
    }
    return {**dict(zip(labels, records, strict=False)), **constants}


class _Cut(handlers.substitute):
    """Substitutes deterministic sites too, so that what follows depends on them and not on what
    they are computed from.
    """

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "deterministic" and msg["name"] in self.data:
            msg["cut"], msg["value"] = msg["value"], self.data[msg["name"]]
        else:
            super().process_message(msg)


# ``model`` may be a guide that has the attributes of a ``Model`` which are read here
def dependence(
    model: Any, records: tuple[Any, ...], keywords: dict[str, Any], trace: dict[str, Any]
) -> dict[str, dict[str, set[str]]]:
    """What each parameter of each site depends on directly; "" stands for the site's density."""
    arrays = _arrays(model, records, keywords)
    latents = {
        name: jnp.zeros(np.shape(site["value"]), site["value"].dtype)
        for name, site in trace.items()
        if site["type"] in _KNOWN
        and not site.get("is_observed")
        and hasattr(site["value"], "dtype")
    }

    def values_of_sites(**arguments: Any) -> dict[str, dict[str, Any]]:
        positional = [arguments[_ARRAY + name] for name in list(arrays)[: len(records)]]
        more = {
            name: arguments[_ARRAY + name] if name in arrays else value
            for name, value in keywords.items()
        }
        with (
            handlers.trace() as sites,
            handlers.seed(rng_seed=0),
            _Cut(data={name: arguments[name] for name in latents}),
        ):
            model.model(*positional, **more)
        values: dict[str, dict[str, Any]] = {}
        for name, site in sites.items():
            if site["type"] == "sample":
                density = site["fn"].log_prob(site["value"])
                values[name] = {"": density, "value": site["value"], **_parameters(site["fn"])}
            elif "cut" in site:
                values[name] = {"": site["cut"]}
        return values

    traced = eval_provenance(
        values_of_sites, **latents, **{_ARRAY + name: array for name, array in arrays.items()}
    )
    dependencies: dict[str, dict[str, set[str]]] = {}
    for name, parameters in traced.items():
        observes = (
            parameters.pop("value", frozenset()) if trace[name].get("is_observed") else frozenset()
        )
        parameters.pop("value", None)
        observed = {name, *observes}
        dependencies[name] = {
            parameter: set(used) - observed for parameter, used in parameters.items()
        }
        dependencies[name]["value"] = set(observes)
    return dependencies


def _users(
    model: Model, records: Records, constants: Mapping[str, Any], trace: dict[str, Any]
) -> dict[str, list[str]]:
    """The sites that depend on each array that no site observes."""
    args, keywords = blank(model, records, constants, 2)
    depends = dependence(model, args, keywords, trace)
    observed = set().union(*(parameters.get("value", ()) for parameters in depends.values()))
    users_of_arrays = {}
    for name in _arrays(model, args, keywords):
        users = [site for site, parameters in depends.items() if _ARRAY + name in parameters[""]]
        if users and _ARRAY + name not in observed:
            users_of_arrays[name] = users
    return users_of_arrays


# ---- words ---------------------------------------------------------------------------------------


def _words(names: set[str], trace: dict[str, Any]) -> str:
    """Names in a row; of parameters the first word, because networks have many."""
    words = []
    for name in sorted(names, key=[*trace, *names].index):
        word = name.removeprefix(_ARRAY)
        if trace.get(name, {}).get("type") == "param":
            for sign in "$./_":
                word = word.split(sign)[0] or word
        words += [] if word in words else [word]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _unwrapped(fn: dist.Distribution) -> Any:
    while (
        isinstance(fn, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution))
        or type(fn) is dist.TransformedDistribution
    ):
        fn = fn.base_dist
    return fn


def _parameters(fn: dist.Distribution) -> dict[str, Any]:
    """Values of the parameters of a distribution, as far as it is a plain one."""
    fn = _unwrapped(fn)
    values = {
        name: vars(fn)[name] for name in getattr(fn, "arg_constraints", {}) if name in vars(fn)
    }
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, (int, float)) or hasattr(value, "dtype")
    }


def _value(value: ArrayLike) -> str:
    entries = np.asarray(value, float).ravel()
    if not entries.size or not np.isfinite(entries).all():
        return "unknown"
    low, high = (_short(bound) for bound in (entries.min(), entries.max()))
    return low if low == high else f"between {low} and {high}"


def _short(value: float) -> str:
    return f"{value:g}" if len(f"{value:g}") <= 6 and value >= 0 else shown(value)


def _own_shape(site: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a site's value without the axes of its plates."""
    if site["type"] == "sample":
        batch = list(site["fn"].batch_shape)
        for frame in site["cond_indep_stack"]:
            if -frame.dim <= len(batch):
                batch[frame.dim] = 1
        return (*batch, *site["fn"].event_shape)
    return (
        ()
        if site["type"] == "plate" or site.get("cond_indep_stack")
        else tuple(np.shape(site["value"]))
    )


def _size(shape: Sequence[int]) -> str:
    return " \N{MULTIPLICATION SIGN} ".join(count(size) for size in shape if size != 1)


def _distribution(fn: dist.Distribution) -> str:
    """The name of a distribution as people say it: "Bernoulli" with logits or probabilities,
    "transformed Gamma".
    """
    if isinstance(fn, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)):
        return _distribution(fn.base_dist)
    if type(fn) is dist.TransformedDistribution:
        return f"transformed {_distribution(fn.base_dist)}"
    name = type(fn).__name__
    if name.startswith("Mixture"):
        return "mixture of " + _distribution(
            getattr(fn, "component_distribution", None) or fn.component_distributions[0]
        )
    return name.removesuffix("Logits").removesuffix("Probs").removesuffix("OfMean")
