import pytest

from workbench._validate import ArgumentError
from workbench.privacy import compare

# MNIST of Sasy and Ohrimenko 2019, table 2: minibatches of 600 of 60 000, 100 epochs, sigma 6,
# delta 1e-5
PUBLISHED = {"sampling_rate": 0.01, "noise_multiplier": 6.0, "steps": 10_000, "delta": 1e-5}


@pytest.fixture(scope="module")
def table():
    return compare(**PUBLISHED)


def value(table, sampler, relation, accountant):
    rows = table[
        (table.sampler == sampler) & (table.relation == relation) & (table.accountant == accountant)
    ]
    assert len(rows) == 1
    return rows.epsilon.iloc[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "relation", "accountant", "published"),
    [
        pytest.param(
            "shuffle", "replace_special", "rdp_classic", 9.39, marks=pytest.mark.thorough
        ),  # as accounted in 2019
        pytest.param(
            "poisson", "add_or_remove_one", "rdp_classic", 0.82, marks=pytest.mark.thorough
        ),
        ("poisson", "add_or_remove_one", "pld", 0.60),  # tight
        ("without_replacement", "replace_one", "pld", 1.49),
        ("shuffle", "replace_special", "pld", 8.00),
        ("shuffle", "replace_one", "pld", 19.13),
    ],
)
def test_published_numbers_are_reproduced(table, sampler, relation, accountant, published):
    assert value(table, sampler, relation, accountant) == pytest.approx(published, abs=6e-3)


@pytest.mark.thorough
def test_every_sampler_relation_and_accountant_has_a_row(table):
    shown = set(zip(table.sampler, table.relation, table.accountant, strict=True))
    of_its_own = {
        (sampler, relation, accountant)
        for sampler, relation in [
            ("poisson", "add_or_remove_one"),
            ("without_replacement", "replace_one"),
            ("shuffle", "replace_one"),
            ("shuffle", "replace_special"),
            ("random_allocation", "add_or_remove_one"),
        ]
        for accountant in ("pld", "rdp", "rdp_classic")
    }
    assert shown == of_its_own | {
        ("poisson", relation, "fourier") for relation in ("add_or_remove_one", "replace_one")
    }
    assert table.note.str.len().min() > 0


@pytest.mark.thorough
def test_an_unreliable_number_is_missing_and_says_why():
    table = compare(
        sampling_rate=0.001,
        noise_multiplier=0.8,
        steps=1000,
        delta=1e-6,
        accountants=("pld", "fourier"),
    )
    row = table[(table.accountant == "fourier") & (table.relation == "add_or_remove_one")].iloc[0]
    assert row.isna().epsilon
    assert row.note.startswith("not reliable here: ")


def test_unusable_arguments_are_named():
    with pytest.raises(ArgumentError, match=r"^accountants='guess'"):
        compare(**PUBLISHED, accountants=("guess",))
    with pytest.raises(ArgumentError, match=r"^noise_multiplier=0"):
        compare(**{**PUBLISHED, "noise_multiplier": 0.0})
