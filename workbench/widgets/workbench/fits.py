"""What the screen keeps of fits: of one that could start now, and of those that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import plots
from workbench.widgets.workbench.settings import Settings

if TYPE_CHECKING:
    from workbench.data import Dataset
    from workbench.fitting.prepared import PreparedFit
    from workbench.privacy.guarantee import Guarantee
    from workbench.privacy.outlook import Outlook

__all__ = ["End", "Ready", "automatic_values", "be_ready", "planned", "ready_of"]


class Ready(NamedTuple):
    """A fit that could start now, with what the screen shows about it beforehand."""

    settings: Settings
    prepared: Any
    outlook: Any
    diagram: tuple[bytes, str]
    promise: Guarantee

    def fits(self, settings: Settings) -> bool:
        """Whether it has these settings and has not begun, because each run must draw its own
        noise.
        """
        return self.settings.key == settings.key and not self.prepared.has_begun


class End(NamedTuple):
    """A fit that has ended, and all that is shown of it.

    :param beside: the data set whose evaluation records pictures may show.
    :param number: of the fit on this screen. :param drawn: its curves, as ``LivePanel.drawn``.
    :param fitted: its settings, as far as they are known.
    """

    result: Any
    beside: Dataset | None
    cautions: tuple[str, ...] = ()
    spent: str = ""
    number: int = 0
    drawn: tuple[str, str, str] | None = None
    fitted: Settings | None = None


def _diagram_of(prepared: PreparedFit) -> tuple[bytes, str]:
    """The model's diagram with its description; nothing if it cannot be drawn: the model can be
    fitted even so.
    """
    try:
        figure = prepared.model.diagram(prepared.data)
        return plots.svg(figure), figure.get_label()
    except Exception:
        return b"", ""


def ready_of(settings: Settings, prepared: PreparedFit, diagram: tuple[bytes, str] | None) -> Ready:
    """:param diagram: the model's, if it was drawn before."""
    from workbench.privacy.outlook import outlook

    return Ready(
        settings,
        prepared,
        outlook(prepared.plan, prepared.step.noise_size),
        _diagram_of(prepared) if diagram is None else diagram,
        prepared.guarantee(prepared.privacy.iterations),
    )


def planned(settings: Settings, dataset: Dataset, before: PreparedFit) -> tuple[Outlook, Guarantee]:
    """What settings mean and promise, without reading the model.

    :param before: another fit of the same model and records, which tells how many coordinates the
        noise has.
    """
    from workbench.privacy.outlook import outlook

    size, step = before.step.noised_coordinates, before.step
    spec, plan = settings.planned(dataset, size)
    promise = spec.guarantee(plan, spec.privacy.iterations, size, before.run_log.hid_reads)
    return outlook(plan, step.noise_size), promise


def automatic_values(prepared: PreparedFit) -> dict[str, Any]:
    """What stands for empty fields of its settings."""
    privacy, settings = prepared.privacy, prepared.settings
    clip: str | float = "follows the look" if privacy.clip_follows_look else privacy.clip
    if privacy.adapts_clip:
        clip = f"adapted from {privacy.clip:.3g}"
    return {
        "delta": privacy.delta,
        "iterations": privacy.iterations,
        "sampling_rate": privacy.sampling_rate,
        "clip": clip,
        "learning_rate": settings.learning_rate,
        "average": settings.average,
    }


def be_ready(prepared: PreparedFit) -> None:
    """Compute ahead what a run does before its first step; a run reports what fails."""
    prepared.plan.confirmed()
    prepared.compile()
