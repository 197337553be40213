"""Makes every figure of the documentation: ``python docs/figures.py [FOLDER]``, by default
docs/_figures.

The numbers come from the accountant and from fits as they run, nothing is written down here. Two
runs give the same pictures: the fits have seeds, which is right for public records alone. About
half a minute on two cores.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import workbench as wb
from workbench.data.storage.blocks import Seal
from workbench.data.storage.form import Form
from workbench.data.storage.oblivious import layout_of
from workbench.plots import answers_figure, comparison_figure, png
from workbench.plots.style import (
    COLOURS,
    LEGEND,
    LINES,
    MARKERS,
    QUIET,
    WIDTH,
    dress,
    new_figure,
    whole_ticks,
)

DELTA = 1e-5
FIGURES: dict[str, Callable[[], Figure]] = {}


def _figure(make: Callable[[], Figure]) -> Callable[[], Figure]:
    FIGURES[make.__name__] = make
    return make


def _line(
    axes: Axes, number: int, x: object, y: object, label: str, *, marked: bool = True
) -> None:
    """One of several lines, told apart by colour, dashes and marker."""
    marker = MARKERS[number] if marked else ""
    axes.plot(
        x,
        y,
        color=COLOURS[number],
        linestyle=LINES[number],
        marker=marker,
        markersize=4.5,
        label=label,
    )


@_figure
def epsilon_over_noise() -> Figure:
    """What noise buys: epsilon over sigma for three numbers of steps."""
    figure = new_figure(
        WIDTH, 3.6, f"Poisson minibatches, q = 0.01, delta = {DELTA:g}, add_or_remove_one"
    )
    axes = dress(figure.add_subplot(), "", "noise multiplier sigma", "epsilon (upper bound)")
    sigmas = np.geomspace(0.6, 20, 14)
    for number, steps in enumerate((100, 1000, 10_000)):
        values = [
            wb.privacy.epsilon(sampling_rate=0.01, noise_multiplier=s, steps=steps, delta=DELTA)
            for s in sigmas
        ]
        _line(axes, number, sigmas, values, f"T = {steps:,}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    whole_ticks(axes, [0.6, 1, 2, 5, 10, 20])
    axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.legend(**LEGEND)
    return figure


@_figure
def attacker() -> Figure:
    """The attacker's ROC for plans calibrated to four epsilons."""
    figure = new_figure(
        WIDTH, 3.9, f"T = 1000 Poisson minibatches, q = 0.1, delta = {DELTA:g}: no test does better"
    )
    whole, small = figure.subplots(1, 2)
    rates = np.concatenate([[0], np.geomspace(1e-4, 1, 61)])
    for number, epsilon in enumerate((0.25, 1.0, 4.0, 8.0)):
        sigma = wb.privacy.noise_multiplier(
            epsilon=epsilon, delta=DELTA, sampling_rate=0.1, steps=1000
        )
        found = wb.privacy.trade_off(
            sampling_rate=0.1, noise_multiplier=sigma, steps=1000, false_positive_rates=rates
        )
        for axes, end in ((whole, 1.0), (small, 0.1)):
            kept = rates <= 1.001 * end
            _line(
                axes,
                number,
                100 * rates[kept],
                100 * found[kept],
                f"epsilon = {epsilon:g}",
                marked=False,
            )
    for axes, title in ((whole, "all of it"), (small, "few wrong accusations")):
        dress(axes, title, "outsiders wrongly accused (%)", "members found, at most (%)")
        axes.plot(
            [0, axes.get_xlim()[1]],
            [0, axes.get_xlim()[1]],
            color=QUIET,
            linewidth=1,
            label="guessing",
        )
        axes.set_xlim(0, 100 if axes is whole else 10)
        axes.set_ylim(0, 100)
    whole.legend(loc="lower right", **LEGEND)
    return figure


@_figure
def epsilon_over_steps() -> Figure:
    """The same noise under four samplers, each with the accountant and the relation that belong to
    it.
    """
    figure = new_figure(WIDTH, 3.6, f"600 of 60 000 records a step, sigma = 6, delta = {DELTA:g}")
    axes = dress(figure.add_subplot(), "", "steps", "epsilon (upper bound)")
    cases = (
        ("poisson", "add_or_remove_one"),
        ("without_replacement", "replace_one"),
        ("shuffle", "replace_special"),
        ("shuffle", "replace_one"),
        ("random_allocation", "add_or_remove_one"),
    )
    for number, (sampler, relation) in enumerate(cases):
        curve = wb.privacy.epsilon_curve(
            sampler=sampler,
            relation=relation,
            sampling_rate=0.01,
            noise_multiplier=6.0,
            steps=10_000,
            delta=DELTA,
        )
        steps, values = zip(*curve, strict=True)
        _line(axes, number, steps, values, f"{sampler.replace('_', ' ')}, {relation}")
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.3, 1, 3, 10, 20], ["0.1", "0.3", "1", "3", "10", "20"])
    axes.set_xlim(0, 10_100)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND)
    return figure


@_figure
def random_allocation() -> Figure:
    """How much less noise random allocation needs than Poisson sampling, over epochs."""
    figure = new_figure(WIDTH, 3.4, f"noise for epsilon = 1 at delta = {DELTA:g}")
    axes = dress(figure.add_subplot(), "", "epochs", "less noise than Poisson (%)")
    epochs = (1, 2, 5, 10, 20, 50, 100)
    for number, rate in enumerate((0.1, 0.01, 0.001)):
        saved = []
        for count in epochs:
            target = {
                "epsilon": 1.0,
                "delta": DELTA,
                "sampling_rate": rate,
                "steps": round(count / rate),
            }
            poisson, allocated = (
                wb.privacy.noise_multiplier(sampler=sampler, **target)
                for sampler in ("poisson", "random_allocation")
            )
            saved.append(100 * (1 - allocated / poisson))
        _line(axes, number, epochs, saved, f"q = {rate:g}")
    axes.set_xscale("log")
    axes.set_xticks(epochs, [str(count) for count in epochs])
    axes.minorticks_off()
    axes.set_ylim(0)
    axes.legend(loc="upper right", **LEGEND)
    return figure


@_figure
def comparison() -> Figure:
    """One plan under every sampler and accountant."""
    plan = {"sampling_rate": 0.01, "noise_multiplier": 6.0, "steps": 10_000, "delta": DELTA}
    return comparison_figure(
        wb.privacy.compare(**plan), f"q = 0.01, sigma = 6, T = 10 000, delta = {DELTA:g}"
    )


@_figure
def several_fits() -> Figure:
    """What several fits on the same records spend together."""
    figure = new_figure(
        WIDTH,
        3.4,
        f"fits of epsilon = 1 on the same records, T = 2000, q = 0.1, delta = {DELTA:g} in all",
    )
    axes = dress(figure.add_subplot(), "", "fits", "total epsilon (upper bound)")
    sigma = wb.privacy.noise_multiplier(epsilon=1.0, delta=DELTA, sampling_rate=0.1, steps=2000)
    fits = np.arange(1, 11)
    totals = [
        wb.privacy.epsilon(
            sampling_rate=0.1, noise_multiplier=sigma, steps=int(2000 * count), delta=DELTA
        )
        for count in fits
    ]
    _line(axes, 1, fits, fits, "sum of the epsilons (their deltas add up too)")
    _line(axes, 0, fits, totals, "composed step by step, as the ledger does")
    axes.set_ylim(0)
    whole_ticks(axes, list(fits))
    axes.legend(loc="upper left", **LEGEND)
    return figure


@_figure
def price_of_epsilon() -> Figure:
    """Held-out log-likelihood of logistic regression on a public data set, over epsilon."""
    result = wb.sweep(
        "logistic",
        "breast_cancer",
        epsilons=[0.1, 0.25, 0.5, 1, 2, 4, 8],
        delta=1e-3,
        seeds=range(8),
        baselines=["non-private"],
        on_progress=lambda _: None,
    )
    return result.plot("log_likelihood")


@_figure
def clip() -> Figure:
    """Estimates of a weight over C, in units of the largest gradient, with their 90 % intervals."""
    random, truth, largest = np.random.default_rng(0), 3.0, 2**0.5
    x = random.uniform(-1, 1, 1000)
    frame = pd.DataFrame({"x": x, "y": random.random(len(x)) < 1 / (1 + np.exp(-truth * x))})
    data = wb.data.from_frame(
        frame, target="y", bounds={"x": (-1, 1)}, evaluation_is_public=True, evaluation_fraction=0.1
    )
    data = dataclasses.replace(data, is_public=True)
    shares = np.array([0.03, 0.06, 0.125, 0.25, 0.5, 1.0])
    fits = wb.sweep(
        "logistic",
        data,
        epsilons=[0.25],
        clips=(shares * largest).tolist(),
        seeds=range(8),
        on_progress=lambda _: None,
    )
    figure = new_figure(WIDTH, 3.4, "logistic regression, N = 1000, epsilon = 0.25")
    axes = dress(
        figure.add_subplot(),
        "",
        "C, in units of the largest gradient",
        "weight, with 90 % intervals",
    )
    for number, row in enumerate(fits.table.to_dict("records")):
        draws = fits.fit(number).draws["weights"][:, 0]
        low, high = np.quantile(draws, [0.05, 0.95])
        place = row["clip"] / largest * 1.05 ** (row["seed"] - 3.5)
        axes.plot([place, place], [low, high], color=COLOURS[0], linewidth=1.2)
        axes.plot(place, draws.mean(), color=COLOURS[0], marker="o", markersize=3.5)
    axes.axhline(truth, color=COLOURS[1], linestyle="--", linewidth=1.2)
    axes.set_xscale("log")
    whole_ticks(axes, list(shares))
    axes.set_ylim(0)
    return figure


@_figure
def oblivious_reading() -> Figure:
    """What oblivious reading moves: bytes read and written in an epoch, over the bytes of the
    records.
    """
    figure = new_figure(
        WIDTH, 3.6, "records of 100 bytes, minibatches of about 10 000, blocks of 256 KiB"
    )
    axes = dress(figure.add_subplot(), "", "records", "bytes moved in an epoch / bytes of records")
    record, minibatch, capacity = np.dtype([("x", "<f4", (24,)), ("y", "<i4")]), 10_000, 10_800
    per_block = 2**18 // record.itemsize
    sizes = np.geomspace(1e5, 1e9, 17)
    for number, memory in enumerate((0.125, 1.0, 8.0)):
        moved, allowed = [], int(memory * 2**30)
        at_once = max(1, min(2**24, allowed // 64) // (capacity * record.itemsize))
        for size in sizes:
            form = Form(b"", True, record, per_block, (math.ceil(size / per_block), 1), {})
            rate = minibatch / size
            layout = layout_of(
                form, capacity=capacity, rate=rate, at_once=at_once, steps=2**31 - 1, memory=allowed
            )
            cells = (
                layout.groups * layout.buckets * (layout.cell * (record.itemsize + 4) + Seal.tag)
            )
            spans = size / minibatch / layout.span  # in an epoch
            moved.append(
                spans
                * (form.blocks[0] * (form.block_size + Seal.tag) + 2 * cells)
                / (size * record.itemsize)
            )
        _line(axes, number, sizes, moved, f"{memory:g} GiB of memory")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([3, 10, 30, 100], ["3", "10", "30", "100"])
    axes.legend(**LEGEND)
    return figure


@_figure
def twins() -> Figure:
    """Intervals of four coefficients from a synthetic table, twins, posterior and records."""
    random = np.random.default_rng(4)
    truth, x = np.array([0.5, -0.3, 0.0, 0.2]), random.uniform(-1, 1, (2000, 4))
    records = pd.DataFrame(x, columns=["a", "b", "c", "d"])
    records["y"] = x @ truth + 0.5 * random.normal(size=2000)
    public = pd.DataFrame(random.uniform(-1, 1, (500, 4)), columns=["a", "b", "c", "d"])
    result = wb.fit(
        "y ~ a + b + c + d",
        records,
        schema={**dict.fromkeys("abcd", (-1, 1)), "y": (-3, 3)},
        epsilon=1.0,
        delta=DELTA,
        seed=1,
        ledger=False,
        privacy=wb.Privacy(look=0),
        training=wb.Training(estimator="statistics"),
    )

    def analysed(drawn: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        design = np.column_stack([drawn[list("abcd")], np.ones(len(drawn))])
        inverse = np.linalg.inv(design.T @ design)
        estimates = inverse @ (design.T @ drawn["y"].to_numpy())
        residuals = drawn["y"].to_numpy() - design @ estimates
        return estimates, inverse * (residuals @ residuals / (len(drawn) - 5))

    def table(estimates: np.ndarray, covariance: np.ndarray) -> pd.DataFrame:
        reach = 1.96 * np.sqrt(np.diagonal(covariance))
        ends = np.stack([estimates - reach, estimates + reach], axis=1)[:4]
        return pd.DataFrame(ends, list("abcd"), ["95%_low", "95%_high"])

    answers = [analysed(twin) for twin in result.twins(given=public, seed=1)]
    combined = wb.combine([answer[0] for answer in answers], [answer[1] for answer in answers])
    return answers_figure(
        {
            "one table of N rows": table(*analysed(result.sample(2000, given=records, seed=1))),
            "30 twins, combined": combined[:4].set_axis(list("abcd")),
            "the posterior": result.coefficients(0.95, "eti").loc[list("abcd")],
            "without privacy": table(*analysed(records)),
        },
        "public data",
        "Linear regression, N = 2000, epsilon 1",
        "coefficient",
    )


@_figure
def plates() -> Figure:
    """A model's plates as the screen draws them."""
    return wb.models.get("hierarchical_logistic").diagram(wb.data.hierarchical())


def make(folder: Path, names: list[str]) -> None:
    """Write the figures ``names`` as PNG files into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.png").write_bytes(png(FIGURES[name]()))


def make_missing(folder: Path) -> None:
    """Those that are not there, or are older than this script."""
    changed = Path(__file__).stat().st_mtime
    paths = {name: folder / f"{name}.png" for name in FIGURES}
    make(
        folder,
        [
            name
            for name, path in paths.items()
            if not path.is_file() or path.stat().st_mtime < changed
        ],
    )


if __name__ == "__main__":
    make(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "_figures",
        list(FIGURES),
    )
