"""Widgets as the tests find them on a screen."""


def inside(widget):
    """The widget and all that it holds, in the order of the screen."""
    return [widget, *(found for child in getattr(widget, "children", ()) for found in inside(child))]
