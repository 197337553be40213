"""Released noise is not drawn again for a changed model."""

import pytest

from workbench.auditing import audit, crash


def test_noise_that_is_reused_after_a_crash_is_caught():
    """A fit that accepts any state; the difference of its releases contains no noise."""
    found = crash.check("repeated_noise", ("a constant of the module",))
    print(found.finding)
    assert not found.passed
    assert "a constant of the module has changed" in found.finding


@pytest.mark.thorough
def test_a_restart_with_noise_of_its_own_passes(monkeypatch):
    """The distance of two sums with independent noise is near 1 in units of it; false alarms 4e-10."""
    monkeypatch.setattr(crash, "load_state", lambda path, like: like)  # begins anew with its own key
    distance = crash.noise_seen_again(*crash.CHANGES["a constant of the module"], naive=True)
    print(distance)
    assert distance is None or distance > crash._NOISE


@pytest.mark.statistical
@pytest.mark.parametrize("change", crash.CHANGES)
def test_resuming_a_fit_whose_model_has_changed_shows_no_noise_again(change):
    assert crash.check(changes=(change,)).passed


@pytest.mark.statistical
def test_the_audit_catches_reused_noise():
    assert not audit(parts=("resume",), bug="repeated_noise").passed
