"""Audits: the code that fits run, attacked on the auditor's own records. ``PARTS`` lists the parts of an audit.

"attack": a canary is a record whose presence the attacker infers from what the run released. The attack is white-box, as
the guarantee allows: the attacker knows the model, the settings and all other records, and sees the noised sum of every
step. Only the minibatches and the noise are secret. ``workbench.auditing.bounds`` says what an attack proves.

The other parts are quick. "paths": a fit's compiled chunks, its checkpoints and the lanes of a sweep release the same as the
attacked steps. "sensitivity": with minibatch and noise fixed, no record, however extreme, moves the sum by more than the
noise is calibrated for. "arrays": record arrays of another size are refused. "reachable": the last bits of a noised sum, and
of parameters after a step, do not tell which records they are of; only this part counts guesses as the attack does.
"summation": the noise pays for rounding in the sums of large minibatches. "accountant": the promised epsilon is not below a
lower bound from code that shares nothing with the accountant. "resume": released noise is not used again.

Planted bugs show that each part can fail. They can only be reached from here.
"""

from workbench.auditing.bugs import PLANTED_BUGS
from workbench.auditing.request import MODES
from workbench.auditing.result import PARTS, AuditResult, Check
from workbench.auditing.running import audit, audit_release

__all__ = ["MODES", "PARTS", "PLANTED_BUGS", "AuditResult", "Check", "audit", "audit_release"]
