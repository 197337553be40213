"""Parts of which one is open."""

import ipywidgets

from workbench.widgets._kit.late import send, unsent
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


def test_a_late_part_is_sent_when_it_is_first_opened():
    with unsent():
        parts = {title: ipywidgets.VBox([ipywidgets.HTML()]) for title in ("Plan", "Model")}
    send(parts["Plan"])
    tabs = Tabs(parts, late=["Model"])
    assert (parts["Plan"].comm is not None, parts["Model"].comm, parts["Model"].children[0].comm) == (True, None, None)
    for _ in range(2):
        tabs.open = "Model"
        assert tabs.view.children[1:] == (parts["Plan"], parts["Model"])
        assert parts["Model"].children[0].comm is not None
        tabs.open = ""
    assert ipywidgets.HTML().comm is not None  # others are sent when they are made


def test_a_change_while_a_widget_is_sent_is_sent_too(monkeypatch):
    with unsent():
        widget, sent = ipywidgets.HTML("before"), []
    monkeypatch.setattr(ipywidgets.HTML, "send_state", lambda self, key=None: sent.append(self.value))
    created = ipywidgets.widgets.widget.comm.create_comm

    def changes_it(**arguments):
        if arguments["data"]["state"].get("value") == "before":
            widget.value = "after"  # as by another thread
        return created(**arguments)

    monkeypatch.setattr(ipywidgets.widgets.widget.comm, "create_comm", changes_it)
    send(widget)
    assert sent == ["after"]
