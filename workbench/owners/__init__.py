"""One model of the records of several owners, which never meet: each noises and masks its sums by
itself.
"""

from workbench.owners.coordinator import fit
from workbench.owners.masks import code
from workbench.owners.owner import make_key, write_sum
from workbench.owners.planning import Plan, plan
from workbench.owners.rounds import OwnersError, answer, coordinate

__all__ = [
    "OwnersError",
    "Plan",
    "answer",
    "code",
    "coordinate",
    "fit",
    "make_key",
    "plan",
    "write_sum",
]
