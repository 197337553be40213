"""The Data part of the screen: the source of the records, what is declared about them, and a
preview.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import ipywidgets as widgets
import numpy as np

from workbench import _validate
from workbench import data as data_room
from workbench._lazy import pd
from workbench._numbers import count
from workbench.data import Dataset, csv_files
from workbench.widgets.kit import fields, markup
from workbench.widgets.workbench.data_source import (
    DataSource,
    Same,
    Table,
    array_table,
    file_table,
    frame_table,
    is_table,
    stamp,
    tables_in,
    upload_table,
)
from workbench.widgets.workbench.declarations import TableDeclaration
from workbench.widgets.workbench.learning import Learning, offered
from workbench.widgets.workbench.preview import ROWS, first_records
from workbench.widgets.workbench.schema_editor import SchemaEditor

__all__ = ["DataPanel", "DataSource"]

# the entries of the menu that are not names of data sets
VARIABLE, FILE = "a table of this notebook…", "a file of your own…"
_NONE_FOUND = ("none found", "")
_PRIVATE = "The rows of this data set are private, so none are shown."


class DataPanel:
    """Choose the records and declare what is public about them; ``view`` is the widget to display.

    ``named`` is the menu of sources, and ``details`` everything below it.

    Until the box for private rows is ticked, no widget holds anything computed from private
    records.

    :param start: name of a data set, or a ``Dataset``, which is then listed with the named sets.
    :param on_change: called without arguments after every change of ``source()`` or ``problems()``.
    :param namespace: returns the notebook's variables by name.
    :param learning: the screen's models that learn what is not declared; None for no such model.
    :raises ArgumentError: naming ``data``, for an unknown name.
    """

    def __init__(
        self,
        start: str | Dataset,
        on_change: Callable[[], None],
        namespace: Callable[[], Mapping[str, Any]],
        learning: Learning | None = None,
    ) -> None:
        if isinstance(start, str):
            data_room.describe(start)
        elif not isinstance(start, Dataset):
            raise _validate.ArgumentError(
                "data", type(start).__name__, "must be a name or a workbench.data.Dataset."
            )
        self._start, self._namespace, self._learning = start, namespace, learning
        self._names: list[str] = []
        self._rows = ""  # how many the chosen table has, once they were counted
        self._unsuitable: Mapping[str, str] = {}
        self._on_change: Callable[[], None] = lambda: None  # until the panel is complete
        self._kept: dict[Hashable, TableDeclaration] = {}
        self._editor: SchemaEditor | None = None
        self._editor_key: Hashable = None
        self._uploaded: tuple[str, bytes] | None = None  # name and content
        self._origin: Hashable = None
        self._read: tuple[Hashable, Table | _validate.ArgumentError | None] = (None, None)
        self._dataset: Dataset | None = None
        self._public: Sequence[str] = ()
        self._chosen: Hashable = None
        self._refreshing = False
        self._make_controls()
        self.refresh()
        self.named.value = start if isinstance(start, str) else start.name
        self._source_changed()
        for control in (self.named, self.variable, self.target, self.path, self.separator):
            control.on_change(self._source_changed)
        self.upload.observe(self._take_upload, names="value")
        self.private_rows.observe(lambda _: self._draw(), names="value")
        self._on_change = on_change

    @property
    def is_incomplete(self) -> bool:
        """Whether a table of the user's own lacks something."""
        return self.has_own_source and bool(self.problems())

    @property
    def has_own_source(self) -> bool:
        """Whether a variable or a file is chosen, and not a named data set."""
        return self.named.value in (VARIABLE, FILE)

    @property
    def named_set(self) -> str:
        """The chosen data set that comes by name; "" for a user's own."""
        start_name = self._start.name if isinstance(self._start, Dataset) else ""
        return (
            "" if self.has_own_source or self.named.value == start_name else str(self.named.value)
        )

    # ---- source and problems ---------------------------------------------------------------------

    def source(self) -> DataSource:
        """The chosen data source, as plain values.

        :raises ArgumentError: for the first of ``problems()``.
        """
        for argument, expectation in self.problems().items():
            raise _validate.ArgumentError(
                argument, self.path.value if argument == "path" else "", expectation
            )
        table, dataset = self._table(), self._given_dataset()
        if table is not None and self._editor is not None:
            return table.source(self._editor.declaration())
        if dataset is not None:
            shown, code = self._variable_of(dataset)
            note = (
                ""
                if self._namespace().get(code) is dataset
                else f"{code} is the data set passed to the screen"
            )
            return DataSource(
                shown, code, lambda: dataset, Same(dataset), dataset.evaluation_is_public, note
            )
        name = self.named.value
        public = data_room.info(name).evaluation_is_public
        return DataSource(name, repr(name), partial(data_room.load, name), ("named", name), public)

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without loading the records."""
        try:
            table = self._table()
        except _validate.ArgumentError as error:
            return {error.argument: error.expectation}
        if table is None:
            return {}
        if self._editor is None or table.key != self._editor_key:
            argument = "path" if self.named.value == FILE else "variable"
            return {argument: "its columns have changed: press Refresh."}
        return self._editor.declaration().problems()

    def show(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its control, or under the source menu if it has none; hide all
        others.
        """
        remaining = dict(problems)
        here = {
            argument: remaining.pop(argument, "")
            for argument in self._places.get(self.named.value, ())
        }
        if self._editor is not None:
            remaining = self._editor.show(remaining)
        nothing_yet = (
            self.named.value == FILE and self._uploaded is None and not self.path.value.strip()
        )
        for argument, line in self._lines.items():
            text = here.get(argument, "")
            said = (
                markup.quiet(f"{text[0].upper()}{text[1:]}")
                if text and nothing_yet
                else markup.problem(text)
            )
            fields.say(line, said)
        fields.say(
            self._problem,
            "".join(
                markup.problem(f"{fields.argument_words(argument)}: {expectation}")
                for argument, expectation in remaining.items()
            ),
        )

    def show_dataset(
        self, dataset: Dataset | None, declarations: Sequence[str] | None = None, price: str = ""
    ) -> None:
        """Show what is public about the loaded data set, and records that may be shown; None hides
        both.

        :param declarations: what is public; None for what the data set declares.
        :param price: what it costs to learn columns.
        """
        if dataset is not None and declarations is None:
            declarations = dataset.declarations()
        self._dataset, self._public = dataset, declarations or ()
        if self._editor is not None:
            self._editor.show_price(price)
        self._draw()

    def refresh(self) -> None:
        """Update the menus of data sets and variables, and look at the file again."""
        self._refreshing = True
        try:
            named = data_room.names()
            if isinstance(self._start, Dataset):
                start_name = self._start.name
                named = [start_name, *(name for name in named if name != start_name)]
            elif self._start not in named:
                named = [self._start, *named]
            self._names = named
            self._offer()
            tables, targets = tables_in(self._namespace())
            self.variable.offer(tables or [_NONE_FOUND], self.variable.value)
            self.target.offer([("none", ""), *targets], self.target.value)
        finally:
            self._refreshing = False
        self._source_changed()

    def mark(self, unsuitable: Mapping[str, str], leaves: bool = True) -> None:
        """Grey the named sets that the chosen model cannot fit, and leave such a set for the first
        that it can fit.

        :param unsuitable: names, and why not. :param leaves: False to leave no set.
        """
        start_name = self._start.name if isinstance(self._start, Dataset) else ""
        self._unsuitable = {name: why for name, why in unsuitable.items() if name != start_name}
        self.named.show_help(fields.refusals(self._unsuitable, "this model"))
        suitable = [
            name for name in self._names if name not in self._unsuitable and name != start_name
        ]
        self._offer(
            suitable[0] if leaves and suitable and self.named.value in self._unsuitable else None
        )

    def _offer(self, chosen: str | None = None) -> None:
        # always in one order: the page tells a choice by its place, and may not have seen the
        # newest entries yet
        entries = fields.entries(self._names, self._unsuitable, "this model")
        options = [*entries, (self._own(VARIABLE), VARIABLE), (self._own(FILE), FILE)]
        if list(self.named.control.options) != options or chosen is not None:
            self.named.offer(options, self.named.value if chosen is None else chosen)

    def _own(self, kind: str) -> str:
        """What the menu calls a table of the user's own: its name, once it is chosen, and how many
        rows it has, once these were counted.
        """
        file = self.path.value.strip() if self._uploaded is None else self._uploaded[0]
        name = PurePath(file).name if kind == FILE else str(self.variable.value)
        return f"{name}{self._rows}" if name and kind == self.named.value else kind

    def close(self) -> None:
        """Close the panel's widgets, in the browser too."""
        fields.close_all(self.view)

    # ---- controls --------------------------------------------------------------------------------

    def _make_controls(self) -> None:
        self._problem = fields.line()
        self.named = fields.choice("data", "data", [_NONE_FOUND], "")
        self._facts = widgets.HTML()
        self.variable = fields.choice("variable", "variable", [_NONE_FOUND], "")
        self.target = fields.choice("y", "target y (array)", [("none", "")], "")
        self.refresh_button = fields.button(
            "Look again",
            self.refresh,
            "Update the lists of data sets and variables, and the file",
            icon="refresh",
            layout={"width": None},
        )
        self.path = fields.text(
            "path",
            "path of a file",
            placeholder=".csv, .csv.gz, .parquet, .npz",
            help="On the kernel's machine. Or upload a CSV file of a few megabytes, which stays "
            "in the kernel's memory:",
        )
        self.upload = widgets.FileUpload(
            accept=".csv",
            multiple=False,
            description="Upload a CSV file",
            tooltip="Upload a CSV file of your own machine",
        )
        # the style sheet leaves out the number of files that the widget adds
        zone = widgets.HTML(markup.drop_zone("or drop it here"))
        upload = fields.styled(widgets.HBox([self.upload, zone]), "dpvi-upload")
        self._upload_note = widgets.HTML()
        self.separator = fields.choice(
            "separator",
            "columns are separated by",
            [
                ("what the first line shows", ""),
                *((words, mark) for mark, words in csv_files.SEPARATORS.items()),
            ],
            "",
        )
        self.separator.box.add_class("dpvi-schema-question")
        self._found, self._counted = fields.line(), fields.line()
        self.count_button = fields.button(
            "Count the rows",
            self._count,
            "Show the number of rows. It is private unless you declare it public; the notebook "
            "keeps what is shown.",
            layout={"align_self": "flex-start"},
        )
        self._lines = {name: fields.line() for name in ("variable", "path")}
        self._places = {VARIABLE: ("variable",), FILE: ("path",)}
        self._editor_box = widgets.VBox()
        self._declared = widgets.HTML()
        self._private_rows = fields.check(
            "private_rows", "show me private rows", help="They stay outside the guarantee."
        )
        self._private_rows.visible = False
        self.private_rows = self._private_rows.control
        self._preview = widgets.HTML()
        self._parts = {
            VARIABLE: widgets.VBox([self.variable.view, self._lines["variable"], self.target.view]),
            FILE: widgets.VBox(
                [
                    self.path.view,
                    upload,
                    self._upload_note,
                    self._lines["path"],
                    self.separator.view,
                ]
            ),
        }
        self.details = widgets.VBox(
            [
                self._problem,
                *self._parts.values(),
                self.refresh_button,
                self._facts,
                self._found,
                self.count_button,
                self._counted,
                self._editor_box,
                self._declared,
                self._private_rows.view,
                self._preview,
            ]
        )
        self.view = widgets.VBox([self.named.view, self.details])

    def _source_changed(self) -> None:
        """Show the controls and the schema editor of the chosen source."""
        if self._refreshing:
            return
        if self._uploaded is not None and self.path.value.strip():
            self._uploaded = None
        origin = self.path.value, self._uploaded
        if origin != self._origin:  # the separator was chosen for another file
            self._origin, self._refreshing = origin, True
            self.separator.value, self._refreshing = "", False
        for kind, controls in self._parts.items():
            controls.layout.display = None if kind == self.named.value else "none"
        dataset = self._given_dataset()
        self.target.visible = isinstance(self._object(), np.ndarray)
        self.refresh_button.layout.display = None if self.has_own_source else "none"
        self._upload_note.value = (
            "" if self._uploaded is None else markup.quiet(f"Uploaded: {self._uploaded[0]}")
        )
        self._facts.value = markup.quiet(*self._public_facts(dataset))
        chosen = self.named.value, self.path.value, self._uploaded, Same(self._object())
        if chosen != self._chosen:  # the box was ticked for another source
            self.private_rows.value = False
            self._chosen = chosen
        self._edit_declaration()
        self._offer()
        self._changed()

    def _edit_declaration(self) -> None:
        """Show the schema editor of the chosen table, as the user left it."""
        try:
            table = self._table()
        except _validate.ArgumentError:
            table = None
        key = None if table is None else table.key
        dialect = "" if table is None else table.dialect
        fields.say(self._found, markup.sentence(dialect) if dialect else "")
        fields.say(self._counted, "")
        self._rows = ""
        self.count_button.layout.display = (
            None if table is not None and table.count is not None else "none"
        )
        self.separator.visible = bool(dialect) or bool(self.separator.value)
        if key == self._editor_key:
            return
        old, self._editor, self._editor_key = self._editor, None, key
        if table is not None:
            self._editor = SchemaEditor(
                table.columns,
                table.roles,
                self._changed,
                self._kept.get(key),
                table.missing,
                self._learning if table.read is not None else None,
            )
        self._editor_box.children = [] if self._editor is None else [self._editor.view]
        if old is not None:
            old.close()

    @property
    def regression(self) -> tuple[str, str] | None:
        """(formula, family) of the declared columns; None without a target and features."""
        return None if self._editor is None else offered(self._editor.declaration())

    def _changed(self) -> None:
        if self._editor is not None:
            self._kept[self._editor_key] = self._editor.declaration()
        self.show_dataset(None)
        self._on_change()

    def _take_upload(self, change: Mapping[str, Any]) -> None:
        """Keep an uploaded file in memory, and remove it from the widget, whose state is saved with
        the notebook.
        """
        if not change["new"]:
            return
        name, content = str(change["new"][0]["name"]), bytes(change["new"][0]["content"])
        self.upload.value = ()
        self._uploaded = None
        self.path.control.value = ""
        self._uploaded = name, content
        self._source_changed()

    def _count(self) -> None:
        """Show the number of rows, which the user asked for."""
        try:
            table = self._table()
            number = table.count() if table is not None and table.count is not None else None
        except _validate.ArgumentError:  # shown beside its control
            return
        if table is not None and number is not None:
            self._rows = f", {count(number)} rows"
            self._offer()
            size = markup.sentence(f"{count(number)} rows x {len(table.columns)} columns")
            note = (
                "For you: the number of training records is treated as public by a fit, unless "
                "you declare another one."
            )
            fields.say(
                self._counted, size + markup.badge("outside the guarantee") + markup.quiet(note)
            )

    # ---- the chosen object -----------------------------------------------------------------------

    def _object(self) -> Any:
        """The object of the chosen variable; None if no variable is chosen or it is gone."""
        return self._namespace().get(self.variable.value) if self.named.value == VARIABLE else None

    def _given_dataset(self) -> Dataset | None:
        """The chosen ``Dataset`` object, if one is chosen."""
        if isinstance(self._start, Dataset) and self.named.value == self._start.name:
            return self._start
        value = self._object()
        return value if isinstance(value, Dataset) else None

    def _table(self) -> Table | None:
        """The chosen table; None for a data set.

        :raises ArgumentError: naming ``variable`` or ``path``, if it is not a table.
        """
        if self.named.value == FILE:
            return self._file()
        value, name = self._object(), self.variable.value
        if not self.has_own_source or isinstance(value, Dataset):
            return None
        if isinstance(value, pd.DataFrame):
            return frame_table(name, value)
        if is_table(value):
            target = self.target.value
            y = self._namespace().get(target) if target else None
            return array_table(name, value, "" if y is None else target, y)
        reason = (
            "is no longer a table: press Refresh."
            if name
            else "make a DataFrame, an array or a Dataset, and press Refresh."
        )
        raise _validate.ArgumentError("variable", name, reason)

    def _file(self) -> Table:
        path, separator = self.path.value.strip(), self.separator.value or None
        if self._uploaded is None and not path:
            raise _validate.ArgumentError("path", "", "type the path of a file, or upload one.")
        state = (
            (self._uploaded, separator)
            if self._uploaded is not None
            else (path, stamp(path), separator)
        )
        if state != self._read[0]:
            self._read = state, self._read_file(path, separator)
        table = self._read[1]
        if not isinstance(table, Table):
            raise table  # type: ignore[misc]
        return table

    def _read_file(self, path: str, separator: str | None) -> Table | _validate.ArgumentError:
        uploaded = self._uploaded
        try:
            return (
                file_table(path, separator)
                if uploaded is None
                else upload_table(*uploaded, separator)
            )
        except _validate.ArgumentError as error:
            if uploaded is None:
                return error
            return _validate.ArgumentError(
                "path", uploaded[0], f"{uploaded[0]} {error.expectation}"
            )

    def _variable_of(self, dataset: Dataset) -> tuple[str, str]:
        """The name to show and the Python name of a ``Dataset`` object."""
        if self.named.value == VARIABLE:
            return self.variable.value, self.variable.value
        names = (
            name
            for name, value in list(self._namespace().items())
            if value is dataset and not name.startswith("_")
        )
        return dataset.name, next(names, "data")

    def _public_facts(self, dataset: Dataset | None) -> list[str]:
        """What is public about a named set or a ``Dataset``, before it is loaded."""
        if dataset is not None:
            return [
                dataset.description,
                f"One record is one {dataset.unit}.",
                f"Licence: {dataset.licence}.",
            ]
        if self.has_own_source:
            return []
        info = data_room.info(self.named.value)
        availability = (
            [] if info.available else [f"Not on this machine; get it by {info.otherwise}."]
        )
        return [
            info.description,
            f"One record is one {info.unit}; {info.task}.",
            f"Licence: {info.licence}.",
            *availability,
        ]

    # ---- preview ---------------------------------------------------------------------------------

    def _draw(self) -> None:
        dataset = self._dataset
        private = dataset is not None and not dataset.evaluation_is_public
        self._private_rows.visible = dataset is not None and private and dataset.num_evaluation > 0
        if dataset is None:
            self._declared.value = self._preview.value = ""
            return
        self._declared.value = markup.fold("What is public", markup.quiet(*self._public))
        if private and not self.private_rows.value:
            self._preview.value = markup.quiet(_PRIVATE)
            return
        shown = f"{markup.badge(dataset.evaluation_label)}{first_records(dataset)}"
        self._preview.value = markup.fold(
            f"The first {ROWS} evaluation records", shown, is_open=private
        )
