"""Plate diagrams of models, drawn with matplotlib alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch, Patch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from workbench import _validate
from workbench.plots._plate_layout import (
    BEND,
    LABEL_HEIGHT,
    PAD,
    Box,
    Frame,
    Layout,
    Site,
    best_layout,
)
from workbench.plots.style import GRID, HALO, INK, QUIET, SHADE, new_figure, shortened

__all__ = ["plate_figure", "plate_words"]

# lengths are in points (1/72 inch); the figure is 4.2 inches wide, so it is readable at 320 pixels
_WIDTH, _MARGIN, _TITLE, _LEGEND = 302.0, 6.0, 23.0, 15.0
_NAME_SIZE, _SMALL_SIZE, _LINE = 9.5, 8.0, 11.0
# width and height of an ellipse relative to the text in it: 1 / a^2 + 1 / b^2 = 1
_ROUND, _UPRIGHT = (1.25, 1.64)
_LONGEST_NAME, _FEW_PARAMETERS = 20, 2
# arrows meet an outline at most this far from its middle, clear of neighbours
_STEEP, _CORNER = (0.65, 0.7)
_LATENT, _OBSERVED, _COMPUTED, _PARAMETER, _INPUT = (
    "latent",
    "observed",
    "computed",
    "parameter",
    "input",
)
# inputs say so
_SIGNS = {
    _OBSERVED: "shaded: observed",
    _COMPUTED: "dashed: computed",
    _PARAMETER: "box: parameter",
}


def plate_figure(
    relations: Mapping[str, Any], title: str = "", *, labels: Mapping[str, str] | None = None
) -> Figure:
    """The plate diagram of a model: sites with their distributions, arrows between them, and frames
    for plates.

    Ellipses are latent variables; shaded ellipses are observed, or inputs
    that the model does not describe; dashed ellipses are computed from other sites. Boxes are
    parameters; many parameters with the same first word and the same use share one box. Each site
    is below the sites that it depends on. The figure is 4.2 inches wide (wider only if a single row
    of nested plates needs it) and as high as its rows. ``get_label()`` of the figure is
    ``plate_words``, a description for screen readers.

    >>> figure = wb.models.get("logistic").diagram(wb.data.load("breast_cancer"))

    :param relations: as ``numpyro.infer.inspect.get_model_relations`` returns them. Besides,
        "inputs" may have ``{input: sites that depend on it}`` and "sizes" ``{site or input:
        text}``, such as "5 × 3".
    :param title: above the diagram, such as the model's name.
    :param labels: ``{plate: text}`` for the frames, such as "groups: 3"; by default the plates'
        names.
    :raises ArgumentError: naming ``relations``, if there is no site to draw.
    """
    sites, arrows = _graph(relations)
    if not sites:
        raise _validate.ArgumentError("relations", relations, "the model has no site to draw.")
    frames = _frames(relations, sites, labels or {})
    _measure(sites, frames)
    layout = best_layout(sites, arrows, frames, _WIDTH - 2 * _MARGIN)
    kinds = {site.kind for site in sites.values()}
    signs = " · ".join(text for kind, text in _SIGNS.items() if kind in kinds)
    width = max(_WIDTH, layout.width + 2 * _MARGIN)
    height = layout.height + 2 * _MARGIN + (_TITLE if title else 0) + (_LEGEND if signs else 0)
    figure = new_figure(width / 72, height / 72, title)
    figure.set_label(plate_words(relations, labels=labels))
    figure.set_layout_engine("none")  # all positions are set here
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    x_offset, y_offset = (width - layout.width) / 2 - layout.x0, _MARGIN + (_LEGEND if signs else 0)
    axes.set(xlim=(-x_offset, width - x_offset), ylim=(-y_offset, height - y_offset))
    _draw(axes, layout, frames)
    if signs:
        axes.text(
            _MARGIN - x_offset,
            _MARGIN - y_offset,
            signs,
            fontsize=_SMALL_SIZE,
            color=QUIET,
            va="bottom",
        )
    return figure


def plate_words(relations: Mapping[str, Any], *, labels: Mapping[str, str] | None = None) -> str:
    """The diagram in words: "weights ~ Normal; y ~ Bernoulli, given weights, observed, in the plate
    records."

    The arguments are those of ``plate_figure``.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> from numpyro.infer.inspect import get_model_relations
    >>> def model():
    ...     mean = numpyro.sample("mean", dist.Normal(0, 10))
    ...     with numpyro.plate("records", 5):
    ...         numpyro.sample("x", dist.Normal(mean, 1), obs=np.zeros(5))
    >>> wb.plots.plate_words(get_model_relations(model))
    'mean ~ Normal; x ~ Normal, given mean, observed, in the plate records.'
    """
    sites, arrows = _graph(relations)
    frames = _frames(relations, sites, labels or {})
    clauses = []
    for name, site in sites.items():
        parents = [before for before, after in arrows if after == name]
        inside = [frames[frame].label for frame in site.path]
        clause = f"{name}{', an' if site.kind == _INPUT else ''} {site.note}"
        clause += f", given {_enumerated(parents)}" if parents else ""
        clause += ", observed" if site.kind == _OBSERVED else ""
        clause += (
            f", in the plate{'s' if len(inside) > 1 else ''} {_enumerated(inside)}"
            if inside
            else ""
        )
        clauses.append(clause)
    return "; ".join(clauses) + "."


def _enumerated(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# ---- sites, arrows and frames --------------------------------------------------------------------


def _graph(relations: Mapping[str, Any]) -> tuple[dict[str, Site], list[tuple[str, str]]]:
    """Sites by name, in the model's order, and (from, to) for each arrow."""
    distributions, observed = relations["sample_dist"], set(relations["observed"])
    used: dict[str, list[str]] = {}
    for name, parameters in relations["sample_param"].items():
        for parameter in parameters:
            used.setdefault(parameter, []).append(name)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for parameter in relations["param_constraint"]:
        if parameter in used:
            alike.setdefault((_first_word(parameter), tuple(used[parameter])), []).append(parameter)
    inputs = relations.get("inputs", {})
    sites = {name: Site(_INPUT, "input") for name in inputs}
    arrows: list[tuple[str, str]] = []
    for (word, targets), parameters in alike.items():
        together = len(parameters) > _FEW_PARAMETERS and word not in {
            *sites,
            *distributions,
            *relations["plate_sample"],
        }
        for name in [word] if together else parameters:
            note = f"{len(parameters)} parameters" if together else "parameter"
            sites[name] = Site(_PARAMETER, note, is_box=True)
            arrows += [(name, target) for target in targets]
    for name, distribution in distributions.items():
        if distribution == "Deterministic":
            sites[name] = Site(_COMPUTED, "computed")
        else:
            sites[name] = Site(_OBSERVED if name in observed else _LATENT, f"~ {distribution}")
    arrows += [
        (before, after)
        for after, several in relations["sample_sample"].items()
        for before in several
    ]
    arrows += [(name, user) for name, users in inputs.items() for user in users]
    for name, size in relations.get("sizes", {}).items():
        if name in sites:
            sites[name].size = size
    return sites, arrows


def _first_word(parameter: str) -> str:
    """The first word of a parameter's name: "decoder" for "decoder_hidden_kernel" and
    "decoder$params".
    """
    for sign in "$./_":
        parameter = parameter.split(sign)[0] or parameter
    return parameter


def _frames(
    relations: Mapping[str, Any], sites: dict[str, Site], labels: Mapping[str, str]
) -> dict[str, Frame]:
    """Frames of the plates that contain sites, the larger ones first. Sets the ``path`` of the
    sites.
    """
    frames = {}
    for name, inside in sorted(relations["plate_sample"].items(), key=lambda item: -len(item[1])):
        if inside:
            # crossed plates are split into parts, inside or beside each other
            plate = name.replace("__CLONE", "")
            frames[name] = Frame(shortened(labels.get(plate, plate)), frozenset(inside))
            for site in inside:
                sites[site].path += (name,)
    return frames


def _measure(sites: Mapping[str, Site], frames: Mapping[str, Frame]) -> None:
    """Set the sizes of sites and labels."""
    renderer = FigureCanvasAgg(Figure(dpi=72)).get_renderer()

    def width(text: str, size: float) -> float:
        return renderer.get_text_width_height_descent(text, FontProperties(size=size), False)[0]

    for name, site in sites.items():
        text = max(width(_shown(name, site), _NAME_SIZE), width(site.note, _SMALL_SIZE))
        if site.is_box:
            site.width, site.height = text + 12, 2 * _LINE + 6
        else:
            site.width, site.height = _ROUND * text + 6, _UPRIGHT * 2 * _LINE
    for frame in frames.values():
        frame.label_width = width(frame.label, _SMALL_SIZE)
    for site in sites.values():
        site.slot = max([site.width, *(frames[name].label_width for name in site.path)])


def _shown(name: str, site: Site) -> str:
    return shortened(name, _LONGEST_NAME) + (f" [{site.size}]" if site.size else "")


# ---- drawing -------------------------------------------------------------------------------------


def _draw(axes: Axes, layout: Layout, frames: dict[str, Frame]) -> None:
    arrows = [_arrow([layout.sites[name] for name in chain]) for chain in layout.chains]
    for name, frame in frames.items():
        x0, y0, x1, y1 = layout.boxes[name]
        shape = "round,pad=0,rounding_size=7"
        frame_box = FancyBboxPatch(
            (x0, y0), x1 - x0, y1 - y0, shape, fc="none", ec=QUIET, lw=1.0, zorder=1
        )
        axes.add_patch(frame_box)
        axes.text(
            _free_place(frame.label_width, layout.boxes[name], arrows),
            y0 + 4.5,
            frame.label,
            fontsize=_SMALL_SIZE,
            color=INK,
            zorder=3,
            path_effects=HALO,
            parse_math=False,
        )
    for arrow in arrows:
        axes.add_patch(
            FancyArrowPatch(
                path=arrow, arrowstyle="-|>", mutation_scale=9, lw=1.0, color=INK, zorder=2
            )
        )
    for name, site in layout.sites.items():
        if site.kind == BEND:
            continue
        x, y = site.x, site.y
        face = {_OBSERVED: GRID, _INPUT: GRID, _PARAMETER: SHADE}.get(site.kind, "white")
        if site.is_box:
            outline: Patch = Rectangle(
                (x - site.width / 2, y - site.height / 2), site.width, site.height
            )
        else:
            outline = Ellipse((x, y), site.width, site.height)
        dashes: Any = (0, (4, 2)) if site.kind == _COMPUTED else "-"
        outline.set(
            facecolor=face, edgecolor=INK, linewidth=1.1, linestyle=dashes, zorder=4, label=name
        )
        axes.add_patch(outline)
        for text, size, height in (
            (_shown(name, site), _NAME_SIZE, 0.5),
            (site.note, _SMALL_SIZE, -0.5),
        ):
            axes.text(
                x,
                y + height * _LINE,
                text,
                fontsize=size,
                color=INK,
                ha="center",
                va="center",
                zorder=5,
                parse_math=False,
            )


def _arrow(chain: Sequence[Site]) -> Path:
    """An arrow from the lower edge of the first site, vertically through the bends, to the upper
    edge of the last.
    """
    points = [
        (bend.x, bend.y + side * bend.row_height / 2) for bend in chain[1:-1] for side in (1, -1)
    ]
    first, last = chain[0], chain[-1]
    start = _edge(first, (points or [(last.x, last.y)])[0])
    end = _edge(last, (points or [(first.x, first.y)])[-1])
    if not points:
        return Path([start, end])
    vertices, codes = [start], [Path.MOVETO]
    for here, there in itertools.pairwise([start, *points, end]):
        middle = (here[1] + there[1]) / 2
        vertices += [(here[0], middle), (there[0], middle), there]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def _edge(site: Site, target: tuple[float, float]) -> tuple[float, float]:
    """The point where an arrow between ``site`` and another point meets the site's outline."""
    half, tall = site.width / 2, site.height / 2
    across, up = (target[0] - site.x) / half, (target[1] - site.y) / tall
    if site.is_box:
        offset, depth = float(np.clip(across, -_CORNER, _CORNER)), 1.0
    else:
        offset = float(np.clip(across / np.hypot(across, up), -_STEEP, _STEEP))
        depth = (1 - offset**2) ** 0.5
    return site.x + offset * half, site.y + float(np.sign(up)) * tall * depth


def _free_place(width: float, box: Box, arrows: Sequence[Path]) -> float:
    """Where the label of a frame begins: at the right, at the left or in the middle, where the
    fewest arrows cross it.
    """
    x0, y0, x1, _ = box
    starts = (x1 - PAD - width, x0 + PAD, (x0 + x1 - width) / 2)
    areas = [Bbox.from_bounds(start, y0 + 1, width, LABEL_HEIGHT) for start in starts]
    crossings = [
        sum(arrow.intersects_bbox(area, filled=False) for arrow in arrows) for area in areas
    ]
    return starts[int(np.argmin(crossings))]
