"""A formula and a table as a fit takes them: a ``Model`` and a ``Dataset``. There is one way of
fitting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from workbench import _validate
from workbench._lazy import pd
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.data.look import Look
from workbench.data.schema import Schema
from workbench.fitting.settings import FormulaSettings
from workbench.models import Model

__all__ = ["TABLE", "is_formula", "is_table", "model_and_data"]
TABLE = "table"  # in the origin of a checkpoint: how its data set was made of a table


_USUAL = 0.2  # of the rows, where evaluation records can be used

_MODEL = ("family", "link", "schema", "priors", "trials", "exposure", "observed")
_TABLE = tuple(
    field.name for field in dataclasses.fields(FormulaSettings) if field.name not in _MODEL
)


def is_formula(model: object) -> bool:
    """Whether ``model`` is the text of a formula. Names of models have no ~."""
    return isinstance(model, str) and "~" in model


def is_table(data: object) -> bool:
    """Whether ``data`` is a DataFrame."""
    return not isinstance(data, (str, Dataset)) and isinstance(data, pd.DataFrame)


def model_and_data(
    model: Any, data: Any, settings: FormulaSettings
) -> tuple[Any, Any, dict[str, Any]]:
    """(model, data set, how ``resume`` makes the data set of the same table again, JSON-ready) of
    what a caller gave.

    :param model: a name, a formula, or a ``Model``. :param data: a name, a table, or a ``Dataset``.
    :raises ArgumentError: naming the argument.
    """
    of_model, of_table = settings.given_of(_MODEL), settings.given_of(_TABLE)
    if is_formula(model):
        look = getattr(settings, "look", None)
        learned = look.schema if isinstance(look, Look) else None
        model, data = _formula(model, data, of_model, of_table, learned)
    elif of_model:
        name, value = next(iter(of_model.items()))
        raise ArgumentError(
            name, value, "applies only to a formula such as 'ill ~ age'; a Model already fixes it."
        )
    if is_table(data):
        if "evaluation" not in of_table:
            # nobody else has the data set, so private records that are held out would serve nothing
            is_public = _validate.flag(
                "evaluation_is_public", of_table.get("evaluation_is_public", False)
            )
            is_used = is_public or getattr(settings, "evaluate_private", False)
            of_table = {"evaluation_fraction": _USUAL if is_used else 0.0} | of_table
        again = {} if "evaluation" in of_table else {TABLE: of_table}
        return model, _data_set(model, data, of_table), again
    if of_table:
        name, value = next(iter(of_table.items()))
        raise ArgumentError(name, value, "applies only to a table; a Dataset already fixes it.")
    return model, data, {}


def _formula(
    text: str,
    data: str | Dataset | pd.DataFrame,
    options: Mapping[str, Any],
    of_table: dict[str, Any],
    learned: Schema | None,
) -> tuple[Model, Any]:
    """The model, and the data. Columns that get indicators of missing values are declared so, and
    taken off ``of_table``.

    :param learned: the declaration of a look at the table.
    """
    from workbench.data import load
    from workbench.data.missing_values import with_indicators
    from workbench.formula.model import formula
    from workbench.formula.records import schema_of

    options = dict(options)
    if isinstance(data, str):
        data = load(data)
    if "schema" not in options:
        if isinstance(data, Dataset):
            options["schema"] = schema_of(data)
        elif learned is not None:
            options["schema"] = learned
        else:
            raise ArgumentError(
                "schema",
                None,
                "must declare the columns of the formula, as in schema={'ill': bool, 'age': (0, "
                "120)}.",
                remedy="Where nothing can be declared, learn it inside a guarantee: "
                "seen = wb.look(frame, epsilon=0.1), and then privacy=wb.Privacy(look=seen).",
            )
    if "missing" in of_table:
        declared = Schema.from_declaration(options["schema"])
        of_table["missing"], options["schema"] = with_indicators(of_table["missing"], declared)
    return formula(text, **options), data


def _data_set(model: Model, frame: pd.DataFrame, options: Mapping[str, Any]) -> Dataset:
    from workbench.formula.model import FormulaModel

    if not isinstance(model, FormulaModel):
        raise ArgumentError(
            "data",
            "DataFrame",
            "is for a formula; for other models make a data set of it with wb.data.from_frame.",
        )
    return model.dataset(frame, **options)
