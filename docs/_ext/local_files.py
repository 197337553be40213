"""What the pages show and the repository does not keep below docs/: figures, made by
``figures.py``, and the notebooks.

Copies are rewritten only when they differ, so that a second build reads again only what has
changed.
"""

from __future__ import annotations

from pathlib import Path

import figures
from sphinx.application import Sphinx

# the order in which they are meant to be read; others follow by name
ORDER = (
    "quickstart",
    "what_is_differential_privacy",
    "clipping_and_noise",
    "samplers_matter",
    "dp_vi_from_scratch",
    "privacy_utility",
    "patients_not_visits",
    "several_hospitals",
    "hierarchical_models",
    "mixtures",
    "twins",
    "vae",
    "your_own_model",
    "audit",
    "speed",
)

_PAGE = """# Notebooks

Each takes 10 to 20 minutes to read, runs in under two minutes on two cores without a network, and
ends with what was promised and what was not. They lie in `notebooks/`; `workbench lab` opens the
first.
[For lecturers](../for_lecturers.md) orders them into a course.

```{{toctree}}
:maxdepth: 1

{names}
```
"""


def notebooks(folder: Path) -> list[Path]:
    """The notebooks in ``folder`` that have text, in the order of the pages; one without is a
    screen that Voilà serves.
    """
    rank = {name: place for place, name in enumerate(ORDER)}
    readable = [
        path
        for path in folder.glob("*.ipynb")
        if '"cell_type": "markdown"' in path.read_text(encoding="utf-8")
    ]
    return sorted(readable, key=lambda path: (rank.get(path.stem, len(ORDER)), path.stem))


def _write(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _prepare(app: Sphinx) -> None:
    source = Path(app.srcdir)
    if app.config.nb_execution_mode == "off":
        figures.make_missing(source / "_figures")
    else:  # a build with the notebooks' results has the figures' as they are now, too
        figures.make(source / "_figures", list(figures.FIGURES))
    shown = source / "notebooks"
    originals = notebooks(Path(__file__).parents[2] / "notebooks")
    picture = Path(__file__).parents[2] / "notebooks" / "workbench.png"
    for path in (*originals, picture):
        _write(shown / path.name, path.read_bytes())
    _write(
        shown / "index.md", _PAGE.format(names="\n".join(path.stem for path in originals)).encode()
    )
    for path in shown.glob("*.ipynb"):
        if path.name not in {original.name for original in originals}:
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.setup_extension("myst_nb")  # whose setting tells what kind of build it is
    app.connect("builder-inited", _prepare)
    return {"parallel_read_safe": True}
