"""Users' own names in figures: dollar signs are not mathematics, and no name breaks a picture."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from tests.conftest import some_of
from tests.plots.figures import summary
from workbench import plots
from workbench.plots.style import plain

NAMES = ["fee_$_and_tax_$", "$100%_of_$", r"$\frac{", r"a\$b$c$", "$x^{2$", "{$}_^$"]
GENERATOR = np.random.default_rng(5)
DRAWS = GENERATOR.normal(size=(60, len(NAMES)))
TABLE = pd.DataFrame(
    {"method": NAMES * 2, "epsilon": [1.0, 2.0] * len(NAMES), "auc": 0.8, "clip": 1.0}
)
PLANE = np.zeros((2, 2, 4, 4))

FIGURES = {
    "answers": lambda: plots.answers_figure(
        {NAMES[0]: summary(len(NAMES), NAMES)}, "covered", NAMES[1]
    ),
    "forest": lambda: plots.forest_figure(summary(len(NAMES), NAMES), "covered", NAMES[0]),
    "pairs": lambda: plots.pair_figure(dict(zip(NAMES, DRAWS.T, strict=True)), "covered"),
    "coefficients": lambda: plots.coefficients_figure(NAMES, DRAWS, "covered"),
    "mixture": lambda: plots.mixture_figure(
        np.ones(2) / 2,
        DRAWS[:2],
        np.ones_like(DRAWS[:2]),
        "covered",
        names=NAMES,
        components=NAMES[:2],
    ),
    "groups": lambda: plots.group_effects_figure(
        DRAWS, np.arange(len(NAMES)) * 1.0, "covered", names=NAMES
    ),
    "points": lambda: plots.points_check_figure(
        DRAWS[:20], DRAWS.reshape(3, 20, -1), NAMES, label="covered"
    ),
    "utility": lambda: plots.utility_figure(
        TABLE, "auc", "public data", title=NAMES[0], ylabel=NAMES[0], baselines={NAMES[1]: 0.9}
    ),
    "trend": lambda: plots.trend_figure(
        TABLE, "epsilon", "auc", "method", "public data", title=NAMES[0]
    ),
    "plates": lambda: plots.plate_figure(
        {
            "sample_sample": {"a$b$": []},
            "sample_param": {},
            "param_constraint": {},
            "sample_dist": {"a$b$": "Normal"},
            "plate_sample": {"p$q$": ["a$b$"]},
            "observed": [],
        },
        "t$^{$",
    ),
    "plane": lambda: plots.latent_grid_figure(PLANE, "covered", names=NAMES[1:3], title=NAMES[0]),
    "images": lambda: plots.image_grid_figure(PLANE[0], "covered", title=NAMES[0]),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_escaped_name_is_shown_as_it_is(name):
    text = Text(text=plain(name))
    shown, is_mathematics = text._preprocess_math(text.get_text())
    assert not is_mathematics
    assert shown == name.replace(r"\$", "$")
    assert plain(plain(name)) == plain(name)


@pytest.mark.parametrize("figure", some_of(list(FIGURES), 3))
def test_no_name_in_a_figure_is_read_as_mathematics(figure):
    drawn = FIGURES[figure]()
    assert plots.png(drawn).startswith(b"\x89PNG")
    texts = [
        text
        for text in drawn.findobj(Text)
        if "$" in text.get_text() and r"\mathdefault" not in text.get_text()
    ]
    assert texts
    for text in texts:
        assert not text._preprocess_math(text.get_text())[1], text.get_text()
