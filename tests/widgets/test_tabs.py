"""Parts of which one is open."""

import ipywidgets

from workbench.widgets._kit.tabs import Tabs


def shown(parts):
    return [title for title, part in parts.items() if part.layout.display is None]


def test_at_most_one_part_is_open():
    parts, opened = {title: ipywidgets.HTML() for title in ("Plan", "Model", "Data")}, []
    tabs = Tabs(parts, opened.append)
    assert (shown(parts), tabs.open) == ([], "")
    for title in ("Model", "Data", "Data"):
        tabs.open = title
        assert (shown(parts), tabs.open) == ([title], title)
    assert opened == ["Model", "Data"]
    assert [button.value for button in tabs._buttons.values()] == [False, False, True]


def test_pressing_an_open_title_or_asking_for_none_closes_it():
    parts = {title: ipywidgets.HTML() for title in ("Plan", "Model")}
    tabs = Tabs(parts)
    tabs._buttons["Plan"].value = True
    tabs._buttons["Plan"].value = False
    assert (shown(parts), tabs.open) == ([], "")
    tabs.open = "Model"
    tabs.open = ""
    assert (shown(parts), tabs.open) == ([], "")
