"""The report of a result: a self-contained HTML page that states the guarantee first."""

from __future__ import annotations

import base64
import importlib.resources
import warnings
from typing import TYPE_CHECKING

import jinja2

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["render"]


def render(result: FitResult) -> str:
    """Render the report of ``result`` as HTML. Names and values from the user's data are escaped."""
    from workbench.results.arviz_adapter import INTERVAL

    source = importlib.resources.files("workbench.results").joinpath("report.html").read_text("utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(source)
    table = result.summary_table()
    return template.render(
        result=result,
        guarantee=result.guarantee,
        statement=result.guarantee.statement().split("\n\n"),
        bounds=result.guarantee.attack_bounds(),
        interval=f"{INTERVAL:.0%}",
        summary=[(name, *row) for name, row in zip(table.index, table.to_numpy(), strict=True)],
        picture=_picture(result, "curves"),
        own_picture=_own_picture(result),
    )


def _picture(result: FitResult, name: str) -> str:
    """A picture of ``result`` as base64 text; "" with a warning if it cannot be drawn, so that the report is still made."""
    from workbench.plots import png

    try:
        return base64.b64encode(png(result.plot(name))).decode()
    except Exception as error:  # names from the data and pictures of users' models can fail in any way
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        warnings.warn(f"the report lacks the picture {name!r}, which could not be drawn ({reason}).", stacklevel=2)
        return ""


def _own_picture(result: FitResult) -> str:
    """The first of the model's own pictures, made from the release and public records; "" if it has none."""
    if not result.model_is_known:
        return ""
    for name in result.predictor.model.pictures:
        return _picture(result, name)
    return ""
