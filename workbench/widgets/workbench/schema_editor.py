"""The schema editor: controls for what is publicly declared about each column of a user's table.

The editor sees no record. It is made from the columns' names, and from roles that follow from their
types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as widgets

from workbench.widgets.kit import fields, markup
from workbench.widgets.workbench.declarations import (
    ABOVE_LIMIT,
    CLASSES,
    FEATURE_ROLES,
    LABELS,
    LEARNABLE,
    NUMBER,
    OUTCOMES,
    PERSON,
    ROLES,
    YES_OR_NO,
    ColumnDeclaration,
    Need,
    TableDeclaration,
    column_argument,
)
from workbench.widgets.workbench.learning import Learning, offered

__all__ = ["SchemaEditor"]

_MOST_ROWS = 60  # columns that have a row of controls at a time
_LONG = 12  # rows; a longer table scrolls
_MOST_NAMES = 6  # in a list of what is still needed

# what each role declares, and each kind of target: (attribute, label, placeholder)
_CONTROLS = {
    "number": [
        ("low", "lowest", "lowest"),
        ("high", "highest", "highest"),
        ("whole", "whole numbers", ""),
    ],
    "category": [
        ("values", "all values", 'all values: a, b, "c, d"'),
        ("other", "other values allowed", ""),
    ],
    YES_OR_NO: [("positive", "value that means yes", "not needed for 0 and 1")],
    ABOVE_LIMIT: [("threshold", "limit", "a number")],
    CLASSES: [("classes", "all classes", 'a, b, "c, d"')],
    NUMBER: [("low", "lowest", "lowest"), ("high", "highest", "highest")],
    LABELS: [("classes", "all classes", "names: a, b, c; or number")],
    "group": [("groups", "all groups", 'names: a, b, "c, d"')],
    PERSON: [("max_rows", "most rows of one person", "public, such as 10")],
}
# of what a fit cannot learn, in place of "learned"
_LEARNED = {"value that means yes": "needs 0 and 1, or yes and no"}
_LABELS = {name: label for controls in _CONTROLS.values() for name, label, _ in controls}
_UNDER_A_TITLE = ("low", "high", "values")  # the title of the table says what these are
_MISSING = [
    ("are refused", "refuse"),
    ("are left out", "drop"),
    ("get the middle of the bounds for numbers; else left out", "middle"),
]
_OF_ROLE = {
    "classes": "target",
    "target": "target",
    "positive": "target",
    "threshold": "target",
    "response": "target",
    "group": "group",
    "groups": "group",
    "unit_id": PERSON,
    "max_rows": PERSON,
}
_PICKERS = {
    "target": ("What do you want to predict?", "nothing"),
    "group": ("group column", "none"),
}


_TITLES = (
    '<div class="dpvi-schema-titles"><span><span>column</span><span>role</span></span>'
    "<span>lowest and highest, or all values</span></div>"
)


class SchemaEditor:
    """Controls for what is declared about one table; ``view`` is the widget to display.

    :param columns: of the table, with the roles that follow from their types; none for images.
    :param roles: the roles that each column can have, by name; all of ``ROLES`` by default.
    :param on_change: called without arguments after every change.
    :param declaration: an earlier declaration of the same columns to start with.
    :param missing: what happens to rows with missing values at first, as in ``TableDeclaration``.
    :param learning: models that learn what is not declared; None for a table that they do not take.
    """

    def __init__(
        self,
        columns: tuple[ColumnDeclaration, ...],
        roles: Mapping[str, tuple[str, ...]],
        on_change: Callable[[], None],
        declaration: TableDeclaration | None = None,
        missing: str = "refuse",
        learning: Learning | None = None,
    ) -> None:
        self._roles, self._on_change, self._learning = roles, on_change, learning
        self._wide = len(columns) > _MOST_ROWS
        if self._wide:  # nobody types the values of so many categories
            columns = tuple(
                replace(entry, role="leave out") if entry.role == "category" else entry
                for entry in columns
            )
        start = (
            TableDeclaration(columns, same_bounds=self._wide, missing=missing)
            if declaration is None
            else declaration
        )
        self._initial = {column.name: column for column in columns}
        self._columns = {column.name: column for column in start.columns}
        self._rows: dict[str, _Row] = {}
        self._is_following = False  # whether rows and menus are being made to agree
        self._make_fields(start)
        self.rows_shown = self._row_menu()
        self._row_box = widgets.VBox()
        self._pickers = {role: self._picker(role) for role in self._picked_roles()}
        height = "dpvi-schema-long" if len(columns) > _LONG else "dpvi-schema-short"
        rows = widgets.VBox([widgets.HTML(_TITLES), self._row_box])
        self.table = fields.styled(rows, "dpvi-schema", height)
        self._needed, self._learned = fields.line(), fields.line()
        self._price = ""
        hidden = {"align_self": "flex-start", "display": "none"}
        self.learn = fields.button(
            "Learn them in the fit", self._choose_formula, primary=True, layout=hidden
        )
        self.leave_out = fields.button(
            "Leave out columns without declarations",
            self._leave_out,
            "Give the role “leave out” to all columns whose limits or values are not typed in",
            layout=hidden,
        )
        shown: list[Any] = []
        if columns:
            introduction = widgets.HTML(markup.quiet(*self._introduction()))
            pickers = [entry.view for entry in self._pickers.values()]
            shown += [*pickers, introduction, self.rows_shown.view, self.table]
        shown += [self._needed, self._learned, self.learn, self.leave_out]
        if not start.are_images:
            shown += [
                self.same_bounds.view,
                self._pair,
                self._pair_error,
                self.missing.view,
            ]
        shown += [self.unit.view, self.evaluation_fraction.view, self.evaluation_is_public.view]
        self.view = widgets.VBox(shown)
        self._arrange()

    def declaration(self) -> TableDeclaration:
        """The declaration in the controls."""
        return TableDeclaration(
            tuple(self._columns.values()),
            self.same_bounds.value,
            self.low.value,
            self.high.value,
            self.unit.value,
            self.evaluation_fraction.value,
            self.evaluation_is_public.value,
            self.missing.value,
            self._learning is not None and self._learning.is_chosen(),
        )

    def show_price(self, words: str) -> None:
        """Show what it costs to learn the columns; "" while that is unknown."""
        self._price = words
        self._show_learned(self.declaration())

    def show(self, problems: Mapping[str, str]) -> dict[str, str]:
        """Show each problem beside its control and hide all others; return those that have no
        control here.

        Empty fields are no problem that anybody caused: one line lists what is still needed.
        """
        declared = self.declaration()
        declared_problems, needs = declared.problems(), declared.needs()
        needed = {
            argument: need
            for argument, need in needs.items()
            if problems.get(argument) == declared_problems[argument]
        }
        self._show_needed(needed)
        self._show_learned(declared)
        self._offer_formula(declared, needed)
        problems = {argument: text for argument, text in problems.items() if argument not in needed}
        remaining: dict[str, str] = {}
        by_row: dict[str, list[str]] = {name: [] for name in self._rows}
        of_fields = {"bounds": ""} | dict.fromkeys(self._general, "")
        names = {
            form: name
            for name in self._columns
            for form in (column_argument(name), f"bounds[{name!r}]", name)
        }
        for argument, expectation in problems.items():
            roles = (_OF_ROLE.get(argument, ""), LABELS if argument == "classes" else "")
            holders = [column.name for column in self._columns.values() if column.role in roles]
            name = names.get(argument) or (holders[-1] if holders else "")
            if name in by_row:
                label = name if argument in names else _LABELS.get(argument, argument)
                by_row[name].append(f"{label}: {expectation}")
            elif argument in of_fields and (argument != "bounds" or self._columns):
                of_fields[argument] = expectation
            else:
                remaining[name or argument] = expectation
        for name, texts in by_row.items():
            self._rows[name].show(texts)
        for argument, field in self._general.items():
            field.show_error(of_fields[argument])
        shown = of_fields["bounds"]
        fields.say(self._pair_error, markup.problem(shown and f"bounds of all numbers: {shown}"))
        return remaining

    def _show_needed(self, needed: Mapping[str, Need]) -> None:
        by_kind: dict[str, list[str]] = {}
        for need in needed.values():
            by_kind.setdefault(need.content, []).append(need.column)
        phrases = [
            f"{kind} of {_names(columns)}" if any(columns) else kind
            for kind, columns in by_kind.items()
        ]
        fields.say(
            self._needed, markup.quiet(f"Still needed: {'; '.join(phrases)}.") if phrases else ""
        )
        offered = 0 < len(self._undeclared(needed)) < len(self._features())
        self.leave_out.layout.display = None if offered else "none"

    def _show_learned(self, declared: TableDeclaration) -> None:
        """Say which columns are learned, and what that costs."""
        learned = declared.learned
        for name, row in self._rows.items():
            row.mark(name in learned)
        for control in (self.low, self.high):
            control.placeholder = "learned" if declared.same_bounds and learned else "public limit"
        is_usual = self.evaluation_fraction.value == TableDeclaration(()).evaluation_fraction
        self.evaluation_fraction.visible = not (learned and is_usual)
        self.evaluation_is_public.visible = not learned or self.evaluation_is_public.value
        columns = [name for name in learned if self._columns[name].role != "target"]
        said = f"Learned in the fit, inside its guarantee: {_names(columns)}."
        shown = markup.sentence(said) + markup.quiet(self._price) if columns else ""
        fields.say(self._learned, shown)

    def _offer_formula(self, declared: TableDeclaration, needed: Mapping[str, Need]) -> None:
        """Offer the regression of the target where ranges or values are needed, or another formula
        is written.
        """
        learning, regression = self._learning, offered(declared)
        self.learn.layout.display = "none"
        if learning is None or regression is None or learning.formula() == regression[0]:
            return
        has_need = any(need.content in LEARNABLE for need in needed.values())
        if has_need or learning.is_chosen():
            self.learn.layout.display = None
            self.learn.tooltip = f"Fit the formula {regression[0]}"
            self.learn.description = "Learn them in the fit" if has_need else "Use all columns"

    def _choose_formula(self) -> None:
        regression = offered(self.declaration())
        if self._learning is not None and regression is not None:
            self._learning.choose(*regression)

    def _features(self) -> list[str]:
        return [name for name, column in self._columns.items() if column.role in FEATURE_ROLES]

    def _undeclared(self, needed: Mapping[str, Need]) -> list[str]:
        """The columns to learn from whose limits or values are still needed."""
        return [name for name in self._features() if column_argument(name) in needed]

    def _leave_out(self) -> None:
        """Leave out all columns whose limits or values are not declared."""
        for name in self._undeclared(self.declaration().needs()):
            self._columns[name] = replace(self._columns[name], role="leave out")
        self._arrange()
        self._on_change()

    def row(self, column: str) -> Any:
        """The box of a column's controls.

        :raises KeyError: if the column has no row.
        """
        return self._rows[column].view

    def close(self) -> None:
        """Close the controls, in the browser too."""
        fields.close_all(self.view)

    def _make_fields(self, start: TableDeclaration) -> None:
        self.unit = fields.text(
            "unit",
            "what one row is",
            start.unit,
            placeholder='such as "patient"',
            help="Or what one person is, where a column is the person id.",
        )
        self.same_bounds = fields.check(
            "same_bounds", "same bounds for all numbers", start.same_bounds
        )
        self.low, self.high = (
            _text(
                label,
                value,
                "public limit",
                f"{label} value of all numbers",
                {"description_width": "52px"},
            )
            for label, value in (("lowest", start.low), ("highest", start.high))
        )
        self._pair = _side_by_side(self.low, self.high)
        self._pair_error = fields.line()
        self.missing = fields.choice(
            "missing",
            "rows with missing values",
            _MISSING,
            start.missing,
            help="For all columns that are used. What happens to a row depends on that row and on "
            "your declarations alone, so it costs no privacy.",
        )
        self.missing.box.add_class("dpvi-schema-question")
        self.evaluation_fraction = fields.text(
            "evaluation_fraction",
            "share of evaluation records (0 to 1)",
            start.evaluation_fraction,
            help="Private ones serve only scores outside the guarantee; with 0, the fit learns "
            "from all rows.",
        )
        self.evaluation_is_public = fields.check(
            "evaluation_is_public", "the evaluation records are public", start.evaluation_is_public
        )
        self._general = {
            field.name: field
            for field in (
                self.unit,
                self.missing,
                self.evaluation_fraction,
                self.evaluation_is_public,
            )
        }
        self.same_bounds.control.observe(lambda _: self._arrange(), names="value")
        for control in (
            self.low,
            self.high,
            self.same_bounds.control,
            *(entry.control for entry in self._general.values()),
        ):
            control.observe(lambda _: self._on_change(), names="value")

    def _row_menu(self) -> fields.Field:
        """The menu of the columns that the table shows; hidden unless they are too many."""
        number = len(self._columns)
        pages = [
            (f"{first + 1} to {min(first + _MOST_ROWS, number)}", first)
            for first in range(0, number or 1, _MOST_ROWS)
        ]
        menu = fields.choice("columns", "columns in the table below", pages, 0)
        menu.box.add_class("dpvi-schema-question")
        menu.visible = self._wide
        menu.on_change(self._arrange)
        menu.on_change(self._on_change)
        return menu

    def _introduction(self) -> list[str]:
        lines = [
            "Declare what is publicly known about each column, or let a regression from a "
            "formula learn it through noise. Roles begin with what a column's name and type "
            "suggest. A CSV file shows the types in its first rows."
        ]
        of_many = (
            f"The table has {len(self._initial)} columns and shows {_MOST_ROWS} of them at a time. "
            "The others have the roles that you see when you choose them here. Until you change "
            "this, all numbers have the same bounds, below the table, and texts are left out."
        )
        return [*lines, of_many] if self._wide else lines

    def _picked_roles(self) -> list[str]:
        """The roles for which there is a menu of columns: target, and in a wide table group."""
        open_roles = [role for name in self._columns for role in self._roles.get(name, ROLES)]
        return [
            role
            for role in ("target", "group")
            if (role == "target" or self._wide) and open_roles.count(role) > 1
        ]

    def _picker(self, role: str) -> fields.Field:
        label, none = _PICKERS[role]
        options = [
            (none, ""),
            *((name, name) for name in self._columns if role in self._roles.get(name, ROLES)),
        ]
        picker = fields.choice(role, label, options, self._holder(role))
        picker.box.add_class("dpvi-schema-question")
        picker.control.observe(lambda change: self._picked(role, change["new"]), names="value")
        return picker

    def _holder(self, role: str) -> str:
        """The first column with this role; "" for none."""
        return next((column.name for column in self._columns.values() if column.role == role), "")

    def _picked(self, role: str, new: str) -> None:
        if self._is_following:
            return
        for name, column in self._columns.items():
            if column.role == role and name != new:
                before = self._initial[name]
                replacement = before.role if before.role != role else "leave out"
                self._columns[name] = replace(column, role=replacement)
        if new:
            self._columns[new] = replace(self._columns[new], role=role)
        self._arrange()
        self._on_change()

    def _arrange(self) -> None:
        """Show a row for each of the chosen columns, for target and group always (first, where not
        all have rows), and the fields for bounds that are needed.
        """
        first = self.rows_shown.value
        chosen = list(self._columns)[first : first + _MOST_ROWS]
        apart = [column.name for column in self._columns.values() if column.role in _PICKERS]
        names = dict.fromkeys([*apart, *chosen] if self._wide else chosen)
        wanted = {name: self._roles.get(name, ROLES) for name in names}
        ranged = not self.same_bounds.value
        rows, gone = {}, dict(self._rows)
        for name, roles in wanted.items():
            row = gone.get(name)
            if row is not None and row.roles == roles:
                rows[name] = gone.pop(name)
                row.arrange(self._columns[name], ranged)
            else:
                rows[name] = _Row(self._columns[name], roles, ranged, self._edited)
        self._rows = rows
        self._row_box.children = [row.view for row in rows.values()]
        self.table.layout.display = None if rows else "none"
        for row in gone.values():
            fields.close_all(row.view)
        self._pair.layout.display = None if self.same_bounds.value else "none"
        self._follow_rows()

    def _follow_rows(self) -> None:
        """Let the menus of columns show what the rows say."""
        self._is_following = True
        try:
            for role, picker in self._pickers.items():
                picker.value = self._holder(role)
        finally:
            self._is_following = False

    def _edited(self, column: ColumnDeclaration) -> None:
        self._columns[column.name] = column
        self._follow_rows()
        self._on_change()


class _Row:
    """The controls of one column: its role, the fields of that role, a note, and a line
    for errors.
    """

    def __init__(
        self,
        declared: ColumnDeclaration,
        roles: tuple[str, ...],
        ranged: bool,
        on_edit: Callable[[ColumnDeclaration], None],
    ) -> None:
        self.roles = roles
        self._declared, self._ranged, self._on_edit = declared, ranged, on_edit
        self._is_following = False
        self._role = widgets.Dropdown(
            description=declared.name,
            options=roles,
            value=declared.role,
            tooltip=f"role of {declared.name}",
            layout={"width": "auto"},
        )
        self._role.add_class("dpvi-schema-role")
        self._role.observe(self._role_changed, names="value")
        self._details = fields.styled(widgets.HBox(), "dpvi-schema-details")
        self._note, self._error = fields.line(), fields.line()
        line = widgets.HBox([self._role, self._details, self._note])
        self.view = widgets.VBox([fields.styled(line, "dpvi-schema-row"), self._error])
        self._fill()

    def arrange(self, declared: ColumnDeclaration, ranged: bool) -> None:
        """Show what is declared now, with or without the fields for bounds."""
        if declared.role == self._declared.role and ranged == self._ranged:
            return
        self._declared, self._ranged = declared, ranged
        self._is_following = True
        try:
            self._role.value = declared.role
        finally:
            self._is_following = False
        self.show([])
        self._fill()

    def show(self, texts: list[str]) -> None:
        """Show what is wrong with this column."""
        fields.say(self._error, "".join(map(markup.problem, texts)))

    def mark(self, is_learned: bool) -> None:
        """Show in the empty fields whether the fit learns what is not typed there."""
        usual = {label: hint for _, label, hint in _CONTROLS.get(self._declared.asked, [])}
        for control in self._details.children:
            if isinstance(control, widgets.Text):
                hints = _LEARNED if is_learned else usual
                control.placeholder = hints.get(control.description, "learned")

    def _outcome_menu(self) -> Any:
        menu = widgets.Dropdown(
            description="what it is",
            options=OUTCOMES,
            value=self._declared.predicted,
            tooltip=f"what it is: {self._declared.name}",
            layout={"width": "auto"},
        )
        menu.add_class("dpvi-schema-labelled")
        menu.observe(partial(self._changed, "outcome"), names="value")
        return menu

    def _fill(self) -> None:
        old, made = self._details.children, []
        of_target = self._declared.role == "target"
        if of_target:  # the same menu as before, which may have the focus
            menus = [child for child in old if isinstance(child, widgets.Dropdown)]
            made = menus or [self._outcome_menu()]
        for attribute, label, placeholder in _CONTROLS.get(self._declared.asked, []):
            if attribute in ("low", "high") and not self._ranged and not of_target:
                continue
            value, tooltip = getattr(self._declared, attribute), f"{label}: {self._declared.name}"
            if isinstance(value, bool):
                control = widgets.Checkbox(
                    description=label,
                    value=value,
                    tooltip=tooltip,
                    indent=False,
                    layout={"width": "auto"},
                )
            else:
                control = _text(label, value, placeholder, tooltip)
                control.add_class(
                    "dpvi-schema-plain"
                    if attribute in _UNDER_A_TITLE and not of_target
                    else "dpvi-schema-labelled"
                )
            control.observe(partial(self._changed, attribute), names="value")
            made.append(control)
        self._details.children = made
        self._details.layout.display = None if made else "none"
        fields.say(
            self._note,
            markup.quiet(self._declared.note) if self._declared.role == "leave out" else "",
        )
        for child in old:
            if child not in made:
                fields.close_all(child)

    def _role_changed(self, change: Mapping[str, Any]) -> None:
        if self._is_following:
            return
        self._declared = replace(self._declared, role=change["new"])
        self.show([])
        self._fill()
        self._on_edit(self._declared)

    def _changed(self, attribute: str, change: Mapping[str, Any]) -> None:
        self._declared = replace(self._declared, **{attribute: change["new"]})
        if attribute == "outcome":
            self.show([])
            self._fill()
        self._on_edit(self._declared)


def _names(columns: list[str]) -> str:
    """The first few names, and how many there are besides."""
    more = len(columns) - _MOST_NAMES
    return ", ".join(columns[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _text(
    label: str, value: str, placeholder: str, tooltip: str, style: Mapping[str, str] | None = None
) -> Any:
    return widgets.Text(
        description=label,
        value=value,
        placeholder=placeholder,
        tooltip=tooltip,
        continuous_update=False,
        layout={"width": "auto"},
        style=style or {},
    )


def _side_by_side(*controls: widgets.Widget) -> Any:
    for control in controls:
        control.layout.flex, control.layout.min_width = "1 1 0", "0"
    return widgets.HBox(controls)
