"""The report: one self-contained HTML page with the guarantee first."""

from __future__ import annotations

import base64
import importlib.resources
from typing import TYPE_CHECKING

import jinja2

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["render"]


def render(result: FitResult) -> str:
    """The report of ``result`` as HTML; names and values from the user's data are escaped."""
    from workbench.plots import png
    from workbench.results.arviz_adapter import INTERVAL

    source = importlib.resources.files("workbench.results").joinpath("report.html").read_text()
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(source)
    table = result.summary_table()
    return template.render(
        result=result,
        guarantee=result.guarantee,
        statement=result.guarantee.statement().split("\n\n"),
        bounds=result.guarantee.attack_bounds(),
        interval=f"{INTERVAL:.0%}",
        summary=[(name, *row) for name, row in zip(table.index, table.to_numpy(), strict=True)],
        picture=_embedded(png(result.plot())),
        own_picture=_own_picture(result),
    )


def _embedded(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def _own_picture(result: FitResult) -> str:
    """The first of the model's own pictures, of the release and public records alone; "" where it has none."""
    from workbench.plots import png

    if not result.model_is_known:
        return ""
    for name in result.predictor.model.pictures:
        return _embedded(png(result.plot(name)))
    return ""
