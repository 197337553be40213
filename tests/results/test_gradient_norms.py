"""What a result says of clipping."""

import dataclasses

import numpy as np
import pytest

import workbench as wb
from workbench.privacy.gradient_norms import GradientNorms

EDGES = (0.5, 1.0, 2.0)


def norms(*shares, deviation=0.01):
    return GradientNorms(EDGES, shares, deviation, 1.0)


def test_a_fit_counts_norms_under_its_guarantee(done):
    found = done.gradient_norms
    assert len(found.shares) == len(found.edges) + 1
    assert sum(found.shares) == pytest.approx(1, abs=8 * found.deviation)
    assert done.labels["gradient_norms"] == "covered"


@pytest.mark.thorough
def test_a_saved_result_keeps_them(done, tmp_path, quick_report):
    done.save(tmp_path)
    assert wb.load(tmp_path).gradient_norms == done.gradient_norms


def test_the_clipped_share_uses_all_ranges_and_its_deviation_is_right():
    """Against many draws of noise on known shares."""
    random, truth = np.random.default_rng(0), np.array([0.4, 0.3, 0.2, 0.1])
    found = [
        norms(*(truth + 0.02 * random.normal(size=4)), deviation=0.02).clipped for _ in range(4000)
    ]
    shares = np.array([share for share, _ in found])
    assert shares.mean() == pytest.approx(0.3, abs=0.001)
    assert shares.std() == pytest.approx(found[0][1], rel=0.05)
    assert shares.std() < 0.02 * 2**0.5 / 1.3  # better than the sum of two ranges


@pytest.mark.parametrize(
    ("shares", "deviation", "words"),
    [
        (
            (0.5, 0.3, 0.1, 0.1),
            0.01,
            "About 18 to 22 % of the gradients were longer than C and were clipped.",
        ),
        (
            (0.6, 0.39, 0.02, -0.01),
            0.01,
            "At most about 3 % of the gradients were longer than C and were clipped.",
        ),
        (
            (0.0, 0.0, 0.1, 0.9),
            1e-4,
            "About 100 % of the gradients were longer than C and were clipped. That can shift",
        ),
        ((0.9, 0.3, 0.1, -0.1), 0.5, "The noise hides how many gradients were clipped."),
        (
            (1.0, 0.0, 0.0, 0.0),
            1e-3,
            "Hardly any was longer than 0.5 C: a smaller C would need less noise.",
        ),
    ],
)
def test_words(shares, deviation, words):
    assert words in norms(*shares, deviation=deviation).words()


def test_noise_beyond_the_range_of_shares_is_cut():
    assert norms(1.2, 0.1, -0.1, -0.1).clipped[0] == 0
    assert norms(-0.2, 0.0, 0.5, 0.9).clipped[0] == 1


def test_its_picture_has_a_bar_for_each_range_and_says_its_label(done):
    figure = done.plot("clipping")
    axes = figure.axes[0]
    assert len([bar for bar in axes.patches if bar.get_width() > 0.5]) == len(
        done.gradient_norms.shares
    )
    assert "clipped" in [text.get_text() for text in axes.texts]
    assert any("covered" in text.get_text() for text in figure.texts)
    older = dataclasses.replace(done, gradient_norms=None)
    assert "clipping" not in older.pictures


@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
def test_norms_are_counted_where_they_say_what_was_clipped(clipping):
    """Of the other ways a norm above C does not say what happened to a gradient."""
    prepared = wb.prepare(
        "logistic",
        "breast_cancer",
        epsilon=1.0,
        iterations=10,
        privacy=wb.Privacy(clipping=clipping),
    )
    assert not prepared.step.options.counts_norms
    assert prepared.step.noised_coordinates == prepared.step.noise_size


def test_the_excess_is_the_mean_length_that_clipping_takes_off():
    """Exponential norms of mean m, in units of C: E (norm - 1)+ = m exp(-1 / m); straight lines
    between edges add to it.
    """
    edges = (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0)
    for mean in (0.3, 1.0):
        longer = [1.0, *(np.exp(-edge / mean) for edge in edges), 0.0]
        found = GradientNorms(edges, tuple(-np.diff(longer)), 1e-9, 1.0)
        assert mean * np.exp(-1 / mean) <= found.excess <= 2.0 * mean * np.exp(-1 / mean)
    # the noise hides it
    assert GradientNorms(edges, tuple(-np.diff(longer)), 0.5, 1.0).excess == 0.0


def test_records_that_are_absent_are_told_from_long_ones():
    whole = norms(0.5, 0.3, 0.1, 0.1, deviation=1e-3)
    part = norms(0.3, 0.18, 0.06, 0.06, deviation=1e-3)
    assert whole.absent == 0.0
    assert part.absent == pytest.approx(0.4)
    assert part.clipped[0] == pytest.approx(whole.clipped[0])
    assert part.mean_square == pytest.approx(whole.mean_square)
    hidden = norms(0.3, 0.18, 0.06, 0.06, deviation=0.1)
    assert hidden.absent == 0.0


def test_a_c_that_ran_away_with_the_noise_is_said_first():
    climbed = dataclasses.replace(norms(0.9, 0.1, 0.0, 0.0), clip=100.0, adapted_from=0.5)
    assert climbed.caution([5.0] * 3) == ""
    away = dataclasses.replace(climbed, clip=2000.0)
    assert away.caution([5.0] * 3).startswith("The run adapted C from 0.5 to 2e+03, and the noise")


def test_the_caution_grows_as_intervals_shrink():
    wide, narrow = (
        dataclasses.replace(norms(0.4, 0.3, 0.2, 0.1), clip=2.0).caution([sd] * 3)
        for sd in (5.0, 0.01)
    )
    assert wide == ""
    assert narrow.startswith("Clipping may have moved some estimates by up to")
    assert "about 30 % of the gradients were longer than C = 2" in narrow


def test_clipping_that_is_certain_has_a_caution_though_its_size_is_not_proven():
    noisy = norms(0.2, 0.2, 0.2, 0.4, deviation=0.15)
    assert noisy.more_are_clipped()
    assert noisy.shift([0.2] * 3) < 1.0 <= noisy.shift([0.2] * 3, 0.0)
    assert noisy.caution([0.2] * 3).startswith("Clipping may have moved some estimates by up to")
    assert dataclasses.replace(noisy, adapted_from=0.5).caution([0.2] * 3) == ""
    assert noisy.caution([50.0] * 3) == ""
