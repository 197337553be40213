"""Figures of privacy: epsilon over steps, and one plan under every sampler and accountant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from workbench.plots.style import INK, QUIET, dress, new_figure

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["comparison_figure", "epsilon_figure"]

# accountant: (colour, marker, words); colour is not the only signal
_ACCOUNTANTS = {
    "pld": ("#0550ae", "o", "PLD: what a guarantee is made of"),
    "rdp": ("#953800", "s", "RDP"),
    "rdp_classic": ("#8250df", "D", "RDP, conversion of 2017"),
    "fourier": ("#57606a", "x", "Fourier: no bound"),
}
_SAMPLERS = {"poisson": "Poisson", "without_replacement": "without replacement", "shuffle": "shuffle"}


def epsilon_figure(curve: Sequence[tuple[int, float]], delta: float) -> Figure:
    """Epsilon over the number of steps, from ``privacy.epsilon_curve``; 5.0 x 3.0 inches."""
    figure = new_figure(5.0, 3.0)
    axes = dress(figure.add_subplot())
    steps, values = [0, *(count for count, _ in curve)], [0.0, *(value for _, value in curve)]
    axes.plot(steps, values, color=_ACCOUNTANTS["pld"][0], linewidth=1.8, marker="o", markersize=3.5)
    axes.set_xlim(0, steps[-1])
    axes.set_ylim(0, 1.12 * max(*values, 1e-9))
    axes.set_title(f"privacy spent (upper bound at delta = {delta:g})", fontsize=10, loc="left", color=INK)
    axes.set_xlabel("steps", fontsize=9, color=QUIET)
    axes.set_ylabel("epsilon", fontsize=9, color=QUIET)
    axes.annotate(
        f"{values[-1]:.3g}", (steps[-1], values[-1]), xytext=(-6, 5), textcoords="offset points", ha="right", va="bottom"
    )
    return figure


def comparison_figure(table: pd.DataFrame, title: str) -> Figure:
    """The rows of ``privacy.compare`` as dots, one line a sampler and relation, on a logarithmic axis; 7.5 x 3.1 inches."""
    figure = new_figure(7.5, 3.1)
    axes = dress(figure.add_subplot())
    cases = list(dict.fromkeys(zip(table["sampler"], table["relation"], strict=True)))
    places = {case: len(cases) - 1 - number for number, case in enumerate(cases)}
    for accountant, (colour, marker, words) in _ACCOUNTANTS.items():
        rows = table[(table["accountant"] == accountant) & table["epsilon"].notna()]
        heights = [places[case] for case in zip(rows["sampler"], rows["relation"], strict=True)]
        axes.scatter(rows["epsilon"], heights, color=colour, marker=marker, s=42, label=words, zorder=3)
        if accountant == "pld":
            for value, height in zip(rows["epsilon"], heights, strict=True):
                axes.annotate(
                    f"{value:.3g}", (value, height), xytext=(0, 9), textcoords="offset points", ha="center", fontsize=9,
                    color=colour,
                )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(list(places.values()), [f"{_SAMPLERS[sampler]}\n{relation}" for sampler, relation in cases])
    axes.set_ylim(-0.6, len(cases) - 0.2)
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlabel("epsilon (each row under its own neighbouring relation)", fontsize=9, color=QUIET)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
