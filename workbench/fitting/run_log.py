"""What is written down of one fit while it runs: its spend in the ledger, and checkpoints to go on from."""

from __future__ import annotations

import dataclasses
import functools
import os
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench._validate import ArgumentError, location
from workbench.fitting.checkpoints import (
    FORMAT,
    Checkpoint,
    Checkpoints,
    forget,
    holds_fit,
    holds_key,
    new_folder,
    repeats_exactly,
    runs,
)
from workbench.fitting.spec import FitSpec
from workbench.inference.svi import DPVI, DPVIState
from workbench.ledger.fingerprint import secret_key
from workbench.ledger.reservation import LedgerWarning, Reservation, ledger_for, records_of
from workbench.models.registry import source_file
from workbench.privacy.plan import PrivacyPlan

__all__ = ["RunLog"]


class RunLog:
    """The ledger's entry and the checkpoints of one fit.

    :param spec: what is fitted. :param plan: its noise. :param dpvi: its steps, after ``init``.
    :param ledger: see ``spending.ledger_for``. :param over_cap: why caps are not kept, None to keep them.
    :param checkpoint: True for a folder under ``checkpoints.runs()``, False for none, or a folder.
    :param origin: JSON-ready, how whoever asked for the fit can ask for it again.
    :raises ArgumentError: naming ``ledger`` or ``checkpoint``.
    """

    def __init__(
        self,
        spec: FitSpec,
        plan: PrivacyPlan,
        dpvi: DPVI,
        *,
        ledger: Any = None,
        over_cap: str | None = None,
        checkpoint: bool | str | Path = True,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(checkpoint, bool):
            checkpoint = location("checkpoint", checkpoint, "must be True, False or a folder.")
        if not isinstance(origin, Mapping | None):
            raise ArgumentError("origin", origin, "must be a mapping that JSON can hold, or None.")
        self._spec, self._plan, self._dpvi = spec, plan, dpvi
        self._checkpoint, self._origin = checkpoint, dict(origin or {})
        self._keeper: Checkpoints | None = None
        self._digest = ""  # of the plan (``checkpoints.plan_digest``), from ``begin`` or ``adopt`` on
        book = ledger_for(spec.source, ledger)
        self._again = functools.partial(
            RunLog, ledger=book or False, over_cap=over_cap, checkpoint=checkpoint, origin=origin
        )
        self.account = Reservation(
            book,
            lambda: records_of(spec.source),
            lambda: [spec.guarantee(plan, plan.settings.iterations, dpvi.noise_size)],
            model=spec.model.name,
            plan=self._entered_plan,
            seed=plan.settings.seed,
            over_cap=over_cap,
            run=self._folder if checkpoint else None,
        )

    def of(self, dpvi: DPVI) -> RunLog:
        """That of another run of the same plan, with nothing written yet."""
        return self._again(self._spec, self._plan, dpvi)

    def _entered_plan(self) -> str:
        """The plan's digest in the ledger: fits of one plan with one seed count as the same, where they repeat exactly."""
        return self._digest if repeats_exactly(self._spec.device) else f"{self._digest} {uuid.uuid4().hex}"

    @property
    def folder(self) -> Path | None:
        """Where checkpoints of this run are; None before it begins, and where none are written."""
        return None if self._keeper is None else self._keeper.folder

    def _folder(self, key: str | None) -> Path:
        chosen = self._checkpoint
        return new_folder(key) if isinstance(chosen, bool) else chosen.absolute()

    def begin(self, digest: Callable[[], str]) -> None:
        """Reserve what the run spends, or the rest of it; before its first step.

        :param digest: of the plan, asked for once where something is written down.
        :raises CapError: if a cap does not allow it. :raises LedgerError: if it could not be written.
        :raises ArgumentError: naming ``checkpoint``, if the folder holds another fit; or ``key file``, for a folder of one's
            own, where checkpoints could neither name their records nor be sealed.
        """
        if self._keeper is None and not isinstance(self._checkpoint, bool) and holds_fit(self._folder(None)):
            raise ArgumentError(
                "checkpoint", str(self._checkpoint), "holds another fit: name another folder, or resume or delete that fit."
            )  # fmt: skip
        if self._keeper is None and self._checkpoint:
            self._check_place()
        if not self._digest and self._checkpoint:
            self._digest = digest()
        elif not self._digest and self.account.ledger is not None:
            try:
                self._digest = digest()
            except ArgumentError:  # no key to make it with: a plan of its own, which is never taken for another's
                self._digest = uuid.uuid4().hex
        self.account.begin()
        if self._keeper is None and self._checkpoint:
            key = self.account.keys[0] if self.account.keys else None
            iterations = self._plan.settings.iterations
            self._keeper = Checkpoints(self._folder(key), self._facts(key), iterations, self.account.mark)

    def _check_place(self) -> None:
        """Go without checkpoints where the workbench's own folder cannot be used, as in a container: the fit needs none."""
        try:
            secret_key()  # seals them
            if self._checkpoint is True:
                runs().mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.access(runs(), os.W_OK):
                    raise PermissionError(f"{runs()} cannot be written")
        except (OSError, ArgumentError) as error:
            if self._checkpoint is not True:
                raise
            self._checkpoint = False
            warnings.warn(f"No checkpoints are written, so a crash would lose the fit: {error}", LedgerWarning, stacklevel=4)

    def _facts(self, key: str | None) -> dict[str, Any]:
        """What ``resuming`` needs to ask for this fit again; nothing that came from a record but the keyed fingerprint."""
        spec, ledger = self._spec, self.account.ledger
        file = source_file(spec.model)
        return {
            "format": FORMAT,
            "plan": self._digest,
            "fingerprint": spec.fingerprint,
            "is_public": spec.source.is_public,
            "spend": key,
            "ledger": None if ledger is None else str(ledger.path),
            "model": {
                "name": spec.model.name,
                "options": dict(spec.model.options),
                "file": None if file is None else str(file),
            },
            "data": spec.source.name,
            "settings": {
                **dataclasses.asdict(self._plan.settings),
                **spec.run_settings(),
                "device": spec.settings.device,
            },
            "has_optimizer": spec.settings.optimizer is not None,
            "origin": self._origin,
        }

    def before_chunk(self, state: DPVIState, limit: int, progress: Callable[[], Mapping[str, Any]]) -> None:
        """The run is about to go from ``state`` to step ``limit``.

        :param progress: facts about the run so far, JSON-ready.
        :raises OSError: if it cannot be written down, or LedgerError: the chunk must not run then.
        """
        if self._keeper is None:
            self.account.mark()
        else:
            self._keeper.before(state, limit, progress)

    def end(
        self,
        taken: int | None,
        progress: Mapping[str, Any],
        *,
        state: DPVIState | None = None,
        params: Mapping[str, np.ndarray] | None = None,
    ) -> str:
        """The run has ended, or pauses.

        :param taken: steps; None for all that were marked. :param state: to go on from. :param params: released, after all
            steps.
        :return: what could not be written, and where the run's key stays; "" where there is neither.
        """
        if self._keeper is not None:
            self._keeper.close()
        problems = []
        try:
            if self._keeper is not None and params is not None:
                self._keeper.finish(params, progress)
            elif self._keeper is not None and state is not None:
                self._keeper.write(state, int(state.step), progress)
        except (OSError, ArgumentError) as error:
            problems.append(str(error))
        problems.append(self.account.end(taken))
        spec = self._spec
        is_secret = spec.privacy.seed is None and not spec.source.is_public
        if is_secret and self.folder is not None and params is None and holds_key(self.folder):
            problems.append(
                f"The run's secret key stays in {self.folder} until it is resumed or forgotten (workbench resume --forget)."
            )
        return " ".join(problem for problem in problems if problem)

    def adopt(self, checkpoint: Checkpoint, digest: Callable[[], str]) -> None:
        """Go on with the run that ``checkpoint`` is of.

        :param digest: as for ``begin``.
        :raises ArgumentError: naming ``path``, if it is of other records or another plan.
        """
        facts = checkpoint.facts
        if facts["fingerprint"] != self._spec.fingerprint:
            raise ArgumentError(
                "path",
                str(checkpoint.path),
                "is of other records, for which its noise must not be drawn again; begin a new fit.",
            )
        self._digest = digest()
        if facts["plan"] != self._digest:
            raise ArgumentError(
                "path",
                str(checkpoint.path),
                "is of another plan, version, model or kind of machine, which gives other numbers; begin a new fit.",
            )
        if checkpoint.repeats and not repeats_exactly(self._spec.device):
            raise ArgumentError(
                "path",
                str(checkpoint.path),
                f"is of a fit that ended without a stop on {self._spec.device}, which may not repeat steps to the last "
                "bit, so that noise which was seen would be drawn for other sums; begin a new fit.",
            )
        if checkpoint.is_finished:
            forget(checkpoint.path.parent)  # a kill may have come between the release and this
        if facts["spend"] is not None:
            self.account.adopt(facts["spend"], facts["step"] if checkpoint.is_finished else None)
        self._keeper = Checkpoints(checkpoint.path.parent, facts, self._plan.settings.iterations, self.account.mark)
