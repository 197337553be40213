"""Declarations about a table, as typed: checked column by column, and turned into options of
``wb.data``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from workbench import _validate
from workbench.data import Categorical, Numeric
from workbench.data.groups import checked_groups
from workbench.data.targets import class_names
from workbench.data.units import checked_max_rows
from workbench.widgets.kit.fields import number_in

__all__ = [
    "ABOVE_LIMIT",
    "CLASSES",
    "FEATURE_ROLES",
    "LABELS",
    "LEARNABLE",
    "NUMBER",
    "OUTCOMES",
    "PERSON",
    "ROLES",
    "WITH_COMMA",
    "YES_OR_NO",
    "ColumnDeclaration",
    "Need",
    "TableDeclaration",
    "column_argument",
]

FEATURE_ROLES = ("number", "category", "yes / no")
PERSON = "person id"  # the role of the column that says whose row it is
ROLES = (*FEATURE_ROLES, "target", "group", PERSON, "leave out")
LABELS = "labels"  # the role of the labels of images
OUTCOMES = (YES_OR_NO, ABOVE_LIMIT, CLASSES, NUMBER) = (
    "yes or no",
    "yes above a limit",
    "one of several classes",
    "a number",
)  # what a target can be
_BOUNDS, _VALUES, _GROUPS = "lowest and highest", "all values", "all groups"
LEARNABLE = (_BOUNDS, _VALUES, _GROUPS)  # what a fit can learn, of what is needed
_SHARE = "0.2"
WITH_COMMA = 'Write a value that has a comma in quotation marks: a, "b, c", d.'


class Need(NamedTuple):
    """Something that is not declared yet.

    :param content: such as "all values"; the whole need, if it is not about a column.
    :param column: its name, or "".
    """

    content: str
    column: str = ""


class _EmptyError(_validate.ArgumentError):
    """A field that must be filled in is empty; nobody has typed anything wrong."""

    def __init__(self, argument: str, need: Need, expectation: str) -> None:
        self.need = need
        super().__init__(argument, "", expectation)


@dataclass(frozen=True)
class ColumnDeclaration:
    """What is declared about one column, as typed. Only the fields of its ``role`` count, and for
    a target those of its ``outcome``.

    :param name: of the column.
    :param role: one of ``ROLES``, or ``LABELS``.
    :param low: lowest publicly known value of a number.
    :param high: highest publicly known value of a number.
    :param whole: whether only whole numbers occur.
    :param values: of a category, separated by commas.
    :param other: whether all other values form one more category.
    :param outcome: what a target is, one of ``OUTCOMES``; "" for what its type suggests.
    :param positive: the value of the target that means yes.
    :param threshold: the number above which the target means yes.
    :param classes: all values of the target, separated by commas, or their number. Labels of images
        have only these.
    :param groups: all groups, separated by commas.
    :param max_rows: how many rows of one person are used at most.
    :param kind: its type: ``bool``, ``int``, ``float``, ``str``, or None for others.
    :param note: why the column begins with its role, as shown beside it.
    """

    name: str
    role: str = "number"
    low: str = ""
    high: str = ""
    whole: bool = False
    values: str = ""
    other: bool = False
    outcome: str = ""
    positive: str = ""
    threshold: str = ""
    classes: str = ""
    groups: str = ""
    max_rows: str = ""
    kind: type | None = int
    note: str = ""

    def numeric(self) -> Numeric:
        """The declared range of numbers.

        :raises ArgumentError: naming the column, if it is missing or wrong.
        """
        bounds = {"lowest": number_in(self.low), "highest": number_in(self.high)}
        for which, bound in bounds.items():
            if bound is not None and not isinstance(bound, (int, float)):
                raise self._error(
                    f"the {which} value must be a number, without commas: 0.5 or 50000."
                )
        missing = [which for which, bound in bounds.items() if bound is None]
        if missing:
            raise self._empty(
                " and ".join(missing),
                f"type the {' and the '.join(missing)} value that this column can have. Use "
                "public knowledge, not these records.",
            )
        try:
            return Numeric(bounds["lowest"], bounds["highest"], self.whole)  # type: ignore[arg-type]
        except _validate.ArgumentError as error:
            if error.code == "no whole number":
                raise self._error(
                    "no whole number up to 2**53 lies between the lowest and the highest value."
                ) from None
            raise self._error(
                "the lowest and the highest value must be finite, with lowest < highest."
            ) from None

    def categorical(self) -> Categorical:
        """The declared category.

        :raises ArgumentError: naming the column, if it is missing or wrong.
        """
        values = _listed(column_argument(self.name), self.values)
        if not values:
            raise self._empty(
                _VALUES, "type all values that this column can have, separated by commas."
            )
        try:
            return Categorical(tuple(values), self.other)
        except _validate.ArgumentError as error:
            raise self._error(f"{error.value} {error.expectation}") from None

    @property
    def predicted(self) -> str:
        """What this target is, one of ``OUTCOMES``: as chosen, or as its type suggests."""
        return self.outcome or (NUMBER if self.kind is float else YES_OR_NO)

    @property
    def asked(self) -> str:
        """What decides what is declared: the role, or what a target is."""
        return self.predicted if self.role == "target" else self.role

    def target_options(self) -> dict[str, Any]:
        """The declaration of the target's classes, or of its range where it is a number, as keyword
        arguments.

        :raises ArgumentError: if it is missing or wrong.
        """
        if self.predicted == NUMBER:
            declared = self.numeric()
            return {"target_bounds": (declared.low, declared.high)}
        if self.predicted == CLASSES:
            return self.class_options()
        if self.predicted == ABOVE_LIMIT:
            if (threshold := number_in(self.threshold)) is None:
                need = Need("limit", self.name)
                raise _EmptyError("threshold", need, "type the number above which it means yes.")
            return {"threshold": _validate.number("threshold", threshold)}
        if positive := self.positive.strip():
            return {"positive": _value_in(positive)}
        if self.kind is str:
            raise _EmptyError(
                "positive",
                Need("value that means yes", self.name),
                "type the value that means yes, or choose another kind of target: its type is "
                "text.",
            )
        return {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is typed of what the role declares."""
        typed = {
            "number": (self.low, self.high),
            "category": (self.values,),
            "group": (self.groups,),
            YES_OR_NO: (self.positive,),
            CLASSES: (self.classes,),
            NUMBER: (self.low, self.high),
        }
        return not any(text.strip(" ,") for text in typed.get(self.asked, ("no",)))

    @property
    def type(self) -> type:
        """What a fit declares of the column where nothing is typed."""
        if self.role == "number":
            return int if self.whole else float
        if self.asked == YES_OR_NO and self.kind in (bool, str):
            return self.kind
        return str if self.asked in ("category", CLASSES, "group") else float

    def class_options(self) -> dict[str, Any]:
        """All classes, or their number, as a keyword argument.

        :raises ArgumentError: naming ``classes``, if there are not two or a name is repeated.
        """
        names = _listed("classes", self.classes)
        if not names:
            raise _EmptyError(
                "classes",
                Need("all classes", self.name),
                "type all classes, separated by commas, or their number.",
            )
        classes = int(names[0]) if len(names) == 1 and names[0].isdecimal() else names
        try:
            class_names(classes)
        except _validate.ArgumentError:
            reason = "type two or more different classes, separated by commas, or their number."
            raise _validate.ArgumentError("classes", self.classes, reason) from None
        return {"classes": classes}

    def group_names(self) -> list[str]:
        """All groups.

        :raises ArgumentError: naming ``groups``, if there are none or a name is repeated.
        """
        names = _listed("groups", self.groups)
        if not names:
            raise _EmptyError(
                "groups",
                Need(_GROUPS, self.name),
                "type the names of all groups, separated by commas, with or without records.",
            )
        return list(checked_groups(names))

    def most_rows(self) -> int:
        """How many rows of one person are used at most.

        :raises ArgumentError: naming ``max_rows``, if it is missing or no whole number above 0.
        """
        if not self.max_rows.strip():
            raise _EmptyError(
                "max_rows",
                Need("most rows of one person", self.name),
                "type how many rows of one person are used at most. It is public: do not count "
                "it in these records.",
            )
        return checked_max_rows(number_in(self.max_rows))

    def _empty(self, subject: str, expectation: str) -> _EmptyError:
        return _EmptyError(column_argument(self.name), Need(subject, self.name), expectation)

    def _error(self, expectation: str) -> _validate.ArgumentError:
        return _validate.ArgumentError(column_argument(self.name), self.role, expectation)


@dataclass(frozen=True)
class TableDeclaration:
    """What is declared about a table, as typed.

    :param columns: of the table; for images, only their labels.
    :param same_bounds: whether ``low`` and ``high`` hold for all numbers.
    :param low: lowest publicly known value of all numbers.
    :param high: highest publicly known value of all numbers.
    :param unit: what one row is, or with a column of persons one person.
    :param evaluation_fraction: share of evaluation records, in [0, 1).
    :param evaluation_is_public: whether the evaluation records are public.
    :param missing: what happens to rows with missing values, as in ``from_frame``: "refuse", "drop"
        or "middle".
    :param learns: whether the fit learns what is not declared, within its guarantee.
    """

    columns: tuple[ColumnDeclaration, ...]
    same_bounds: bool = False
    low: str = ""
    high: str = ""
    unit: str = ""
    evaluation_fraction: str = _SHARE
    evaluation_is_public: bool = False
    missing: str = "refuse"
    learns: bool = False

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``. Columns are named by ``column_argument``."""
        return {argument: error.expectation for argument, error in self._errors().items()}

    def needs(self) -> dict[str, Need]:
        """Those of ``problems()`` that are only empty fields: ``{argument: what is
        still needed}``.
        """
        return {
            argument: error.need
            for argument, error in self._errors().items()
            if isinstance(error, _EmptyError)
        }

    def _errors(self) -> dict[str, _validate.ArgumentError]:
        checks: list[Callable[[], Any]] = [self._fraction]
        if self.learned:
            checks.append(self._nothing_held_out)
        if self._features:
            checks += [partial(self._declared, column) for column in self._features]
        elif not self.are_images:
            checks.append(self._no_features)
        for role in ("target", "group", PERSON):
            for column in self._with_role(role)[1:]:
                reason = f"only one column can be the {role}."
                checks.append(partial(_refuse, column_argument(column.name), reason))
        checks += [partial(self._target, column) for column in self._with_role("target")]
        checks += [column.class_options for column in self._with_role(LABELS)]
        checks += [partial(self._groups, column) for column in self._with_role("group")]
        checks += [column.most_rows for column in self._with_role(PERSON)]
        errors: dict[str, _validate.ArgumentError] = {}
        for check in checks:
            try:
                check()
            except _validate.ArgumentError as error:
                errors.setdefault(error.argument, error)
        return errors

    @property
    def learned(self) -> tuple[str, ...]:
        """The columns whose ranges and values the fit learns."""
        if not self.learns:
            return ()
        return tuple(column.name for column in self.columns if self._is_learned(column))

    def _is_learned(self, column: ColumnDeclaration) -> bool:
        if column.role == "number" and self.same_bounds:
            return not (self.low.strip() or self.high.strip())
        return column.is_empty and column.type is not bool

    def fit_settings(self) -> dict[str, Any]:
        """Settings of a fit of the table itself, ready for ``groups.grouped``: the declaration of
        the columns, some by their type alone, and what else is declared of the table.

        :raises ArgumentError: as ``problems`` lists them.
        """
        schema = {column.name: self._declared(column) for column in self._features}
        schema |= {column.name: self._target(column) for column in self._with_role("target")}
        schema |= {column.name: self._groups(column) for column in self._with_role("group")}
        return {"schema": schema, **self._of_rows()}

    def _of_rows(self) -> dict[str, Any]:
        """What is declared of rows, as keyword arguments."""
        options: dict[str, Any] = {}
        for column in self._with_role(PERSON):
            options |= {"unit_id": column.name, "max_rows": column.most_rows()}
        if self.missing != "refuse" and not self.are_images:
            options["missing"] = self.missing
        if self.unit.strip():
            options["unit"] = self.unit.strip()
        return options

    def options(self, *, names_columns: bool) -> dict[str, Any]:
        """Keyword arguments for ``from_frame`` and similar functions, without the defaults.

        :param names_columns: whether target and group are columns that must be named, not separate
            arrays.
        :raises ArgumentError: as ``problems`` lists them.
        """
        options: dict[str, Any] = {}
        for column in self._with_role("target"):
            options |= {"target": column.name} if names_columns else {}
            options |= column.target_options()
        for column in self._with_role(LABELS):
            options |= column.class_options()
        if not self.are_images:
            options |= self._scaling()
        for column in self._with_role("group"):
            options |= {"group": column.name} if names_columns else {}
            options["groups"] = column.group_names()
        fraction = self._fraction()
        if fraction != float(_SHARE):
            options["evaluation_fraction"] = fraction
        if self.evaluation_is_public:
            options["evaluation_is_public"] = True
        return options | self._of_rows()

    def kind_of(self, name: str) -> str:
        """The role of a column, or what it is as a target; "" if there is no such column."""
        return next((column.asked for column in self.columns if column.name == name), "")

    @property
    def are_images(self) -> bool:
        """Whether there are no columns except labels."""
        return all(column.role == LABELS for column in self.columns)

    @property
    def _features(self) -> tuple[ColumnDeclaration, ...]:
        return tuple(column for column in self.columns if column.role in FEATURE_ROLES)

    def _with_role(self, role: str) -> list[ColumnDeclaration]:
        return [column for column in self.columns if column.role == role]

    def _scaling(self) -> dict[str, Any]:
        """How columns become features: ``bounds`` or ``schema``, and which columns do."""
        features = self._features
        if self.same_bounds and all(
            column.role == "number" and not column.whole for column in features
        ):
            # bounds are those of all columns except target, group and person id
            chosen = [column.name for column in features]
            left_out = {"features": chosen} if self._with_role("leave out") else {}
            return {"bounds": self._common(), **left_out}
        return {"schema": {column.name: self._declared(column) for column in features}}

    def _common(self) -> tuple[float, float]:
        try:
            numeric = ColumnDeclaration("all numbers", low=self.low, high=self.high).numeric()
        except _EmptyError as error:
            raise _EmptyError("bounds", error.need, error.expectation) from None
        except _validate.ArgumentError as error:
            raise _validate.ArgumentError(
                "bounds", (self.low, self.high), error.expectation
            ) from None
        return _plain(numeric.low), _plain(numeric.high)

    def _declared(self, column: ColumnDeclaration) -> Any:
        """A feature's declaration in the short form that a schema takes."""
        if column.name in self.learned:
            return column.type
        if column.role == "yes / no":
            return bool
        if column.role == "category":
            categorical = column.categorical()
            return categorical if categorical.other else list(categorical.categories)
        if self.same_bounds:
            self._common()  # a problem with the common bounds is shown once, not beside each column
            column = replace(column, low=self.low, high=self.high)
        numeric = column.numeric()
        pair = (_plain(numeric.low), _plain(numeric.high))
        return (*pair, int) if numeric.whole else pair

    def _target(self, column: ColumnDeclaration) -> Any:
        """The target's declaration for a schema.

        :raises ArgumentError: naming what is missing or wrong, also where columns are learned and a
            schema cannot say what is typed.
        """
        if self.learned and column.is_empty:
            return column.type
        options = column.target_options()
        if self.learned and (options.keys() & {"positive", "threshold"}):
            name = next(iter(options))
            reason = (
                f"can be used only if all columns are declared. Choose “{CLASSES}” instead and "
                "type both classes, first the one that means no."
                if name == "positive"
                else "can be used only if all columns are declared."
            )
            _refuse(name, reason)
        if "classes" in options:
            return list(class_names(options["classes"]))
        return options.get("target_bounds", bool)

    def _groups(self, column: ColumnDeclaration) -> Any:
        """The declaration of the groups for a schema."""
        return column.type if column.name in self.learned else column.group_names()

    def _nothing_held_out(self) -> None:
        """:raises ArgumentError: where evaluation records are asked for."""
        share = self.evaluation_fraction.strip()
        for name, is_asked in (
            ("evaluation_is_public", self.evaluation_is_public),
            ("evaluation_fraction", share != _SHARE and number_in(share) != 0),
        ):
            if is_asked:
                reason = "records are held out by what they contain."
                _refuse(name, f"needs columns that are all declared, because {reason}")

    def _no_features(self) -> None:
        raise _EmptyError(
            "features",
            Need("at least one column to learn from"),
            "set the role of at least one column to number, category or yes / no.",
        )

    def _fraction(self) -> float:
        lowest: dict[str, float] = {"above": 0} if self.evaluation_is_public else {"at_least": 0}
        return _validate.number(
            "evaluation_fraction", number_in(self.evaluation_fraction), **lowest, below=1
        )


def column_argument(name: str) -> str:
    """The name of a column in problems, such as ``schema['age']``."""
    return f"schema[{name!r}]"


def _listed(argument: str, text: str) -> list[str]:
    """The values in a line such as ``a, b, "c, with a comma"``.

    :raises ArgumentError: naming ``argument``, if a quotation mark is not closed.
    """
    # the comma at the end makes an empty value, unless it is between quotation marks
    *values, end = next(csv.reader([f"{text},"], skipinitialspace=True))
    if end:
        raise _validate.ArgumentError(
            argument, text, f"a quotation mark is not closed. {WITH_COMMA}"
        )
    return [value.strip() for value in values if value.strip()]


def _value_in(text: str) -> Any:
    """A target's value: a number if it is written exactly like the text, else the text."""
    number = number_in(text)
    return number if number is not None and str(number) == text else text


def _plain(number: float) -> float | int:
    """``number`` as a user would type it."""
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _refuse(argument: str, expectation: str) -> None:
    raise _validate.ArgumentError(argument, "", expectation)
