"""The directive ``workbench-commands``: the reference of the command line, made from its argparse
parsers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from workbench.cli.main import parser


def command_parsers() -> Iterator[argparse.ArgumentParser]:
    """Every command that can be called, inner ones after those around them."""
    yield from _below(parser())


def _below(above: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in above._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from _below(inner)


def _described(command: argparse.ArgumentParser) -> list[str]:
    """reStructuredText of one command."""
    inner = command.prog.count(" ") > 1
    lines = [
        command.prog,
        ("~" if inner else "-") * len(command.prog),
        "",
        f".. program:: {command.prog}",
        "",
    ]
    lines += [_escaped(command.description or ""), ""]
    for action in command._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            lines += ["Actions: " + ", ".join(f"``{name}``" for name in action.choices) + ".", ""]
            continue
        forms = action.option_strings or [str(action.metavar or action.dest)]
        value = ""
        if action.option_strings and action.nargs != 0:
            metavar = action.metavar or action.dest.upper()
            value = f" {metavar}" + (" ..." if action.nargs in ("+", "*") else "")
        lines += [f".. option:: {', '.join(form + value for form in forms)}", ""]
        required = "; required" if action.required and action.option_strings else ""
        lines += [f"   {_escaped(action.help or '')}{required}", ""]
    return lines


def _escaped(text: str) -> str:
    text = text.replace("%%", "%").replace("\\", "\\\\")
    for mark in "*`|_":
        text = text.replace(mark, f"\\{mark}")
    return text


class Commands(SphinxDirective):
    """``workbench-commands``: a section a command; to be used in reStructuredText."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        lines = [line for command in command_parsers() for line in _described(command)]
        source = StringList(lines, source="workbench/cli/main.py")
        holder = nodes.section()
        holder.document = self.state.document
        nested_parse_with_titles(self.state, source, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("workbench-commands", Commands)
    return {"parallel_read_safe": True}
