"""Audits: the steps that fits take, attacked on the auditor's own records. ``PARTS`` lists the
parts of an audit.

"attack": a canary is a record whose presence the attacker infers from what the run released. The
attack is white-box, as the guarantee allows: the attacker knows the model, the settings and all
other records, and sees the noised sum of every step. Only the minibatches and the noise are secret.
``workbench.auditing.bounds`` says what an attack proves.

The other parts are quick and count nothing. "sensitivity": with minibatch and noise fixed, no
record, however extreme, moves the model's sum by more than the noise is calibrated for.
"accountant": the promised epsilon is not below a lower bound from code that shares nothing with the
accountant.

Planted bugs show that each part can fail. They can only be reached from here. What does not depend
on the user's model or plan, such as rounding, checkpoints and lanes of a sweep, is attacked by the
tests of this package.
"""

from workbench.auditing.bugs import PLANTED_BUGS
from workbench.auditing.request import MODES
from workbench.auditing.result import PARTS, AuditResult, Check
from workbench.auditing.running import audit, audit_release

__all__ = ["MODES", "PARTS", "PLANTED_BUGS", "AuditResult", "Check", "audit", "audit_release"]
