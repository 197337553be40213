"""The settings in the controls of a sweep, as a frozen dataclass: checked list by list, and printed
as code.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench import _validate, models
from workbench.data import Dataset
from workbench.fitting.groups import as_code, grouped
from workbench.fitting.settings import problems_of
from workbench.sweeps import sweeping
from workbench.sweeps.store import Store
from workbench.widgets.kit import fields
from workbench.widgets.workbench.settings import Shown, named_in_code

__all__ = ["LISTS", "SweepSettings", "numbers_in", "problems_of_ranges"]

# lists of a sweep, with the name of each value in a fit
LISTS = {
    "epsilons": "epsilon",
    "iterations": "iterations",
    "num_records": "num_records",
    "clips": "clip",
    "learning_rates": "learning_rate",
}
_CHOSEN = {name: LISTS[name] for name in ("iterations", "clips", "learning_rates")}
_MOST_REPETITIONS = 1000


def numbers_in(text: str) -> tuple[Any, ...]:
    """The values in a list, separated by commas or spaces, each as ``fields.number_in``
    reads it.
    """
    return tuple(map(fields.number_in, words_in(text)))


def words_in(text: str) -> tuple[str, ...]:
    """The items of a list, separated by commas or spaces."""
    return tuple(item for item in re.split(r"[,;\s]+", text) if item)


def problems_of_ranges(values: Mapping[str, Any]) -> dict[str, str]:
    """``{argument: what is wrong with it}`` for ``SweepSettings.ranges``, as far as is known
    without model and data.
    """
    problems = {
        name: problem
        for name in LISTS
        if (problem := _problem_of_list(name, values.get(name) or ()))
    }
    if not values.get("epsilons"):
        problems["epsilons"] = "must have at least one value."
    if not values.get("samplers"):
        problems["samplers"] = "tick at least one."
    try:
        _validate.integer("seeds", values.get("seeds"), at_least=1, at_most=_MOST_REPETITIONS)
    except _validate.ArgumentError as error:
        problems["seeds"] = error.expectation
    for name in values.get("models") or ():
        try:
            models.get(name)
        except _validate.ArgumentError as error:
            problems["models"] = f"“{name}”: {error.expectation}"
    if problem := _problem_of_one("delta", values.get("delta")):
        problems["delta"] = problem
    return problems


def _problem_of_list(name: str, values: tuple[Any, ...]) -> str:
    """What is wrong with the first unusable value; "" for none."""
    for value in values:
        problem = _problem_of_one(name, value)
        if problem:
            return f"“{value}” {problem}"
    return ""


def _problem_of_one(name: str, value: Any) -> str:
    single = LISTS.get(name, name)
    return problems_of({single: value}).get(single, "")


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Shown):
    """One sweep as the controls show it. An empty list means that a value is chosen automatically.

    :param ranges: ``LISTS``, "models" beside the first, "samplers" and "baselines" as tuples;
        "seeds", the number of repetitions; and "delta".
    :param store: name of a file for finished fits, or "".
    """

    ranges: Mapping[str, Any]
    store: str = ""

    @property
    def key(self) -> Hashable:
        """Equal for settings that prepare the same sweep."""
        return *self._shared_key, tuple(sorted(self.ranges.items())), self.store

    def prepare(self, dataset: Dataset, store: Store) -> sweeping.PreparedSweep:
        """Prepare the sweep of ``dataset``, with its finished fits in ``store``.

        :raises ArgumentError: naming the argument.
        :raises PrivacyModelError: naming the site.
        """
        arguments = grouped(self._arguments(dataset.is_public), LISTS)
        return sweeping.prepare(
            models.get(self.model, **self.options), dataset, store=store, **arguments
        )

    def _arguments(self, is_public: bool) -> dict[str, Any]:
        """Arguments for ``workbench.sweep``. Only fits of public records get seeds; others have
        secret randomness.
        """
        ranges = self.ranges
        arguments: dict[str, Any] = {name: list(ranges[name]) for name in LISTS if ranges.get(name)}
        if ranges.get("models"):
            arguments["models"] = list(ranges["models"])
        arguments["seeds"] = range(ranges["seeds"]) if is_public else ranges["seeds"]
        if tuple(ranges["samplers"]) != ("poisson",):
            arguments["samplers"] = list(ranges["samplers"])
        if is_public and ranges.get("baselines"):
            arguments["baselines"] = list(ranges["baselines"])
        if ranges.get("delta") is not None:
            arguments["delta"] = ranges["delta"]
        return arguments | self._ticked()

    def choice(self) -> dict[str, Any]:
        """Arguments of ``workbench.choose`` besides the data, for the best of all combinations.

        :raises ArgumentError: naming a list that a choice has no use for.
        """
        ranges = self.ranges
        for name, single in (("epsilons", "one epsilon"), ("samplers", "one sampler")):
            if len(ranges[name]) != 1:
                raise _validate.ArgumentError(name, ranges[name], f"must be {single} for a choice.")
        if ranges.get("num_records"):
            raise _validate.ArgumentError(
                "num_records", ranges["num_records"], "must be empty for a choice."
            )
        lists = {name: list(ranges[list_]) for list_, name in _CHOSEN.items() if ranges.get(list_)}
        chosen = [models.get(self.model, **self.options), *(ranges.get("models") or ())]
        arguments = {
            "epsilon": ranges["epsilons"][0],
            "delta": ranges.get("delta"),
            "sampler": ranges["samplers"][0],
            "device": self.device,
        }
        if arguments["sampler"] == "poisson":
            arguments["sampler"] = None
        further = {name: value for name, value in arguments.items() if value is not None}
        return {"candidates": {"model": chosen, **lists}, **further}

    def choice_as_code(self) -> str:
        """The Python code that makes the choice, after ``import workbench as wb``."""
        lines, names = named_in_code(self.model, self.options, self.data)
        model, records = names.split(", ", 1)
        arguments = self.choice()
        lists = {name: value for name, value in arguments["candidates"].items() if name != "model"}
        listed = ", ".join([model, *map(repr, self.ranges.get("models") or ())])
        inner = "".join(f", {name!r}: {value!r}" for name, value in lists.items())
        further = {name: value for name, value in arguments.items() if name != "candidates"}
        return "\n".join(
            [
                *(line for _, line in lines),
                f"candidates = {{'model': [{listed}]{inner}}}",
                f"result = wb.choose(candidates, {records}{as_code(further)})",
            ]
        )

    def as_code(self, prepared: sweeping.PreparedSweep) -> str:
        """The Python code that repeats the sweep, after ``import workbench as wb``."""
        lines, names = named_in_code(self.model, self.options, self.data)
        arguments = self._arguments(prepared.total is None)
        if self.store:
            arguments["store"] = self.store
        if prepared.total is not None:
            arguments["accept_total_epsilon"] = prepared.total.epsilon
        code = as_code(arguments, LISTS)
        return "\n".join(
            [*(line for _, line in lines), f"result = wb.sweep({names}{code})", "result.plot()"]
        )
