"""The first evaluation records of a data set, as the Data part of the screen shows them where it
may.
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from workbench._lazy import pd
from workbench.data import Dataset
from workbench.widgets.kit import markup

__all__ = ["ROWS", "first_records"]

ROWS = 5  # records
_MOST_COLUMNS = 40


def first_records(dataset: Dataset) -> str:
    """HTML of the first evaluation records, in the table's own units if a schema can
    decode them.
    """
    arrays = {
        name: array[:ROWS] for name, array in zip(dataset.arrays, dataset.evaluation, strict=True)
    }
    if dataset.image_shape:
        return _pictures(dataset, arrays)
    x = arrays["x"]
    table = (
        pd.DataFrame(x, columns=list(dataset.feature_names))
        if dataset.schema is None
        else dataset.schema.decode(x)
    )
    rows = [[str(name), *map(_text_of, table[name])] for name in table.columns[:_MOST_COLUMNS]]
    for array, name, labels in (
        ("group", dataset.group_name, dataset.groups),
        ("y", dataset.target_name, dataset.classes),
    ):
        if array in arrays:
            rows.append(
                [
                    name or array,
                    *(labels[int(code)] if labels else str(code) for code in arrays[array]),
                ]
            )
    hidden = len(table.columns) - _MOST_COLUMNS
    records = markup.table(["row", *map(str, range(1, len(x) + 1))], rows)
    note = "" if dataset.schema is not None else markup.quiet("Features as the model sees them.")
    more = markup.quiet(f"and {hidden} more columns") if hidden > 0 else ""
    # numbers must not be broken across lines, as words elsewhere on the screen are
    style = "overflow:auto;overflow-wrap:normal;max-height:260px"
    return f"{note}{markup.scrolls(records, 'first records', style)}{more}"


def _pictures(dataset: Dataset, arrays: Mapping[str, np.ndarray]) -> str:
    from matplotlib import image

    shown = [markup.quiet(f"{' x '.join(map(str, dataset.image_shape))} pixels, between 0 and 1")]
    for number, pixels in enumerate(arrays["x"]):
        label = (
            f", {dataset.classes[int(arrays['y'][number])]}"
            if "y" in arrays and dataset.classes
            else ""
        )
        buffer = io.BytesIO()
        image.imsave(buffer, pixels.squeeze(), vmin=0, vmax=1, cmap="gray", format="png")
        shown.append(markup.image(buffer.getvalue(), f"evaluation image {number + 1}{label}", 52))
    return " ".join(shown)


def _text_of(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)
