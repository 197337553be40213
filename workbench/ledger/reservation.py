"""The account of one fit: what it reserves in the ledger before its first step, and settles to when it has ended."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.ledger import Ledger, LedgerError, Records
from workbench.privacy.guarantee import Guarantee

__all__ = ["LedgerWarning", "Reservation", "check_ledger", "ledger_for", "note_saved", "records_of"]


class LedgerWarning(UserWarning):
    """Something could not be written into the ledger or beside it; what it says is more than was spent, never less."""


def records_of(dataset: Dataset) -> Records:
    """What a ledger is told about ``dataset``; fingerprint and sketch are made once for each key."""
    from workbench.ledger.fingerprint import fingerprint
    from workbench.ledger.overlap import sketch

    return Records(
        dataset.name,
        dataset.unit,
        functools.cache(lambda key: fingerprint(dataset, key)),
        functools.cache(lambda key: sketch(dataset, key)),
    )


def check_ledger(ledger: Any) -> None:
    """:raises ArgumentError: naming ``ledger``, if it is neither None, False, a path nor a ``Ledger``."""
    if not (ledger is None or ledger is False or isinstance(ledger, Ledger)):
        _validate.location("ledger", ledger, "must be a path, a Ledger, or False to enter fits nowhere.")


def ledger_for(dataset: Dataset, ledger: Any) -> Ledger | None:
    """The ledger that a fit of ``dataset`` is entered in; None for public records, and where it is not wanted.

    :param ledger: None for the user's own; a path or a ``Ledger``; False for none.
    :raises ArgumentError: naming ``ledger``.
    """
    check_ledger(ledger)
    if dataset.is_public or ledger is False:
        return None
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


class Reservation:
    """What fits that were settled together spend on the same records.

    :param ledger: None to enter nothing, as for public records.
    :param records: what it is told about the data set. :param fits: guarantees for all planned steps. :param plan: digest.
        Each is asked for once, where it is needed. See ``Ledger.reserve`` for the others.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        records: Callable[[], Records],
        fits: Callable[[], Sequence[Guarantee]],
        *,
        model: str,
        plan: Callable[[], str] = lambda: "",
        seed: int | None = None,
        over_cap: str | None = None,
        run: Callable[[str], Path] | None = None,
    ) -> None:
        if over_cap is not None:
            _validate.text("over_cap", over_cap, "must say why, in words that others will read.", no_answer=True)
        self.ledger = ledger
        self.keys: list[str] = []
        self._records, self._fits = functools.cache(records), fits
        self._plan, self._over_cap = plan, over_cap
        self._details: dict[str, Any] = {"model": model, "seed": seed, "run": run, "over_cap": over_cap}
        self._held: set[str] = set()  # keys of fits that are reserved by this object

    def begin(self, keys: Iterable[str] | None = None) -> None:
        """Reserve all planned steps; once that was done, of fits that ended the rest of them.

        :param keys: of the fits that go on, by default all.
        :raises CapError: if a cap does not allow it. :raises LedgerError: if that could not be written.
        """
        if self.ledger is None:
            return
        if not self.keys:
            tell = functools.partial(warnings.warn, category=LedgerWarning, stacklevel=4)
            self.keys = self.ledger.reserve(self._records(), self._fits(), plan=self._plan(), tell=tell, **self._details)
            self._held.update(self.keys)
            return
        for key in self.keys if keys is None else keys:
            self.ledger.resume(key, self._over_cap, held=key in self._held)
            self._held.add(key)

    def adopt(self, key: str, taken: int | None = None) -> None:
        """Go on with a fit that the ledger has already; ``begin`` then reserves the rest of it.

        :param taken: steps, of one that has ended, whose process may have died before it could say so.
        """
        self.keys = [key]
        if taken is not None:
            self._held.add(key)
            self.end(taken)

    def mark(self, step: int | None = None, keys: Iterable[str] | None = None) -> None:
        """Fits are about to go as far as ``step``, None for their end. :param keys: by default all.

        :raises LedgerError: if that could not be written: they must not go there.
        """
        if self.ledger is not None:
            self.ledger.mark(self.keys if keys is None else keys, step)

    def end(self, taken: int | None, key: str | None = None) -> str:
        """A fit has ended after ``taken`` steps; 0 where nobody saw anything of it, None for all that were marked.

        :param key: of ``keys``; by default the only one.
        :return: what went wrong, "" where nothing did. The fit then stays reserved, which counts all its steps.
        """
        if self.ledger is None or not self.keys:
            return ""
        name = self.keys[0] if key is None else key
        if name not in self._held:
            return ""
        try:
            self.ledger.settle(name, taken)
        except LedgerError as error:
            warnings.warn(f"{error} The fit stays reserved: all its planned steps count.", LedgerWarning, stacklevel=2)
            return str(error)
        self._held.discard(name)
        return ""

    def standing(self) -> BudgetStatus | None:
        """What was spent on the records so far; None where no ledger is kept.

        :raises LedgerError: if it cannot be read.
        """
        return None if self.ledger is None else self.ledger.standing(self._records())


def note_saved(ledger: Ledger, key: str, path: str | Path) -> None:
    """The result of a fit was saved in ``path``; warns where that cannot be entered."""
    try:
        ledger.note_result(key, path)
    except LedgerError as error:
        warnings.warn(str(error), LedgerWarning, stacklevel=2)
