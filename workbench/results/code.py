"""The Python code that repeats a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.privacy.plan import without_flags_of_clip

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["code_of"]

# settings that decide about the result, with the default of those that are left out where they have
# it: those of the table in fitting/settings.py, which stands above this room, so a test compares
# them
_SETTINGS = (
    "epsilon",
    "delta",
    "iterations",
    "sampling_rate",
    "sampler",
    "relation",
    "clip",
    "clipping",
    "num_records",
    "estimator",
    "learning_rate",
    "average",
    "draws",
    "seed",
    "evaluate_private",
    "covered_scores",
    "look",
)
_GROUPS = {
    "Privacy": (
        *("sampler", "relation", "clipping", "num_records"),
        *("evaluate_private", "covered_scores", "look"),
    ),
    "Training": ("estimator", "average", "draws", "optimizer"),
}
_DEFAULTS = {
    "sampler": "poisson",
    "clipping": "flat",
    "estimator": None,
    "draws": 1000,
    "seed": None,
    "evaluate_private": False,
    "covered_scores": False,
    "learning_rate": None,
}


def code_of(result: FitResult) -> str:
    """Code that repeats the fit of ``result``: on the same records with fresh noise, or with the
    same if it had a seed.

    What a result does not know, such as a table of the user's own, is left for the reader to fill
    in.
    """
    from workbench.models.builders import BUILDERS

    settings = without_flags_of_clip(result.settings)
    explicit = {name: settings[name] for name in _SETTINGS if name in settings}
    if not result.guarantee.is_private:
        explicit = {name: value for name, value in explicit.items() if value is not None} | {
            "private": False
        }
    explicit = {
        name: value
        for name, value in explicit.items()
        if name not in _DEFAULTS or value != _DEFAULTS[name]
    }
    if result.model not in BUILDERS and not explicit.get("look"):
        explicit.pop("look", None)  # only a formula looks by default
    texts = {name: repr(value) for name, value in explicit.items()}
    if result.data["scales"] and not settings["look"]:
        texts["look"] = "..."  # the look whose scales it had
    note = ""
    if settings.get("learning_rate") is None and settings.get("estimator") != "statistics":
        texts["optimizer"] = "..."
        note = "  # the optimiser of this fit was not Adam with a learning rate"
    grouped = {name for names in _GROUPS.values() for name in names}
    arguments = "".join(
        f"    {name}={text},\n" for name, text in texts.items() if name not in grouped
    )
    for group, names in _GROUPS.items():
        if inside := ", ".join(f"{name}={texts[name]}" for name in names if name in texts):
            arguments += (
                f"    {group.lower()}=wb.{group}({inside}),{note if 'optimizer' in names else ''}\n"
            )
    lines = ["import workbench as wb", "", *_data(result)]
    if "candidates" in settings:
        names = ("epsilon", "delta", "runs", "by")
        arguments = "".join(f"    {name}={settings[name]!r},\n" for name in names)
        chosen = f"candidates = ...  # {settings['candidates']} of them, of which it is one"
        return "\n".join(
            [*lines, chosen, f"\nresult = wb.choose(\n    candidates,\n    data,\n{arguments})"]
        )
    lines += _model(result)
    return "\n".join(lines) + f"\nresult = wb.fit(\n    model,\n    data,\n{arguments})"


def _data(result: FitResult) -> list[str]:
    from workbench.data import info, names

    name, source = result.data["name"], result.data["source"]
    if name in names() and info(name).source == source:
        return [f"data = wb.data.load({name!r})"]
    most = result.guarantee.max_rows
    of_units = "" if most is None else f", unit_id= that says whose row it is, and max_rows={most}"
    return [
        f"data = ...  # the data set {name!r}, with the bounds and categories declared "
        f"above{of_units}"
    ]


def _model(result: FitResult) -> list[str]:
    from workbench import models
    from workbench.models.builders import BUILDERS

    if result.model in BUILDERS:
        learned = ("marginals",) if result.settings["look"] else ()
        options = {name: v for name, v in result.model_options.items() if name not in learned}
        return [f"model = wb.models.{result.model}({', '.join(_keywords(options))})"]
    if result.model not in models.names():
        return [f"model = ...  # the model {result.model!r}, which is not in the gallery"]
    defaults = models.get(result.model).options
    changed = {
        name: value
        for name, value in result.model_options.items()
        if defaults.get(name, _MISSING) != value
    }
    return [f"model = wb.models.get({', '.join([repr(result.model), *_keywords(changed)])})"]


def _keywords(values: dict[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items()]


_MISSING = object()
