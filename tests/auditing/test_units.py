"""An audit with a planted person of ten rows: a sound fit passes, and one that clips row by row
does not.
"""

import pytest

from workbench._validate import ArgumentError
from workbench.auditing import audit, sensitivity

SETTINGS = {"iterations": 5, "max_rows": 10, "seed": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("bug", [None, "clip_by_row", "short_norms"])
def test_no_person_moves_the_sum_too_far(bug):
    result = audit(parts=("sensitivity",), bug=bug, **SETTINGS)
    assert result.passed == (bug is None)


def test_a_person_whose_rows_are_clipped_alone_is_caught(monkeypatch):
    # the quickest precision
    monkeypatch.setattr(sensitivity.check, "__defaults__", (("float32",),))
    (check,) = audit(parts=("sensitivity",), bug="clip_by_row", **SETTINGS).checks
    assert check.worst > 9


@pytest.mark.statistical
@pytest.mark.parametrize("bug", [None, "clip_by_row"])
def test_an_attack_on_a_person_of_ten_rows(bug):
    result = audit(parts=("attack",), trials=4000, confidence=0.999, bug=bug, **SETTINGS)
    assert (result.lower_bound > result.claimed_epsilon) == (bug is not None)


def test_a_bug_of_rows_needs_several():
    with pytest.raises(
        ArgumentError, match="bug='clip_by_row': changes nothing where a record is one row"
    ):
        audit(parts=("sensitivity",), bug="clip_by_row", iterations=5, max_rows=1)
