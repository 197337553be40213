"""``mixed_table``: a decomposable model of all columns of a table, from one noised release of
marginals that somebody chose, or the fit itself (``chosen_marginals``).

Columns are levels: those of a category, true and false, bins of a column of numbers, and one more
for its missing values. ``posterior.joint_cells`` has the model, the release and the posterior. The
NumPyro model here is for what is made of the draws: log-likelihoods and synthetic records. It has
normal distributions, which nothing uses, in place of the prior.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from workbench import _validate
from workbench.data import Dataset
from workbench.data.columns import Boolean, Categorical, Column, Numeric
from workbench.models.model import CellTable, Model
from workbench.posterior.cell_tree import Cells
from workbench.posterior.joint_cells import LARGEST

__all__ = ["cells_of", "codes_of", "in_order", "mixed_table"]

_SITE = "joint_probability"
_SHOWN = ("probability", _SITE)  # those of levels first
_BINS = 10  # of a column of numbers
_LEAST = 1e-30  # of a probability, whose logarithm is taken
Marginals = str | Sequence[Sequence[str]] | None
Name = TypeVar("Name", bound=Hashable)
Bins = int | Mapping[str, int | Sequence[float]]


# ---- from features to levels and back ------------------------------------------------------------


def _levels_of(name: str, column: Column, bins: Bins) -> dict[str, Any]:
    """A column's levels: the features of each, by how much the first of them is spread over a bin,
    and labels.
    """
    if isinstance(column, Numeric):
        return _of_numbers(name, column, bins)
    if isinstance(column, Boolean):
        return {"features": [[-1.0], [1.0]], "widths": [0.0, 0.0], "labels": ["False", "True"]}
    labels = list(column.labels)
    features = np.eye(len(labels))
    if column.reference is not None:
        features = np.delete(features, labels.index(column.reference), axis=1)
    return {"features": features.tolist(), "widths": [0.0] * len(labels), "labels": labels}


def _of_numbers(name: str, column: Numeric, bins: Bins) -> dict[str, Any]:
    chosen = bins if isinstance(bins, int) else bins.get(name, _BINS)
    ends = _ends(column, chosen) if isinstance(chosen, int) else _inner_ends(name, column, chosen)
    scaled = (np.array(ends) - column.middle) / column.reach
    nearest = scaled[1:-1] - 0.5 / column.reach if column.whole else scaled[:-2]
    if np.any(np.float32(nearest) >= np.float32(scaled[1:-1])):
        raise _validate.ArgumentError(
            f"bins[{name!r}]",
            chosen,
            f"are too narrow for the bounds {column.low:g} to {column.high:g}: encoded records "
            "(float32) cannot tell which side of an edge they are on.",
            remedy="Declare narrower bounds, or take wider bins.",
        )
    labels = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(ends)]
    if column.whole:
        labels = [
            f"{math.ceil(low)} to {math.floor(high)}" if high - low > 1 else f"{math.ceil(low)}"
            for low, high in itertools.pairwise(ends)
        ]
    features = [[float(low)] for low in scaled[:-1]]
    widths = np.diff(scaled).tolist()
    if column.missing:
        features = [[low, 0.0] for (low,) in features] + [[0.0, 1.0]]
        widths, labels = [*widths, 0.0], [*labels, "missing"]
    return {"features": features, "widths": widths, "labels": labels}


def _ends(column: Numeric, count: int) -> list[float]:
    """Ends of bins of equal width; of whole numbers halfway between two, so all numbers of a bin
    are equally likely.
    """
    if not column.whole:
        return np.linspace(column.low, column.high, count + 1).tolist()
    low, high = math.ceil(column.low) - 0.5, math.floor(column.high) + 0.5
    inner = np.linspace(low, high, min(count, round(high - low)) + 1)
    return (np.round(inner - low) + low).tolist()


def _inner_ends(name: str, column: Numeric, edges: Sequence[float]) -> list[float]:
    """Ends of the bins between which somebody put ``edges``."""
    checked = [_validate.number(f"bins[{name!r}]", edge) for edge in edges]
    low, high = column.low, column.high
    if column.whole:
        low, high = math.ceil(low) - 0.5, math.floor(high) + 0.5
        checked = [math.ceil(edge) - 0.5 for edge in checked]
    ends = [low, *(edge for edge in checked if low < edge < high), high]
    if sorted(set(checked)) != checked:
        raise _validate.ArgumentError(
            f"bins[{name!r}]",
            list(edges),
            "must ascend" + (", by at least 1, because the column is whole." * column.whole or "."),
        )
    return ends


def cells_of(levels: Sequence[Mapping[str, Any]], cliques: Sequence[Sequence[int]]) -> Cells:
    """The cells of the model: bins of numbers are in order. :param levels: of each column."""
    sizes = [len(column["labels"]) for column in levels]
    bins = [int(np.count_nonzero(column["widths"])) for column in levels]
    return Cells.of(sizes, cliques, bins)


def codes_of(levels: Sequence[Mapping[str, Any]], x: jax.Array) -> jax.Array:
    """The level in each column of records, int[B, D]. :param x: float[B, features]."""
    codes, start = [], 0
    for column in levels:
        # no axis of a constant is as long as there are records: it would be taken for theirs
        features = jnp.asarray(np.array(column["features"], np.float32)[None])[0]
        widths = np.array(column["widths"])
        encoded = x[:, start : start + features.shape[1]]
        start += features.shape[1]
        bins = np.count_nonzero(widths)
        if bins:
            code = jnp.sum(encoded[:, :1] >= features[1:bins, 0], axis=1)
            code = jnp.where(encoded[:, -1] >= 0.5, bins, code) if bins < len(widths) else code
        else:
            # the nearest, by a product, because columns may have a thousand levels
            code = jnp.argmax(encoded @ features.T - jnp.square(features).sum(axis=1) / 2, axis=1)
        codes.append(code)
    return jnp.stack(codes, axis=1)


class Decomposable(dist.Distribution):
    """Records of a decomposable model.

    :param cells: probabilities, float[k].
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("_tables",)
    pytree_aux_fields = ("_cells", "_levels")

    def __init__(self, structure: Cells, levels: Sequence[Any], cells: jax.Array) -> None:
        self._cells, self._levels = structure, levels
        # a row for each group, a column for each of its cells
        self._tables = [
            cells[start:end].reshape(math.prod(structure.shape(structure.separator(number))), -1)
            for number, (start, end) in enumerate(
                zip(structure.ends[:-1], structure.ends[1:], strict=True)
            )
        ]
        size = sum(len(column["features"][0]) for column in levels)
        super().__init__(event_shape=(size,))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        count, structure = math.prod(sample_shape), self._cells
        uniform = jax.random.uniform(key, (2, len(structure.levels), count))
        codes = jnp.zeros((count, len(structure.levels)), int)
        for number, (clique, table) in enumerate(zip(structure.cliques, self._tables, strict=True)):
            separator = structure.separator(number)
            reached = jnp.cumsum(table, axis=1)[
                structure.codes_in(separator, codes) + jnp.zeros(count, int)
            ]
            level = uniform[0, clique[-1]][:, None] * reached[:, -1:]
            cell = jnp.minimum(jnp.sum(reached <= level, axis=1), table.shape[1] - 1)
            for column in reversed(clique[len(separator) :]):
                codes = codes.at[:, column].set(cell % structure.levels[column])
                cell = cell // structure.levels[column]
        columns = [
            jnp.asarray(column["features"], jnp.float32)[codes[:, index]]
            .at[:, 0]
            .add(uniform[1, index] * jnp.asarray(column["widths"], jnp.float32)[codes[:, index]])
            for index, column in enumerate(self._levels)
        ]
        return jnp.concatenate(columns, axis=1).reshape(*sample_shape, *self.event_shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        codes = codes_of(self._levels, value.reshape(-1, *self.event_shape))
        total = jnp.zeros(len(codes))
        for clique, table in zip(self._cells.cliques, self._tables, strict=True):
            conditional = table / (table.sum(axis=1, keepdims=True) + _LEAST)
            total += jnp.log(conditional.ravel()[self._cells.codes_in(clique, codes)] + _LEAST)
        for index, column in enumerate(self._levels):
            widths = np.array(column["widths"], np.float32)
            total -= jnp.log(np.where(widths > 0, widths, 1))[codes[:, index]]
        return total.reshape(value.shape[:-1])


# ---- the model -----------------------------------------------------------------------------------


def _model(
    x: jax.Array | None = None,
    num_records: int | None = None,
    *,
    marginals: Marginals,
    bins: Bins,
    levels: Sequence[Mapping[str, Any]],
    cliques: Sequence[Sequence[int]],
) -> None:
    """:param x: float[B, D], or None to draw. :param levels: of each column. :param cliques: of the
    model, as ``Cells`` has them.
    """
    structure = cells_of(levels, cliques)
    batch = num_records if x is None else x.shape[0]
    prior = dist.Normal(0, 1).expand([structure.ends[-1]]).to_event(1)
    cells = numpyro.sample(_SITE, prior)
    with numpyro.plate("records", num_records or batch, subsample_size=batch):
        numpyro.sample("x", Decomposable(structure, levels, cells), obs=x)
    numpyro.deterministic("probability", _margins(structure, cells))


def _margins(structure: Cells, cells: jax.Array) -> jax.Array:
    """Probabilities of the levels of all columns, one after the other."""
    margins = []
    for column in range(len(structure.levels)):
        number = next(n for n, clique in enumerate(structure.cliques) if column in clique)
        clique = structure.cliques[number]
        table = cells[structure.ends[number] : structure.ends[number + 1]]
        summed = tuple(axis for axis, index in enumerate(clique) if index != column)
        margins.append(table.reshape(structure.shape(clique)).sum(axis=summed))
    return jnp.concatenate(margins)


def _guide(x: jax.Array | None = None, num_records: int | None = None, **static: object) -> None:
    """Nothing to draw: the posterior follows from the release."""


def mixed_table(
    marginals: str | Sequence[Sequence[str]] | None = None,
    bins: int | Mapping[str, int | Sequence[float]] = _BINS,
) -> Model:
    """A model of all columns of a table, categories and numbers, from one noised release of chosen
    marginals.

    Columns of the same marginal have any dependence. Two columns that no marginal has together
    depend on each other only through others, such as those of ``marginals="outcome"`` through the
    outcome. The marginals must be those of a decomposable model, that is without cycles; else an
    error says which to take. Posterior and ``result.twins()`` count the privacy noise.

    Without ``marginals`` the fit chooses them, of two or three columns each, from noised scores of
    all pairs, which take a share of its budget (``wb.Privacy(look=)``). ``result.cautions`` names
    pairs of columns whose dependence the noise hides.

    >>> random = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"smokes": random.random(900) < 0.3})
    >>> frame["age"] = random.integers(18, 80, 900) + 5 * frame["smokes"]
    >>> schema = {"smokes": bool, "age": (18, 90, int)}
    >>> data = wb.data.from_frame(frame, schema=schema, evaluation=False)
    >>> result = wb.fit(
    ...     wb.models.mixed_table([("smokes", "age")]), data, epsilon=1.0, delta=1e-4
    ... )
    >>> result.twins(sets=2, rows=3)[0].columns.tolist()
    ['smokes', 'age']

    :param marginals: names of columns that are counted together, such as ``[("sex", "ill"),
        ("age", "ill")]``; each column is in one at least. A name, such as "ill": the pairs of this
        column with each other. Public: not chosen by looking at the records. None: chosen within
        the guarantee.
    :param bins: of a column of numbers: how many bins of equal width within its declared bounds, or
        ``{column: number, or the edges between bins}``, with 10 for other columns. Edges may be
        from a look (``Look.quantiles``). Twins are drawn evenly within a bin.
    :raises ArgumentError: naming ``marginals`` or ``bins``.
    """
    chosen = _checked_marginals(marginals)
    ordered = _junction_tree(chosen) if isinstance(chosen, list) else chosen
    counts = _checked_bins(bins)

    def names_of(dataset: Dataset) -> list[list[str]]:
        assert dataset.schema is not None
        names = list(dataset.schema.columns)
        if ordered is None:  # until they are chosen
            return [[name] for name in names]
        if not isinstance(ordered, str):
            return ordered
        pairs = [[ordered, name] for name in names if name != ordered]
        return pairs or [[ordered]]

    def check(dataset: Dataset) -> None:
        if dataset.schema is None or tuple(dataset.arrays) != ("x",):
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                "must be a table of declared columns and no target, as of "
                "wb.data.from_frame(frame, schema={'age': (0, 120)}, evaluation=False).",
            )
        columns = dataset.schema.columns
        used = {name for names in names_of(dataset) for name in names}
        for name in sorted(used - set(columns)):
            raise _validate.unknown_name("marginals", name, list(columns))
        numbers = dataset.schema.bounds
        for name in [] if isinstance(counts, int) else sorted(set(counts) - set(numbers)):
            raise _validate.unknown_name("bins", name, list(numbers))
        for name in columns:
            if name not in used:
                raise _validate.ArgumentError(
                    "marginals",
                    marginals,
                    f"has no marginal with {name}.",
                    remedy=f"Add ({name!r},) for a column that is independent of all others, or "
                    "leave it out of the table.",
                )
            if isinstance(column := columns[name], Categorical) and len(column.labels) > LARGEST:
                raise _validate.ArgumentError(
                    f"schema[{name!r}]",
                    len(column.labels),
                    f"levels are too many: at most {LARGEST} cells are taken.",
                    remedy="Join levels.",
                )
        size = _structure(constants(dataset)).ends[-1]
        if size > LARGEST:
            raise _validate.ArgumentError(
                "marginals",
                marginals,
                f"have {size} cells together, and at most {LARGEST} are taken.",
                remedy="Take fewer bins or smaller marginals.",
            )

    def constants(dataset: Dataset) -> dict[str, Any]:
        assert dataset.schema is not None
        columns = dataset.schema.columns
        names = list(columns)
        levels = [
            {"name": name, **_levels_of(name, column, counts)} for name, column in columns.items()
        ]
        return {
            "levels": levels,
            "cliques": [[names.index(name) for name in clique] for clique in names_of(dataset)],
        }

    def coordinates(dataset: Dataset) -> dict[str, Any]:
        facts = constants(dataset)
        assert dataset.schema is not None
        words = [
            [f"{name} = {label}" for label in column["labels"]]
            for name, column in zip(dataset.schema.columns, facts["levels"], strict=True)
        ]
        cells = [
            ", ".join(words[column][code] for column, code in zip(clique, codes, strict=True))
            for clique in facts["cliques"]
            for codes in np.ndindex(_structure(facts).shape(clique))
        ]
        return {_SITE: cells, "probability": [word for column in words for word in column]}

    return Model(
        name="mixed_table",
        summary=f"Decomposable model of {_words(chosen)}. Numbers are drawn evenly within bins.",
        model=_model,
        guide=_guide,
        check=check,
        constants=constants,
        coordinates=coordinates,
        score=lambda target, predictions: {},
        sort=lambda draws, params: {name: draws[name] for name in _SHOWN},
        options={"marginals": chosen, "bins": counts},
        table=CellTable(
            _SITE, functools.partial(mixed_table, bins=counts) if chosen is None else None
        ),
    )


def _words(marginals: str | list[list[str]] | None) -> str:
    """The marginals for those who read twins."""
    if marginals is None:
        return "marginals that the fit chooses within its guarantee"
    if isinstance(marginals, str):
        return f"the pairs of {marginals} with each other column"
    return "the marginals " + ", ".join(" x ".join(names) for names in marginals)


def _structure(constants: Mapping[str, Any]) -> Cells:
    return cells_of(constants["levels"], constants["cliques"])


def _checked_marginals(marginals: Marginals) -> str | list[list[str]] | None:
    if marginals is None or isinstance(marginals, str):
        return marginals
    is_list = isinstance(marginals, (list, tuple)) and len(marginals)
    if not is_list or not all(
        isinstance(names, (list, tuple))
        and names
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
        for names in marginals
    ):
        raise _validate.ArgumentError(
            "marginals",
            marginals,
            "must be the name of a column, or a list of tuples of different names, such as "
            "[('sex', 'ill'), ('age', 'ill')].",
            remedy="Leave it out, and the fit chooses.",
        )
    sets = [set(names) for names in marginals]
    for number, names in enumerate(sets):
        if any(names <= larger for larger in (*sets[:number], *sets[number + 1 :])):
            raise _validate.ArgumentError(
                "marginals", marginals[number], "is in another marginal, and follows from it."
            )
    return [list(names) for names in marginals]


def _checked_bins(bins: Bins) -> int | dict[str, Any]:
    if not isinstance(bins, Mapping):
        return _validate.integer("bins", bins, at_least=1, at_most=LARGEST)
    return {
        name: list(entry)
        if isinstance(entry, (list, tuple, np.ndarray))
        else _validate.integer(f"bins[{name!r}]", entry, at_least=1, at_most=LARGEST)
        for name, entry in bins.items()
    }


def in_order(cliques: Sequence[Collection[Name]]) -> list[list[Name]] | None:
    """Marginals in the order that ``Cells`` has, and their columns; None for those of no
    decomposable model.
    """
    ordered, remaining = [list(cliques[0])], [list(names) for names in cliques[1:]]
    while remaining:  # Prim's tree of the largest separators is one if any is
        shared, index = max(
            (len({*names} & {*earlier}), -index)
            for index, names in enumerate(remaining)
            for earlier in ordered
        )
        names = remaining.pop(-index)
        before = {name for earlier in ordered for name in earlier} & {*names}
        if len(before) > shared:
            return None
        ordered.append(sorted(names, key=lambda name: name not in before))
    ordered[0].sort(key=lambda name: len(ordered) > 1 and name not in ordered[1])
    return ordered


def _junction_tree(marginals: Sequence[Sequence[str]]) -> list[list[str]]:
    """:raises ArgumentError: naming ``marginals``, where they are not ``in_order``."""
    ordered = in_order(marginals)
    if ordered is None:
        raise _validate.ArgumentError(
            "marginals",
            marginals,
            "have a cycle, so they are not those of a decomposable model.",
            remedy=f"Take these, which have them all: {_triangulated(marginals)}.",
        )
    return ordered


def _triangulated(marginals: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """Marginals of a decomposable model that have all of ``marginals`` in them."""
    around: dict[str, set[str]] = {}
    for names in marginals:
        for name in names:
            around.setdefault(name, set()).update(names)
    cliques: list[set[str]] = []
    while around:
        name = min(around, key=lambda name: len(around[name]))
        clique = around.pop(name)
        for neighbour in clique - {name}:
            around[neighbour] = (around[neighbour] | clique) - {name}
        if not any(clique <= larger for larger in cliques):
            cliques.append(clique)
    return [tuple(sorted(clique)) for clique in cliques]
