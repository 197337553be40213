"""NumPyro functions as models: which of their arguments are arrays of the records, and which are
options.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench import _validate
from workbench.data import Dataset
from workbench.models.model import Model, parameters_of

__all__ = ["Arguments", "FunctionModel", "arguments_of", "from_function", "is_numpyro_model"]

_VISIBLE = 100.0  # N epsilon for each number of a record, from which C is adapted
_TARGET = "y"  # the array of a data set that the others predict,
_NAMES = {"x", "group", "present", _TARGET}  # of all that it may have
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COLLECTED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments(NamedTuple):
    """The arguments of a NumPyro function.

    :param arrays: names of the arrays of the records, in order.
    :param required: how many of them have no default.
    :param options: defaults by name; ``Parameter.empty`` for an option without one.
    :param any_number: whether the function takes any number of arrays, as with ``*arrays``.
    """

    arrays: tuple[str, ...]
    required: int
    options: Mapping[str, Any]
    any_number: bool


def arguments_of(function: Callable) -> Arguments:
    """Arrays come first. Options follow ``num_records``, or else begin at the first default that is
    not None.
    """
    parameters = list(parameters_of(function).values())
    names = [parameter.name for parameter in parameters]
    if "num_records" in names:
        end = start = names.index("num_records")
        start += 1
    else:
        are_arrays = [
            parameter.kind in _BY_POSITION
            and (parameter.default is parameter.empty or parameter.default is None)
            for parameter in parameters
        ]
        end = start = next(
            (position for position, is_array in enumerate(are_arrays) if not is_array), len(names)
        )
    arrays = [parameter for parameter in parameters[:end] if parameter.kind in _BY_POSITION]
    return Arguments(
        tuple(parameter.name for parameter in arrays),
        sum(parameter.default is parameter.empty for parameter in arrays),
        {
            parameter.name: parameter.default
            for parameter in parameters[start:]
            if parameter.kind not in _COLLECTED
        },
        any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters),
    )


def is_numpyro_model(function: Callable) -> bool:
    """Whether ``function`` is a NumPyro model: it takes ``num_records`` or must be given arrays. No
    factory does either.
    """
    if isinstance(function, type):
        return False
    return "num_records" in parameters_of(function) or arguments_of(function).required > 0


class FunctionModel(Model):
    """A ``Model`` of a NumPyro function alone. It takes arrays by name if it uses the names of data
    sets.
    """

    def advice(self, dataset: Dataset, num_records: int, epsilon: float) -> Mapping[str, Any]:
        """As of ``Model``. Nobody knows how long its gradients are, so C adapts where the noise
        does not hide that; not for images, as clipping does networks little harm.
        """
        numbers = 1 + sum(math.prod(array.shape[1:]) for array in dataset.train)
        shows = num_records * epsilon >= _VISIBLE * numbers and not dataset.image_shape
        return {"adapts_clip": shows, **super().advice(dataset, num_records, epsilon)}

    def view(self, dataset: Dataset) -> Any:
        """``dataset`` with the arrays that the function names, or as it is.

        :raises ArgumentError: naming ``data``, if it lacks one of them, the function takes another
            number of arrays, or would take one of them under the name of another.
        """
        named, required, _, any_number = arguments_of(self.model)
        if named and set(named) <= _NAMES:
            return super().view(dataset.select(named))
        has = (
            f"has the arrays {', '.join(dataset.arrays)}, but {self.name} takes {', '.join(named)}"
        )
        if not any_number and not required <= len(dataset.arrays) <= len(named):
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                f"{has}: give what is no array of the records a default, as functools.partial "
                "does.",
            )
        for name, array in zip(named, dataset.arrays, strict=False):
            if name != array and name in dataset.arrays:
                raise _validate.ArgumentError(
                    "data",
                    dataset.name,
                    f"{has}, so {name} would be {array}: name all as the data set does, or none.",
                )
        return super().view(dataset)


def _summary(function: Callable, name: str) -> str:
    while isinstance(function, functools.partial):  # its own docstring is that of functools
        function = function.func
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return " ".join(first.split()) or f"The NumPyro model {name}."


def from_function(name: str, function: Callable, argument: str) -> FunctionModel:
    """The model of a NumPyro function. Its docstring is the summary.

    :raises ArgumentError: naming ``argument``, if ``function`` takes no arrays, takes them in an
        order in which no data set has them, or has an option without a default.
    """
    if isinstance(function, type) or not callable(function):
        raise _validate.ArgumentError(
            argument,
            function,
            "must be a name, a workbench.models.Model or a NumPyro function, such as model(x, "
            "y=None).",
        )
    arguments = arguments_of(function)
    shown = getattr(function, "__qualname__", function)
    if not arguments.arrays and not arguments.any_number:
        raise _validate.ArgumentError(
            argument,
            shown,
            "takes no arrays: a NumPyro function begins with those of the records, as in "
            "model(x, y=None). Call a function that returns a Model.",
        )
    if (
        {*arguments.arrays} > {_TARGET}
        and arguments.arrays[-1] != _TARGET
        and set(arguments.arrays) <= _NAMES
    ):
        raise _validate.ArgumentError(
            argument,
            shown,
            f"takes {', '.join(arguments.arrays)}: the target must be the last, as in model(x, "
            "y=None).",
        )
    if missing := [
        option for option, value in arguments.options.items() if value is inspect.Parameter.empty
    ]:
        raise _validate.ArgumentError(
            argument,
            shown,
            f"must have defaults for {', '.join(missing)}.",
            remedy="functools.partial(model, name=value) gives one.",
        )
    return FunctionModel(name, _summary(function, name), function, options=dict(arguments.options))
