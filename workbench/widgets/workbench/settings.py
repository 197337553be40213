"""The settings in the Workbench's controls, as a frozen dataclass: checked field by field, and
printed as code.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench import models
from workbench._validate import ArgumentError
from workbench.fitting import groups
from workbench.fitting import settings as fit_settings
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import check_ledger
from workbench.models import registry
from workbench.widgets.workbench.data_source import DataSource, Same

__all__ = [
    "FORMULA",
    "PRIVACY_FIELDS",
    "Settings",
    "Shown",
    "ledger_in_code",
    "named_in_code",
    "problems_of",
]

FORMULA = "formula"  # the name of a model from a formula

# the fields of the privacy panel, by their names in ``workbench.fit``
PRIVACY_FIELDS = (
    "epsilon",
    "delta",
    "iterations",
    "sampling_rate",
    "batch_size",
    "sampler",
    "relation",
    "clip",
    "clipping",
    "learning_rate",
    "average",
)
_DEFAULTS = {
    name: default
    for name in PRIVACY_FIELDS
    if isinstance(default := fit_settings.default_of(name), str)
}


def problems_of(values: Mapping[str, Any]) -> dict[str, str]:
    """``{argument: what is wrong with it}`` for the privacy fields, as far as is known without
    model and data.
    """
    filled = {
        name: _DEFAULTS.get(name) if values.get(name) is None else values[name]
        for name in PRIVACY_FIELDS
    }
    return fit_settings.problems_of(filled)


def ledger_in_code(ledger: str | Path | Ledger | Literal[False] | None) -> str | bool | None:
    """The argument ``ledger`` of ``workbench.fit`` in code: None, False or the path of its file.

    :raises ArgumentError: naming ``ledger``, if it is not one of these or a ``Ledger``.
    """
    check_ledger(ledger)
    if ledger is None or ledger is False:
        return ledger
    return str(ledger.path if isinstance(ledger, Ledger) else ledger)


def named_in_code(
    model: str, options: Mapping[str, Any], data: DataSource
) -> tuple[list[tuple[str, str]], str]:
    """Lines (title, statement) that make model and data, and the two as arguments of a call, with
    the declaration of a table whose other columns are learned.
    """
    lines = []
    function = registry.definition(model) if registry.is_of_session(model) else None
    if isinstance(function, types.FunctionType) and function.__qualname__.isidentifier():
        lines.append(
            (
                "The model, a function of this notebook",
                f"wb.models.register({model!r}, {function.__name__})",
            )
        )
    records, declared = data.code, ""
    if model == FORMULA:
        model = repr(options.get("formula", ""))
    elif not options:
        model = repr(model)
    else:
        chosen = "".join(f", {name}={value!r}" for name, value in options.items())
        lines.append(("The model", f"model = wb.models.get({model!r}{chosen})"))
        model = "model"
    if data.note:
        lines.append(("The data", f"# {data.note}"))
    if data.settings:
        lines.append(("What is public about the columns", f"schema = {data.schema_as_code()}"))
        declared = ", schema=schema"
    if "(" in records:
        title = "The data" if data.settings else "The data, and what is public about them"
        lines.append((title, f"data = {records}"))
        records = "data"
    return lines, f"{model}, {records}{declared}"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the controls of a fit and of a sweep show.

    :param model: name in the gallery.
    :param data: the source of the records.
    :param options: options of the model that differ from their defaults.
    :param device: as in ``workbench.fit``.
    :param evaluate_private: whether to show curves, or scores, of private evaluation records.
    :param covered_scores: whether to release scores of them through noise.
    """

    model: str
    data: DataSource
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    evaluate_private: bool = False
    covered_scores: bool = False
    _definition: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Remember the model that has this name now, because a cell may register another
        one later.
        """
        object.__setattr__(self, "_definition", Same(registry.definition(self.model)))

    @property
    def model_key(self) -> tuple[Hashable, ...]:
        """Equal for settings of the same model on the same records."""
        options = tuple(sorted((name, repr(value)) for name, value in self.options.items()))
        return self.model, self._definition, options, self.data.key

    @property
    def _shared_key(self) -> tuple[Hashable, ...]:
        return *self.model_key, self.device, self.evaluate_private, self.covered_scores

    def _ticked(self) -> dict[str, Any]:
        """The arguments about devices and scores that differ from their defaults."""
        arguments: dict[str, Any] = {} if self.device is None else {"device": self.device}
        scores = ("evaluate_private", "covered_scores")
        return arguments | {name: True for name in scores if getattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class Settings(Shown):
    """One plan as the controls show it. None means that a value is chosen automatically.

    :param privacy: values of ``PRIVACY_FIELDS``.
    :param baseline: whether to fit without privacy too, for comparison; the private fit stays the
        same.
    :param ledger: as ``ledger_in_code`` returns it.
    :param over_cap: the reason to exceed the records' cap; None to respect it.
    """

    privacy: Mapping[str, Any]
    baseline: bool = False
    ledger: str | bool | None = None
    over_cap: str | None = None

    @property
    def key(self) -> Hashable:
        """Equal for settings that prepare the same fit."""
        plan = tuple((name, self.privacy.get(name)) for name in PRIVACY_FIELDS)
        return *self._shared_key, plan, self.ledger, self.over_cap

    def prepare(self, data: Any) -> Any:
        """Prepare the fit.

        :param data: what the source has loaded.
        :raises ArgumentError: naming the argument.
        :raises PrivacyModelError: naming the site.
        """
        from workbench.fitting import fits

        return self._in_public(fits.prepare, data)

    def planned(self, data: Any, dimension: int) -> tuple[Any, Any]:
        """What ``prepare`` does first: the fit's specification and its plan, for noise in
        ``dimension`` coordinates.

        :raises ArgumentError: naming the argument.
        """
        from workbench.fitting import fits

        spec, plan = self._in_public(fits.planned, data)
        return spec, plan.for_noise_in(dimension)

    def _in_public(self, function: Callable[..., Any], data: Any) -> Any:
        """The result of ``function`` for this fit. Its errors quote no record."""
        try:
            return function(**groups.grouped(self._asked(data)))
        except ArgumentError as error:
            reason = self.data.in_public(error)
        raise reason

    def _asked(self, data: Any) -> dict[str, Any]:
        is_formula = self.model == FORMULA
        model = self.options["formula"] if is_formula else models.get(self.model, **self.options)
        return {
            "model": model,
            "data": data,
            **self._of_formula(),
            **self.data.settings,
            "device": self.device,
            "evaluate_private": self.evaluate_private,
            "covered_scores": self.covered_scores,
            "ledger": self.ledger,
            "over_cap": self.over_cap,
            **self._given(),
        }

    def _of_formula(self) -> dict[str, Any]:
        """What a formula needs besides its text."""
        if self.model != FORMULA:
            return {}
        return {name: value for name, value in self.options.items() if name != "formula"}

    def _given(self) -> dict[str, Any]:
        """The privacy fields that were filled in."""
        values = {name: self.privacy.get(name) for name in PRIVACY_FIELDS}
        return {
            name: value
            for name, value in values.items()
            if value is not None and _DEFAULTS.get(name) != value
        }

    def as_code(self) -> str:
        """The Python code that repeats the run (with fresh noise), after ``import workbench as
        wb``.
        """
        return "\n".join(line for _, line in self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        """Lines (title, statement)."""
        lines, names = named_in_code(self.model, self.options, self.data)
        of_table = {name: value for name, value in self.data.settings.items() if name != "schema"}
        arguments = {**self._of_formula(), **of_table, **self._given(), **self._ticked()}
        if self.ledger is not None:
            arguments["ledger"] = self.ledger
        if self.over_cap is not None:
            arguments["over_cap"] = self.over_cap
        lines.append(("The fit", f"result = wb.fit({names}{groups.as_code(arguments)})"))
        return lines

    def as_cells(self) -> str:
        """The run and what follows it as notebook cells, in the percent format (``# %%`` begins a
        cell).
        """
        cells = [
            ("The DP-VI workbench", "import workbench as wb"),
            *self._lines(),
            ("The guarantee and its conditions", "print(result.guarantee.statement())"),
            ("The posterior", "result.summary()"),
            ("Curves on the evaluation records", "result.plot()"),
            ("All pictures that this result can draw", "list(result.pictures)"),
            ("Report, draws, parameters and curves in one folder", 'result.save("runs/mine")'),
        ]
        return "\n\n".join(f"# %%\n# {title}\n{code}" for title, code in cells) + "\n"
