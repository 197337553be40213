"""What all tests of screens have in common."""

import pytest

from workbench.widgets.workbench import run_screen


@pytest.fixture(autouse=True)
def no_garbage_is_collected(request, monkeypatch):
    """Screens collect no garbage, which takes .2 s of a process that has run a thousand tests."""
    if request.node.get_closest_marker("thorough") is None:
        monkeypatch.setattr(run_screen, "give_back", lambda: None)
