"""An audit with a planted person of ten rows: a sound fit passes, and one that clips row by row does not."""

import pytest

from workbench._validate import ArgumentError
from workbench.auditing import audit

SETTINGS = {"iterations": 5, "max_rows": 10, "seed": 1}


@pytest.mark.parametrize("bug", [None, "clip_by_row", pytest.param("short_norms", marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_no_person_moves_the_sum_too_far(bug):
    result = audit(parts=("sensitivity",), bug=bug, **SETTINGS)
    assert result.passed == (bug is None)


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, "clip_by_row"])
def test_an_attack_on_a_person_of_ten_rows(bug):
    result = audit(parts=("attack",), trials=4000, confidence=0.999, bug=bug, **SETTINGS)
    assert (result.lower_bound > result.claimed_epsilon) == (bug is not None)


def test_a_bug_that_is_not_planted_there_is_named():
    with pytest.raises(ArgumentError, match="bug='clamped_indices': is not planted where max_rows is given"):
        audit(parts=("sensitivity",), bug="clamped_indices", **SETTINGS)
