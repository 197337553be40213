"""Names of the entries of arrays."""

import numpy as np
import pandas as pd
import pytest

from workbench.results.entries import entry_names


@pytest.mark.parametrize(
    ("given", "shape", "names"),
    [
        (None, (), ["w"]),
        (["a", "b"], (2,), ["w[a]", "w[b]"]),
        (np.array(["a", "b"]), (2,), ["w[a]", "w[b]"]),
        (pd.Index(["a", "b"]), (2,), ["w[a]", "w[b]"]),
        ((["a", "b"], [2020]), (2, 1), ["w[a, 2020]", "w[b, 2020]"]),
        (None, (2,), ["w[0]", "w[1]"]),
        (["a"], (2,), ["w[0]", "w[1]"]),
        (["a", "b"], (2, 1), ["w[0, 0]", "w[1, 0]"]),
        ([], (0,), []),
    ],
)
def test_entries_have_the_labels_that_fit_and_else_numbers(given, shape, names):
    assert entry_names("w", given, shape) == names
