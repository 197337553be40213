"""A data set: private training records, evaluation records, and the public facts about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench import _html, _validate
from workbench.data import splits
from workbench.data.columns import Categorical
from workbench.data.preprocessing import OTHER, has_control_characters
from workbench.data.schema import Schema
from workbench.data.units import Units, padded

if TYPE_CHECKING:
    from workbench.data.storage.reading import Loaded, Stored

__all__ = ["EVALUATION_LABELS", "Dataset", "is_at_rest"]

Visibility = Literal["public data", "outside the guarantee"]

PRESENT = "present"  # which rows of a unit are there
_HINTS = {
    "y": " (target= names its column)",
    "group": " (group= names its column)",
    PRESENT: " (unit_id= names the column that says whose row it is)",
}


_SUBSET_SEED = 20_260_101  # public

EVALUATION_LABELS: dict[bool, Visibility] = {True: "public data", False: "outside the guarantee"}


def is_at_rest(array: object) -> bool:
    """Whether the rows of an array are in a file, and are read when they are asked for."""
    return hasattr(array, "stored")


@dataclass(frozen=True, repr=False)
class Dataset:
    """Records, split into training (private) and evaluation, with the public facts that the
    guarantee takes as given.

    >>> data = wb.data.load("breast_cancer")
    >>> data
    Dataset('breast_cancer', 30 features, target 'diagnosis')
    >>> data.num_train, data.classes, data.bounds["mean radius"]
    (458, ('benign', 'malignant'), (6.0, 30.0))

    :param name: short name.
    :param description: one sentence.
    :param train: arrays with first axis N, named by ``arrays``; with ``units`` rows, the rows of a
        unit one after another.
    :param evaluation: the same for the evaluation records.
    :param feature_names: D names of the columns of ``x``; none for images.
    :param target_name: name of the target; "" if there is none.
    :param classes: labels of the target's values 0, 1, ...; none if there is no target.
    :param target_bounds: public range of a target of numbers, in its own units; None for classes,
        and if there is no target.
    :param schema: public declaration of the table's columns, which encoded ``x``; ``schema.decode``
        is the inverse. None for images, and if ``x`` was not encoded.
    :param unit: what one record is, the privacy unit, in words.
    :param evaluation_is_public: True if the owner declared the evaluation records public, or they
        are synthetic. Numbers computed on them are then labelled "public data", otherwise "outside
        the guarantee".
    :param licence: of the data.
    :param source: origin of the data.
    :param arrays: names of the arrays of a record, in order: "x" (features float32[N, D], or an
        image, float32 in [0, 1]), "group" (int32[N], in 0 .. L - 1), "y" (target, int32[N], or
        float32[N] of numbers). Models select arrays by these names.
    :param group_name: what a group is, such as "school".
    :param groups: L names of groups, public.
    :param group_features: float32[L, K], public facts about the groups.
    :param group_feature_names: K names.
    :param image_shape: (height, width) or (height, width, channels) if ``x`` has images, otherwise
        ().
    :param vocabulary_size: V, public, if ``x`` has token sequences, int32[N, T] in 0 .. V - 1,
        whose columns are the places in a sequence; otherwise 0.
    :param is_public: True if the training records are public too, published or made up. Fits of
        them spend no privacy.
    :param units: which rows belong to one person or other unit; None where each row is one.
    :param cut_together: columns that were cut to their bounds together with the target, such as the
        exposure of counts.
    :param stored: the file that ``open`` read or reads; None for records that are in memory. Arrays
        of records that stay in the file have shape, type and rows as NumPy's have.
    """

    name: str
    description: str
    train: tuple[np.ndarray, ...]
    evaluation: tuple[np.ndarray, ...]
    feature_names: tuple[str, ...] = ()
    target_name: str = ""
    classes: tuple[str, ...] = ()
    schema: Schema | None = None
    unit: str = "training record"
    evaluation_is_public: bool = False
    licence: str = "the owner's"
    source: str = "the user"
    arrays: tuple[str, ...] = ("x", "y")
    group_name: str = ""
    groups: tuple[str, ...] = ()
    group_features: np.ndarray | None = None
    group_feature_names: tuple[str, ...] = ()
    image_shape: tuple[int, ...] = ()
    is_public: bool = False
    vocabulary_size: int = 0
    units: Units | None = None
    target_bounds: tuple[float, float] | None = None
    cut_together: tuple[str, ...] = ()
    stored: Stored | Loaded | None = None

    def __post_init__(self) -> None:
        """Check flags, and names, which files and pictures must be able to hold.

        :raises ArgumentError: naming the flag or the name, and its value. A class may be a private
            value and is not quoted.
        """
        for flag in ("evaluation_is_public", "is_public"):
            object.__setattr__(self, flag, _validate.flag(flag, getattr(self, flag)))
        for word in ("name", "unit"):
            object.__setattr__(self, word, _validate.label(word, getattr(self, word)))
        for field in (
            "target_name",
            "group_name",
            "feature_names",
            "group_feature_names",
            "groups",
            "classes",
        ):
            names = getattr(self, field)
            for name in (names,) if isinstance(names, str) else names:
                if has_control_characters(str(name)):
                    raise _validate.ArgumentError(
                        field,
                        None if field == "classes" else name,
                        "must not have control characters, such as a null.",
                    )

    def with_rows(self, rows: np.ndarray) -> Dataset:
        """The data set with these of its training records. :param rows: bool[N]."""
        return replace(self, train=tuple(array[rows] for array in self.train))

    def __repr__(self) -> str:
        """Public facts only, because a notebook prints the value of a cell's last line."""
        if self.image_shape:
            facts = [f"{' x '.join(map(str, self.image_shape))} images"]
        elif self.vocabulary_size:
            facts = [f"{len(self.feature_names)} tokens of {self.vocabulary_size}"]
        else:
            facts = [
                f"{len(self.feature_names)} feature{'s' if len(self.feature_names) != 1 else ''}"
            ]
        if self.groups:
            facts.append(f"{len(self.groups)} groups")
        if self.target_name:
            facts.append(f"target {self.target_name!r}")
        return f"Dataset({self.name!r}, {', '.join(facts)})"

    def _repr_html_(self) -> str:
        """Public facts only, as ``__repr__``: what is declared, and no value of a record."""
        facts = "".join(f"<li>{_html.sentence(line)}</li>" for line in self.declarations())
        return _html.box(
            _html.note(repr(self)),
            _html.sentence(self.description),
            _html.quiet(f"Privacy unit: {self.unit}."),
            f'<ul style="margin:.2em 0">{facts}</ul>',
        )

    def check(self) -> None:
        """Check that the arrays fit together and fit their description. Data sets from this
        package's loaders do.

        :raises ArgumentError: naming ``data``, for a wrong number of arrays or records, a wrong
            shape, or a group or target value without a name.
        """
        for side, arrays in (("train", self.train), ("evaluation", self.evaluation)):
            reason = self._misfit(arrays)
            if reason:
                raise _validate.ArgumentError(
                    "data", self.name, f"its {side} records do not fit: {reason}."
                )
        shape = (len(self.groups), len(self.group_feature_names))
        if self.group_features is not None and np.shape(self.group_features) != shape:
            raise _validate.ArgumentError(
                "data",
                self.name,
                f"its group_features have shape {np.shape(self.group_features)} instead of "
                f"{shape}.",
            )

    def _misfit(self, arrays: tuple[np.ndarray, ...]) -> str:
        """What does not fit about these records; "" if everything fits."""
        if any(np.ma.is_masked(array) for array in arrays):
            return "masked entries have no value; fill them or drop the records"
        shapes = [np.shape(array) for array in arrays]
        if len(arrays) != len(self.arrays) or () in shapes:
            return f"they must be {len(self.arrays)} array(s), {', '.join(self.arrays)}"
        in_memory = {
            name: array
            for name, array in zip(self.arrays, arrays, strict=True)
            if not is_at_rest(array)
        }
        if any(np.asarray(array).dtype.kind not in "biuf" for array in in_memory.values()):
            return "they must be arrays of real numbers"
        if len({shape[0] for shape in shapes}) > 1:
            return f"the arrays {', '.join(self.arrays)} have different numbers of records"
        are_padded = self.units is not None and self.units.are_padded
        counts = None if self.units is None or are_padded else self.units.counts
        rows = None if counts is None or is_at_rest(counts) else np.sum(counts)
        for name, array, shape in zip(self.arrays, arrays, shapes, strict=True):
            if name == "x" and self.image_shape and shape[1:] != self.image_shape:
                return f"x has shape {shape}, but image_shape is {self.image_shape}"
            if (
                name == "x"
                and self.feature_names
                and shape[1 + are_padded :] != (len(self.feature_names),)
            ):
                return f"x has shape {shape}, but there are {len(self.feature_names)} feature names"
            if name not in in_memory:  # its values were checked before they were packed
                continue
            if (
                name == "x"
                and self.vocabulary_size
                and not _are_tokens(array, self.vocabulary_size)
            ):
                return f"x must have tokens, whole numbers in 0 .. {self.vocabulary_size - 1}"
            if rows is not None and arrays is self.train and shape[0] != rows:
                return f"{name} has {shape[0]} rows, but the units have {rows}"
            last = {"group": len(self.groups), "y": len(self.classes)}.get(name, 0) - 1
            if last >= 0 and shape[0] and not (np.min(array) >= 0 and np.max(array) <= last):
                return f"{name} must be in 0 .. {last}"
        return ""

    def _padded(self) -> Dataset:
        assert self.units is not None
        if self.units.mean:
            raise _validate.ArgumentError(
                "unit_mean", True, "weighs rows, which a model of whole persons does itself."
            )
        most = self.units.max_rows
        counts = np.asarray(self.units.evaluation_counts)
        evaluation = padded(tuple(map(np.asarray, self.evaluation)), counts[counts > 0], most)
        is_in_file = any(map(is_at_rest, self.train))
        train = self.units_at_rest() if is_in_file else padded(self.train, self.units.counts, most)
        units = replace(self.units, are_padded=True)
        return replace(
            self, train=train, evaluation=evaluation, arrays=(*self.arrays, PRESENT), units=units
        )

    def units_at_rest(self) -> tuple[Any, ...]:
        """Arrays [N, max_rows, ...] of whole units that stay in a file, and which rows are there,
        as from ``padded``.
        """
        stored: Any = self.stored
        return tuple(stored.units(self.arrays))

    def select(self, arrays: Iterable[str]) -> Dataset:
        """The same records with only these of their arrays, in this order.

        With ``units`` there is one more, "present": a record is then a unit, arrays have an axis of
        ``max_rows`` rows after the first, and "present", float32[N, max_rows], is 1 for rows that
        are there and 0 for those that repeat the last.

        :raises ArgumentError: naming ``data``, if one of them is missing; naming ``unit_mean``,
            which "present" has not.
        """
        wanted = tuple(arrays)
        if PRESENT in wanted and self.units is not None and not self.units.are_padded:
            return self._padded().select(wanted)
        missing = [name for name in wanted if name not in self.arrays]
        if missing:
            needed = f"{missing[0]!r}, which the model needs{_HINTS.get(missing[0], '')}"
            raise _validate.ArgumentError(
                "data", self.name, f"has no array {needed}; it has {', '.join(self.arrays)}."
            )
        indices = [self.arrays.index(name) for name in wanted]
        return replace(
            self,
            arrays=wanted,
            train=tuple(self.train[index] for index in indices),
            evaluation=tuple(self.evaluation[index] for index in indices),
        )

    def rescaled(self, schema: Schema) -> Dataset:
        """The same records encoded by another declaration of the same columns.

        :raises ArgumentError: naming ``look``, for records without a declaration, or in a file.
        """
        declared = self.schema
        if declared is None or any(map(is_at_rest, self.train)):
            raise _validate.ArgumentError(
                "look",
                self.name,
                "needs a table with declared columns in memory, whose scales it changes.",
            )
        at = self.arrays.index("x")

        def encoded(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            x = schema.encode(declared.decode(arrays[at]))
            return (*arrays[:at], x, *arrays[at + 1 :])

        return replace(
            self, schema=schema, train=encoded(self.train), evaluation=encoded(self.evaluation)
        )

    def subset(self, num_records: int) -> Dataset:
        """``num_records`` of the training records, in their order; the evaluation records stay as
        they are.

        A public seed decides which, together with each private record's own content
        (``splits.coins``): a record that is added or removed moves at most one other record into or
        out of the subset. For public records their positions decide. A smaller subset is part of
        every larger one. The guarantee of a fit on the subset is for the chosen records, and treats
        their number as public: under add_or_remove_one, one record of the whole set counts as two
        of them.

        :param num_records: in 2 .. N.
        :raises ArgumentError: naming ``num_records``.
        """
        size = _validate.integer("num_records", num_records, at_least=2)
        if self.units is not None:
            raise _validate.ArgumentError(
                "num_records",
                size,
                f"cannot be reduced for a table with several rows per {self.unit}.",
            )
        if size > self.num_train:
            raise _validate.ArgumentError(
                "num_records", size, "is more than the number of training records."
            )
        if any(map(is_at_rest, self.train)):
            raise _validate.ArgumentError(
                "num_records", size, "cannot be reduced for records that stay in a file."
            )
        if self.is_public:
            drawn = np.random.Generator(np.random.PCG64(_SUBSET_SEED)).random(self.num_train)
        else:
            drawn = splits.coins(self.with_all_levels().train, _SUBSET_SEED)
        chosen = np.sort(np.argsort(drawn, kind="stable")[:size])
        return replace(self, train=tuple(np.asarray(array)[chosen] for array in self.train))

    @property
    def references(self) -> dict[str, str]:
        """The reference levels of the categories, by column. Fingerprints do not depend on them."""
        return {} if self.schema is None else self.schema.references

    def with_all_levels(self) -> Dataset:
        """The data set as it is encoded without reference levels.

        Splits, subsets and fingerprints are made of these features, so another reference leaves
        them as they are.
        """
        schema = self.schema
        if schema is None or not self.references or "x" not in self.arrays:
            return self
        index = self.arrays.index("x")

        def encoded(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            x: Any = arrays[index]
            levels = x.mapped(schema.all_levels) if is_at_rest(x) else schema.all_levels(x)
            return (*arrays[:index], levels, *arrays[index + 1 :])

        full = schema.with_all_levels()
        return replace(
            self,
            train=encoded(self.train),
            evaluation=encoded(self.evaluation),
            schema=full,
            feature_names=full.feature_names,
        )

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Public (low, high) of each numeric column in its own units, from which it is scaled to
        [-1, 1].

        Empty without a schema.
        """
        return {} if self.schema is None else self.schema.bounds

    @property
    def num_train(self) -> int:
        """N, the number of private training records, or of units that they belong to."""
        return len(self.train[0] if self.units is None else self.units.counts)

    @property
    def rows_clipped(self) -> int:
        """How many rows of a unit are added up before their gradient is clipped, at most."""
        return 1 if self.units is None or self.units.mean else self.units.max_rows

    @property
    def num_evaluation(self) -> int:
        """Number of evaluation records."""
        return len(self.evaluation[0])

    @property
    def public_evaluation(self) -> tuple[np.ndarray, ...] | None:
        """The evaluation records, in memory, where they are declared public and there are any."""
        return (
            tuple(map(np.asarray, self.evaluation))
            if self.evaluation_is_public and self.num_evaluation
            else None
        )

    @property
    def evaluation_label(self) -> Visibility:
        """The label of numbers computed on the evaluation records: "public data" or "outside the
        guarantee".
        """
        return EVALUATION_LABELS[self.evaluation_is_public]

    def declarations(self) -> list[str]:
        """What the guarantee treats as public about this data set, a sentence each. Private counts
        are left out.
        """
        lines = ["The training records are private; one of them is the privacy unit."]
        if self.units is not None:
            weigh = (
                ", and the rows of each weigh as much as one row together"
                if self.units.mean
                else ""
            )
            lines = [
                f"The training records are private, and a {self.unit} with all rows is the "
                f"privacy unit. At most {self.units.max_rows} rows of each are used, a public "
                f"number{weigh}."
            ]
        lines.append(self._declared())
        if self.bounds or self.target_bounds is not None:
            lines.append(
                "Numbers outside their bounds are set to the nearest bound, also codes that "
                "stand for a missing value."
            )
        if OTHER in self.classes:
            lines.append(
                f"All values of the target but {self.classes[1]!r} are one class, also misspelt "
                "ones."
            )
        if self.references:
            levels = ", ".join(f"{name}={level}" for name, level in self.references.items())
            lines.append(f"Reference levels, which have no feature: {levels}.")
        if not self.num_evaluation:
            lines.append("There are no evaluation records.")
        elif self.evaluation_is_public:
            lines.append(f"The {self.num_evaluation} evaluation records are declared public.")
        else:
            lines.append(
                "The evaluation records are private. Numbers computed on them are shown only on "
                "request: through noise, or exact and outside the guarantee."
            )
        return lines

    def _declared(self) -> str:
        """One sentence that lists what is public by declaration."""
        facts = ["The size of the images" if self.image_shape else "Names of the columns"]
        if self.vocabulary_size:
            facts = ["The length of the sequences", "the vocabulary"]
        if self.classes:
            facts.append("the two classes" if len(self.classes) == 2 else "the classes")
        if self.target_bounds is not None:
            facts.append("the bounds of the target")
        if self.groups:
            facts += ["the names of the groups", "the features of the groups"]
        if self.schema is not None:
            if any(isinstance(column, Categorical) for column in self.schema.columns.values()):
                facts.append("the categories")
            if self.bounds:
                facts.append("the bounds used for scaling")
        if len(facts) > 1:
            return f"{', '.join(facts[:-1])} and {facts[-1]} are declared public."
        return f"{facts[0]} {'is' if self.image_shape else 'are'} declared public."


def _are_tokens(array: np.ndarray, vocabulary_size: int) -> bool:
    values = np.asarray(array)
    are_integers = np.issubdtype(values.dtype, np.integer)
    return are_integers and (
        not values.size or (values.min() >= 0 and values.max() < vocabulary_size)
    )
