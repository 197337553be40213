"""Token sequences: the user's own and the made-up ones."""

import dataclasses

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.ledger.fingerprint import fingerprint

TOKENS = np.random.default_rng(0).integers(0, 7, (60, 5))
LABELS = np.arange(60) % 3
CLASSES = ("a", "b", "c")


def own(**options):
    return wb.data.from_tokens(
        TOKENS, LABELS, **{"vocabulary_size": 7, "classes": CLASSES, **options}
    )


# ---- the user's own ------------------------------------------------------------------------------


def test_sequences_and_classes_are_split_together():
    dataset = wb.data.from_tokens(
        LABELS[:, None] + np.zeros(4, int), LABELS, vocabulary_size=3, classes=CLASSES, split_seed=3
    )
    assert dataset.num_train + dataset.num_evaluation == 60
    for x, y in (dataset.train, dataset.evaluation):
        assert (x.dtype, y.dtype, x.shape[1:]) == (np.int32, np.int32, (4,))
        assert np.array_equal(x[:, 2], y)


def test_what_is_public_is_said():
    dataset = own(unit="visit", name="visits")
    assert (dataset.vocabulary_size, dataset.classes, dataset.unit, dataset.arrays) == (
        7,
        CLASSES,
        "visit",
        ("x", "y"),
    )
    assert repr(dataset) == "Dataset('visits', 5 tokens of 7, target 'class')"
    assert (
        "The length of the sequences, the vocabulary and the classes are declared public."
        in dataset.declarations()
    )
    assert not dataset.is_public
    dataset.check()


def test_sequences_need_no_classes():
    dataset = wb.data.from_tokens(TOKENS, vocabulary_size=7, evaluation=(TOKENS[:3],))
    assert (dataset.arrays, dataset.num_evaluation, dataset.target_name) == (("x",), 3, "")
    assert (
        "The length of the sequences and the vocabulary are declared public."
        in dataset.declarations()
    )


def test_evaluation_sequences_of_ones_own_are_taken():
    dataset = own(evaluation=(TOKENS[:4], LABELS[:4]), evaluation_is_public=True)
    assert (dataset.num_train, dataset.num_evaluation, dataset.evaluation_label) == (
        60,
        4,
        "public data",
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int64])
def test_integers_of_all_types_are_taken(kind):
    dataset = wb.data.from_tokens(TOKENS.astype(kind), vocabulary_size=7)
    assert dataset.train[0].dtype == np.int32


def test_sequences_come_from_a_file_too(tmp_path):
    file = tmp_path / "visits.npz"
    np.savez(file, x=TOKENS, y=LABELS)
    dataset = wb.data.from_npz(file, vocabulary_size=7, classes=CLASSES)
    assert (dataset.name, dataset.vocabulary_size) == ("visits", 7)
    assert np.array_equal(dataset.train[0], own().train[0])
    np.savez(file, x=TOKENS, y=LABELS, group=LABELS)
    with pytest.raises(ArgumentError, match="has tokens with groups"):
        wb.data.from_npz(file, vocabulary_size=7, classes=CLASSES)


@pytest.mark.parametrize(("wrong", "at"), [(7_654_321, (5, 2)), (-7_654_321, (0, 0))])
def test_a_token_outside_the_vocabulary_is_refused_without_showing_it(wrong, at):
    tokens = TOKENS.copy()
    tokens[at] = wrong
    with pytest.raises(
        ArgumentError, match=r"^x=ndarray of shape \(60, 5\): has values outside 0 \.\. 6"
    ) as caught:
        wb.data.from_tokens(tokens, vocabulary_size=7)
    assert "7654321" not in str(caught.value)
    assert "vocabulary_size" in str(caught.value)


def test_a_class_without_a_name_is_refused_without_showing_it():
    with pytest.raises(
        ArgumentError, match=r"^y=ndarray of shape \(60,\): has values outside 0 \.\. 1"
    ) as caught:
        own(classes=("a", "b"))
    assert "classes=" in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "shown", "arguments", "options"),
    [
        ("x", "(60,)", (TOKENS[:, 0],), {}),
        ("x", "(60, 0)", (TOKENS[:, :0],), {}),
        ("x", "'float64'", (TOKENS / 1,), {}),
        ("x", "'str'", ("text",), {}),
        ("y", "(59,)", (TOKENS, LABELS[:59]), {}),
        ("y", "'float64'", (TOKENS, LABELS / 1), {}),
        ("vocabulary_size", "1", (TOKENS,), {"vocabulary_size": 1}),
        ("vocabulary_size", "7.5", (TOKENS,), {"vocabulary_size": 7.5}),
        ("classes", "None", (TOKENS, LABELS), {"classes": None}),
        ("classes", "'abc'", (TOKENS, LABELS), {"classes": "abc"}),
        ("evaluation", "'ndarray'", (TOKENS,), {"evaluation": TOKENS}),
        ("evaluation", "'tuple'", (TOKENS, LABELS), {"evaluation": (TOKENS,)}),
        ("evaluation x", "(60, 4)", (TOKENS,), {"evaluation": (TOKENS[:, :4],)}),
        ("evaluation y", "(60,)", (TOKENS, LABELS), {"evaluation": (TOKENS, LABELS + 1)}),
        ("evaluation_fraction", "0.001", (TOKENS,), {"evaluation_fraction": 0.001}),
    ],
)
def test_what_does_not_fit_is_named_with_its_form(argument, shown, arguments, options):
    classes = CLASSES if len(arguments) == 2 else None
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_tokens(*arguments, **{"vocabulary_size": 7, "classes": classes, **options})
    assert caught.value.argument == argument
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"train": (TOKENS + 1, LABELS)}, {"train": (TOKENS / 1, LABELS)}]
)
def test_a_dataset_made_by_hand_is_checked(change):
    with pytest.raises(ArgumentError, match=r"x must have tokens, whole numbers in 0 \.\. 6"):
        dataclasses.replace(own(), **change).check()


# ---- what is known again -------------------------------------------------------------------------


def test_the_vocabulary_counts_in_the_fingerprint():
    assert fingerprint(own()) == fingerprint(own(name="other"))
    assert fingerprint(own()) != fingerprint(own(vocabulary_size=8))
    assert fingerprint(own()) != fingerprint(dataclasses.replace(own(), vocabulary_size=0))


# ---- made up -------------------------------------------------------------------------------------


def test_made_up_sequences_have_the_sizes_that_are_asked_for():
    dataset = wb.data.tokens(40, length=9, vocabulary_size=5, num_classes=4, num_evaluation=30)
    assert [array.shape for array in (*dataset.train, *dataset.evaluation)] == [
        (40, 9),
        (40,),
        (30, 9),
        (30,),
    ]
    assert (dataset.vocabulary_size, dataset.classes) == (
        5,
        ("step 1", "step 2", "step 3", "step 4"),
    )
    dataset.check()


def test_the_class_shows_in_what_follows_and_not_in_what_there_is():
    """A step to the token k further has chance 1/2 + 1/2V in class k and 1/2V in others;
    frequencies are 1/V in all.

    Of 20 000 sequences each count is within five standard errors.
    """
    x, y = wb.data.tokens(20_000, num_evaluation=1).train
    steps = (np.diff(x) % 12).astype(int)
    for number in range(3):
        chosen = y == number
        frequencies = np.bincount(steps[chosen].ravel(), minlength=12) / steps[chosen].size
        assert frequencies[number + 1] == pytest.approx(0.5 + 1 / 24, abs=0.006)
        assert np.delete(frequencies, number + 1) == pytest.approx(1 / 24, abs=0.003)
        # tokens of one sequence depend on one another: three times the error of independent ones
        assert np.bincount(x[chosen].ravel(), minlength=12) / x[chosen].size == pytest.approx(
            1 / 12, abs=0.01
        )


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("num_records", 1),
        ("length", 1),
        ("num_classes", 1),
        ("vocabulary_size", 3),
        ("num_evaluation", 0),
        ("seed", -1),
    ],
)
def test_sizes_of_made_up_sequences_are_checked(argument, value):
    with pytest.raises(ArgumentError, match=rf"^{argument}={value}: "):
        wb.data.tokens(**{argument: value})
