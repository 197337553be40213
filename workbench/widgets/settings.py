"""What the controls say, as a frozen dataclass: checked field by field, and printed as the call that repeats the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from workbench import _validate, models
from workbench.data import Dataset
from workbench.privacy.accounting import MAX_EPSILON

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """One plan as the controls show it. ``delta`` None means the default below 1 / N."""

    model: str = "logistic"
    data: str = "breast_cancer"
    epsilon: float = 1.0
    delta: float | None = None
    iterations: int = 50_000
    evaluate_private: bool = False

    def problems(self) -> dict[str, str]:
        """``{field: what is wrong with it}``; empty if a fit can start."""
        checks: dict[str, Callable[[], Any]] = {
            "model": lambda: models.get(self.model),
            "epsilon": lambda: _validate.number("epsilon", self.epsilon, above=0, at_most=MAX_EPSILON),
            "delta": lambda: None if self.delta is None else _validate.probability("delta", self.delta),
            "iterations": lambda: _validate.integer("iterations", self.iterations, at_least=1, at_most=2**31 - 1),
        }
        found = {}
        for name, check in checks.items():
            try:
                check()
            except _validate.ArgumentError as error:
                found[name] = error.expectation
        return found

    def prepare(self, dataset: Dataset) -> Any:
        """The prepared fit."""
        from workbench import fitting

        return fitting.prepare(
            self.model,
            dataset,
            epsilon=self.epsilon,
            delta=self.delta,
            iterations=self.iterations,
            evaluate_private=self.evaluate_private,
        )

    def as_code(self, embedded: bool) -> str:
        """The one Python call that repeats the run (with fresh noise).

        :param embedded: whether the data set can be named; else the code refers to a variable ``data``.
        """
        values = asdict(self)
        values.pop("model")
        name = values.pop("data")
        data = repr(name) if embedded else "data"
        if not values["evaluate_private"]:
            del values["evaluate_private"]
        if values["delta"] is None:
            del values["delta"]
        arguments = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"result = wb.fit({self.model!r}, {data}, {arguments})"
