"""Widgets as the tests find them on a screen."""


def inside(widget):
    """The widget and all that it holds, in the order of the screen."""
    return [
        widget,
        *(found for child in getattr(widget, "children", ()) for found in inside(child)),
    ]


def seen_by_a_user(screen):
    """The screen, after a user has opened and closed each of its parts: some are sent, and in its
    tree, only then.
    """
    for title in screen.tabs._parts:
        screen.tabs.open = title
    screen.tabs.open = ""
    return screen


def settled(screen, patience):
    """The screen, when the consequences of a change are shown. :param patience: seconds."""
    for worker in (
        screen._outlooks,  # asks the next two
        screen._compilations,
        screen._prices,
        screen.outcome._latest,
    ):
        assert worker.wait(patience)
    return screen
