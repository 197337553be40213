"""The report of a result: a self-contained HTML page that states the guarantee first."""

from __future__ import annotations

import base64
import importlib.resources
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2
import numpy as np

from workbench import _html, plots
from workbench._numbers import (
    MINUS,
    NARROW_SPACE,
    count,
    decimals,
    duration,
    fixed,
    places_for,
    shown,
    upper,
)
from workbench._validate import ArgumentError, kind_and_message
from workbench.plots.metrics import interval_of, of_score, words_of
from workbench.results import description
from workbench.results.code import code_of
from workbench.results.coefficients import has_coefficients
from workbench.results.summaries import INTERVAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.results.fit_result import FitResult

__all__ = [
    "coefficient_rows",
    "column_rows",
    "public_columns",
    "render",
    "settings_rows",
    "summary_rows",
]

_GROUPS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")  # between digits of one number
_FEW_CATEGORIES, _LARGEST_WHOLE = 30, 1e15
_WORDS = {
    "add_or_remove_one",
    "replace_one",
    "replace_special",
    "without_replacement",
    "random_allocation",
    "per_leaf",
}


def render(result: FitResult) -> str:
    """Render the report of ``result`` as HTML. Names and values from the user's data
    are escaped.
    """
    source = (
        importlib.resources.files("workbench.results").joinpath("report.html").read_text("utf-8")
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"count": count, "upper": upper, "unbroken": _unbroken}
    return environment.from_string(source).render(
        result=result,
        guarantee=result.guarantee,
        statement=result.guarantee.statement().split("\n\n"),
        interval=f"{100 * INTERVAL:g} %",
        duration=duration(result.seconds),
        metrics=[
            (*words_of(name), of_score(name, value) + interval_of(name, result.metric_intervals))
            for name, value in result.metrics.items()
        ],
        summary=summary_rows(result),
        coefficients=coefficient_rows(result),
        curves=_picture(result, "curves") if result.history else None,
        diagram=_image("diagram", lambda: description.diagram(result))
        if result.model_is_known
        else None,
        distributions=_distributions(result),
        own_picture=_own_picture(result),
        norms=_picture(result, "clipping") if result.gradient_norms else None,
        columns=public_columns(result),
        outcome=_outcome(result),
        style=_html.style(),
        versions=" · ".join(f"{name} {version}" for name, version in result.versions.items()),
        code=code_of(result),
        settings=settings_rows(result),
    )


def _unbroken(text: str) -> str:
    """``text`` with spaces inside of numbers, and before their %, at which no line is broken."""
    return _GROUPS.sub(NARROW_SPACE, text).replace(" %", "\N{NO-BREAK SPACE}%")


# ---- pictures ------------------------------------------------------------------------------------


class _Image(NamedTuple):
    """A figure in the page: the address of its data, its style and its own description.

    Dark pages invert figures, but not the pixels of images: those stand on white paper.
    """

    address: str
    kind: str
    words: str


def _image(name: str, draw: Callable[[], Figure]) -> _Image | None:
    """A figure for the page; None with a warning if it cannot be drawn."""
    try:
        figure = draw()
        drawn = plots.svg(figure)
    except (
        Exception
    ) as error:  # names from the data and pictures of users' models can fail in any way
        reason = kind_and_message(error)
        warnings.warn(
            f"the report lacks the picture {name!r}, which could not be drawn ({reason}).",
            stacklevel=2,
        )
        return None
    kind = "png" if drawn.startswith(b"\x89PNG") else "svg+xml"
    style = "dpvi-paper" if any(axes.get_images() for axes in figure.axes) else "dpvi-figure"
    return _Image(
        f"data:image/{kind};base64,{base64.b64encode(drawn).decode()}",
        style,
        str(figure.get_label()),
    )


def _picture(result: FitResult, name: str) -> _Image | None:
    return _image(name, lambda: result.plot(name))


def _own_picture(result: FitResult) -> _Image | None:
    """The first of the model's own pictures, made from the release and public records."""
    if not result.model_is_known:
        return None
    for name in result.predictor.model.pictures:
        return _picture(result, name)
    return None


# ---- tables --------------------------------------------------------------------------------------


def _distributions(result: FitResult) -> list[tuple[str, str]]:
    """(site, its distribution) for each site of the model; none if the model is unknown or cannot
    run on blank records.
    """
    if not result.model_is_known:
        return []
    try:
        return list(description.distributions(result).items())
    except Exception as error:  # users' models can fail in any way
        warnings.warn(f"the report lacks the priors ({kind_and_message(error)}).", stacklevel=2)
        return []


def summary_rows(result: FitResult) -> list[list[str]]:
    """Rows of the posterior's table; all have the same decimals, or more where a standard deviation
    needs them.
    """
    table, mark = result.summary_table(), result.clipping_bias.of
    rows = zip(table.index, table.to_numpy(float), places_for(table["sd"].tolist()), strict=True)
    return [
        [f"{name}{mark(str(name))}", *(fixed(value, digits) for value in values)]
        for name, values, digits in rows
    ]


def coefficient_rows(result: FitResult) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a regression's coefficients in the columns' own units; both empty for other
    models.
    """
    if not result.draws or not has_coefficients(result):
        return [], []
    try:
        table = result.coefficients()
    except ArgumentError as error:  # a wrong declaration of the model must not lose the report
        warnings.warn(f"the coefficients are left out ({error}).", stacklevel=2)
        return [], []
    interval = f"{100 * INTERVAL:g} % interval"
    numbers = table.drop(columns=["contrast", "sd", "share above 0", "scaled mean", "scaled sd"])
    ratio = list(numbers.columns[3:4])
    head = ["coefficient", "for", "mean", interval, *([*ratio, interval] if ratio else ())]
    rows = []
    precisions = map(decimals, table["sd"])  # of its own unit in each row
    for name, contrast, values, digits in zip(
        table.index, table["contrast"], numbers.to_numpy(float), precisions, strict=True
    ):
        mean, *ends = (fixed(value, digits) for value in values[:3])
        ratios = [_ratio(value) for value in values[3:] if not np.isnan(value)]
        blank = [""] * (len(head) - 4)
        of_ratio = [ratios[0], " to ".join(ratios[1:])] if ratios else blank
        rows.append([str(name), contrast, mean, " to ".join(ends), *of_ratio])
    return head, rows


def _ratio(value: float) -> str:
    """A ratio; beyond a thousand to one it says no more than that."""
    if not 1e-3 <= value <= 1e3:
        return "over 1000" if value > 1 else "below 0.001"
    return shown(value)


def public_columns(result: FitResult) -> list[tuple[str, str]]:
    """(column, what is declared about its values) for a table; otherwise names of features and
    groups.
    """
    data = result.data
    if data["schema"]:
        return column_rows(data["schema"])
    facts = [("features", ", ".join(data["feature_names"])), ("groups", ", ".join(data["groups"]))]
    if data["image_shape"]:
        facts.append(
            ("images", f"{' by '.join(map(str, data['image_shape']))} pixels, from 0 to 1")
        )
    if data["vocabulary_size"]:
        facts.append(("vocabulary", f"{count(data['vocabulary_size'])} tokens"))
    return [(name, words) for name, words in facts if words]


def column_rows(schema: Mapping[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """(column, what is declared about its values). :param schema: as ``Schema.to_dict`` writes."""
    return [(name, _declared(column)) for name, column in schema.items()]


def _declared(column: dict[str, Any]) -> str:
    """A declaration in words."""
    if column["kind"] == "boolean":
        return "yes or no"
    if column["kind"] == "numeric":
        return (
            f"{'whole numbers ' if column['whole'] else ''}from {_plain(column['low'])} to "
            f"{_plain(column['high'])}"
        )
    levels = [str(category) for category in column["categories"]]
    more = (
        f" and {count(len(levels) - _FEW_CATEGORIES)} more" if len(levels) > _FEW_CATEGORIES else ""
    )
    words = (
        ", ".join(levels[:_FEW_CATEGORIES])
        + more
        + (", or any other" if column.get("other") else "")
    )
    return words + (
        f"; reference: {column['reference']}" if column.get("reference") is not None else ""
    )


def _outcome(result: FitResult) -> str:
    """What is predicted, with the positive class if there are two."""
    data = result.data
    target, classes = data["target"], [str(label) for label in data["classes"]]
    if result.model_is_known and (words := result.predictor.model.target_words):
        return f'The target is "{target}", and the regression describes: {words}.'
    if not target or not classes or len(data["arrays"]) < 2:
        return ""
    if len(classes) == 2:
        positive = (
            f'"{classes[1]}" counts as positive, and predictions are its probability. The other '
            f'class is "{classes[0]}".'
        )
        return f'The target is "{target}": {positive}'
    return f'The target is "{target}", one of {", ".join(classes)}.'


def settings_rows(result: FitResult) -> list[tuple[str, str]]:
    """(name, value) of everything that was set or chosen."""
    guarantee = result.guarantee
    named = {
        **result.settings,
        **{f"{result.model}: {name}": value for name, value in result.model_options.items()},
    }
    seed = result.settings.get("seed")
    texts = {
        "epsilon": upper(guarantee.epsilon),
        "delta": upper(guarantee.delta),
        "seed": "none: secret randomness" if seed is None else str(seed),
    }
    if not guarantee.is_private:
        texts |= dict.fromkeys(("epsilon", "delta", "clip"), guarantee.label())
    rows = [
        (name.replace("_", " "), texts.get(name) or _plain(value)) for name, value in named.items()
    ]
    if not guarantee.is_private:
        return rows
    return [
        *rows,
        ("noise multiplier (sigma)", str(guarantee.noise_multiplier)),
        ("share of delta for minibatch overflow and rounding", upper(guarantee.overflow_delta, 2)),
        ("share of delta for noise that is not exactly Gaussian", upper(guarantee.noise_delta, 2)),
        ("arithmetic of sum and noise", guarantee.arithmetic),
    ]


def _plain(value: object) -> str:
    """A value in words, not in Python."""
    if value is None:
        return "automatic"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        is_whole = isinstance(value, int) or (value.is_integer() and abs(value) < _LARGEST_WHOLE)
        return (
            count(value)
            if is_whole
            else f"{value:.6g}".replace("-", MINUS, 1)
            if value < 0
            else f"{value:.6g}"
        )
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(entry) for entry in value) or "none"
    return value.replace("_", " ") if value in _WORDS else str(value)
