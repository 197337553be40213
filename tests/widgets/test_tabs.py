"""Parts of which one is open."""

import asyncio

import ipywidgets

from workbench.widgets.kit.fields import close_all
from workbench.widgets.kit.late import send, unsent
from workbench.widgets.kit.tabs import Tabs


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
    assert (
        parts["Plan"].comm is not None,
        parts["Model"].comm,
        parts["Model"].children[0].comm,
    ) == (True, None, None)
    for _ in range(2):
        tabs.open = "Model"
        assert tabs.view.children[1:] == (parts["Plan"], parts["Model"])
        assert parts["Model"].children[0].comm is not None
        tabs.open = ""
    assert ipywidgets.HTML().comm is not None  # others are sent when they are made


def test_a_change_while_a_widget_is_sent_is_sent_too(monkeypatch):
    with unsent():
        widget, sent = ipywidgets.HTML("before"), []
    monkeypatch.setattr(
        ipywidgets.HTML, "send_state", lambda self, key=None: sent.append(self.value)
    )
    created = ipywidgets.widgets.widget.comm.create_comm

    def changes_it(**arguments):
        if arguments["data"]["state"].get("value") == "before":
            widget.value = "after"  # as by another thread
        return created(**arguments)

    monkeypatch.setattr(ipywidgets.widgets.widget.comm, "create_comm", changes_it)
    send(widget)
    assert sent == ["after"]


def test_closing_closes_what_was_made_in_a_part_that_was_never_opened():
    before = set(ipywidgets.widgets.widget._instances)
    with unsent():
        part, child = ipywidgets.VBox(), ipywidgets.HTML()
        tabs = Tabs({"Model": part}, late=["Model"])
    send(tabs.view)
    part.children = (child, ipywidgets.HTML("by a thread, which sends it"))
    tabs.close()
    close_all(tabs.view)
    assert set(ipywidgets.widgets.widget._instances) == before


def test_what_is_scheduled_meanwhile_makes_widgets_as_usual():
    async def make():
        with unsent():
            later = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(lambda: later.set_result(ipywidgets.HTML()))
        return await later

    assert asyncio.run(make()).comm is not None
