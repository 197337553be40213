"""An audit: what fits run is run on records of the auditor's own, and attacked. ``PARTS`` lists what is looked at.

"attack": a canary is a record whose presence the attacker tries to tell from what the run released. The attack is
white-box, as the guarantee allows: the attacker knows model, settings and all other records, and sees the noised sum of
every step. Only the minibatches and the noise are secret. ``workbench.auditing.bounds`` says what that proves.

The other parts need no statistics. "paths": the compiled chunks of a fit, its checkpoints and the lanes of a sweep release
what the steps do that were attacked. "sensitivity": with minibatch and noise fixed, no record moves the sum by more than the
noise is for, however it was made. "arrays": record arrays of another size are refused. "accountant": the promised epsilon is
not below a lower bound that shares nothing with the accountant. "resume": noise that was seen is not used again.

The planted bugs are there to show that each part can fail, and can be reached from here only.
"""

from workbench.auditing.bugs import PLANTED_BUGS
from workbench.auditing.result import PARTS, AuditResult, Check
from workbench.auditing.running import MODES, audit, audit_release

__all__ = ["MODES", "PARTS", "PLANTED_BUGS", "AuditResult", "Check", "audit", "audit_release"]
