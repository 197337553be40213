"""Exported events, accounted for anew by dp-accounting: nobody may read a smaller epsilon than is
promised.
"""

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tests.privacy.promises import promise
from workbench.privacy import events

ADD, REPLACE, BLANK = (
    NeighboringRelation[name] for name in ("ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL")
)


def read(fit, accountant, relation):
    kept = fit.delta - fit.overflow_delta - fit.noise_delta
    event = events.from_json(events.to_json(events.event_of(fit.accounted())))
    return accountant(neighboring_relation=relation).compose(event).get_epsilon(kept)


@pytest.mark.parametrize(
    ("sampler", "relation", "understood"),
    [
        ("poisson", None, ADD),
        ("shuffle", "replace_one", BLANK),
        ("shuffle", "replace_special", BLANK),
    ],
)
def test_the_pld_accountant_reads_what_is_promised(sampler, relation, understood):
    fit = promise(2.0, sampler, steps=100, relation=relation)
    assert read(fit, PLDAccountant, understood) == pytest.approx(2.0, rel=2e-3)


@pytest.mark.parametrize(
    ("sampler", "relation", "understood", "most"),
    [
        ("poisson", None, ADD, 2.5),
        ("without_replacement", None, REPLACE, 5.0),
        ("shuffle", "replace_one", REPLACE, 2.5),
        ("shuffle", "replace_special", BLANK, 2.5),
    ],
)
def test_the_renyi_accountant_reads_no_less(sampler, relation, understood, most):
    assert (
        2.0
        <= read(promise(2.0, sampler, steps=100, relation=relation), RdpAccountant, understood)
        <= most
    )


def test_replacing_is_read_as_more_where_sensitivities_are_doubled_once_more():
    assert read(promise(2.0, "shuffle", steps=100), PLDAccountant, REPLACE) > 2.0
