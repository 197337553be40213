"""Twins: synthetic tables from which an analyst gets valid intervals.

``synthetic_records`` draws each record from a posterior draw of its own, so all sets of them have
the same distribution, and nothing between sets says how uncertain the posterior is. Here all
records of a set come from one draw, and the sets differ as the posterior does; ``combine`` takes
both apart again.

Everything is made of the release, of public inputs and of fresh random numbers. The number of
records in a set is chosen, by default from the number of private records that the guarantee
publishes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import numpy as np

from workbench import _csv, _validate
from workbench._lazy import pd
from workbench.data.columns import Boolean, Categorical, Column, Numeric
from workbench.data.schema import Schema, columns_of
from workbench.models.model import CellTable
from workbench.results.effects import formula_of
from workbench.results.fit_result import IntervalWarning
from workbench.results.prediction import synthetic_key
from workbench.results.storage import check_folder
from workbench.results.synthesis import MOST_NUMBERS, require_public, table_of

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult
    from workbench.results.prediction import Records

__all__ = ["Twins", "new_twins"]

_ROWS = 10  # times the number of private records
_DIGITS = 6  # of a column's range
_FORMATS = ("csv", "parquet")
_CUT = 0.02  # of a column at its bounds, from which on it is worth a warning
_CUT_WORDS = (
    "Many values of {names} were drawn beyond the declared bounds and cut to them, because the "
    "noise is large or the bounds are narrow. Their slopes and means are drawn towards the middle "
    "of the bounds, and intervals of these may miss the truth."
)
_GUIDE = (
    "INTERVALS FROM THESE TABLES ARE NOT CALIBRATED: they were drawn from the guide's posterior "
    "({note}), which does not count the privacy noise. Use them to try out an analysis, not for "
    "its answer."
)


class Twins(Sequence["pd.DataFrame"]):
    """Synthetic tables, each from one draw of a result's posterior; made by ``FitResult.twins``.

    They are drawn when they are read, always the same: ``twins[0]``, ``for table in twins``.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> twins = result.twins(sets=2, rows=100, seed=1)
    >>> len(twins), len(twins[0]), twins.label
    (2, 100, 'covered')
    >>> twins.save("for_analysts").name
    'for_analysts'

    :ivar rows: of each table.
    :ivar label: that of the posterior, as ``FitResult.labels`` has it.
    :ivar warning: why intervals from them are not to be trusted; else "". Of columns that were cut
        to their bounds the first table that shows it warns.
    """

    def __init__(
        self, result: FitResult, sets: int, rows: int | None, records: Records, seed: int | None
    ) -> None:
        facts = result.data
        if facts["image_shape"]:
            raise _validate.ArgumentError(
                "model",
                result.model,
                "draws images, and twins are tables.",
                remedy="result.sample() draws images.",
            )
        self._result, self._predictor = result, result.predictor
        self.label, self.warning = result.release_label, _warning_of(result)
        size = max(1, sum(math.prod(shape) for shape in facts["record_shapes"]))
        usual = min(_ROWS * result.settings["num_records"], MOST_NUMBERS // size)
        self.rows = _validate.integer(
            "rows", usual if rows is None else rows, at_least=1, at_most=MOST_NUMBERS // size
        )
        self._draws = _draws_of(result)
        available = min((len(values) for values in self._draws.values()), default=None)
        self._sets = _validate.integer("sets", sets, at_least=2, at_most=available)
        self._source, self._inputs = self._inputs_of(records)
        self._key, self._cut = synthetic_key(seed), set[str]()
        first = np.random.default_rng(np.asarray(jax.random.key_data(self._key)))
        self._chosen = first.permutation(available or self._sets)[: self._sets]

    def _inputs_of(self, records: Records) -> tuple[pd.DataFrame | None, tuple[np.ndarray, ...]]:
        """Public inputs as a table with the columns that the model uses, cut to their bounds, and
        as arrays.
        """
        if len(self._result.data["arrays"]) == 1:
            if records is None:
                return None, ()
            raise _validate.ArgumentError(
                "given",
                records,
                "is for models that predict a target; this one draws whole records.",
            )
        require_public(records)
        try:
            inputs = self._predictor.inputs(records)
        except _validate.ArgumentError as error:
            if error.argument != "records":
                raise
            raise _validate.ArgumentError(
                "given",
                error.value,
                error.expectation,
                code=error.code,
                remedy="Pass a public table of inputs, as in result.twins(given=frame): rows that "
                "stand for the people whom the analysis is about."
                if records is None
                else error.remedy,
            ) from None
        if not isinstance(records, pd.DataFrame) or self.schema is None:
            return None, inputs
        names = [name for name in self.schema.columns if name != self._result.data["target"]]
        columns = columns_of(records, set(names) & set(map(str, records.columns)))
        for name in {*columns} & {*self._cut_columns}:
            columns[name] = columns[name].clip(*self.schema.bounds[name])
        table = pd.DataFrame({name: columns[name] for name in names if name in columns})
        return table.reset_index(drop=True), inputs

    @property
    def _cut_columns(self) -> Iterable[str]:
        """Columns of numbers that predictions cut to their bounds: not trials and exposures."""
        model = formula_of(self._result)
        schema = self.schema if model is None else model.columns.design.schema
        return () if schema is None else schema.bounds

    @functools.cached_property
    def schema(self) -> Schema | None:
        """How the columns are declared; None where they are not."""
        model = formula_of(self._result)
        return self._predictor.schema if model is None else model.columns.schema

    def __len__(self) -> int:
        return self._sets

    @overload
    def __getitem__(self, index: int) -> pd.DataFrame: ...

    @overload
    def __getitem__(self, index: slice) -> list[pd.DataFrame]: ...

    def __getitem__(self, index: int | slice) -> pd.DataFrame | list[pd.DataFrame]:
        numbers = range(self._sets)[index]
        return self._table(numbers) if isinstance(numbers, int) else [*map(self._table, numbers)]

    def _table(self, number: int) -> pd.DataFrame:
        """The table ``number``.

        Inputs get weights of their own in each set (the Bayesian bootstrap, Rubin 1981), so the
        sets also differ by what a public table leaves open about its population.
        """
        key = jax.random.fold_in(self._key, number)
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        drawn = {name: values[self._chosen[number]] for name, values in self._draws.items()}
        features, inputs = self._source, self._inputs
        if inputs:
            reached = np.cumsum(random.exponential(size=len(inputs[0])))
            rows = np.searchsorted(reached, random.random(self.rows) * reached[-1])
            rows = np.minimum(rows, len(reached) - 1)
            inputs = tuple(array[rows] for array in inputs)
            if features is not None:
                features = features.iloc[rows].reset_index(drop=True)
        values = self._predictor.sample_set(drawn, self.rows, inputs, key)
        return self._as_declared(table_of(self._predictor, inputs, values, features))

    def _as_declared(self, table: pd.DataFrame) -> pd.DataFrame:
        """With decimals that follow from declared bounds; classes that are numbers or truth values
        are such again, as a CSV file has them.
        """
        facts = self._result.data
        classes = list(facts["classes"])
        if classes == ["False", "True"]:
            table[facts["target"]] = table[facts["target"]] == "True"
        elif classes and all(name.isdecimal() and str(int(name)) == name for name in classes):
            table[facts["target"]] = table[facts["target"]].astype(int)
        bounds = {} if self.schema is None else dict(self.schema.bounds)
        if facts.get("target_bounds") is not None:
            bounds[facts["target"]] = tuple(facts["target_bounds"])
        copied = set() if self._source is None else set(self._source.columns) - {facts["target"]}
        for name, (low, high) in bounds.items():
            if name not in table or name in copied or table[name].dtype.kind not in "fiu":
                continue
            is_count = table[name].dtype.kind != "f"  # of which 0 is a usual value
            if not is_count:
                digits = _DIGITS - math.ceil(math.log10(high - low))
                table[name] = table[name].astype(float).round(digits).clip(low, high)
            is_cut = (table[name] == high) | ((table[name] == low) & (not is_count))
            self._note_cut(name, float(is_cut.mean()))
        return table

    def _note_cut(self, name: str, fraction: float) -> None:
        """Warn once of a column of which much was drawn beyond its bounds; not of times, which are
        censored there, nor of what is drawn within bounds.
        """
        model = formula_of(self._result)
        is_time = model is not None and "observed" in model.columns.extras
        if fraction <= _CUT or is_time or isinstance(self._predictor.model.table, CellTable):
            return
        if name not in self._cut:
            warnings.warn(_CUT_WORDS.format(names=name), IntervalWarning, stacklevel=5)
        self._cut.add(name)

    # ---- files -----------------------------------------------------------------------------------

    def save(self, folder: str | Path, format: Literal["csv", "parquet"] = "csv") -> Path:
        """Write one file for each table, and README.txt, into a new folder, and return it.

        The folder appears when all files are complete.

        :param folder: which does not exist or is empty.
        :param format: of the tables; "parquet" needs the package pyarrow.
        :raises ArgumentError: naming ``folder`` or ``format``.
        """
        suffix = _validate.choice("format", format, _FORMATS)
        if suffix == "parquet" and importlib.util.find_spec("pyarrow") is None:
            raise _validate.ArgumentError(
                "format",
                "parquet",
                "needs the package pyarrow.",
                remedy='Install it: pip install pyarrow; or use format="csv".',
            )
        path = _new_folder(folder)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        partial.mkdir()
        try:
            for name, table in zip(self._names(suffix), self, strict=True):
                if suffix == "csv":
                    text = _csv.to_csv(table, index=False)
                    (partial / name).write_text(text, encoding="utf-8")
                else:
                    table.to_parquet(partial / name, index=False)
            (partial / "README.txt").write_text(self.words(suffix), encoding="utf-8")
            if path.exists():
                path.rmdir()
            partial.rename(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return path

    def _names(self, suffix: str) -> list[str]:
        width = len(str(self._sets))
        return [f"twin_{number + 1:0{width}}.{suffix}" for number in range(self._sets)]

    @property
    def cautions(self) -> list[str]:
        """``warning``, and which columns were cut in tables that were read; else nothing."""
        cut = [_CUT_WORDS.format(names=", ".join(sorted(self._cut)))] if self._cut else []
        return [self.warning, *cut] if self.warning else cut

    def words(self, suffix: str = "csv") -> str:
        """The text of README.txt: what the tables are, what was promised, how to analyse them.

        :param suffix: of the files.
        """
        from workbench.results._twins_readme import readme

        return readme(self, self._result, self.cautions, self._names(suffix), suffix)

    @property
    def inputs_words(self) -> str:
        """Where the inputs come from, in sentences; "" where all columns are drawn."""
        if not self._inputs:
            return ""
        target = self._result.data["target"] or "the target"
        return (
            f"Only {target} was drawn from the model. The other columns are rows of a table of "
            f"{len(self._inputs[0])} rows that was given as public, drawn again with other weights "
            "for each file. So what is said of these columns alone, and averages over them, are "
            "about the population of that table."
        )

    def column_words(self) -> Iterator[tuple[str, str]]:
        """Each column and what it holds, by declarations."""
        facts = self._result.data
        columns = {} if self.schema is None else dict(self.schema.columns)
        used = set(columns) if self._source is None else {*self._source.columns, facts["target"]}
        for name, column in columns.items():
            if name in used and name != facts["target"]:
                yield name, _column_words(column)
        if facts["group"]:
            yield facts["group"], "one of " + ", ".join(map(str, facts["groups"]))
        if facts["target"]:
            yield facts["target"], _target_words(facts)

    def __repr__(self) -> str:
        return (
            f"Twins({self._sets} tables of {self.rows} rows, {self.label}"
            + (", see .warning" if self.warning else "")
            + ")"
        )


def _draws_of(result: FitResult) -> dict[str, np.ndarray]:
    """Draws of all latents. :raises ArgumentError: naming ``result``, if some are not finite."""
    if not all(np.all(np.isfinite(values)) for values in result.draws.values()):
        raise _validate.ArgumentError(
            "result",
            result.status,
            "has draws that are not finite: the fit broke down, and nothing can be drawn from it.",
        )
    return result.draws


def _warning_of(result: FitResult) -> str:
    """Why the posterior's intervals, and so those of its twins, should not be trusted."""
    note = result.posterior_note or "for which there is no noise-aware posterior"
    is_guide = result.posterior_kind == "variational"
    return " ".join(filter(None, [_GUIDE.format(note=note) if is_guide else "", *result.cautions]))


def _column_words(column: Column) -> str:
    if isinstance(column, Numeric):
        gaps = ", or missing" if column.missing else ""
        kind = "whole numbers" if column.whole else "numbers"
        return f"{kind} from {column.low:g} to {column.high:g}{gaps}"
    if isinstance(column, Categorical):
        return "one of " + ", ".join(map(str, column.labels))
    return "True or False" if isinstance(column, Boolean) else column.kind


def _target_words(facts: dict[str, Any]) -> str:
    if facts["classes"]:
        return "drawn; one of " + ", ".join(map(str, facts["classes"]))
    if facts.get("target_bounds") is not None:
        low, high = facts["target_bounds"]
        return f"drawn; numbers from {low:g} to {high:g}"
    return "drawn"


def _new_folder(folder: str | Path) -> Path:
    """:raises ArgumentError: naming ``folder``, if it cannot be made or has files."""
    try:
        path = check_folder(folder).resolve()
        has_files = path.is_dir() and any(path.iterdir())
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError("folder", error.value, error.expectation) from None
    if has_files:
        raise _validate.ArgumentError(
            "folder", str(folder), "has files already: name a new folder, so that none is lost."
        )
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True)
    return path


def new_twins(
    result: FitResult, sets: int, rows: int | None, records: Records, seed: int | None
) -> Twins:
    """Implementation of ``FitResult.twins``: it warns where intervals are not to be trusted."""
    twins = Twins(result, sets, rows, records, seed)
    if twins.warning:
        warnings.warn(twins.warning, IntervalWarning, stacklevel=3)
    return twins
