"""One model of the records of several owners, which never meet: a single release of sums that each
owner noises and masks by itself.
"""

from workbench.owners.coordinator import fit
from workbench.owners.masks import code
from workbench.owners.owner import make_key, write_sum
from workbench.owners.planning import Plan, plan

__all__ = ["Plan", "code", "fit", "make_key", "plan", "write_sum"]
