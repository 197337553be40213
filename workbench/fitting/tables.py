"""A formula and a table as a fit takes them: a ``Model`` and a ``Dataset``, or an ``Unlearned``
where columns are declared by their type alone. There is one way of fitting.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from workbench import _validate
from workbench._lazy import pd
from workbench._validate import ArgumentError
from workbench.data import Dataset, from_frame, load
from workbench.data.columns import Boolean
from workbench.data.look import Look, Scales
from workbench.data.missing_values import with_indicators
from workbench.data.preprocessing import DECLARATION, column_name, listed
from workbench.data.schema import Schema
from workbench.data.undeclared import Table, by_type, is_complete, types_from_text, types_to_text
from workbench.fitting.columns import Budget, Price
from workbench.fitting.products import (
    most_products,
    parts_of,
    share_with_products,
    with_products,
)
from workbench.fitting.settings import FormulaSettings
from workbench.fitting.undeclared import Undeclared, id_of_table
from workbench.ledger.fingerprint import secret_key
from workbench.ledger.ledger import DatasetId
from workbench.models import Model
from workbench.models.registry import AnyModel, is_known
from workbench.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from workbench.fitting.spec import FitSpec

__all__ = [
    "OF_TABLES",
    "TABLE",
    "Unlearned",
    "again_of",
    "is_formula",
    "is_table",
    "model_and_data",
    "shared_table",
]

TABLE = "table"  # in the origin of a checkpoint: how its data set was made of a table
_TYPES = "types"  # there: the declaration of a table with columns declared by their type alone

_USUAL = 0.2  # of the rows, where evaluation records can be used

_OF_COLUMNS = ("missing", "unit_id", "max_rows", "unit", "name")  # what a look needs of a table
_MODEL = ("family", "link", "schema", "priors", "trials", "exposure", "observed")
OF_TABLES = tuple(
    field.name for field in dataclasses.fields(FormulaSettings) if field.name not in _MODEL
)


@dataclass(frozen=True, eq=False, repr=False)
class Unlearned:
    """The ``Columns`` of a formula's table, of which some are declared by their type alone.

    :param columns: how it is looked at. :param of_schema: model and data set, given the declaration
        of all columns.
    """

    columns: Undeclared
    of_schema: Callable[[Schema], tuple[Model, Dataset]]
    source: Dataset

    @functools.cached_property
    def dataset_id(self) -> DatasetId:
        return id_of_table(self.source, self.columns.table)

    @property
    def fingerprint(self) -> str:
        return self.dataset_id.fingerprint(secret_key())

    @property
    def most_coordinates(self) -> int:
        return self.columns.most_coordinates

    def share(
        self, asked: float | None, model: Model, is_alone: bool, budget: Budget
    ) -> float | None:
        """:raises ArgumentError: naming ``look``, for none."""
        if asked == 0 or not is_alone:
            raise ArgumentError(
                "look",
                asked,
                "learns nothing, nor do several processes, so ranges and levels that are not "
                "declared stay unknown.",
                remedy="Declare them, as in schema={'age': (0, 120)}.",
            )
        if asked is not None:
            return asked
        return share_with_products(self.columns.share_of_budget(*budget), model, *budget)

    def num_counts(self, spec: FitSpec) -> int:
        return self.columns.size(spec.privacy.num_records) + most_products(spec.model)

    def delta_of_texts(self, delta: float) -> float:
        return self.columns.delta_of_texts(delta)

    def require_visible(self, spec: FitSpec, plan: PrivacyPlan) -> None:
        assert plan.look is not None
        settings = plan.settings
        self.columns.require_visible(
            settings.epsilon,
            parts_of(spec, plan.look.noise_multiplier)[0],
            plan.delta_of_texts,
            settings.num_records,
        )

    def looked(self, spec: FitSpec, plan: PrivacyPlan, key: jax.Array) -> FitSpec:
        assert plan.look is not None
        of_counts, of_products = parts_of(spec, plan.look.noise_multiplier)
        look = self.columns.take(of_counts, key, plan.delta_of_texts)
        assert look.schema is not None
        again = functools.partial(self.learned, spec, schema=look.schema.to_dict())
        fit = again(look.scales(spec.model.responses))
        return with_products(fit, of_products, key, again)

    def learned(self, spec: FitSpec, scales: Scales, schema: Mapping[str, Any]) -> FitSpec:
        declared = Schema.from_dict(schema)
        with warnings.catch_warnings():  # about columns, which the result repeats
            warnings.simplefilter("ignore")
            model, source = self.of_schema(declared)
        return spec.declared_as(model, source, declared.to_dict(), scales)

    def declarations(self, spec: FitSpec) -> list[str]:
        names = listed(list(self.columns.table.types))
        types = f"Of {names} only the type is declared, or the table's own is taken as public; "
        if not spec.learned:
            unit = spec.data.declarations()[0]
            return [unit, f"{types}their ranges and levels are learned within the guarantee."]
        return [
            *spec.data.declarations(),
            f"{types}what is said of their ranges and levels was learned within the guarantee.",
        ]

    def price(self, spec: FitSpec) -> Price:
        privacy = spec.privacy
        assert privacy.relation is not None  # which a spec has chosen
        budget = privacy.num_records, privacy.epsilon, privacy.delta, privacy.relation
        return Price(
            tuple(self.columns.table.types),
            privacy.look,
            share_with_products(self.columns.share_if_declared(*budget), spec.model, *budget),
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
    of_model, of_table = settings.given_of(_MODEL), settings.given_of(OF_TABLES)
    if is_formula(model):
        if not isinstance(data, (str, Dataset)) and not is_table(data):
            raise ArgumentError(
                "data",
                type(data).__name__,
                "must be a pandas DataFrame, a data set, or the name of one.",
                remedy="pd.DataFrame(data) makes a table of columns.",
            )
        look = getattr(settings, "look", None)
        learned = look.schema if isinstance(look, Look) else None
        declared = of_model.get("schema", learned)
        is_private = getattr(settings, "private", False)
        if is_table(data) and is_private and isinstance(declared, Mapping) and learned is None:
            declared = _completed(model, data, declared, of_table.get("unit_id"))
            of_model["schema"] = declared
        if is_table(data) and is_private and (declared is None or not is_complete(declared)):
            of_table = _with_evaluation(of_table, settings)
            unlearned = _unlearned(model, data, of_model, of_table)
            columns = unlearned[1].columns.table
            if columns.types:
                return unlearned
            of_model["schema"] = columns.declared  # of all columns that the formula uses
        model, data = _formula(model, data, of_model, of_table, learned)
    elif of_model:
        name, value = next(iter(of_model.items()))
        raise ArgumentError(
            name, value, "applies only to a formula such as 'ill ~ age'; a Model already fixes it."
        )
    if is_table(data):
        of_table = _with_evaluation(of_table, settings)
        again = {} if "evaluation" in of_table else {TABLE: of_table}
        return model, _data_set(model, data, of_table), again
    if of_table:
        name, value = next(iter(of_table.items()))
        raise ArgumentError(name, value, "applies only to a table; a Dataset already fixes it.")
    return model, data, {}


def shared_table(text: str, frame: pd.DataFrame, settings: FormulaSettings) -> Dataset:
    """The data set of a table with all columns that are declared, which formulas of one response
    share; a fifth of the rows is held out, unless ``settings`` say otherwise.

    :param text: one of the formulas.
    :raises ArgumentError: naming the argument.
    """
    of_model, of_table = settings.given_of(_MODEL), settings.given_of(OF_TABLES)
    if "evaluation" not in of_table:
        of_table = {"evaluation_fraction": _USUAL} | of_table
    if not is_complete(of_model.get("schema") or {"": float}):
        raise ArgumentError(
            "schema",
            of_model.get("schema"),
            "must declare range or levels of each column, because rows are held out by what they "
            "contain.",
        )
    model: Any = _formula(text, frame, of_model, of_table, None)[0]
    declared = Schema.from_declaration(of_model["schema"]).columns
    columns = dataclasses.replace(
        model.columns, schema=Schema({**declared, **model.columns.schema.columns})
    )
    return columns.dataset(frame, **of_table)


def again_of(facts: Mapping[str, Any], data: Any) -> tuple[Any, dict[str, Any]]:
    """(the text of a formula, or None for the model of the gallery; further arguments of a fit) by
    which a fit of the same table is asked for again.

    :param facts: of its checkpoint.
    """
    origin, options = facts["origin"], facts["model"]["options"]
    of_table = dict(origin.get(TABLE, {})) if is_table(data) else {}
    if _TYPES not in origin:
        return None, of_table
    of_model = {name: options[name] for name in _MODEL if name in options}
    schema = types_from_text(origin[_TYPES])
    return options["formula"], {**of_table, **of_model, "schema": schema}


def _with_evaluation(of_table: dict[str, Any], settings: FormulaSettings) -> dict[str, Any]:
    """``of_table`` with the share of evaluation records, unless they come apart."""
    if "evaluation" in of_table:
        return of_table
    # nobody else has the data set, so private records that are held out would serve nothing
    is_public = _validate.flag("evaluation_is_public", of_table.get("evaluation_is_public", False))
    used_by = ("evaluate_private", "covered_scores")
    is_used = is_public or any(getattr(settings, name, False) for name in used_by)
    return {"evaluation_fraction": _USUAL if is_used else 0.0} | of_table


def _completed(
    text: str, frame: pd.DataFrame, declared: Mapping[str, Any], unit_id: Hashable
) -> Mapping[str, Any]:
    """``declared``, and the types of what else a formula may name of its table.

    :raises ArgumentError: naming ``schema``, for a name that the table does not have. Without
        that, the column that is meant would pass for one that is not declared.
    """
    types = by_type(frame, unit_id, text)
    words = text.casefold()
    named = {name: how for name, how in types.items() if name.casefold() in words}
    names, labels = (set(map(column_name, table)) for table in (declared, frame.columns))
    undeclared = {name: how for name, how in named.items() if name not in names}
    if undeclared and names - labels:
        raise _validate.unknown_name("schema", min(names - labels), labels)
    return {**undeclared, **declared}


def _unlearned(
    text: str, frame: pd.DataFrame, options: Mapping[str, Any], of_table: dict[str, Any]
) -> tuple[Model, Unlearned, dict[str, Any]]:
    """As ``model_and_data``, where columns are declared by their type alone.

    :raises ArgumentError: also for a formula that would be refused once ranges or levels are
        learned.
    """
    from workbench.formula.families import get, of_column
    from workbench.formula.parsing import parse

    if of_table.get("evaluation_fraction"):
        raise ArgumentError(
            "evaluation_fraction",
            of_table["evaluation_fraction"],
            "needs declared columns, because records are held out by what they contain.",
            remedy="Declare all columns, or give the evaluation records apart, as "
            "table=wb.Table(evaluation=...).",
        )
    unit_id = of_table.get("unit_id")
    declared = options.get("schema") or by_type(frame, unit_id, text)
    parsed = parse(text).matched(declared)
    beside = {*parsed.extras, *(["trials"] if options.get("trials") else [])}
    response = parsed.response
    how = declared.get(response)
    if how is str and "family" not in options:
        raise ArgumentError(
            "family",
            None,
            f"is needed, because {response!r} is text whose levels are not declared.",
            remedy='Write family="bernoulli" for yes or no, or declare the levels, as in '
            f"schema={{{response!r}: ['a', 'b']}}.",
        )
    is_type = how in (int, float, str)
    of_response = None if how is None or is_type else Schema.from_declaration({response: how})
    column = of_response and of_response.columns[response]
    family = get(options.get("family", of_column(column)), options.get("link"), beside)
    if family.name == "bernoulli" and is_type:
        declared = {**declared, response: Boolean()}

    def of_schema(schema: Schema) -> tuple[Model, Dataset]:
        how = dict(of_table)
        model, _ = _formula(text, frame, {**options, "schema": schema}, how, None)
        return model, _data_set(model, frame, how)

    def columns_of(schema: Schema) -> Dataset:
        """The columns alone."""
        missing, declared = with_indicators(of_table.get("missing"), schema)
        how = {**dict.fromkeys(_OF_COLUMNS), **of_table, "missing": missing}
        how = {name: how[name] for name in _OF_COLUMNS if how[name] is not None}
        return from_frame(frame, target=None, schema=declared, evaluation=False, **how)

    make = functools.partial(
        Table,
        frame,
        unit_id=unit_id,
        max_rows=of_table.get("max_rows"),
        limits={response: family.limits},
        from_zero=[response] if family.zeros else [],
    )
    everything = make(declared)
    columns = Undeclared(everything, columns_of, of_table.get("missing"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _formula(text, frame, {**options, "schema": everything.widest()}, dict(of_table), None)
        model, data = of_schema(everything.unlearned())
        if model.columns_used is None or set(everything.numbers) & model.columns_used:
            model.with_scales({})  # refuses priors that depend on what is declared
    except ArgumentError as error:
        named = {role: options.get(role) for role in ("trials", "exposure", "observed")}
        roles = {"response": response, **named, **parsed.extras}
        raise _of_undeclared(error, text, roles, everything.numbers) from None
    used = {name: how for name, how in declared.items() if name in (model.columns_used or ())}
    columns = dataclasses.replace(columns, table=make(used))
    again = {} if "evaluation" in of_table else {TABLE: of_table, _TYPES: types_to_text(declared)}
    return model, Unlearned(columns, of_schema, data), again


def _of_undeclared(
    error: ArgumentError, text: str, roles: Mapping[str, str | None], numbers: Sequence[str]
) -> ArgumentError:
    """``error`` of the widest ranges in words of the columns that are not declared, if it is one.

    :param roles: ``{"response", ...: name of its column}``. :param numbers: the columns of which
        no range is declared.
    """
    name, response = roles.get(error.argument), roles["response"]
    if name in numbers:
        return ArgumentError(
            f"schema[{name!r}]",
            None,
            error.expectation,
            code=DECLARATION,
            remedy=f"Declare that, as schema={{{name!r}: (low, high)}}.",
        )
    if error.code != DECLARATION:
        return error
    used = [number for number in numbers if number in text and number != response]
    return ArgumentError(
        error.argument,
        error.value,
        error.expectation,
        code=error.code,
        remedy=f"Columns that are not declared can have any values: declare them, as in "
        f"schema={{{[*used, response][0]!r}: (0, 100)}}.",
    )


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
            )
    if "missing" in of_table:
        declared = Schema.from_declaration(options["schema"])
        of_table["missing"], options["schema"] = with_indicators(of_table["missing"], declared)
    return formula(text, **options), data


def _data_set(model: AnyModel, frame: pd.DataFrame, options: Mapping[str, Any]) -> Dataset:
    from workbench.formula.model import FormulaModel

    if isinstance(model, str) and not is_known(model):
        reason = "is no name of a model, and a formula has a ~, as in 'ill ~ age'."
        raise ArgumentError("model", model, reason)
    if not isinstance(model, FormulaModel):
        raise ArgumentError(
            "data",
            "DataFrame",
            "is for a formula, such as 'ill ~ age'; for other models make a data set of it with "
            "wb.data.from_frame.",
        )
    return model.dataset(frame, **options)
