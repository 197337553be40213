"""The result of a sweep: its table, its figures, and the fit of each row."""

from __future__ import annotations

import dataclasses
import html
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import _csv, _validate
from workbench._lazy import pd
from workbench.fitting.groups import grouped
from workbench.ledger.composition import TotalPrivacy
from workbench.privacy.guarantee import Guarantee
from workbench.sweeps.grid import AXES, Cell, Grid
from workbench.sweeps.request import DP
from workbench.sweeps.store import COLUMNS, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.ledger.ledger import Ledger
    from workbench.results import FitResult

__all__ = ["Series", "SweepResult", "series_name"]

_LEFT_OUT = ("key", "fingerprint", "metrics", "intervals", "guarantee", "spend", "parameters")
# settings that a rule or a model's advice may have chosen, as a row has them
_CHOSEN = ("iterations", "clip", "learning_rate")
# facts of a guarantee with which the posterior of a release is computed
_of_the_run = operator.attrgetter(
    "steps", "sampling_rate", "noise_multiplier", "clip", "adapts_clip"
)
_WORDS = {
    "num_records": "N, records",
    "iterations": "T, steps",
    "clip": "clipping norm C",
    "learning_rate": "learning rate",
    "sampling_rate": "sampling rate q",
    "auc": "AUC",
    "elbo": "ELBO per record (nats)",
    "log_likelihood": "log-likelihood per record (nats)",
}


class Series(NamedTuple):
    """What a figure of ``metric`` over ``x`` shows: rows of the table. ``label`` says whether they
    may be shown.

    :param private: the finished private fits; "method" has the name of each one's line.
    :param baselines: rows of the baselines.
    """

    metric: str
    x: str
    private: pd.DataFrame
    baselines: pd.DataFrame
    label: str


class SweepResult:
    """The result of a sweep, finished or not.

    >>> result = wb.sweep("logistic", "breast_cancer", epsilons=[1, 8])
    >>> result.status
    'done'
    >>> result.fit(1).guarantee.epsilon
    8.0

    :ivar total: what all its fits spend together on private records; None if the records are
        public.
    :ivar statement: the same in words.
    :ivar status: "done", "stopped", "interrupted" or "planned".
    :ivar message: why it was interrupted.
    """

    def __init__(
        self,
        grid: Grid,
        cells: Mapping[str, Cell],
        store: Store,
        total: TotalPrivacy | None,
        statement: str,
        status: str,
        message: str,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger
        self._grid, self._cells, self._store = grid, cells, store
        self.total, self.statement, self.status, self.message = total, statement, status, message
        self._rows = store.rows(list(cells))

    def __repr__(self) -> str:
        done = sum(row["status"] == "done" for row in self._rows)
        return f"SweepResult({done} of {len(self._cells)} fits done, {self.status})"

    def _repr_html_(self) -> str:
        """Figure, table and what the sweep spent, for notebooks."""
        from workbench.plots.style import png_tag

        blocks = [f"<p>{html.escape(self.statement)}</p>"]
        if any(row["method"] == DP and row["metrics"] for row in self._rows):
            blocks.insert(0, png_tag(self.plot(), "metric of the sweep's fits"))
        return "".join([*blocks, self.table.to_html(max_rows=12)])

    @property
    def table(self) -> pd.DataFrame:
        """One row for each finished, failed or refused fit: its settings, metrics, time and status.

        The columns are those of the store (``workbench.sweeps.store.COLUMNS``) and one for each
        metric, with the ends of its 90 % interval (``auc_low``, ``auc_high``) where it was released
        through noise. ``label`` says whether the metrics may be shown. ``fit`` takes the row
        numbers.
        """
        rows = [
            {name: value for name, value in row.items() if name not in _LEFT_OUT}
            | {"options": ", ".join(f"{name}={value}" for name, value in row["options"].items())}
            | _with_ends(row)
            for row in self._rows
        ]
        names = [name for name in COLUMNS if name not in _LEFT_OUT]
        metrics = list(dict.fromkeys(name for row in self._rows for name in _with_ends(row)))
        index = names.index("status")
        frame = pd.DataFrame(rows, columns=[*names[:index], *metrics, *names[index:]])
        return frame.astype({name: "Int64" for name in ("seed", "iterations", "num_records")})

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Those of the finished private fits, in the order of the table."""
        finished = [row for row in self._rows if row["method"] == DP and row["status"] == "done"]
        return tuple(Guarantee.from_dict(row["guarantee"]) for row in finished)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics; figures show the first one by default."""
        names = list(dict.fromkeys(name for row in self._rows for name in row["metrics"]))
        late = ("log_likelihood", "elbo")
        return tuple(
            sorted(
                names,
                key=lambda name: (late.index(name) + 1 if name in late else 0, names.index(name)),
            )
        )

    def plot(self, metric: str | None = None, *, x: str | None = None, title: str = "") -> Figure:
        """Plot a metric over epsilon as box plots, or over N, T, C ... as means with their spread;
        baselines as lines.

        :param metric: one of ``metrics``.
        :param x: "epsilon", "num_records", "iterations", "clip", "learning_rate" or
            "sampling_rate"; by default the first of them that has several values.
        :param title: of the figure.
        :raises ArgumentError: naming ``metric`` or ``x``, also if no fit has metrics yet.
        """
        from workbench.plots import trend_figure, utility_figure

        metric, x, private, baselines, label = self.series(metric, x)
        lines = (
            {}
            if x == "num_records"
            else baselines.groupby("method", sort=False)[metric].mean().to_dict()
        )
        words, ylabel = title or self._title(), _WORDS.get(metric, metric.replace("_", " "))
        if x == "epsilon":
            return utility_figure(
                private, metric, label, baselines=lines, ylabel=ylabel, title=words
            )
        private[x] = private[x].astype(float)
        ends = private[x].agg(["min", "max"]).unique()
        shown = pd.concat(
            [
                private,
                *(_baseline(baselines, name, x, ends) for name in baselines["method"].unique()),
            ]
        )
        return trend_figure(
            shown,
            x,
            metric,
            "method",
            label,
            xlabel=_WORDS[x],
            ylabel=ylabel,
            title=words,
            logx=bool(private[x].max() >= 5 * private[x].min()),
        )

    def series(self, metric: str | None = None, x: str | None = None) -> Series:
        """What a figure of ``metric`` over ``x`` shows, which are as for ``plot``.

        :raises ArgumentError: naming ``metric`` or ``x``, also if no fit has metrics yet.
        """
        if not self.metrics:
            raise _validate.ArgumentError(
                "metric",
                metric,
                "no finished fit has metrics: they need evaluation records, and where these are "
                "private covered_scores=True or evaluate_private=True of wb.Privacy.",
            )
        metric = (
            self.metrics[0] if metric is None else _validate.choice("metric", metric, self.metrics)
        )
        table = self.table
        table = table[(table["status"] == "done") & table[metric].notna()]
        private = table[table["method"] == DP].copy()
        if private.empty:
            raise _validate.ArgumentError("metric", metric, "no finished private fit has it.")
        x, by = self._grid.axes(x)
        _validate.choice("x", x, AXES)
        if "model" in by and private["model"].nunique() < len(self._grid.models):
            by.insert(by.index("model") + 1, "options")
            private["options"] = [self._own_options(number) for number in private.index]
        private["method"] = (
            private.apply(lambda row: series_name(row, by), axis=1) if by else DP.upper()
        )
        labels = set(table["label"])
        label = labels.pop() if len(labels) == 1 else "outside the guarantee"
        return Series(metric, x, private, table[table["method"] != DP], label)

    def _own_options(self, number: int) -> str:
        """The options in which a row's model differs from others of the same name."""
        mine, model = self._rows[number]["options"], self._rows[number]["model"]
        namesakes = [row["options"] for row in self._rows if row["model"] == model]
        return ", ".join(
            f"{name} {value}"
            for name, value in mine.items()
            if any(options[name] != value for options in namesakes)
        )

    def _title(self) -> str:
        models = list(dict.fromkeys(row["model"] for row in self._rows))
        data = list(dict.fromkeys(row["data"] for row in self._rows))
        return f"{', '.join(models)} on {', '.join(data)}".replace("_", " ")

    def settings_of(self, number: int) -> dict[str, Any]:
        """Keyword arguments of ``workbench.fit`` that repeat a row's fit, with fresh noise if it
        has no seed.

        :param number: the row's number.
        """
        return grouped(self.flat_settings_of(number))

    def flat_settings_of(self, number: int) -> dict[str, Any]:
        """The settings of a row's fit, each under its own name; those that it chose itself are left
        out.

        :param number: the row's number.
        """
        row = self._row(number)
        settings = self._grid.settings_of(self._cells[row["key"]])
        return {name: value for name, value in settings.items() if value is not None}

    def fit(self, number: int) -> FitResult:
        """The result of a row's fit, made from its release: nothing is fitted again and nothing is
        spent.

        What the rules chose for it stands in the row. Another version may have other rules, and the
        release belongs to those of the run.

        :param number: the row's number.
        :raises ArgumentError: if it is not a finished private fit, its parameters were not kept, or
            this version would run it otherwise than it was run.
        """
        from workbench.fitting import fits

        row = self._row(number)
        params = self._store.parameters(row["key"])
        if row["method"] != DP or row["status"] != "done" or params is None:
            why = (
                "its parameters were too large to be kept."
                if row["status"] == "done" and row["method"] == DP
                else (f"it is not a finished private fit ({row['method']}, {row['status']}).")
            )
            raise _validate.ArgumentError("number", number, why)
        cell = self._cells[row["key"]]
        settings = self._grid.settings_of(cell)
        settings |= {name: row[name] for name in _CHOSEN if settings[name] is None}
        prepared = fits.prepare(
            self._grid.models[cell.model], self._grid.records_of(cell), **grouped(settings)
        )
        promised = Guarantee.from_dict(row["guarantee"])
        planned = prepared.guarantee(promised.steps)
        if _of_the_run(promised) != _of_the_run(planned):
            raise _validate.ArgumentError(
                "number",
                number,
                "was run with other noise, steps or C than this version would choose: use the "
                "version that ran it.",
            )
        # the fit may have been taken from a store, where its reads were seen
        prepared.run_log.hid_reads = promised.against_storage
        scores: dict[str, Any] = {}
        if row["intervals"]:  # released once, so it is not released again
            scores = {"metrics": row["metrics"], "metric_intervals": row["intervals"]}
            scores["metrics_label"] = row["label"]
        prepared.adopt(params, {} if scores else row["metrics"], row["seconds"])
        of_ledger = {"spend": row["spend"], "ledger": self._ledger}
        return dataclasses.replace(prepared.result(), **of_ledger, **scores)

    def numbers(self, **values: Any) -> list[int]:
        """The numbers of the rows whose columns have these values, such as
        ``epsilon=1.0, seed=3``.
        """
        table = self.table
        for name, value in values.items():
            _validate.choice("column", name, table.columns)
            table = table[table[name] == value]
        return [int(number) for number in table.index]

    def to_csv(self, path: str | Path) -> Path:
        """Write the table to a CSV file. An apostrophe keeps spreadsheets from computing text as
        formulas.
        """
        target = _validate.path("path", path)
        target.write_text(_csv.to_csv(self.table, index_label="number"), encoding="utf-8")
        return target

    def _row(self, number: int) -> dict[str, Any]:
        number = _validate.integer(
            "number", number, at_least=0, at_most=max(0, len(self._rows) - 1)
        )
        if not self._rows:
            raise _validate.ArgumentError("number", number, "no fit has finished.")
        return self._rows[number]


def _with_ends(row: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a row, each followed by the ends of its interval if it has one."""
    entries = {}
    for name, value in row["metrics"].items():
        entries[name] = value
        if name in row["intervals"]:
            entries[f"{name}_low"], entries[f"{name}_high"] = row["intervals"][name]
    return entries


def series_name(row: Mapping[str, Any], by: Sequence[str]) -> str:
    """The name of a line in a figure, from the columns ``by``."""
    words = {
        "num_records": "N",
        "iterations": "T",
        "clip": "C",
        "learning_rate": "learning rate",
        "sampling_rate": "q",
    }
    return ", ".join(
        str(row[name]) if isinstance(row[name], str) else f"{words.get(name, name)} {row[name]:g}"
        for name in by
    )


def _baseline(baselines: pd.DataFrame, method: str, x: str, ends: Sequence[float]) -> pd.DataFrame:
    """A baseline's rows where it was fitted; at both ends if it does not depend on ``x``."""
    rows = baselines[baselines["method"] == method]
    if rows[x].isna().all():
        return pd.concat([rows.assign(**{x: float(end)}) for end in ends])
    return rows.astype({x: float})
