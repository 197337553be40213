"""A look, an evaluation or a cross-validation as it is published: its tables and its guarantee."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import _html
from workbench._schema import anything, listed, mapped, record, text, whole
from workbench._versions import versions
from workbench.privacy.guarantee import Guarantee, check_form
from workbench.results.report import column_rows

if TYPE_CHECKING:
    import pandas as pd

    from workbench.data.look import Look
    from workbench.fitting.evaluating import Evaluation

__all__ = ["Tables"]

INDEX, REPORT = "result.json", "report.html"
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of quantiles that are published


class Kind(NamedTuple):
    """A kind of tables.

    :param title: of the report. :param made: what its numbers are, for a registry.
    :param released: as of ``Guarantee``. :param has_folds: whether fits took part.
    """

    title: str
    made: str
    released: str
    has_folds: bool = False


_SCORES = "scores, their intervals and a check of calibration"
KINDS = {
    "look": Kind(
        "A look at columns", "quantiles, shares of levels and of missing values", "counts"
    ),
    "evaluation": Kind("Scores of a fit on private records", _SCORES, "scores"),
    "cross-validation": Kind(
        "Scores of a model by cross-validation", _SCORES, "gradients", has_folds=True
    ),
}
_TABLE = record({"columns": listed(text()), "rows": listed(listed(anything))})
_FORM = record(
    {
        "format": whole(1, 1),
        "kind": text(KINDS),
        **dict.fromkeys(("model", "spend"), text()),
        "columns": listed(listed(text(), 2)),
        "tables": mapped(_TABLE),
        "versions": mapped(text()),
        "guarantee": check_form,
    }
)


@dataclass(frozen=True)
class Tables:
    """What is published of a look or of scores. All of it is covered by the guarantee.

    :param kind: of ``KINDS``.
    :param model: what a ledger says was computed. :param spend: its key there, "" for none.
    :param columns: (column, what is declared about its values).
    :param tables: by title, the names of columns and the rows.
    """

    kind: str
    model: str
    spend: str
    columns: Sequence[Sequence[str]]
    tables: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str]
    guarantee: Guarantee

    @classmethod
    def of_look(cls, look: Look) -> Tables:
        """:raises AttributeError: for a look that is part of a fit."""
        tables = {"Columns": _table(look.table())}
        for name, column in look.table().iterrows():
            if column["kind"] == "categories":
                tables[f"Levels of {name}"] = _table(look.levels(str(name)))
            else:
                tables[f"Quantiles of {name}"] = _table(look.quantiles(str(name), _LEVELS))
        learned = [(name, "learned from the counts") for name in look.names]
        declared = learned if look.schema is None else column_rows(look.schema.to_dict())
        return cls("look", "look", look.spend, declared, tables, versions(), look.guarantee)

    @classmethod
    def of_evaluation(cls, scores: Evaluation) -> Tables:
        """The scores, and the bins of a check of calibration where there is one."""
        tables = {"Scores": _table(scores.table())}
        if scores.calibration:
            header = ["from", "to", "expected", "found", "5 %", "95 %"]
            rows = [[*bin[:3], *bin.fraction] for bin in scores.calibration]
            tables["Calibration"] = {"columns": header, "rows": rows}
        kind = "evaluation" if scores.guarantee.released == "scores" else "cross-validation"
        declared = [("all columns", "as the fit that is scored declares them")]
        return cls(kind, scores.model, scores.spend, declared, tables, versions(), scores.guarantee)

    @classmethod
    def from_index(cls, index: dict[str, Any]) -> Tables:
        """What ``save`` wrote. :raises FormError: naming a field."""
        _FORM("", index)
        facts = {name: value for name, value in index.items() if name != "format"}
        return cls(**facts | {"guarantee": Guarantee.from_dict(index["guarantee"])})

    @property
    def title(self) -> str:
        """Of the report."""
        return KINDS[self.kind].title

    @property
    def summary(self) -> str:
        """What is published, in a sentence."""
        names = next(iter(self.tables.values()))["rows"]
        return f"{self.title}: {', '.join(str(row[0]) for row in names)}."

    def save(self, folder: Path) -> None:
        """Write result.json and report.html into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"format": 1, **vars(self), "guarantee": self.guarantee.to_dict()}
        content = json.dumps(facts, indent=1, allow_nan=False) + "\n"
        (folder / INDEX).write_text(content, encoding="utf-8")
        # as a reader of the file has it
        page = Tables.from_index(json.loads(content)).page()
        (folder / REPORT).write_text(page, encoding="utf-8")

    def page(self) -> str:
        """The report: the statement and all tables."""
        items = [_html.paragraph(self.summary, _html.badge("covered"))]
        items += map(_html.paragraph, self.guarantee.statement().split("\n\n"))
        for title, table in self.tables.items():
            rows = [list(map(_shown, row)) for row in table["rows"]]
            items += [_html.heading(title), _html.table(table["columns"], rows)]
        return _html.page(self.title, *items)


def _table(frame: pd.DataFrame) -> dict[str, Any]:
    """A table with its index, JSON-ready."""
    whole_frame = frame.rename_axis(frame.index.name or "").reset_index()
    rows = [list(map(_plain, row)) for row in whole_frame.itertuples(index=False)]
    return {"columns": list(map(str, whole_frame.columns)), "rows": rows}


def _plain(value: Any) -> Any:
    """A number, a flag, text, or None for a number that is none."""
    value = getattr(value, "item", lambda: value)()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
