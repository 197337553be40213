"""What a fit is about: coefficients that form while it runs, or the model's main picture."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import numpy as np

from workbench._numbers import count, decimals, fixed
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.chart import Panel, chart
from workbench.widgets.kit.forest import Estimate, forest
from workbench.widgets.kit.latest import Latest
from workbench.widgets.workbench.result_panel import picture_of, pictures_of
from workbench.widgets.workbench.session import Progress, Session

if TYPE_CHECKING:
    from workbench.data import Dataset
    from workbench.fitting.prepared import PreparedFit
    from workbench.models.model import Model
    from workbench.results.fit_result import FitResult

__all__ = ["SubjectPanel", "estimates_of"]

_FOLLOWED = 8  # parameters whose lines are drawn where a model has no coefficients
_TALL = 240  # pixels of these lines
_AXIS = "scaled"
_LEGEND = "● clear"


class SubjectPanel:
    """The left half of the screen, ``view``, and the words before the menu of models, ``aim``."""

    def __init__(self) -> None:
        self.aim = widgets.HTML()
        self.show_aim()
        self.view = widgets.HTML(_framed("", "", ""))  # takes its room
        self._pictures = Latest("dpvi-subject")
        self._result: Any = None
        self._drawn: Any = None
        self._extent = 0.0  # of the axis so far, which never shrinks while estimates form

    def show_aim(self, model: Model | None = None, dataset: Dataset | None = None) -> None:
        """Say what the model is for: to predict the target, or to describe the records. Nothing is
        said where either is not known.
        """
        words = "Fit"
        if model is not None and dataset is not None:
            reads_target = "y" in (model.arrays or ()) or "formula" in model.options
            target = f"Predict <b>{markup.escape(dataset.target_name or 'the target')}</b>"
            words = f"{target if reads_target else 'Describe the records'} with"
        self.aim.value = words

    def show_plan(self, prepared: PreparedFit, diagram: tuple[bytes, str]) -> None:
        """Before the first fit, show what it will be about.

        :param diagram: the model's, with its description, for models without coefficients.
        """
        named = _of(prepared.model.name, prepared.data.name)
        names = _coefficient_names(prepared.model, prepared.data)
        if names and prepared.spec.columns.price(prepared.spec) is None:
            empty = [Estimate(name) for name in names]
            self.view.value = forest(_counted(names), empty, note=named)
            return
        picture = markup.image(*diagram) if diagram[0] else ""
        self.view.value = _framed("model", named, picture)

    def begin(self) -> None:
        """Fade the fit before until there is something to show of the one that begins."""
        if self._result is not None:
            self.mark(is_old=True)
        self._result = self._drawn = None
        self._extent = 0.0

    def clear(self) -> None:
        """Show nothing."""
        self._result = self._drawn = None
        self.view.value = _framed("", "", "")

    def show(self, session: Session, now: Progress) -> None:
        """Show how far a running fit has come, if there is something new."""
        newest = len(now.followed)
        if not newest or newest == self._drawn:
            return
        prepared = session.prepared
        named = _of(prepared.model.name, prepared.data.name)
        named += f", epsilon {prepared.privacy.epsilon:g} · covered"
        path = np.array([values for _, values in now.followed], dtype=float)
        pattern = re.compile(rf"{_site(prepared.model)}(_auto)?_loc\[(.*)\]", re.DOTALL)
        matches = [pattern.fullmatch(name) for name in now.followed_names]
        means = path[newest // 2 :].mean(axis=0)  # single ones are noisy
        forming = [
            Estimate(match[2], mean) for match, mean in zip(matches, means, strict=True) if match
        ]
        if forming:
            self._extent = max(self._extent, *(abs(estimate.mean or 0.0) for estimate in forming))
            self.view.value = forest(
                _counted(forming), forming, note=named, axis=_AXIS, extent=self._extent
            )
        else:
            steps = [step for step, _ in now.followed]
            panel = _lines(steps, path, now.followed_names)
            drawn = chart([panel], prepared.privacy.iterations, "Released parameters.")
            self.view.value = _framed("parameters", named, drawn)
        self._drawn = newest
        self.mark(is_old=False)

    def show_result(self, result: FitResult, dataset: Dataset | None = None) -> None:
        """Show what a fit has learnt. :param dataset: as of ``FitResult.plot``."""
        self._result = result
        self.mark(is_old=False)
        named = _of(result.model, result.data["name"])
        note = f"{named}, {result.guarantee.label()}"  # pictures say themselves what they show
        estimates = estimates_of(result)
        if estimates:
            note += f" · {result.release_label}"
            if any(estimate.is_clear for estimate in estimates):
                note += f" · {_LEGEND}"
            self.view.value = forest(
                _counted(estimates), estimates, note=note, units=("own units", "scaled"), axis=_AXIS
            )
            return
        names = pictures_of(result)
        title = names[0] if names else "model"
        self.view.value = _framed(title, note, "")
        if names:
            draw = functools.partial(picture_of, result, title, dataset)
            self._pictures.ask(
                draw, lambda picture: self._show_picture(result, title, note, picture)
            )

    def _show_picture(
        self, result: FitResult, title: str, note: str, picture: str | Exception
    ) -> None:
        if result is self._result:
            if isinstance(picture, Exception):
                picture = markup.quiet("It cannot be drawn; Pictures says why.")
            self.view.value = _framed(title, note, picture)

    def mark(self, *, is_old: bool) -> None:
        """Fade what is shown where it is of another model or of other records than are chosen."""
        fields.set_style(self.view, "dpvi-old", is_old)

    def close(self) -> None:
        """Stop drawing and forget the result."""
        self._pictures.close()
        self._result = None


def estimates_of(result: FitResult) -> list[Estimate]:
    """A regression's coefficients, the clearest first; none for other models."""
    from workbench.results.coefficients import ranked
    from workbench.results.summaries import INTERVAL

    estimates = []
    for coefficient in ranked(result, INTERVAL):
        unscaled, scaled = _text(coefficient.unscaled), _text(coefficient.scaled)
        mean, _, low, high = coefficient.scaled
        estimates.append(
            Estimate(
                coefficient.name,
                mean,
                (low, high),
                coefficient.is_clear and not result.interval_warning,
                (unscaled, scaled),
                f"{coefficient.name}, {coefficient.contrast}: {unscaled}; scaled {scaled}",
            )
        )
    return estimates


def _text(moments: tuple[float, ...]) -> str:
    mean, deviation, low, high = moments
    digits = decimals(deviation)
    return f"{fixed(mean, digits)} [{fixed(low, digits)}, {fixed(high, digits)}]"


def _counted(names: Sequence[object]) -> str:
    return f"{count(len(names))} coefficient{'s' * (len(names) != 1)}"


def _of(model: str, data: str) -> str:
    return f"{model} on {data}"


def _site(model: Model) -> str:
    """A pattern of the site of a regression's coefficients; one of no site for other models."""
    if model.linear is None:
        return "weights" if "formula" in model.options else "(?!)"
    return re.escape(model.linear.weights)


def _coefficient_names(model: Model, dataset: Dataset) -> list[str]:
    """Names of a regression's coefficients; none for other models."""
    if model.linear is None:
        return []
    try:
        labels = model.coordinates(dataset).get(model.linear.weights, [])
    except Exception:  # of a user's own function: a fit does not need names
        return []
    return [str(label) for label in labels] if not isinstance(labels, tuple) else []


def _framed(title: str, note: str, inner: str) -> str:
    return (
        f'<div class="dpvi-forest"><div class="title"><b>{markup.escape(title)}</b>'
        f"<span>{markup.escape(note)}</span></div>"
        f"{markup.scrolls(inner, title or 'model', kind='picture')}</div>"
    )


def _lines(steps: Sequence[int], path: np.ndarray, names: Sequence[str]) -> Panel:
    """The released parameters that moved most, over the steps."""
    moved = np.ptp(path, axis=0) if len(path) > 1 else np.abs(path[-1])
    chosen = np.sort(np.argsort(-moved, kind="stable")[:_FOLLOWED])
    lines = {
        names[index]: list(zip(steps, path[:, index].tolist(), strict=True)) for index in chosen
    }
    low, high = float(path[:, chosen].min()), float(path[:, chosen].max())
    margin = 0.06 * (high - low) or 1.0
    return Panel(
        "",
        f"{len(chosen)} of {count(path.shape[1])} released parameters",
        limits=(low - margin, high + margin),
        names=lines,
        height=_TALL,
    )
