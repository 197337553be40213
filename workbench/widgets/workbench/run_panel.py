"""Controls of a run: the device, optional private evaluation and comparison, and buttons to start,
stop and resume.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import ipywidgets as widgets

from workbench.widgets.kit import fields
from workbench.widgets.kit.threads import background

__all__ = ["RunPanel"]


class RunPanel:
    """The device, checkboxes, and the buttons Fit, Stop and Resume. ``view`` is the widget to
    display.

    ``buttons`` and ``options`` are its two parts. The value of ``device`` is "" for JAX's default.
    ``of_private_records`` are the boxes for data with private evaluation records.

    :param on_change: called after a change of a control.
    :param start: label of the first button.
    :param task: what the buttons start, stop and resume.
    """

    def __init__(
        self, on_change: Callable[[], None], start: str = "Fit", task: str = "fit"
    ) -> None:
        self.device = fields.choice("device", "device", [("automatic", "")], "")
        self.baseline = fields.check(
            "baseline",
            "compare with a fit without privacy (outside the guarantee)",
            help="Runs after the private fit, without clipping and noise. Its curve is not "
            "private: keep it to yourself.",
        )
        self.evaluate_private = fields.check(
            "evaluate_private",
            "show private evaluation curves (outside the guarantee)",
            help="The evaluation records are private, so epsilon and delta do not cover numbers "
            "computed on them. This takes effect with the next fit on this data set.",
        )
        self.covered_scores = fields.check(
            "covered_scores",
            "score private evaluation records through noise (inside the guarantee)",
            help="Released once, at the end, each score with an interval, at no more epsilon.",
        )
        self.of_private_records = (self.covered_scores, self.evaluate_private)
        self.fit = widgets.Button(
            description=start,
            icon="play",
            button_style="primary",
            tooltip=f"Start a private {task}",
        )
        self.stop = widgets.Button(
            description="Stop",
            icon="stop",
            tooltip=f"Stop the {task} and keep its results so far",
        )
        self.resume = widgets.Button(
            description="Resume",
            icon="forward",
        )
        self._continues = f"Continue the {task} that was stopped"
        self.show_running(False)
        pressed = widgets.HBox([self.fit, self.stop, self.resume])
        self.buttons = fields.styled(pressed, "dpvi-buttons")
        self.options = widgets.VBox(
            [self.device.view, *(box.view for box in self.of_private_records), self.baseline.view]
        )
        self.view = widgets.VBox([self.buttons, self.options])
        for field in (self.device, self.baseline, *self.of_private_records):
            field.on_change(on_change)

    def scores(self, may_score_private: bool) -> dict[str, bool]:
        """What is ticked, by setting: nothing where there are no private evaluation records."""
        return {box.name: may_score_private and bool(box.value) for box in self.of_private_records}

    def find_devices(self) -> threading.Thread:
        """Fill the menu of devices in the background: starting a GPU takes seconds."""

        def find() -> None:
            from workbench.fitting.devices import devices

            available = devices()
            self.device.offer(
                [
                    (f"automatic: {available[0]}", ""),
                    *((str(device), device.name) for device in available),
                ],
                self.device.value,
            )

        return background(find, "dpvi-devices")

    def show_running(self, running: bool, *, can_resume: bool = False, resumes: str = "") -> None:
        """Enable only the buttons that can do something now.

        :param resumes: what Resume goes on with, in a sentence.
        """
        self.fit.disabled = running
        self.stop.disabled = not running
        self.resume.disabled = running or not can_resume
        self.resume.tooltip = resumes or self._continues

    def show(self, problems: dict[str, str]) -> None:
        """Show beside the device what is wrong with it."""
        self.device.show_error(problems.get("device", ""))

    def close(self) -> None:
        """Remove the panel with all its controls."""
        fields.close_all(self.view)
