"""The guarantee of a cross-validation, of which only the scores are published."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass

from workbench import _schema
from workbench.privacy.guarantee import Guarantee

__all__ = ["CrossValidated"]


@dataclass(frozen=True)
class CrossValidated(Guarantee):
    """The guarantee of scores from several fits, of which each leaves out one fold of the records.

    A record is read by all fits but one, and scored by that one. So what counts is all steps of
    those fits, ``steps``, and one release of scores beside them, whose noise is ``look_noise``.

    :param folds: number of fits.
    """

    _: KW_ONLY
    folds: int

    @classmethod
    def forms(cls) -> dict[str, _schema.Form]:
        """As of ``Guarantee``."""
        return {"folds": _schema.whole(at_least=2)}

    def origin(self) -> list[str]:
        """As of ``Guarantee``."""
        steps = dataclasses.replace(self, look_noise=0.0)
        return [
            f"It covers a cross-validation: of {self.folds} fits, each record is read by "
            f"{self.folds - 1}, whose steps are counted together, and scored once by the one that "
            "did not read it. Only the scores are published: sums over all records with Gaussian "
            f"noise of {self.look_noise:g} times what one of them moves them by.",
            *super(CrossValidated, steps).origin(),
        ]

    def composition(self) -> str:
        """As of ``Guarantee``."""
        return (
            f"The privacy losses of all steps of {self.folds - 1} fits and of one release of "
            "scores are composed by numerical privacy loss distributions, an upper bound."
        )
