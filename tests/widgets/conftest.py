"""What all tests of screens have in common."""

import pytest

from workbench.widgets.workbench import run_screen


@pytest.fixture(autouse=True)
def memory_given_back(request, monkeypatch):
    """How often a screen had garbage collected, which takes .2 s of a process that has run a thousand tests: it is not."""
    calls = []
    if request.node.get_closest_marker("thorough") is None:
        monkeypatch.setattr(run_screen, "give_back", lambda: calls.append("given back"))
    return calls
