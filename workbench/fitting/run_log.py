"""What is written about one fit while it runs: what it spends, in the ledger, and checkpoints to
resume from.
"""

from __future__ import annotations

import functools
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench._validate import ArgumentError, location
from workbench.data.look import scales_from_dict
from workbench.fitting import checkpoints
from workbench.fitting.checkpoints import Checkpoint, Checkpoints
from workbench.fitting.digests import FORMAT, of_outcome, repeats_exactly
from workbench.fitting.spec import FitSpec
from workbench.inference.state import DPVIState
from workbench.ledger.fingerprint import secret_key
from workbench.ledger.reservation import LedgerWarning, Reservation, ledger_for
from workbench.models.files import source_file
from workbench.privacy.plan import PrivacyPlan

if TYPE_CHECKING:
    from workbench.ledger.ledger import Ledger

__all__ = ["RunLog"]


class RunLog:
    """What is written about one fit: what it spends, in the ledger, and its checkpoints.

    :param spec: what is fitted.
    :param plan: its sampler and noise.
    :param noise_size: coordinates that get noise.
    :param ledger: as ``ledger.reservation.ledger_for`` takes it.
    :param over_cap: the reason to exceed a cap; None to keep caps.
    :param checkpoint: True for a folder under ``checkpoints.runs()``, False for none, or a folder.
    :param origin: JSON-ready facts by which the caller can ask for the fit again.
    :raises ArgumentError: naming ``ledger``, ``checkpoint`` or ``origin``.
    """

    def __init__(
        self,
        spec: FitSpec,
        plan: PrivacyPlan,
        noise_size: int,
        *,
        ledger: str | Path | Ledger | Literal[False] | None = None,
        over_cap: str | None = None,
        checkpoint: bool | str | Path = True,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(checkpoint, bool):
            checkpoint = location("checkpoint", checkpoint, "must be True, False or a folder.")
        if not isinstance(origin, Mapping | None):
            raise ArgumentError("origin", origin, "must be a mapping that JSON can hold, or None.")
        self._spec, self._plan = spec, plan
        self._checkpoint, self._origin = checkpoint, dict(origin or {})
        self._keeper: Checkpoints | None = None
        self.hid_reads = (
            True  # whether all steps so far hid their reads from an observer of the storage
        )
        self._digest = ""  # ``Digests.of_steps``, once ``begin`` or ``continue_from`` was called
        book = ledger_for(spec.source, ledger)
        self._again = functools.partial(
            RunLog,
            spec,
            plan,
            noise_size,
            ledger=book or False,
            over_cap=over_cap,
            checkpoint=checkpoint,
            origin=origin,
        )
        self.reservation = Reservation(
            book,
            lambda: spec.columns.dataset_id,
            lambda: [spec.guarantee(plan, plan.settings.iterations, noise_size)],
            model=spec.model.name,
            plan=self._digest_in_ledger,
            seed=plan.settings.seed,
            over_cap=over_cap,
            run=self._folder if checkpoint else None,
        )

    def again(self) -> RunLog:
        """A fresh log for another run of the same plan."""
        return self._again()

    def _digest_in_ledger(self) -> str:
        """The plan's digest in the ledger, by which fits of one plan and seed count once where they
        repeat exactly.
        """
        return (
            self._digest
            if repeats_exactly(self._spec.device)
            else f"{self._digest} {uuid.uuid4().hex}"
        )

    @property
    def folder(self) -> Path | None:
        """The folder of this run's checkpoints; None before it begins, and if none are written."""
        return None if self._keeper is None else self._keeper.folder

    def _folder(self, key: str | None) -> Path:
        chosen = self._checkpoint
        return checkpoints.new_folder(key) if isinstance(chosen, bool) else chosen.absolute()

    def begin(self, digest: Callable[[], str], anywhere: Callable[[], str]) -> None:
        """Reserve what the run spends, or the rest of it, before its first step.

        :param digest: returns the plan's digest; called once, if something is written.
        :param anywhere: returns that of any devices; called once, if checkpoints are written.
        :raises CapError: if a cap does not allow it.
        :raises LedgerError: if it could not be written.
        :raises ArgumentError: naming ``checkpoint``, if the folder holds another fit; or ``key
            file``, if the key that checkpoints in a chosen folder are sealed with cannot be used.
        """
        if (
            self._keeper is None
            and not isinstance(self._checkpoint, bool)
            and checkpoints.holds_fit(self._folder(None))
        ):
            raise ArgumentError(
                "checkpoint",
                str(self._checkpoint),
                "holds another fit: name another folder, or resume or delete that fit.",
            )
        if self._keeper is None and self._checkpoint:
            self._check_place()
        if not self._digest and self._checkpoint:
            self._digest = digest()
        elif not self._digest and self.reservation.ledger is not None:
            try:
                self._digest = digest()
            except (
                ArgumentError
            ):  # without the key file there is no digest; a random one never matches another plan's
                self._digest = uuid.uuid4().hex
        self.reservation.reserve()
        if self._keeper is None and self._checkpoint:
            key = self.reservation.keys[0] if self.reservation.keys else None
            iterations = self._plan.settings.iterations
            facts = {**self._facts(key), "anywhere": anywhere()}
            self._keeper = Checkpoints(self._folder(key), facts, iterations, self.reservation.mark)

    def _check_place(self) -> None:
        """Disable checkpoints, with a warning, if the default folder is not writable, as in a
        container.
        """
        try:
            secret_key()  # seals them
            if self._checkpoint is True:
                checkpoints.make_runs()
        except (OSError, ArgumentError) as error:
            if self._checkpoint is not True:
                raise
            self._checkpoint = False
            warnings.warn(
                f"No checkpoints are written, so a crash would lose the fit: {error}",
                LedgerWarning,
                stacklevel=4,
            )

    def _facts(self, key: str | None) -> dict[str, Any]:
        """What ``resuming`` needs to prepare this fit again. Of the records it holds only the keyed
        fingerprint.
        """
        spec, ledger = self._spec, self.reservation.ledger
        file = source_file(spec.model)
        return {
            "format": FORMAT,
            "plan": self._digest,
            "fingerprint": spec.fingerprint,
            "references": spec.source.references,
            "is_public": spec.source.is_public,
            "hides_reads": spec.hides_reads,
            "spend": key,
            "ledger": None if ledger is None else str(ledger.path),
            "model": {
                "name": spec.model.name,
                "options": dict(spec.model.options),
                "file": None if file is None else str(file),
            },
            "data": spec.source.name,
            "settings": {
                **self._plan.settings.as_arguments(),
                **spec.run_settings(),
                **self._left_to_look(),
                "device": spec.settings.device,
            },
            "has_optimizer": spec.settings.optimizer is not None,
            "origin": self._origin,
        }

    def _left_to_look(self) -> dict[str, None]:
        """Settings that nobody chose, and that are chosen after a look of the run: a fit that is
        taken up before must choose them again.
        """
        names = ("clip", "learning_rate", "average") if self._spec.privacy.look else ()
        return {name: None for name in names if getattr(self._spec.request, name) is None}

    def after_look(self, facts: Mapping[str, Any]) -> FitSpec:
        """The fit with what the look of a checkpoint has learned; as it was, without a look.

        :param facts: of the checkpoint.
        """
        spec = self._spec
        if not spec.privacy.look or not (facts["scales"] or facts["learned"]):
            return spec
        return spec.columns.learned(spec, scales_from_dict(facts["scales"]), facts["learned"])

    def _outcome(self, facts: Mapping[str, Any]) -> int:
        """``digests.of_outcome`` of this fit with what a checkpoint's look has learned."""
        spec, plan = self.after_look(facts), self._plan
        return of_outcome(spec, plan if spec is self._spec else spec.plan_after_look(plan))

    def before_chunk(
        self, state: DPVIState, limit: int, progress: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Write down that the run is about to go from ``state`` to step ``limit``.

        :param progress: returns JSON-ready facts about the run so far.
        :raises OSError: if a checkpoint cannot be written; the chunk must not run then.
        :raises LedgerError: if the ledger cannot be written; the chunk must not run then.
        """
        if self._keeper is None:
            self.reservation.mark()
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
        """Record that the run has ended or paused.

        :param taken: number of steps taken; None for all that were marked.
        :param progress: JSON-ready facts about the run.
        :param state: the state to resume from.
        :param params: the released parameters, after all steps.
        :return: what could not be written, and where the run's key stays; "" if there is neither.
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
        problems.append(self.reservation.settle(taken))
        spec = self._spec
        is_secret = spec.privacy.seed is None and not spec.source.is_public
        if (
            is_secret
            and self.folder is not None
            and params is None
            and checkpoints.holds_key(self.folder)
        ):
            problems.append(
                f"The run's secret key stays in {self.folder}: resume the run, or delete it with "
                "workbench resume --forget."
            )
        return " ".join(problem for problem in problems if problem)

    def continue_from(
        self, checkpoint: Checkpoint, digest: Callable[[], str], anywhere: Callable[[], str]
    ) -> None:
        """Continue the run of ``checkpoint``.

        :param digest: as for ``begin``. :param anywhere: as for ``begin``; called on other devices
            than the run's.
        :raises ArgumentError: naming ``path``, if it belongs to other records or another plan;
            ``data``, if the reads of the steps to come would show what those so far did not.
        """
        if mismatch := self._mismatch(checkpoint, digest, anywhere):
            raise ArgumentError("path", str(checkpoint.path), f"belongs to {mismatch}.")
        facts = checkpoint.facts
        self.hid_reads = facts["hides_reads"]
        if self.hid_reads and not self._spec.hides_reads and not checkpoint.is_finished:
            raise ArgumentError(
                "data",
                self._spec.source.name,
                "was read so far so that an observer of the storage does not learn which "
                "records are in a minibatch; reopen the encrypted file with the same reading=.",
            )
        moved = facts["plan"] != self._digest
        if not self._checkpoint:  # another process writes
            return
        if checkpoint.is_finished:
            # the process may have been killed after the release was written
            checkpoints.forget(checkpoint.path.parent)
        if facts["spend"] is not None:
            self.reservation.continue_fit(
                facts["spend"], facts["step"] if checkpoint.is_finished else None
            )
        if moved:
            facts = {**facts, **self._facts(facts["spend"]), "origin": facts["origin"]}
        folder, iterations = checkpoint.path.parent, self._plan.settings.iterations
        self._keeper = Checkpoints(folder, facts, iterations, self.reservation.mark, moved)

    def _mismatch(
        self, checkpoint: Checkpoint, digest: Callable[[], str], anywhere: Callable[[], str]
    ) -> str:
        """Why ``checkpoint`` cannot be continued by this fit; "" if it can."""
        facts, spec = checkpoint.facts, self._spec
        if (
            facts["fingerprint"] != spec.fingerprint
            or facts["references"] != spec.source.references
        ):
            return (
                "a fit of other records, to which the same noise must not be added; start a new fit"
            )
        self._digest = digest()
        if facts["plan"] != self._digest and facts["anywhere"] != anywhere():
            return (
                "another plan, version, model or kind of machine, so the result would differ; "
                "start a new fit"
            )
        if facts["outcome"] != self._outcome(facts):
            return (
                "a fit that chose other settings after its look, so the same noise would be added "
                "to other sums; start a new fit"
            )
        if facts["plan"] != self._digest and checkpoint.repeats:
            return (
                "a fit that was interrupted on other devices, which round differently, so the "
                "same noise could be added to other sums: resume it on the original devices"
            )
        if (
            facts["plan"] != self._digest
            and spec.privacy.seed is not None
            and self.reservation.ledger is not None
        ):
            return (
                "a fit on other devices, which its ledger has as one that repeats exactly from "
                "its seed: resume it on the original devices"
            )
        if checkpoint.repeats and not repeats_exactly(spec.device):
            return (
                f"a fit that was interrupted on {spec.device}, which may not repeat steps to the "
                "last bit, so the same noise could be added to other sums; start a new fit"
            )
        return ""
