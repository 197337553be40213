"""The fields of the sweep screen: the lists whose combinations are fitted, and the number of
repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from workbench.privacy.steps import LAWS
from workbench.sweeps.request import BASELINES
from workbench.widgets.kit import fields, markup
from workbench.widgets.sweep.settings import LISTS, numbers_in, problems_of_ranges, words_in

__all__ = ["MAIN", "RangesPanel"]

MAIN = ("epsilons", "seeds", "iterations")
_AUTOMATIC = "automatic"


class RangesPanel:
    """Lists of settings, repetitions, and the file of finished fits.

    ``fields`` has the fields by their names in ``workbench.sweep``, except for ``samplers`` and
    ``baselines``, which have checkboxes by name. Those of ``MAIN`` are shown in the screen's first
    line, with ``errors`` below; ``settings`` is the widget with the others.

    :param epsilons: shown first.
    :param seeds: number of repetitions.
    :param iterations: () for automatic.
    :param store: name of a file, or "".
    :param on_change: called after every change; it must return quickly.
    :param on_hidden_problem: called when one of the ``settings`` has a problem, so that they can be
        shown.
    """

    def __init__(
        self,
        *,
        epsilons: Sequence[float],
        seeds: int,
        iterations: Sequence[int],
        store: str,
        on_change: Callable[[], None],
        on_hidden_problem: Callable[[], None],
    ) -> None:
        self._on_hidden_problem = on_hidden_problem
        self.fields = {
            "epsilons": fields.text(
                "epsilons",
                "epsilons",
                _listed(epsilons),
                help="Separated by commas. Every combination of the lists is fitted, each with "
                "its own epsilon.",
            ),
            "seeds": fields.text("seeds", "repetitions", str(seeds)),
            "iterations": fields.text(
                "iterations", "steps", _listed(iterations), placeholder=_AUTOMATIC
            ),
            "num_records": fields.text(
                "num_records",
                "records N",
                placeholder="all",
                help="Numbers of public records to use.",
            ),
            "models": fields.text(
                "models",
                "further models",
                placeholder="none",
                help="Names from the menu of models, separated by commas. Each is fitted with the "
                "same lists, its own settings at their defaults.",
            ),
            "delta": fields.text("delta", "delta (probability)", placeholder=_AUTOMATIC),
            "clips": fields.text("clips", "clipping norms C", placeholder=_AUTOMATIC),
            "learning_rates": fields.text(
                "learning_rates",
                "learning rates",
                placeholder=_AUTOMATIC,
                help="Adam's step sizes.",
            ),
            "store": fields.text(
                "store",
                "keep fits in",
                store,
                placeholder="memory",
                help="A file on the kernel's machine, created if it is missing. Fits in it are "
                "not run again.",
            ),
        }
        self.samplers = {
            name: fields.check("samplers", law.option, name == "poisson", help=law.help)
            for name, law in LAWS.items()
        }
        self.baselines = {
            name: fields.check("baselines", name, help=words) for name, words in BASELINES.items()
        }
        self._others = fields.line()
        self.errors = widgets.VBox(
            [self.fields[name].error_line for name in MAIN[1:]] + [self._others]
        )
        self._baseline_box = _group("Fits without privacy, to compare with:", self.baselines)
        lists = widgets.VBox(
            [field.view for name, field in self.fields.items() if name not in MAIN]
        )
        groups = [_group("Minibatches are drawn:", self.samplers), self._baseline_box]
        self.settings = fields.styled(widgets.Box([lists, *groups]), "dpvi-fields")
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
            "models": words_in(self.fields["models"].value),
            "samplers": tuple(name for name, field in self.samplers.items() if field.value),
            "baselines": tuple(name for name, field in self.baselines.items() if field.value),
        }

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without model and data."""
        return problems_of_ranges(self.values())

    def show(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, and hide the others.

        :param problems: by argument of a sweep or of a fit; those without a field here are shown at
            the end.
        """
        plural = {single: name for name, single in LISTS.items()} | {"sampler": "samplers"}
        of_sweep = {plural.get(name, name): problem for name, problem in problems.items()}
        fields.show_problems(self.fields, of_sweep, self._others)
        if of_sweep.keys() & {*self.fields, "samplers"} - {*MAIN}:
            self._on_hidden_problem()

    def knows(self, name: str) -> bool:
        """Whether a problem with this argument is shown here."""
        return name in {*self.fields, *LISTS.values(), "sampler", "samplers", "baselines", "seed"}

    def offer_baselines(self, offered: bool) -> None:
        """Show or hide the fits without privacy, which only public records allow."""
        self._baseline_box.layout.display = None if offered else "none"

    def show_automatic(self, iterations: Collection[int]) -> None:
        """Show the number of steps of the planned fits where it is chosen automatically."""
        self.fields["iterations"].control.placeholder = (
            str(*iterations) if len(iterations) == 1 else _AUTOMATIC
        )

    def close(self) -> None:
        """Remove what the screen does not show, and so does not close."""
        for name in MAIN:
            fields.close_all(self.fields[name].view)


def _group(title: str, boxes: Mapping[str, fields.Field]) -> Any:
    return widgets.VBox(
        [widgets.HTML(markup.sentence(title)), *(field.view for field in boxes.values())]
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.12g}" for value in values)
