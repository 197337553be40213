"""The Ranges part of the sweep screen: the lists whose combinations are fitted, and the number of repetitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from workbench.privacy.steps import SAMPLERS
from workbench.sweeps.request import BASELINES
from workbench.widgets._kit import fields, markup
from workbench.widgets.sweep.settings import LISTS, numbers_in, problems_of_ranges
from workbench.widgets.workbench.privacy_panel import SAMPLER_WORDS

__all__ = ["RangesPanel"]

_AUTOMATIC = "automatic"


class RangesPanel:
    """Lists of settings, repetitions, and the file of finished fits. ``view`` is the widget to display.

    ``fields`` has the fields by their names in ``workbench.sweep``, except for ``samplers`` and ``baselines``, which have
    checkboxes by name. ``more`` folds further settings.

    :param epsilons: shown first.
    :param seeds: number of repetitions.
    :param iterations: () for automatic.
    :param store: name of a file, or "".
    :param on_change: called after every change; it must return quickly.
    """

    def __init__(
        self,
        *,
        epsilons: Sequence[float],
        seeds: int,
        iterations: Sequence[int],
        store: str,
        on_change: Callable[[], None],
    ) -> None:
        self.fields = {
            "epsilons": fields.text(
                "epsilons", "epsilons", _listed(epsilons),
                help="Separated by commas. Every combination of the lists is fitted, each with its own epsilon.",
            ),
            "seeds": fields.text("seeds", "repetitions (fits)", str(seeds), help="Of each combination, with new noise."),
            "iterations": fields.text("iterations", "iterations (steps)", _listed(iterations), placeholder=_AUTOMATIC),
            "num_records": fields.text(
                "num_records", "records N", placeholder="all", help="Numbers of public records to use."
            ),
            "delta": fields.text("delta", "delta (probability)", placeholder=_AUTOMATIC),
            "clips": fields.text("clips", "clipping norms C", placeholder=_AUTOMATIC),
            "learning_rates": fields.text("learning_rates", "learning rates (Adam)", placeholder=_AUTOMATIC),
            "store": fields.text(
                "store", "keep fits in", store, placeholder="memory",
                help="A file on the kernel's machine, created if it is missing. Fits in it are not run again.",
            ),
        }  # fmt: skip
        self.samplers = {name: fields.check("samplers", SAMPLER_WORDS[name][0], name == "poisson") for name in SAMPLERS}
        self.baselines = {name: fields.check("baselines", name, help=words) for name, words in BASELINES.items()}
        self._others = fields.line()
        self._baseline_box = widgets.VBox([field.view for field in self.baselines.values()])
        shown = {name: field.view for name, field in self.fields.items()}
        sampler_title = widgets.HTML(markup.sentence("Minibatches are drawn:"))
        folded = [shown.pop(name) for name in ("delta", "clips", "learning_rates")]
        sampler_boxes = [field.view for field in self.samplers.values()]
        self.more = fields.Fold("more settings", [*folded, sampler_title, *sampler_boxes])
        store_view = shown.pop("store")
        self.view = fields.section("Ranges", *shown.values(), self._baseline_box, self.more.view, store_view, self._others)
        for field in (*self.fields.values(), *self.samplers.values(), *self.baselines.values()):
            field.on_change(on_change)

    @property
    def store(self) -> str:
        """The name of the file for finished fits; "" for memory."""
        return str(self.fields["store"].value).strip()

    def values(self) -> dict[str, Any]:
        """``SweepSettings.ranges``. Texts that are not numbers stay unchanged."""
        lists = {name: numbers_in(self.fields[name].value) for name in LISTS}
        return {
            **lists,
            "seeds": fields.number_in(self.fields["seeds"].value),
            "delta": fields.number_in(self.fields["delta"].value),
            "samplers": tuple(name for name, field in self.samplers.items() if field.value),
            "baselines": tuple(name for name, field in self.baselines.items() if field.value),
        }

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without model and data."""
        return problems_of_ranges(self.values())

    def show(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, hide the others, and unfold the settings if needed.

        :param problems: by argument of a sweep or of a fit; those without a field here are shown at the end.
        """
        plural = {single: name for name, single in LISTS.items()} | {"sampler": "samplers"}
        left = {plural.get(name, name): problem for name, problem in problems.items()}
        for name, field in self.fields.items():
            field.show_error(left.pop(name, ""))
        if any(self.fields[name].error for name in ("delta", "clips", "learning_rates")) or "samplers" in left:
            self.more.is_open = True
        fields.say(self._others, "".join(markup.problem(f"{name}: {problem}") for name, problem in left.items()))

    def knows(self, name: str) -> bool:
        """Whether a problem with this argument is shown here."""
        return name in {*self.fields, *LISTS.values(), "sampler", "samplers", "baselines", "seed"}

    def offer_baselines(self, offered: bool) -> None:
        """Show or hide the fits without privacy, which only public records allow."""
        self._baseline_box.layout.display = None if offered else "none"

    def close(self) -> None:
        """Remove the panel with all its controls."""
        fields.close_all(self.view)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.12g}" for value in values)
