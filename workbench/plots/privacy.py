"""Figures of privacy: epsilon over steps, attack bounds, and one plan under every sampler and
accountant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, NullFormatter

from workbench import _numbers
from workbench.plots.style import (
    BAND,
    COLOURS,
    INK,
    LEGEND,
    QUIET,
    WIDTH,
    dress,
    new_figure,
    use_line,
)
from workbench.privacy.guarantee import percent
from workbench.privacy.steps import LAWS

if TYPE_CHECKING:
    import pandas as pd

    from workbench.privacy.gradient_norms import GradientNorms
    from workbench.privacy.outlook import Outlook

__all__ = ["comparison_figure", "epsilon_figure", "norms_figure", "outlook_figure"]

# accountant: (colour, marker, words); series differ in more than colour
_ACCOUNTANTS = {
    "pld": ("#0550ae", "o", "PLD: used for guarantees"),
    "rdp": ("#953800", "s", "RDP"),
    "rdp_classic": ("#8250df", "D", "RDP, classic conversion"),
    "fourier": ("#57606a", "x", "Fourier: not a bound"),
}


def epsilon_figure(curve: Sequence[tuple[int, float]], delta: float) -> Figure:
    """Epsilon over the number of steps, from ``privacy.epsilon_curve``; 5.0 x 3.0 inches.

    >>> plan = {
    ...     "sampling_rate": 0.01,
    ...     "noise_multiplier": 1.0,
    ...     "steps": 1000,
    ...     "delta": 1e-5,
    ... }
    >>> figure = wb.plots.epsilon_figure(wb.privacy.epsilon_curve(**plan), delta=1e-5)
    """
    figure = new_figure(5.0, 3.0)
    axes = dress(figure.add_subplot(), "", "steps", "epsilon")
    steps, values = [0, *(count for count, _ in curve)], [0.0, *(value for _, value in curve)]
    axes.plot(
        steps, values, color=_ACCOUNTANTS["pld"][0], linewidth=1.8, marker="o", markersize=3.5
    )
    axes.set(xlim=(0, steps[-1]), ylim=(0, 1.12 * max(*values, 1e-9)))
    axes.set_title(
        f"privacy spent (upper bound at delta = {delta:g})", fontsize=10, loc="left", color=INK
    )
    axes.annotate(
        _numbers.upper(values[-1], 3),
        (steps[-1], values[-1]),
        xytext=(-6, 5),
        textcoords="offset points",
        ha="right",
        va="bottom",
    )
    return figure


def norms_figure(norms: GradientNorms, label: str) -> Figure:
    """Shares of the records' gradients by their norm before clipping, those above C in another
    colour; 7.0 x 2.8 inches.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> figure = wb.plots.norms_figure(result.gradient_norms, "covered")

    :param norms: ``FitResult.gradient_norms``. Whiskers are two standard deviations of the noise on
        each share.
    :param label: "covered" or "outside the guarantee".
    """
    figure = new_figure(WIDTH, 2.8, "", use_line(label))
    axes = dress(figure.add_subplot(), "", "norm before clipping", "% of gradients")
    below = sum(edge <= 1 for edge in norms.edges)
    colours = [COLOURS[0]] * below + [COLOURS[1]] * (len(norms.shares) - below)
    percents = [100 * max(fraction, 0.0) for fraction in norms.shares]
    positions = [index + 0.5 for index in range(len(percents))]
    axes.bar(positions, percents, width=0.86, color=colours)
    estimates = [100 * fraction for fraction in norms.shares]
    axes.errorbar(positions, estimates, yerr=200 * norms.deviation, linestyle="none", ecolor=QUIET)
    axes.axvline(below, color=INK, linewidth=1.2, linestyle="--")
    axes.set(xlim=(0, len(percents)), ylim=(0, 1.1 * (max(percents) + 200 * norms.deviation)))
    axes.set_xticks(
        range(1, len(percents)),
        ["C" if edge == 1 else f"{edge:g} C" for edge in norms.edges],
        fontsize=8,
    )
    axes.annotate(
        "clipped",
        (below, 0.93),
        (6, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=INK,
    )
    axes.set_title("how long the gradients of records were", fontsize=10, loc="left", color=INK)
    return figure


def outlook_figure(outlook: Outlook) -> Figure:
    """A small figure of a plan: epsilon over steps, and the attacker's trade-off; 3.6 x 2.0 inches.

    Shown 320 to 420 pixels wide, its text has the size of the page's.
    """
    figure = new_figure(3.6, 2.0)
    figure.set_layout_engine("none")  # computing a layout takes longer than drawing
    spent, attack = (dress(figure.add_axes((edge, 0.24, 0.34, 0.64))) for edge in (0.13, 0.61))

    steps, values = zip((0, 0.0), *outlook.epsilon_curve, strict=True)
    spent.plot(steps, values, color=COLOURS[0], linewidth=1.8)
    spent.plot(
        steps[-1:], values[-1:], color=COLOURS[0], marker="o", markersize=5, clip_on=False, zorder=3
    )
    spent.set(xlim=(0, steps[-1]), ylim=(0, 1.18 * outlook.settings.epsilon))
    spent.xaxis.set_major_formatter(EngFormatter(sep=""))
    spent.xaxis.set_major_locator(MaxNLocator(2, integer=True))
    spent.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    spent.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    spent.annotate(
        _numbers.upper(values[-1]),
        (steps[-1], values[-1]),
        (-7, 1),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8.5,
    )

    wrongly, detected = (
        [100 * rate for rate in rates] for rates in zip(*outlook.trade_off, strict=True)
    )
    at_1_percent = outlook.attack_bounds["true_positive_rate_at_1_percent"]
    attack.fill_between(wrongly, wrongly, detected, color=BAND, alpha=0.45, linewidth=0)
    attack.plot(wrongly, detected, color=COLOURS[0], linewidth=1.8)
    (guessing,) = attack.plot(
        [0, 100], [0, 100], color=QUIET, linewidth=1.2, linestyle="--", label="guessing"
    )
    (point,) = attack.plot(
        [1],
        [100 * at_1_percent],
        color=COLOURS[1],
        marker="D",
        markersize=5,
        linestyle="none",
        clip_on=False,
        zorder=3,
        label=f"{percent(at_1_percent)} at 1 %",
    )
    attack.set(xlim=(0, 100), ylim=(0, 103), xticks=[0, 50, 100], yticks=[0, 50, 100])
    # the area below the line of guessing is always empty
    attack.legend(
        handles=[point, guessing],
        loc="lower right",
        bbox_to_anchor=(1.05, 0.015),
        borderaxespad=0,
        labelspacing=0.2,
        **{**LEGEND, "fontsize": 8.5, "handlelength": 1.2, "handletextpad": 0.4},
    )

    for axes, title, label in (
        (spent, "epsilon, at most", "steps"),
        (attack, "found, at most (%)", "wrongly accused (%)"),
    ):
        axes.set_title(title, fontsize=8.5, loc="left", color=INK)
        axes.set_xlabel(label, fontsize=8.5, color=INK)
    return figure


def comparison_figure(table: pd.DataFrame, title: str) -> Figure:
    """The rows of ``privacy.compare`` as dots on a logarithmic axis, by sampler and relation; 7.5 x
    3.1 inches.
    """
    figure = new_figure(7.5, 3.1)
    axes = dress(figure.add_subplot(), "", "epsilon (each row under its own neighbouring relation)")
    cases = list(dict.fromkeys(zip(table["sampler"], table["relation"], strict=True)))
    positions = {case: len(cases) - 1 - number for number, case in enumerate(cases)}
    for accountant, (colour, marker, words) in _ACCOUNTANTS.items():
        rows = table[(table["accountant"] == accountant) & table["epsilon"].notna()]
        heights = [positions[case] for case in zip(rows["sampler"], rows["relation"], strict=True)]
        axes.scatter(
            rows["epsilon"], heights, color=colour, marker=marker, s=42, label=words, zorder=3
        )
        if accountant == "pld":
            for value, height in zip(rows["epsilon"], heights, strict=True):
                axes.annotate(
                    _numbers.upper(value, 3),
                    (value, height),
                    xytext=(0, 9),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color=colour,
                )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(
        list(positions.values()),
        [f"{LAWS[sampler].label}\n{relation}" for sampler, relation in cases],
    )
    axes.set_ylim(-0.6, len(cases) - 0.2)
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
