"""Predictions, scores and synthetic records from a fitted model.

Everything here depends only on the release (parameters and draws) and on records that the caller
passes, so it spends no further privacy. Scores on private records are outside the guarantee, as
live metrics are.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers

from workbench import _validate
from workbench._lazy import pd
from workbench._numbers import shown
from workbench.data import Dataset
from workbench.data.columns import Categorical, Numeric
from workbench.data.dataset import EVALUATION_LABELS
from workbench.data.groups import group_codes
from workbench.data.look import scales_from_dict
from workbench.data.preprocessing import listed, numbers_in, unmasked
from workbench.data.schema import Schema, columns_of
from workbench.inference import program_cache
from workbench.models.by_record import Said, in_blocks, said_of
from workbench.models.model import Model, inputs_of
from workbench.models.outcomes import Outcome
from workbench.noise.chacha20 import fast_key, key_from_seed, new_key
from workbench.record_model.elbo import held_out, predictive
from workbench.record_model.model import RecordModel
from workbench.record_model.plates import takes_num_records
from workbench.record_model.splitting import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from workbench.results.fit_result import FitResult

    # a table, a data set, arrays as the model takes them, or the fit's public ones
    Records: TypeAlias = pd.DataFrame | Dataset | Sequence[ArrayLike] | None

__all__ = ["BoundsWarning", "Predictor"]

_DRAWS = 200  # posterior draws that a prediction averages over
_SCORE_DRAWS = 20  # draws from the guide, for ELBO and log-likelihood
_AT_ONCE, _SHORTEST = 4096, 64  # records in the longest and shortest chunk


class BoundsWarning(UserWarning):
    """Predictions were asked for values outside the bounds of a column, declared or learned, and
    are those at the bounds; or for values that are no level of it, which count as (other).
    """


_CUT = (
    "Values outside the bounds of a column were cut to them, so these rows have the prediction of "
    "a bound"
)
_NO_LEVEL = (
    "Values that are no level of a column count as (other), of which the fit may have had no "
    "records: result.intervals says how sure these rows are"
)


def _shares(name: str, rows: np.ndarray) -> list[str]:
    """The column with its share of these rows; nothing for none of them."""
    return [f"{name} ({shown(100 * float(rows.mean()))} % of these rows)"] if rows.any() else []


class Predictor:
    """A result with its NumPyro model, ready to predict.

    :raises ArgumentError: naming ``model``, if the model is not in the gallery or not the one that
        was fitted.
    """

    def __init__(self, result: FitResult) -> None:
        self.result = result
        self.model = _model_of(result)
        self.constants = {**result.model_options, **result.constants}
        self.shapes = [tuple(shape) for shape in result.data["record_shapes"]]
        self.types = [np.dtype(kind) for kind in result.data["record_types"]]
        self._draws = result.guide_draws

    @functools.cached_property
    def split(self) -> RecordModel:
        """The model's global and per-record parts."""
        return split(
            self.model.model,
            self.model.new_guide(),
            fast_key(key_from_seed(0)),
            tuple(
                jax.ShapeDtypeStruct(shape, kind)
                for shape, kind in zip(self.shapes, self.types, strict=True)
            ),
            num_records=self.result.settings["num_records"],
            static=self.constants,
        )

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        """The released parameters as the model declares them. A network is a pytree; its leaves are
        named by their paths.

        :raises ArgumentError: naming ``model``, if one is missing.
        """

        def released(path: tuple[Any, ...]) -> jax.Array:
            name = f"{path[0].key}{jax.tree_util.keystr(path[1:])}"
            if name not in self.result.params:
                raise _validate.ArgumentError(
                    "model",
                    self.result.model,
                    f"is not the model that was fitted: it has a parameter {name!r}.",
                    remedy="If an earlier version of the workbench saved the result, fit again.",
                )
            return jnp.asarray(self.result.params[name])

        if self._has_no_guide:
            return {}
        return jax.tree_util.tree_map_with_path(lambda path, _: released(path), self.split.initial)

    def _values(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Global latents and deterministic sites of the draws at ``indices``. The first axis is
        draws.
        """
        return {name: value[indices] for name, value in self._draws.items()}

    def _places(self, count: int) -> np.ndarray:
        """Up to ``count`` evenly spaced indices of draws; one index if the model has no global
        latents.
        """
        available = min((len(value) for value in self._draws.values()), default=1)
        return np.unique(np.linspace(0, available - 1, min(count, available)).round().astype(int))

    # ---- records that the caller passes ----------------------------------------------------------

    def inputs(self, records: Records) -> tuple[np.ndarray, ...]:
        """The arrays that the model predicts from. The first axis is records."""
        if records is None or isinstance(records, Dataset):
            return inputs_of(self.all_arrays(records))
        names = inputs_of(tuple(self.result.data["arrays"]))
        if isinstance(records, pd.DataFrame):
            if len(records) == 0:
                raise _validate.ArgumentError("records", records, "must hold at least one record.")
            model_arrays = self.model.arrays_of(records)
            arrays = tuple(
                self._column(records, name) if model_arrays is None else model_arrays[name]
                for name in names
            )
            self._warn_of_unfit_values(records)
            return arrays
        arrays = records if isinstance(records, tuple) else (records,)
        return self._checked(arrays, names)

    def all_arrays(self, records: Records) -> tuple[np.ndarray, ...]:
        """The arrays of records with their targets."""
        if records is None:
            if self.result.public_records is None:
                raise _no_records(self.result)
            return self.result.public_records
        if isinstance(records, Dataset):
            records = self._as_fitted(records)
            if not records.num_evaluation:
                raise _validate.ArgumentError(
                    "records",
                    records.name,
                    "has no evaluation records: make the data set with evaluation_fraction=0.2, or "
                    "pass records.",
                    code="no records",
                )
            return self._checked(
                self.model.view(records).evaluation, tuple(self.result.data["arrays"])
            )
        arrays = records if isinstance(records, tuple) else (records,)
        return self._checked(arrays, tuple(self.result.data["arrays"]))

    def _as_fitted(self, records: Dataset) -> Dataset:
        """The records as the fit's columns encode them."""
        fitted, schema = self.schema, records.schema
        if fitted is None or schema is None:
            return records
        if fitted.references != schema.references:
            raise _validate.ArgumentError(
                "records",
                records.name,
                f"has the reference levels {schema.references}, and the fit had "
                f"{fitted.references}: declare its categories with those, reference=None where the "
                "fit had none.",
            )
        if self.model.has_own_arrays:  # which it makes of any declaration
            return records
        if list(fitted.columns) != list(schema.columns):
            raise _validate.ArgumentError(
                "records",
                records.name,
                f"has the columns {listed([*schema.columns])}, and the fit had "
                f"{listed([*fitted.columns])}.",
            )
        return records if fitted.to_dict() == schema.to_dict() else records.rescaled(fitted)

    @property
    def _codes(self) -> dict[str, int | None]:
        """Arrays that hold codes 0, 1, ..., with the declared number of codes."""
        facts = self.result.data
        return {
            "group": len(facts["groups"]),
            "y": len(facts["classes"]),
            "x": facts.get("vocabulary_size"),
        }

    def _checked(self, arrays: tuple[Any, ...], names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        if len(arrays) != len(names):
            raise _validate.ArgumentError(
                "records", len(arrays), f"must be a tuple of the arrays {', '.join(names)}."
            )
        checked = []
        for name, array, shape, kind in zip(names, arrays, self.shapes, self.types, strict=False):
            array = unmasked(name, array)
            if array.ndim < 1 or array.shape[1:] != shape:
                actual = array if array.ndim else type(array.item()).__name__
                raise _validate.ArgumentError(
                    name, actual, f"must have the shape (records, {', '.join(map(str, shape))})."
                )
            if not np.issubdtype(array.dtype, np.number) or not np.all(np.isfinite(array)):
                raise _validate.ArgumentError(name, array, "must hold finite numbers.")
            count = self._codes.get(name)
            if count:
                _check_codes(name, array, count)
            checked.append(array.astype(kind))
        lengths = [len(array) for array in checked]
        if min(lengths) < max(lengths) or lengths[0] == 0:
            raise _validate.ArgumentError(
                "records", lengths, "must be arrays of equal length with at least one record."
            )
        return tuple(checked)

    def _column(self, frame: pd.DataFrame, name: str) -> np.ndarray:
        """The array ``name``, made from a table in its own units."""
        facts = self.result.data
        if name == "group":
            if facts["group"] not in frame:
                raise _validate.ArgumentError(
                    "records", "DataFrame", f"has no column {facts['group']!r}."
                )
            return group_codes(frame[facts["group"]].rename(facts["group"]), tuple(facts["groups"]))
        schema = self.schema
        if name != "x" or schema is None:
            raise _validate.ArgumentError(
                "records", "DataFrame", "cannot be used: this result has no schema. Pass arrays."
            )
        return schema.encode(frame)

    def _warn_of_unfit_values(self, frame: pd.DataFrame) -> None:
        """Says which columns have values outside their bounds, at which they are predicted, or
        values that are no level of them.
        """
        from workbench.results.effects import formula_of

        model, schema = formula_of(self.result), self.schema
        if model is not None:
            schema = model.columns.design.schema
        cut, no_level = [], []
        for name, column in ({} if schema is None else schema.columns).items():
            if isinstance(column, Numeric):
                numbers = numbers_in(columns_of(frame, [name])[name])
                cut += _shares(name, (numbers < column.low) | (numbers > column.high))
            elif isinstance(column, Categorical) and column.other:
                codes = column.codes(columns_of(frame, [name])[name])
                no_level += _shares(name, codes == len(column.categories))
        for columns, words in ((cut, _CUT), (no_level, _NO_LEVEL)):
            if columns:
                warnings.warn(f"{words}: {listed(columns)}.", BoundsWarning, stacklevel=4)

    @property
    def schema(self) -> Schema | None:
        """How columns of a table become features; None if that was not declared."""
        declared = self.result.data["schema"]
        return None if declared is None else Schema.from_dict(declared)

    # ---- predictions, scores and synthetic records -----------------------------------------------

    @functools.cached_property
    def _predictions(self) -> Callable[..., jax.Array]:
        """Compiled function from draws and inputs to predictions, [draws, records, ...]."""
        predict = self.model.predict or self._mean

        def all_draws(
            params: dict[str, Any], values: dict[str, Any], arrays: tuple[Any, ...]
        ) -> jax.Array:
            if not values:
                return predict(params, *arrays)[None]
            return jax.vmap(lambda drawn: predict(params | drawn, *arrays))(values)

        # Parameters and draws are arguments: XLA spends a long time on folding large constants, and
        # results share programs.
        return functools.partial(program_cache.jit(all_draws), self.params)

    def _mean(self, latents: Mapping[str, Any], *inputs: jax.Array) -> jax.Array:
        """The mean of the observed site when the model is called without its target; of classes
        their probabilities.

        :raises ArgumentError: naming ``model``, if it has no inputs, needs draws for each record or
            fails without a target.
        """
        if len(self.result.data["arrays"]) < 2 or self.split.uses_base_noise:
            raise self._refusal("has no predict function.")
        try:
            site = self._trace(latents, fast_key(key_from_seed(0)), inputs, len(inputs[0]))[
                self._observed
            ]
            drawn = site["fn"]
            while isinstance(
                drawn, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
            ):
                drawn = drawn.base_dist
            is_of_classes = isinstance(drawn, (dist.CategoricalProbs, dist.CategoricalLogits))
            return drawn.probs if is_of_classes else site["fn"].mean
        except _validate.ArgumentError:
            raise
        except Exception as error:  # the function of a user may fail in any way
            reason = _validate.kind_and_message(error)
            raise self._refusal(
                f"has no predict function, and fails without its target ({reason})."
            ) from error

    def _refusal(self, expectation: str) -> _validate.ArgumentError:
        return _validate.ArgumentError("model", self.result.model, expectation)

    @property
    def _observed(self) -> str:
        """The one observed site. :raises ArgumentError: naming ``model``, if there are more or
        none.
        """
        if len(self.split.observed) != 1:
            raise self._refusal(f"has {len(self.split.observed)} observed sites; one can be drawn.")
        return self.split.observed[0]

    def _trace(
        self, latents: Mapping[str, Any], key: jax.Array, inputs: tuple[jax.Array, ...], count: int
    ) -> Any:
        """The model's trace for ``count`` records without a target."""
        constants = {
            **self.constants,
            **({"num_records": count} if takes_num_records(self.model.model) else {}),
        }
        fixed = handlers.substitute(handlers.seed(self.model.model, key), data=dict(latents))
        return handlers.trace(fixed).get_trace(*inputs, None, **constants)

    def predict(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        """Predictions averaged over draws. The first axis is records."""
        # by NumPy: JAX would compile the mean for each number of records, and keep that
        chunks = self._chunks_of_predictions(inputs)
        return np.concatenate(
            [chunk.mean(axis=0, dtype=np.float64).astype(chunk.dtype) for chunk in chunks]
        )

    def draws_of_predictions(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        """Predictions under each of up to 200 draws, float[draws, records, ...]."""
        return np.concatenate(list(self._chunks_of_predictions(inputs)), axis=1)

    def _chunks_of_predictions(self, inputs: tuple[np.ndarray, ...]) -> Iterator[np.ndarray]:
        """Predictions for up to 4096 records at a time, float[draws, records, ...]."""
        values = self._values(self._places(_DRAWS))
        for count, arrays in _chunks(inputs):
            yield np.asarray(self._predictions(values, arrays))[:, :count]

    @functools.cached_property
    def _held_out(self) -> Callable[..., tuple[jax.Array | None, jax.Array | None]]:
        if self._has_no_guide:
            split_model, values = self.split, self._values(self._places(_DRAWS))
            return jax.jit(lambda arrays: (None, predictive(split_model, values, arrays)))
        split_model, params, key = self.split, self._unconstrained(), fast_key(key_from_seed(0))
        return jax.jit(lambda arrays: held_out(split_model, params, key, arrays, _SCORE_DRAWS))

    @property
    def _has_no_guide(self) -> bool:
        """Whether the posterior was drawn from noised sums. Such models have no
        parameters either.
        """
        return self.result.settings.get("estimator") == "statistics"

    def score(self, records: tuple[np.ndarray, ...]) -> dict[str, float]:
        """ELBO (of a guide) and log-likelihood in nats per record, and the model's own metrics."""
        elbo, log_likelihood = self._held_out(tuple(jnp.asarray(array) for array in records))
        metrics = {} if elbo is None else {"elbo": float(elbo)}
        if log_likelihood is not None:
            metrics["log_likelihood"] = float(log_likelihood)
        if self.model.predict is not None:
            metrics |= self.model.score(np.asarray(records[-1]), self.predict(inputs_of(records)))
        return metrics

    def by_record(self, outcome: Outcome) -> Callable[..., Said]:
        """Function of records that says predictions and log densities of them one by one
        (``by_record.said_of``).
        """
        split_model, params = self.split, self.params
        predict = self.model.predict or self._mean
        of_values = self._values(self._places(_SCORE_DRAWS))
        if self._has_no_guide:
            shared = {name: jnp.asarray(of_values[name]) for name in split_model.shared}
        else:
            draws = jax.random.split(fast_key(key_from_seed(0)), _SCORE_DRAWS)
            unconstrained = self._unconstrained()
            shared = jax.vmap(lambda draw: split_model.release_point(unconstrained, draw)[0])(draws)
        # of a model without global latents one draw, of nothing
        values = {name: jnp.asarray(value) for name, value in of_values.items()} or {
            "": jnp.zeros(1)
        }
        return functools.partial(
            said_of,
            outcome,
            lambda drawn, *arrays: predict(params | drawn, *arrays),
            split_model,
            values,
            shared,
        )

    def ranks(self, records: tuple[np.ndarray, ...], words: np.ndarray) -> np.ndarray:
        """The rank of each target among draws of the model for its record, as a share, float[B]:
        uniform on [0, 1] where the model is right. Ties are broken at random.

        :param words: uint32[B, 2] at random, a secret seed for each record: with one that follows
            from a record's place, a record more would move the others.
        """
        values = {
            name: jnp.asarray(value) for name, value in self._values(self._places(_DRAWS)).items()
        }
        count = min((len(value) for value in values.values()), default=1)
        drawn_record = self._drawn_record

        def rank(word: jax.Array, *record: jax.Array) -> jax.Array:
            tie = fast_key(word)
            keys = jax.random.split(jax.random.fold_in(tie, 1), count)
            made = jax.vmap(drawn_record, (0, 0, None))(values, keys, inputs_of(record))
            below, equal = jnp.sum(made < record[-1]), jnp.sum(made == record[-1])
            return (below + jax.random.uniform(tie) * (equal + 1)) / (count + 1)

        ranked = jax.jit(lambda block: (jax.vmap(rank)(*block),))
        (ranks,) = in_blocks(ranked, (words, *records))
        assert ranks is not None
        return ranks

    def _unconstrained(self) -> dict[str, Any]:
        return self.split.unconstrain(self.params)

    def sample(
        self,
        count: int,
        given: tuple[np.ndarray, ...],
        key: jax.Array,
        on_progress: Callable[[int], object] = lambda _: None,
    ) -> np.ndarray:
        """Draw ``count`` synthetic values of the observed site, each from its own posterior draw.

        :param given: the model's inputs, one row per record; () for a model of a single array.
        :param on_progress: called with the number of records just drawn.
        """
        indices = self._places(10**9)
        chosen_key, sampling_key = jax.random.split(key)
        chosen = np.asarray(jax.random.randint(chosen_key, (count,), 0, len(indices)))
        keys = jax.random.split(sampling_key, count)
        draw = jax.jit(jax.vmap(self._drawn_record))
        batches = []
        for start in range(0, count, _AT_ONCE):
            # one posterior draw per record, all at once, would fill the memory
            batch = slice(start, start + _AT_ONCE)
            batches.append(
                np.asarray(
                    draw(
                        self._values(indices[chosen[batch]]),
                        keys[batch],
                        tuple(array[batch] for array in given),
                    )
                )
            )
            on_progress(len(batches[-1]))
        return np.concatenate(batches)

    @functools.cached_property
    def _drawn_record(self) -> Callable[..., jax.Array]:
        """Function of latents of a posterior draw, a key and a record's inputs: a value of the
        observed site.
        """
        params, site = self.params, self._observed  # not while a program is traced, which they keep

        def drawn_record(
            drawn: Mapping[str, jax.Array], key: jax.Array, record: tuple[jax.Array, ...]
        ) -> jax.Array:
            inputs = tuple(array[None] for array in record)
            return self._trace(params | dict(drawn), key, inputs, 1)[site]["value"][0]

        return drawn_record

    @functools.cached_property
    def _drawn_set(self) -> Callable[..., jax.Array]:
        """Compiled function from latents, a key, numbers of records and inputs to drawn values."""
        drawn_record = self._drawn_record

        def drawn_set(
            drawn: dict[str, jax.Array],
            key: jax.Array,
            numbers: jax.Array,
            records: tuple[jax.Array, ...],
        ) -> jax.Array:
            return jax.vmap(
                lambda number, record: drawn_record(drawn, jax.random.fold_in(key, number), record)
            )(numbers, records)

        return jax.jit(drawn_set)

    def sample_set(
        self,
        drawn: dict[str, np.ndarray],
        count: int,
        inputs: tuple[np.ndarray, ...],
        key: jax.Array,
    ) -> np.ndarray:
        """Draw ``count`` values of the observed site, all from one posterior draw.

        :param drawn: latents of that draw. :param inputs: as of ``sample``.
        """
        numbers = np.arange(count, dtype=np.uint32)
        return np.concatenate(
            [
                np.asarray(self._drawn_set(drawn, key, arrays[0], arrays[1:]))[:length]
                for length, arrays in _chunks((numbers, *inputs))
            ]
        )


def _no_records(result: FitResult) -> _validate.ArgumentError:
    """The error that records must be given, with the reason why ``result`` has none."""
    if result.data["num_evaluation"] is None:  # of metrics
        reason = "none were held out that are declared public"
    elif result.metrics_label == EVALUATION_LABELS[True]:
        reason = "it was loaded from a folder"
    else:
        reason = "those that were held out are private"
    return _validate.ArgumentError(
        "records",
        None,
        f"give the records: this result keeps none, because {reason}.",
        code="no records",
        remedy="Pass a table or the model's arrays, or a Dataset for its evaluation records.",
    )


def _check_codes(name: str, codes: np.ndarray, count: int) -> None:
    if not np.all(np.isin(codes, np.arange(count))):
        raise _validate.ArgumentError(
            name, str(codes.dtype), f"must be whole numbers from 0 to {count - 1}."
        )


def _chunks(arrays: tuple[np.ndarray, ...]) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Split arrays into chunks of up to 4096 records, so that predictions need little memory:
    (records, arrays).

    Their lengths are powers of two, so that few programs are compiled: a shorter chunk repeats its
    last record.
    """
    for start in range(0, len(arrays[0]), _AT_ONCE):
        chunk = [array[start : start + _AT_ONCE] for array in arrays]
        count = len(chunk[0])
        length = max(_SHORTEST, 1 << (count - 1).bit_length())
        yield (
            count,
            tuple(
                np.concatenate([array, np.repeat(array[-1:], length - count, axis=0)])
                for array in chunk
            ),
        )


def _model_of(result: FitResult) -> Model:
    if result.definition is not None:
        return result.definition
    from workbench.models.registry import get, is_known

    if not is_known(result.model):
        raise _validate.ArgumentError(
            "model", result.model, "is not in the gallery: register it again."
        )
    model = get(result.model, **result.model_options)
    return model.with_scales(scales_from_dict(result.data["scales"]))


def synthetic_key(seed: int | None) -> jax.Array:
    """A key for draws from a released posterior. It is fast and not cryptographic: these draws
    protect nothing.
    """
    return fast_key(new_key() if seed is None else key_from_seed(_validate.seed("seed", seed)))
