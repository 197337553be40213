"""The Privacy part of the screen: controls, and beside them the consequences of their plan before
any fit.

Every privacy number shown here comes from an ``Outlook``; the panel computes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from workbench import plots
from workbench._numbers import count
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.outlook import Outlook
from workbench.privacy.steps import LAWS, NEIGHBOURS
from workbench.widgets.kit import fields, markup
from workbench.widgets.workbench.result_panel import promise_card
from workbench.widgets.workbench.settings import problems_of

__all__ = ["PrivacyPanel"]

_PICTURE_WIDTH = 420
_AUTOMATIC, _SHORT = "automatic", "auto"
_UNKNOWN = markup.fact("Promised", "Not known yet", "Computing…")
_NEXT_UNKNOWN = markup.note("Next fit:", "computing…")
_RELATION_HELP = {
    "add_or_remove_one": "Hides whether a record was in the data.",
    "replace_one": "Hides whether the data contained a record or another one instead, but not the "
    "number of records.",
    "replace_special": "Hides whether a record was in the data or blanked, but not the number of "
    "records.",
}
_SIZES = {"sampling_rate": "sampling rate q", "batch_size": "size (records)"}
_CLIPPING = {
    "flat": (
        "clip long gradients",
        "A record's gradient is clipped to norm C if it is longer; shorter ones stay unchanged.",
    ),
    "automatic": (
        "scale all gradients",
        "Every record's gradient is scaled to almost norm C, so C acts like a learning rate.",
    ),
    "per_leaf": (
        "clip per parameter",
        "The gradient of each parameter is clipped to an equal share of C.",
    ),
}
_AVERAGE = {_AUTOMATIC: None, "yes": True, "no": False}
_AVERAGE_HELP = "Return the mean of the second half of the iterates, which averages out noise."


class PrivacyPanel:
    """Fields for all privacy settings, and the consequences of their plan.

    ``epsilon``, ``delta`` and ``iterations`` are its main fields, with ``errors`` as the place of
    their problems. ``settings`` has the other fields:
    ``size``, ``sampler``, ``relation``, ``clip``, ``clipping``, ``learning_rate`` and ``average``;
    ``size_kind`` says what ``size`` means. ``consequences`` is the widget that shows what the plan
    means, and ``promise`` its first sentence.

    :param epsilon: shown first.
    :param delta: None for automatic.
    :param iterations: None for automatic.
    :param on_change: called once after every change of a value; it must return quickly.
    :param on_hidden_problem: called when one of the ``settings`` has a problem, so that they can be
        shown.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float | None,
        iterations: int | None,
        on_change: Callable[[], None],
        on_hidden_problem: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change, self._on_hidden_problem = on_change, on_hidden_problem
        self._following = False  # one control is adjusting another, so the user has changed nothing
        self._automatic: dict[str, Any] = {}
        self._make_main_fields(epsilon, delta, iterations)
        self._make_other_fields()
        self._make_consequences()
        main = (self.epsilon, self.delta, self.iterations)
        settings = (
            self.size,
            self.sampler,
            self.relation,
            self.clip,
            self.clipping,
            self.learning_rate,
            self.average,
        )
        self._fields = {field.name: field for field in (*main, *settings)}
        self._fields["batch_size"] = self.size
        shown = [field.view for field in (self.size_kind, *settings)]
        self.settings = fields.styled(widgets.VBox(shown), "dpvi-fields")
        self._connect()
        self.errors = widgets.VBox(
            [*(field.error_line for field in main), self._other_problems, self._caution]
        )
        self.consequences = widgets.VBox([self._headline, self._words, self._picture])

    # ---- controls --------------------------------------------------------------------------------

    def _make_main_fields(
        self, epsilon: float, delta: float | None, iterations: int | None
    ) -> None:
        self.epsilon = fields.text(
            "epsilon",
            "epsilon",
            _plain(epsilon),
            help="A small epsilon protects well, a large one fits well.",
        )
        self._other_problems = fields.line()
        self.delta = fields.text(
            "delta",
            "delta",
            "" if delta is None else _plain(delta),
            placeholder=_SHORT,
            help="The probability that the bound epsilon does not cover. Keep it below 1/N: a "
            "larger delta would even allow publishing a record.",
        )
        self._caution = fields.line()
        self.iterations = fields.text(
            "iterations",
            "steps",
            "" if iterations is None else _plain(iterations),
            placeholder=_SHORT,
        )

    def _make_other_fields(self) -> None:
        self.size_kind = fields.choice(
            "size_kind",
            "minibatch size",
            [("as a rate q", "sampling_rate"), ("in records", "batch_size")],
            "sampling_rate",
        )
        self.size = fields.text("sampling_rate", _SIZES["sampling_rate"], placeholder=_AUTOMATIC)
        self.sampler = fields.choice(
            "sampler", "sampler", [(law.option, law.name) for law in LAWS.values()], "poisson"
        )
        self.relation = fields.choice(
            "relation", "neighbours", _relations("poisson"), LAWS["poisson"].relations[0]
        )
        self.clip = fields.text("clip", "clipping norm C", placeholder=_AUTOMATIC)
        self.clipping = fields.choice(
            "clipping",
            "clipping",
            [(words, name) for name, (words, _) in _CLIPPING.items()],
            "flat",
        )
        self.learning_rate = fields.text(
            "learning_rate", "learning rate", placeholder=_AUTOMATIC, help="Adam's step size."
        )
        self.average = fields.choice(
            "average", "average iterates", list(_AVERAGE), _AUTOMATIC, help=_AVERAGE_HELP
        )
        self._explain_choices()

    def _make_consequences(self) -> None:
        self.promise = fields.line()
        self._promised: Guarantee | None = None
        self._is_another = False
        self.runs = False  # whether a fit does, whose promise stands whatever the controls have
        self._headline, self._words = widgets.HTML(), widgets.HTML()
        self._picture = widgets.HTML(layout=widgets.Layout(visibility="hidden"))

    def _connect(self) -> None:
        self.sampler.on_change(self._follow_sampler)
        self.relation.on_change(self._explain_choices)
        self.clipping.on_change(self._explain_choices)
        self.size_kind.on_change(self._follow_size_kind)
        self.average.on_change(self._show_automatic)
        for field in dict.fromkeys([*self._fields.values(), self.size_kind]):
            field.on_change(self._changed)

    def _changed(self) -> None:
        if not self._following:
            self._on_change()

    def _follow_sampler(self) -> None:
        """Offer the neighbouring relations for which the sampler has an accountant."""
        self._following = True
        self.relation.control.options = _relations(self.sampler.value)
        self._following = False
        self._explain_choices()

    def _follow_size_kind(self) -> None:
        """Empty the field, because a rate is not a number of records."""
        self._following = True
        self.size.name = self.size_kind.value
        self.size.control.description = _SIZES[self.size.name]
        self.size.value = ""
        self.size.show_error("")
        self._following = False
        self._show_automatic()

    def _explain_choices(self) -> None:
        self.sampler.show_help(LAWS[self.sampler.value].help)
        self.relation.show_help(_RELATION_HELP[self.relation.value])
        self.clipping.show_help(_CLIPPING[self.clipping.value][1])

    def fill(self, values: Mapping[str, Any]) -> None:
        """Set fields to ``values``, by argument; the others stay unchanged."""
        for name, value in values.items():
            field = self._fields[name]
            field.value = _plain(value) if isinstance(value, (int, float)) else value

    def values(self) -> dict[str, Any]:
        """Arguments for ``workbench.fitting.prepare``: None if automatic, the text itself if it is
        not a number.
        """
        size = fields.number_in(self.size.value, is_whole=self.size.name == "batch_size")
        relation = self.relation.value
        return {
            "epsilon": fields.number_in(self.epsilon.value),
            "delta": fields.number_in(self.delta.value),
            "iterations": fields.number_in(self.iterations.value, is_whole=True),
            "sampling_rate": size if self.size.name == "sampling_rate" else None,
            "batch_size": size if self.size.name == "batch_size" else None,
            "sampler": self.sampler.value,
            "relation": None if relation == LAWS[self.sampler.value].relations[0] else relation,
            "clip": fields.number_in(self.clip.value),
            "clipping": self.clipping.value,
            "learning_rate": fields.number_in(self.learning_rate.value),
            "average": _AVERAGE[self.average.value],
        }

    # ---- problems --------------------------------------------------------------------------------

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without model and data."""
        return problems_of(self.values())

    def show(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, and hide the others.

        :param problems: ``{argument: what is wrong with it}``; those of arguments without a field
            are shown below epsilon.
        """
        fields.show_problems(self._fields, problems, self._other_problems)
        if problems.keys() & self._fields.keys() - {"epsilon", "delta", "iterations"}:
            self._on_hidden_problem()

    # ---- consequences ----------------------------------------------------------------------------

    def computing(self) -> None:
        """Show that the consequences are being computed. Those of the plan before stay visible,
        marked as such.
        """
        older = (
            ""
            if self._picture.layout.visibility == "hidden"
            else "Below are those of the plan before."
        )
        self._headline.value = markup.note("Computing what this plan means…", older)
        self._promised = None
        if self.promise.value:
            self._tell(_NEXT_UNKNOWN if self._is_another else _UNKNOWN)

    def _tell(self, promise: str) -> None:
        if not self.runs:
            fields.say(self.promise, promise)

    def show_outlook(
        self,
        outlook: Outlook,
        automatic: Mapping[str, Any],
        promise: Guarantee | None = None,
        *,
        another: bool = False,
        about_scores: Sequence[str] = (),
    ) -> None:
        """Show what the plan means. This draws a picture (80 ms), so call it off the main thread.

        :param automatic: the values of empty fields, by argument, such as ``{"delta": 0.001}``.
            Those of filled fields are ignored.
        :param promise: the plan's guarantee; None to show none.
        :param another: whether it stands beside that of a fit that has ended.
        :param about_scores: cautions about scores through noise.
        """
        from workbench.plots.privacy import outlook_figure

        plan = outlook.settings
        filled = {name for name, value in self.values().items() if value is not None}
        if filled & set(_SIZES):
            filled |= set(_SIZES)
        defaults = {"batch_size": round(outlook.minibatch_size), **automatic}
        self._automatic = {name: value for name, value in defaults.items() if name not in filled}
        self._show_automatic()
        cautions = (*plan.cautions(), *about_scores)
        fields.say(self._caution, "".join(map(markup.problem, cautions)))
        facts = (
            f"epsilon {_plain(plan.epsilon)}, delta {_plain(plan.delta)}, "
            f"{count(plan.iterations)} steps."
        )
        self.show_words(outlook, promise, another=another)
        drawn = plots.svg(outlook_figure(outlook))
        self._picture.value = markup.image(drawn, "the plan's noise and promise", _PICTURE_WIDTH)
        self._picture.layout.visibility = None
        self._headline.value = markup.note("What this plan means:", facts)

    def show_words(
        self, outlook: Outlook, promise: Guarantee | None = None, *, another: bool = False
    ) -> None:
        """Show what the plan means in words alone, which is quick. The parameters are those of
        ``show_outlook``.
        """
        self._words.value = "".join(
            f"<div style='margin-bottom:6px'>{markup.sentence(text)}</div>"
            for text in outlook.words()
        )
        self._promised, self._is_another = promise, another
        if promise is None:
            self._tell("")
        elif another:
            request = f" ({promise.asked_for})" if promise.asked_for else ""
            self._tell(markup.note("Next fit:", f"{promise.label()} per {promise.unit}{request}"))
        else:
            self._tell(promise_card("Promised", promise))

    def show_begun(self, promise: Guarantee | None) -> None:
        """Show what a fit that runs promises; what the controls' plan does where that is not known
        yet.
        """
        promise, self._is_another = promise or self._promised, False
        told = _UNKNOWN if promise is None else promise_card("Promised", promise)
        fields.say(self.promise, told)

    def show_unknown(self, reason: str) -> None:
        """Show why the consequences cannot be computed."""
        fields.say(self._caution, "")
        self._automatic = {}
        self._show_automatic()
        self._picture.layout.visibility = "hidden"
        self._words.value = markup.sentence(reason)
        self._promised = None
        beside = markup.note("Next fit:", "not known yet.")
        self._tell(beside if self._is_another else markup.fact("Promised", "Not known yet", reason))
        self._headline.value = markup.note("The consequences are not known.", "")

    def _show_automatic(self) -> None:
        automatic = self._automatic
        for field in (self.delta, self.iterations, self.size, self.clip, self.learning_rate):
            value = automatic.get(field.name)
            shown = "" if value is None else value if isinstance(value, str) else _plain(value, 4)
            if field not in (self.delta, self.iterations):  # which are narrow
                shown = f"{_AUTOMATIC}: {shown}" if shown else _AUTOMATIC
            field.control.placeholder = shown or _SHORT
        average = {None: "", True: " Automatic: yes.", False: " Automatic: no."}[
            automatic.get("average")
        ]
        self.average.show_help(
            _AVERAGE_HELP + (average if self.average.value == _AUTOMATIC else "")
        )

    def close(self) -> None:
        """Remove what the screen does not show, and so does not close."""
        for field in (self.epsilon, self.delta, self.iterations):
            fields.close_all(field.view)


def _relations(sampler: str) -> list[tuple[str, str]]:
    return [(NEIGHBOURS[name], name) for name in LAWS[sampler].relations]


def _plain(value: float, digits: int | None = None) -> str:
    """A number as a user would type it, 1 and not 1.0, rounded to ``digits`` significant digits if
    given.
    """
    if isinstance(value, int):
        return str(value)
    return (repr(float(value)) if digits is None else f"{value:.{digits}g}").removesuffix(".0")
