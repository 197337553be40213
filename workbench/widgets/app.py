"""The workbench screen: choose a model and data, set the privacy, watch a private fit, read what is promised.

The view is made of ipywidgets. Button callbacks only set flags and start threads. While a fit runs, one presenter
thread is the only writer of what is shown; it draws the newest snapshot four times a second and skips those in between.
"""

from __future__ import annotations

import base64
import html
import threading
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML, display

from workbench import data as data_room
from workbench import models
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.plots import TrainingCurves, png
from workbench.widgets import session as sessions
from workbench.widgets.session import Progress, Session
from workbench.widgets.settings import Settings

__all__ = ["Workbench"]

_FRAME_SECONDS = 0.25
_FIELD_WIDTH = "300px"
_STYLE = {"description_width": "118px"}


class Workbench:
    """The interactive workbench; display it in a notebook cell.

    :param model: name of the model chosen first. :param data: name of an embedded data set, or a ``Dataset``.
    :param epsilon: > 0. :param delta: None for the largest power of ten below 1/N. :param iterations: planned steps.

    After a fit, ``result`` is its ``FitResult``; it is None before, during and after one that broke.
    """

    def __init__(
        self,
        *,
        model: str = "logistic",
        data: str | Dataset = "breast_cancer",
        epsilon: float = 1.0,
        delta: float | None = None,
        iterations: int = 50_000,
    ) -> None:
        models.get(model)
        self._own: dict[str, Dataset] = {}
        if isinstance(data, Dataset):
            self._own[data.name] = data
        elif not isinstance(data, str):
            raise ArgumentError("data", type(data).__name__, "must be a name or a workbench.data.Dataset.")
        else:
            data_room.describe(data)
        start = Settings(model, data.name if isinstance(data, Dataset) else data, epsilon, delta, iterations)
        for name, problem in start.problems().items():
            raise ArgumentError(name, getattr(start, name), problem)
        self.result: Any = None
        self._session: Session | None = None
        self._presenter: threading.Thread | None = None
        self._records: list[Any] = []
        self._make_controls(start)
        self._make_screen()
        self._controls_changed()
        sessions.warm_up()

    # ---- controls -------------------------------------------------------------------------------------------------

    def _make_controls(self, start: Settings) -> None:
        def field(kind: Any, **options: Any) -> Any:
            return kind(layout=widgets.Layout(width=_FIELD_WIDTH), style=_STYLE, **options)

        names = [*self._own, *(name for name in data_room.names() if name not in self._own)]
        self.model = field(widgets.Dropdown, description="Model", options=models.names(), value=start.model)
        self.data = field(widgets.Dropdown, description="Data", options=names, value=start.data)
        self.epsilon = field(widgets.FloatText, description="epsilon", value=start.epsilon, step=0.1)
        self.delta = field(
            widgets.Text,
            description="delta",
            value="" if start.delta is None else repr(start.delta),
            placeholder="default: below 1 / N",
            continuous_update=False,
        )
        self.iterations = field(widgets.IntText, description="iterations (steps)", value=start.iterations, step=1000)
        self.evaluate_private = field(
            widgets.Checkbox, description="show private evaluation curves", value=False, indent=False
        )
        self.errors = {
            name: widgets.HTML(layout=widgets.Layout(width=_FIELD_WIDTH))
            for name in ("model", "epsilon", "delta", "iterations")
        }
        self.about = widgets.HTML(layout=widgets.Layout(width=_FIELD_WIDTH))
        self.fit_button = widgets.Button(
            description="Fit", icon="play", button_style="primary", tooltip="Start a private fit"
        )
        self.stop_button = widgets.Button(
            description="Stop", icon="stop", disabled=True, tooltip="End the fit and keep what it has"
        )
        for control in (self.model, self.data, self.epsilon, self.delta, self.iterations, self.evaluate_private):
            control.observe(lambda _: self._controls_changed(), names="value")
        self.fit_button.on_click(lambda _: self.fit())
        self.stop_button.on_click(lambda _: self.stop())

    def _dataset(self, name: str) -> Dataset:
        return self._own[name] if name in self._own else data_room.load(name)

    def _is_private(self, name: str) -> bool:
        """Whether this data set's evaluation records are private; embedded ones are public."""
        return name in self._own and not self._own[name].evaluation_is_public

    def settings(self) -> Settings:
        """What the controls say now. A delta that is no number is NaN, which no check lets through."""
        text = self.delta.value.strip()
        try:
            delta = float(text) if text else None
        except ValueError:
            delta = float("nan")
        return Settings(
            model=self.model.value,
            data=self.data.value,
            epsilon=self.epsilon.value,
            delta=delta,
            iterations=self.iterations.value,
            evaluate_private=self.evaluate_private.value and self._is_private(self.data.value),
        )

    def _controls_changed(self) -> None:
        settings = self.settings()
        problems = settings.problems()
        for name, label in self.errors.items():
            shown = self.delta.value if name == "delta" else getattr(settings, name)
            label.value = _error(f"{name} = {shown}: {problems[name]}") if name in problems else ""
        own = self._own.get(settings.data)
        self.evaluate_private.layout.display = "" if self._is_private(settings.data) else "none"
        description = own.description if own is not None else data_room.describe(settings.data)
        about = [description] if "model" in problems else [models.get(settings.model).summary, description]
        self.about.value = _quiet("<br>".join(map(html.escape, about)))
        self.code.value = _code(settings.as_code(embedded=own is None))

    # ---- screen ---------------------------------------------------------------------------------------------------

    def _make_screen(self) -> None:
        self.progress = widgets.IntProgress(value=0, min=0, max=100, layout=widgets.Layout(width="100%", height="14px"))
        self.status = widgets.HTML(_status("Ready.", "Set epsilon and press Fit."))
        curves = TrainingCurves(self.iterations.value, "no fit yet")
        self.picture = widgets.Image(
            value=png(curves.figure),
            format="png",
            layout=widgets.Layout(width="700px", height="285px"),
        )
        self.guarantee = widgets.HTML()
        self.posterior = widgets.HTML()
        self.code = widgets.HTML()
        controls = widgets.VBox(
            [
                self.model,
                self.errors["model"],
                self.data,
                self.about,
                self.epsilon,
                self.errors["epsilon"],
                self.delta,
                self.errors["delta"],
                self.iterations,
                self.errors["iterations"],
                self.evaluate_private,
                widgets.HBox([self.fit_button, self.stop_button]),
            ],
            layout=widgets.Layout(width="312px", flex="0 0 312px"),
        )
        live = widgets.VBox(
            [self.progress, self.status, self.picture],
            layout=widgets.Layout(width="708px", flex="0 0 708px"),
        )
        self.view = widgets.VBox(
            [
                widgets.HBox([controls, live], layout=widgets.Layout(flex_flow="row wrap", width="100%")),
                self.guarantee,
                self.posterior,
                self.code,
            ],
            layout=widgets.Layout(width="100%", max_width="1200px"),
        )

    def _ipython_display_(self) -> None:
        display(self.view)
        # a place for ordinary output that stays in the notebook when widget state does not
        self._records.append(display(HTML(""), display_id=True))

    # ---- running --------------------------------------------------------------------------------------------------

    def fit(self) -> None:
        """Start a fit of what the controls say, as the Fit button does; returns at once."""
        settings = self.settings()
        if settings.problems() or (self._presenter is not None and self._presenter.is_alive()):
            return
        self.result = None
        self._session = Session(settings, self._dataset(settings.data))
        self._presenter = threading.Thread(target=self._present, args=(self._session,), name="dpvi-presenter", daemon=True)
        self._session.start()
        self._presenter.start()

    def stop(self) -> None:
        """Ask the running fit to end with what it has, as the Stop button does; returns at once."""
        if self._session is not None:
            self._session.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no fit runs and its end is on the screen; False after ``timeout`` seconds."""
        if self._presenter is not None:
            self._presenter.join(timeout)
            return not self._presenter.is_alive()
        return True

    def close(self) -> None:
        """Stop a running fit and remove the view."""
        self.stop()
        self.view.close()

    def _present(self, session: Session) -> None:
        """Write everything that a fit shows; the only writer of these traits until the fit has ended."""
        self.fit_button.disabled = True
        self.stop_button.disabled = False
        self.guarantee.value = self.posterior.value = ""
        self.progress.bar_style = ""
        curves = TrainingCurves(session.settings.iterations, session.dataset.evaluation_label)
        drawn = None
        while True:
            ended = session.wait(_FRAME_SECONDS)
            now = session.progress()
            drawn = self._draw(session, now, curves, drawn)
            if ended:
                break
        self._finish(session)
        self.stop_button.disabled = True
        self.fit_button.disabled = False

    def _draw(self, session: Session, now: Progress, curves: TrainingCurves, drawn: int | None) -> int | None:
        """Show ``now``; redraw the picture if there are newer metrics than those at step ``drawn``."""
        total = session.settings.iterations
        if session.stopping and now.stage != "ended":
            self.stop_button.disabled = True
        if now.snapshot is None:
            self.status.value = _status("Preparing...", "calibrating the noise and reading the model")
            self.progress.value = 0
            return drawn
        snapshot = now.snapshot
        self.progress.value = round(100 * snapshot.step / total)
        headline = {"compiling": "Compiling...", "fitting": "Fitting...", "ended": "Finishing..."}[now.stage]
        if session.stopping:
            headline = "Stopping..."
        facts = [f"step {snapshot.step:,} of {total:,}"]
        if now.steps_per_second is not None:
            facts.append(f"{now.steps_per_second:,.0f} steps/s")
        if now.seconds_left is not None and now.stage == "fitting":
            facts.append(f"{sessions.clock(now.seconds_left)} left")
        if snapshot.epsilon_so_far is not None:
            facts.append(f"epsilon so far at most {snapshot.epsilon_so_far:.3g}")
        facts += _metric_texts(snapshot.metrics)
        self.status.value = _status(headline, " · ".join(facts))
        newest = now.history[-1].step if now.history else None
        if newest is not None and newest != drawn:
            curves.draw(now.history, f"epsilon {session.settings.epsilon:g}")
            self.picture.value = png(curves.figure)
        return newest

    def _finish(self, session: Session) -> None:
        result = session.result
        if result is None:
            self.progress.bar_style = "danger"
            folded = (
                f"<details><summary>traceback</summary><pre>{html.escape(session.details)}</pre></details>"
                if session.details
                else ""
            )
            self.status.value = _status("Failed.", "") + _error(session.problem) + (folded if session.details else "")
            return
        self.result = result
        guarantee = result.guarantee
        picture = png(result.plot())
        self.picture.value = picture
        self.progress.value = round(100 * guarantee.steps_taken / guarantee.steps)
        self.progress.bar_style = {"done": "success", "cancelled": "warning"}.get(result.state, "danger")
        words = {"done": "Done.", "cancelled": "Cancelled.", "failed": "Failed."}[result.state]
        facts = [
            f"{guarantee.steps_taken:,} of {guarantee.steps:,} steps in {sessions.clock(result.seconds)}",
            *_metric_texts(result.metrics),
        ]
        if not result.metrics:
            facts.append("no curves: the evaluation records are private")
        self.status.value = _status(words, " · ".join(facts)) + (_error(result.message) if result.message else "")
        self.guarantee.value = _card(guarantee.statement(), session.cautions)
        self.posterior.value = _table(result)
        self._leave_record(result, picture, session.cautions)

    def _leave_record(self, result: Any, picture: bytes, cautions: tuple[str, ...]) -> None:
        """Ordinary static output under the widget, folded: it stays when the notebook is closed."""
        run = f"{result.model} on {result.data['name']}, {result.state}, epsilon {result.guarantee.epsilon:g}"
        title = f"Kept in this notebook: {run}"
        image = base64.b64encode(picture).decode()
        body = (
            f"<details><summary>{html.escape(title)}</summary>"
            f'<img alt="ELBO and AUC over steps" src="data:image/png;base64,{image}">'
            f"{_card(result.guarantee.statement(), cautions)}{_table(result)}</details>"
        )
        for record in self._records:
            record.update(HTML(body))


def _metric_texts(metrics: dict[str, float]) -> list[str]:
    """The numbers at the end of the two curves."""
    scores = {"auc": "AUC", "log_likelihood": "log-likelihood", "reconstruction_error": "reconstruction error"}
    shown = ["elbo", *[name for name in scores if name in metrics][:1]]
    return [f"{({'elbo': 'ELBO'} | scores)[name]} {metrics[name]:.4f}" for name in shown if name in metrics]


def _quiet(text: str) -> str:
    return f'<div style="color:#57606a;line-height:1.35">{text}</div>'


def _error(text: str) -> str:
    return f'<div style="color:#a40e26;line-height:1.35">⚠ {html.escape(text)}</div>'


def _status(headline: str, facts: str) -> str:
    return f'<div style="line-height:1.4;min-height:2.8em"><b>{html.escape(headline)}</b> {html.escape(facts)}</div>'


def _code(text: str) -> str:
    call = f"import workbench as wb\n{html.escape(text)}"
    return f"<details><summary>Copy as code</summary><pre style='user-select:all'>{call}</pre></details>"


_CARD = (
    "border:1px solid #8c959f;border-left:6px solid #0550ae;border-radius:4px;padding:.4em 1em;margin:.6em 0;"
    "line-height:1.45;max-width:72em"
)


def _card(statement: str, cautions: tuple[str, ...]) -> str:
    first, *others = statement.split("\n\n")
    paragraphs = "".join(f"<p style='margin:.4em 0'>{html.escape(text)}</p>" for text in others)
    return (
        f'<div style="{_CARD}"><b>Guarantee</b><p style="margin:.4em 0"><b>{html.escape(first)}</b></p>'
        f"{paragraphs}{''.join(map(_error, cautions))}</div>"
    )


def _table(result: Any) -> str:
    from workbench.results.arviz_adapter import INTERVAL

    def row(cells: list[str], tag: str) -> str:
        aligned = ["left", *["right"] * (len(cells) - 1)]
        return "".join(
            f"<{tag} style='text-align:{side};padding:1px 10px'>{html.escape(cell)}</{tag}>"
            for side, cell in zip(aligned, cells, strict=True)
        )

    table = result.summary_table()
    label = "covered by the guarantee" if result.release_label == "covered" else result.release_label
    body = "".join(
        f"<tr>{row([str(name), *(f'{value:.3f}' if value == value else '-' for value in values)], 'td')}</tr>"
        for name, values in zip(table.index, table.to_numpy(), strict=True)
    )
    return (
        f"<details open><summary><b>Posterior</b> ({label}): mean, sd and {INTERVAL:.0%} highest-density "
        "interval, which does not count the noise that privacy added to its location (last column, estimated)</summary>"
        f"{_error(result.interval_warning) if result.interval_warning else ''}"
        "<div style='max-height:320px;overflow-y:auto;max-width:42em'>"
        "<table style='width:100%;font-variant-numeric:tabular-nums;border-collapse:collapse'>"
        f"<thead><tr>{row(['quantity', 'mean', 'sd', 'low', 'high', 'noise sd'], 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
        "</div></details>"
    )
