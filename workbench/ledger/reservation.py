"""What fits spend, in the ledger: all planned steps are reserved before the first, and settled to
those taken at the end.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from workbench import _validate
from workbench.data import Dataset
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.ledger import DatasetId, Ledger, LedgerError, LostLedgerError
from workbench.ledger.renyi_filter import Cap
from workbench.privacy.guarantee import Guarantee

__all__ = ["LedgerWarning", "Reservation", "check_ledger", "id_of", "ledger_for", "note_saved"]


class LedgerWarning(UserWarning):
    """Something could not be written into the ledger or beside it. The ledger counts more than was
    spent, never less.
    """


def id_of(dataset: Dataset) -> DatasetId:
    """How a ledger recognises ``dataset``. The fingerprint is computed once for each key."""
    from workbench.ledger.fingerprint import fingerprint

    return DatasetId(
        dataset.name, dataset.unit, functools.cache(lambda key: fingerprint(dataset, key))
    )


def check_ledger(ledger: str | Path | Ledger | Literal[False] | None) -> None:
    """Check the argument ``ledger``. :raises ArgumentError: if it is neither None, False, a path
    nor a ``Ledger``.
    """
    if not (ledger is None or ledger is False or isinstance(ledger, Ledger)):
        _validate.location("ledger", ledger, "must be a path, a Ledger, or False for no ledger.")


def ledger_for(
    dataset: Dataset, ledger: str | Path | Ledger | Literal[False] | None
) -> Ledger | None:
    """The ledger that a fit of ``dataset`` is recorded in; None for public records and for
    ``ledger=False``.

    :param ledger: None for the user's own; a path or a ``Ledger``; False for none.
    :raises ArgumentError: naming ``ledger``.
    """
    check_ledger(ledger)
    if dataset.is_public or ledger is False:
        return None
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


class Reservation:
    """What fits that were planned together spend on the same records.

    :param ledger: None to record nothing, as for public records.
    :param dataset: ``dataset()`` is the id of the data set. :param fits: ``fits()`` are guarantees
        for all planned steps.
    :param plan: ``plan()`` is their digest. Each of the three is called only when it is needed.
        ``Ledger.reserve`` describes the other arguments.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        dataset: Callable[[], DatasetId],
        fits: Callable[[], Sequence[Guarantee]],
        *,
        model: str,
        plan: Callable[[], str] = lambda: "",
        seed: int | None = None,
        over_cap: str | None = None,
        run: Callable[[str], Path] | None = None,
    ) -> None:
        if over_cap is not None:
            _validate.reason("over_cap", over_cap)
        self.ledger = ledger
        self.keys: list[str] = []
        self._dataset, self._fits = functools.cache(dataset), fits
        self._plan, self._over_cap = plan, over_cap
        self._details: dict[str, Any] = {
            "model": model,
            "seed": seed,
            "run": run,
            "over_cap": over_cap,
        }
        self._held: set[str] = set()  # keys of fits that are reserved by this object

    def count_with(self, token: str) -> None:
        """Count these fits together with all that have the same token, whatever records those are
        on.
        """
        dataset = self._dataset
        self._dataset = functools.cache(lambda: dataset()._replace(token=token))

    def check_before(self, check: Callable[[BudgetStatus], None]) -> None:
        """Let ``check`` refuse these fits by what was spent before: called in the transaction that
        reserves them.
        """
        self._details["check"] = check

    def reserve(self, keys: Iterable[str] | None = None) -> None:
        """Reserve all planned steps. On later calls, reserve the rest of fits that have ended.

        :param keys: of the fits that continue, by default all.
        :raises CapError: if a cap does not allow it. :raises LedgerError: if the ledger could not
            be written.
        """
        if self.ledger is None:
            return
        if not self.keys:
            tell = functools.partial(warnings.warn, category=LedgerWarning, stacklevel=4)
            self.keys = self.ledger.reserve(
                self._dataset(), self._fits(), plan=self._plan(), tell=tell, **self._details
            )
            self._held.update(self.keys)
            return
        for key in self.keys if keys is None else keys:
            self.ledger.resume(key, self._over_cap, reserved_here=key in self._held)
            self._held.add(key)

    def continue_fit(self, key: str, taken: int | None = None) -> None:
        """Continue a fit that is already in the ledger; ``reserve`` then reserves the rest of it.

        :param taken: its steps, if it has ended; its process may have died before it could record
            that.
        """
        self.keys = [key]
        if taken is not None:
            self._held.add(key)
            self.settle(taken)

    def mark(self, step: int | None = None, keys: Iterable[str] | None = None) -> None:
        """Record that fits are about to go as far as ``step``, None for their end. :param keys: by
        default all.

        :raises LedgerError: if that could not be written. The fits must not go there then.
        """
        if self.ledger is not None:
            self.ledger.mark(self.keys if keys is None else keys, step)

    def settle(self, taken: int | None, key: str | None = None) -> str:
        """Record that a fit has ended after ``taken`` steps; 0 if nothing was shown, None for all
        that were marked.

        :param key: one of ``keys``; by default the only one.
        :return: what went wrong, or "". A fit that is in the ledger stays reserved then, and all
            its steps count.
        """
        if self.ledger is None or not self.keys:
            return ""
        name = self.keys[0] if key is None else key
        if name not in self._held:
            return ""
        try:
            self.ledger.settle(name, taken)
        except LedgerError as error:
            consequence = "The fit stays reserved, so all its planned steps count."
            if (
                isinstance(error, LostLedgerError) or error.code == "unknown fit"
            ):  # another copy of the file, or none
                consequence = (
                    f"What the fit spent ({self._promise(name)}) is not counted there: put the "
                    "newest copy back."
                )
            warnings.warn(f"{error} {consequence}", LedgerWarning, stacklevel=2)
            return str(error)
        self._held.discard(name)
        return ""

    def _promise(self, key: str) -> str:
        fits = self._fits()
        return fits[self.keys.index(key) if len(fits) > 1 else 0].label(with_delta=True)

    def budget_status(self) -> BudgetStatus | None:
        """What was spent on the records so far; None without a ledger.

        :raises LedgerError: if it cannot be read.
        """
        return None if self.ledger is None else self.ledger.budget_status(self._dataset())

    def keep_cap(self, epsilon: float, delta: float, relation: str, why: str) -> None:
        """Give the records this cap, which is what all fits on them may spend together, unless it
        counts for them already.

        :param relation: as of ``Cap.checked``. :param why: recorded.
        :raises ArgumentError: naming ``cap``, for a cap that no fit keeps, without a ledger, or if
            the ledger has another.
        """
        try:
            cap = Cap.checked(epsilon, delta, relation)
        except _validate.ArgumentError as error:
            raise _validate.ArgumentError(
                "cap", (epsilon, delta), f"its {error.argument} {error.expectation}"
            ) from None
        if self.ledger is None:
            raise _validate.ArgumentError(
                "cap",
                (epsilon, delta),
                "cannot be kept, because ledger=False counts nothing.",
                remedy="Leave one of them out.",
            )
        self.ledger.keep_cap(self._dataset(), cap, why)


def note_saved(ledger: Ledger, key: str, path: str | Path) -> None:
    """Record that the result of a fit was saved in ``path``. Warns if that cannot be recorded."""
    try:
        ledger.note_result(key, path)
    except LedgerError as error:
        warnings.warn(str(error), LedgerWarning, stacklevel=2)
