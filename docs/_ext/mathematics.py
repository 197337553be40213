"""Formulas as MathML, which browsers draw by themselves: no script is fetched, so pages can be read
without a network.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_log = logging.getLogger(__name__)


def _drawn(writer: HTML5Translator, node: nodes.Element, *, as_block: bool) -> None:
    try:
        drawn = tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _log.warning("formula %r: %s", node.astext(), error, location=node)
        drawn = f"<code>{writer.encode(node.astext())}</code>"
    writer.body.append(f"<p>{drawn}</p>" if as_block else drawn)
    raise nodes.SkipNode


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    _drawn(writer, node, as_block=False)


def _block(writer: HTML5Translator, node: nodes.math_block) -> None:
    _drawn(writer, node, as_block=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
