"""Groups of records, such as schools. Their names and features are public; which record is in which
group is private.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.preprocessing import text_of, texts_of

__all__ = ["INTERCEPT", "checked_group_features", "checked_groups", "group_codes"]

INTERCEPT = "intercept"  # the only feature, 1, of groups without group features


def checked_groups(
    groups: Iterable[Any] | None,
    group_features: pd.DataFrame | pd.Series | Mapping[Any, ArrayLike] | ArrayLike | None = None,
) -> tuple[str, ...]:
    """Names of the groups as text: ``groups``, or else the groups of the public ``group_features``.

    :raises ArgumentError: naming ``groups``, if neither names the groups, or a name is missing or
        repeated.
    """
    if groups is None and isinstance(group_features, (pd.DataFrame, pd.Series)):
        groups = list(group_features.index)
    elif groups is None and isinstance(group_features, Mapping):
        groups = list(group_features)
    if groups is None:
        raise _validate.ArgumentError(
            "groups",
            None,
            "must list the names of all groups, with or without records. The names are public; "
            "names read from private records would reveal which groups have records.",
        )
    if isinstance(groups, (str, Mapping)) or not isinstance(groups, Iterable):
        raise _validate.ArgumentError("groups", groups, "must be a list of names.")
    labels = list(groups)
    if not labels or any(not pd.api.types.is_scalar(name) or pd.isna(name) for name in labels):
        raise _validate.ArgumentError(
            "groups", labels, "must have at least one name, and no missing ones."
        )
    names = [text_of(name) for name in labels]
    if repeated := preprocessing.repeated(names):
        raise _validate.ArgumentError(
            "groups", repeated[0], "is repeated (names are compared as text)."
        )
    return tuple(names)


def group_codes(column: pd.Series, groups: tuple[str, ...]) -> np.ndarray:
    """int32[B]: the position of each row's group in ``groups``, compared as text.

    A group may have no rows: its effects come from the prior and its group features.

    :raises ArgumentError: naming the column and its type, if a group is missing or not declared.
    """
    codes = preprocessing.places_of(texts_of(column), groups)
    if np.any(codes < 0):
        raise preprocessing.unfit(
            column,
            f"some row has none of the {len(groups)} declared groups, or no group at all; "
            "declare all groups in groups=.",
        )
    return codes.astype(np.int32)


def checked_group_features(
    group_features: pd.DataFrame | pd.Series | Mapping[Any, ArrayLike] | ArrayLike | None,
    groups: tuple[str, ...],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """(float32[L, K], K names): public facts about each group, in the order of ``groups`` and in
    the units they came in.

    :param group_features: a DataFrame with the groups as index, ``{group: [K numbers]}``, or
        float[L, K] in the order of ``groups``; None gives every group the single feature
        "intercept", 1. Groups that are not declared are ignored.
    :raises ArgumentError: naming ``group_features``, if a group has no features, or a feature is
        not a finite number.
    """
    if group_features is None:
        return np.ones((len(groups), 1), np.float32), (INTERCEPT,)
    table = _table(group_features, groups)
    if table.shape[1] < 1:
        raise _validate.ArgumentError("group_features", table, "must have at least one feature.")
    index = [text_of(label) for label in table.index]
    names = [str(label) for label in table.columns]
    for role, entries in (("group", index), ("feature", names)):
        if repeated := preprocessing.repeated(entries):
            raise _validate.ArgumentError(
                "group_features", repeated[0], f"this {role} occurs more than once."
            )
    described = set(index)
    missing = [group for group in groups if group not in described]
    if missing:
        raise _validate.ArgumentError(
            "group_features", missing[0], f"{len(missing)} declared group(s) have no features."
        )
    table = table.set_axis(index, axis=0).set_axis(names, axis=1).loc[list(groups)]
    try:
        values = preprocessing.numeric_features(table, names, row="group")
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError(
            f"group_features[{error.argument!r}]", error.value, error.expectation
        ) from None
    return values.astype(np.float32), tuple(names)


def _table(
    group_features: pd.DataFrame | pd.Series | Mapping[Any, ArrayLike] | ArrayLike,
    groups: tuple[str, ...],
) -> pd.DataFrame:
    if isinstance(group_features, pd.DataFrame):
        return group_features
    if isinstance(group_features, pd.Series):
        return group_features.to_frame(group_features.name or "group feature 1")
    if isinstance(group_features, Mapping):
        rows = [
            np.atleast_1d(preprocessing.unmasked("group_features", row))
            for row in group_features.values()
        ]
        widths = sorted({row.shape for row in rows})
        if len(widths) != 1 or len(widths[0]) != 1:
            raise _validate.ArgumentError(
                "group_features",
                dict(group_features),
                "must give every group the same number of features.",
            )
        return pd.DataFrame(
            np.stack(rows), index=pd.Index(list(group_features), dtype=object)
        ).pipe(_numbered)
    values = preprocessing.unmasked("group_features", group_features)
    if values.ndim != 2 or len(values) != len(groups):
        raise _validate.ArgumentError(
            "group_features",
            values,
            f"must be a table, {{group: features}}, or an array of {len(groups)} rows, one for "
            "each group.",
        )
    return pd.DataFrame(values, index=list(groups)).pipe(_numbered)


def _numbered(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_axis(
        [f"group feature {number + 1}" for number in range(table.shape[1])], axis=1
    )
