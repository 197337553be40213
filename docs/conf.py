"""How Sphinx builds the documentation.

The notebooks are stored without outputs. A quick build shows them as they are stored; with
``DOCS_NOTEBOOKS=cache``, which ``make docs`` sets, they are executed first and the results kept in
``_build/.jupyter_cache`` until a notebook changes.
"""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "_ext")]

from workbench import __version__  # noqa: E402

project = "DP-VI workbench"
author = "the authors of the DP-VI workbench"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "myst_nb", "sphinx_design", "sphinx_copybutton"]
extensions += ["commands", "docstrings", "local_files", "mathematics"]  # ours, in _ext
exclude_patterns = ["_build"]
templates_path: list[str] = []
nitpicky = True

# ---- the code ------------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_display_short_literal_types = True
add_module_names = False
python_maximum_signature_line_length = 100
smartquotes = False  # "poisson" is a value to be typed
# Types of other packages and of Python are named without a link: no inventory of theirs can be
# fetched offline.
_OTHERS = (
    "jax|jaxlib|numpy|np|jnp|numpyro|optax|pandas|pd|matplotlib|arviz|xarray|ipywidgets|dask|"
    "distributed|equinox"
)
_PYTHON = "collections|concurrent|datetime|pathlib|types|typing|threading|sqlite3|argparse"
nitpick_ignore_regex = [
    ("py:.*", rf"({_OTHERS}|{_PYTHON})\..*"),
    ("py:class", "ArrayLike|Axes|AutoGuide|Dtype|Figure|PyTree|Records|Trace_ELBO"),
]
# Ledger is a class in two rooms; names that lead nowhere are of other kinds
suppress_warnings = ["ref.python"]
# types of ours that no caller makes or reads, one by one, so that a new one is noticed
nitpick_ignore = (
    [
        ("py:class", f"workbench.{name}")
        for name in (
            "data.columns.Contrast",
            "fitting.checkpoints.Checkpoint",
            "fitting.estimation.Estimation",
            "fitting.fits.Frame",
            "fitting.functions.CompiledFunctions",
            "fitting.run_log.RunLog",
            "fitting.spec.FitSpec",
            "inference.adaptive_clip.Adaptive",
            "ledger.renyi_filter.Used",
            "inference.running_moments.Moments",
            "inference._optimizers.Optimizer",
            "inference.units.UnitRows",
            "inference.sharding.Shards",
            "inference.compiling.Compiling",
            "record_model.model.RecordModel",
            "plots.curves.Point",
            "results.fit_result.Scores",
            "results.scores.Scores",
            "sampling.random_allocation.PreparedEpochs",
            "sweeps.grid.Cell",
            "sweeps.grid.Grid",
            "sweeps.store.Store",
            "widgets.sweep.settings.SweepSettings",
            "widgets.workbench.settings.Settings",
            *(
                f"teaching.{name}"
                for name in (
                    "accounts.PrivacyScreen",
                    "accounts.CompositionScreen",
                    "steps.ClippingScreen",
                    "steps.SamplersScreen",
                )
            ),
        )
    ]
    + [("py:exc", "FormError"), ("py:exc", "RecordsError")]
    + [
        ("py:class", name)  # as fields have them
        for name in (
            "Columns",
            "Frame",
            "Loaded",
            "Params",
            "Path",
            "PriorLine",
            "RecordModel",
            "SavedRun",
            "Scores",
            "Stored",
            "Used",
            "adaptive_clip.Adaptive",
            "registry.AnyModel",
            "running_moments.Moments",
        )
    ]
)

# ---- the pages -----------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
nb_execution_mode = os.environ.get("DOCS_NOTEBOOKS", "off")
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
if nb_execution_mode != "off":
    # the notebooks' fits leave nothing in the folders of whoever builds the documentation
    os.environ["WORKBENCH_STATE"] = tempfile.mkdtemp(prefix="docs-state-")
    os.environ.pop("WORKBENCH_LEDGER", None)

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "DP-VI workbench"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["workbench.css"]
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
