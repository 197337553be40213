"""Oblivious reading: every read and write is where public numbers say, and minibatches are those
that were drawn.
"""

import ast
import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from tests.sampling import uniformity
from workbench import ArgumentError
from workbench._limits import READING_FAILURE
from workbench.data.storage import blocks, oblivious
from workbench.data.storage.blocks import RecordsError
from workbench.data.storage.oblivious import Layout, cell_size
from workbench.fitting.groups import grouped
from workbench.inference.bringing import DrawnAhead
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.sampling import PoissonSampler, WithoutReplacementSampler
from workbench.sampling.random_allocation import RandomAllocationSampler

STORAGE = Path(oblivious.__file__).parent
PLAN = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "iterations": 12,
    "sampling_rate": 0.1,
    "ledger": False,
    "checkpoint": False,
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    return tmp_path


def packed(name="t", num_rows=3000, seed=0, width=8, **options):
    """An encrypted file whose first feature numbers the records, under a key of its own."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (num_rows, width)).astype(np.float32)
    x[:, 0] = np.arange(num_rows)
    np.savez(f"{name}.npz", x=x, y=rng.integers(0, 2, num_rows))
    held = rng.uniform(-1, 1, (50, width))
    np.savez(f"{name}-held.npz", x=held, y=np.arange(50) % 2)
    wb.data.pack(
        f"{name}.npz",
        f"{name}.wbr",
        encrypt=True,
        key_file=f"{name}.key",
        evaluation=f"{name}-held.npz",
        target="y",
        schema={"x1": (0, 2**20), **{f"x{place + 1}": (-1, 1) for place in range(1, width)}},
        block_size=2**16,
        **options,
    )


def opened(name="t", reading="oblivious", **options):
    return wb.data.open(
        f"{name}.wbr", key_file=f"{name}.key", reading=reading, **{"memory": 1 / 64, **options}
    )


def drawn_ahead(sampler, seed=0, at_once=4):
    def draw(key, number, hyper):
        return SimpleNamespace(
            minibatch=sampler.draw_from(stream(key, number, sampler.words), key, number)
        )

    return DrawnAhead(sampler, draw, key_from_seed(seed), None, at_once)


def samplers(num_records, rate=0.1, capacity=None):
    size = int(rate * num_records)
    return [
        PoissonSampler(num_records, rate, capacity or 2 * size),
        RandomAllocationSampler(num_records, round(1 / rate), capacity or 2 * size),
        WithoutReplacementSampler(num_records, size),
    ]


# --- the trace ------------------------------------------------------------------------------------


class Trace:
    """Every call of the system that reads or writes at an offset: (what, which file, offset,
    length).
    """

    def __init__(self, monkeypatch):
        self.calls, self._files = [], {}
        for name in ("pread", "pwrite"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

        def refuse(*_, **__):
            raise AssertionError("records were read another way")

        monkeypatch.setattr(np, "memmap", refuse)

    def _watched(self, name, call):
        def watched(handle, content, offset):
            length = content if name == "pread" else len(content)
            path = os.readlink(f"/proc/self/fd/{handle}")
            if ".wbr" in path or ".scratch" in path:
                self.calls.append(
                    (name, "scratch" if ".scratch" in path else "file", offset, length)
                )
            return call(handle, content, offset)

        return watched

    def of(self, run):
        self.calls.clear()
        run()
        return list(self.calls)


@pytest.fixture
def trace(monkeypatch):
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux's list of open files")
    return Trace(monkeypatch)


def fitted(name, seed=None, **options):
    """A whole fit, from opening the file to the result."""
    result = wb.fit("logistic", opened(name), seed=seed, **grouped({**PLAN, **options}))
    assert result.status == "done", result.message
    return result


@pytest.mark.parametrize(
    "sampler", some_of(["poisson", "random_allocation", "without_replacement"], 3)
)
def test_whole_fits_of_any_two_tables_under_any_two_keys_leave_the_same_trace(
    sampler, trace, monkeypatch
):
    fakes.trust_models(monkeypatch)  # a check that reads no file
    packed("one", seed=0)
    packed("other", seed=1)
    traces = [
        trace.of(lambda name=name: fitted(name, sampler=sampler))
        for name in ("one", "other", "one")
    ]
    assert traces[0] == traces[1] == traces[2]
    kinds = {call[:2] for call in traces[0]}
    assert kinds == {("pread", "file"), ("pread", "scratch"), ("pwrite", "scratch")}


def read_of(name, sampler, seed, steps=40, **options):
    data = opened(name, **options)
    return [
        rows for _, rows, _ in data.stored.minibatches(("x",), drawn_ahead(sampler, seed), 0, steps)
    ]


@pytest.mark.parametrize("which", some_of(range(3), 3))
def test_the_trace_of_many_passes_is_the_same_for_all_draws(which, trace, monkeypatch):
    """With groups and buckets that are small, of several spans."""
    packed("one", seed=0)
    packed("other", seed=1)
    small = Layout(steps=8, buckets=2, group=1, groups=2, cell=3000)
    monkeypatch.setattr(oblivious, "layout_of", lambda *_, **__: small)
    n = opened("one").num_train
    assert opened("one").stored.opened.form.blocks[0] == 2
    traces = {
        tuple(trace.of(lambda name=name, seed=seed: read_of(name, samplers(n)[which], seed)))
        for name, seed in itertools.product(("one", "other"), range(3))
    }
    assert len(traces) == 1
    (calls,) = traces
    # 40 steps are three spans of two buckets
    assert len([call for call in calls if call[0] == "pwrite"]) == 3 * 4


@pytest.mark.thorough
def test_another_number_of_records_leaves_the_same_trace_under_one_capacity(trace):
    for name, num_rows in (("one", 2500), ("other", 3100)):
        packed(name, num_rows, capacity=4000)
    traces = [
        trace.of(
            lambda name=name: read_of(
                name, PoissonSampler(opened(name).num_train, 0.1, 600, 4000), 0
            )
        )
        for name in ("one", "other")
    ]
    assert opened("one").num_train != opened("other").num_train
    assert traces[0] == traces[1]


@pytest.mark.thorough
@pytest.mark.parametrize("reading", some_of(["oblivious", "memory"]))
def test_whole_fits_hide_the_number_of_records_under_one_capacity(reading, trace, made_up_steps):
    """Reading into memory, the fingerprint of the ledger, and evaluation too."""
    for name, num_rows in (("one", 900), ("other", 18_000)):  # of 1820 in a block
        packed(name, num_rows, capacity=20_000)
    plan = {
        **PLAN,
        "num_records": 20_000,
        "checkpoint": True,
        "evaluate_private": True,
        "iterations": 2,
    }

    def fit(name):
        assert (
            wb.fit(
                "logistic", opened(name, reading), **grouped({**plan, "ledger": f"{name}.db"})
            ).status
            == "done"
        )

    one, other = (trace.of(lambda name=name: fit(name)) for name in ("one", "other"))
    assert one == other
    assert {call[1] for call in one} == {"file", "scratch"} if reading == "oblivious" else {"file"}


def test_a_direct_reading_leaves_another_trace_for_other_draws(trace):
    """So the tests above would see a difference."""
    packed(num_rows=30_000)
    data = opened(reading="direct")
    sampler = PoissonSampler(data.num_train, 1e-4, 20)
    traces = [
        trace.of(
            lambda seed=seed: list(
                data.stored.minibatches(("x",), drawn_ahead(sampler, seed), 0, 40)
            )
        )
        for seed in range(2)
    ]
    assert traces[0] != traces[1]


def test_reading_into_memory_is_one_pass_from_beginning_to_end(trace):
    packed("one", seed=0)
    packed("other", seed=1)
    traces = [trace.of(lambda name=name: opened(name, "memory")) for name in ("one", "other")]
    assert traces[0] == traces[1]
    offsets = [call[2] for call in traces[0]][4:]  # after the header
    assert offsets == sorted(offsets)


def test_no_other_module_touches_the_file():
    allowed = {
        "read_at": "blocks.py",
        "pread": "blocks.py",
        "pwrite": "blocks.py",
        "memmap": "reading.py",
    }
    for path in STORAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or (node.id if isinstance(node, ast.Name) else "")
            if name in ("pread", "pwrite", "preadv", "pwritev", "memmap", "mmap"):
                assert allowed.get(name) == path.name, (path.name, name)


# --- what is brought ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", some_of(range(3), 3))
@pytest.mark.parametrize(
    "layout",
    [
        Layout(steps=4, buckets=1, group=2, groups=1, cell=3000),
        Layout(steps=4, buckets=3, group=1, groups=2, cell=3000),
        Layout(steps=12, buckets=2, group=1, groups=2, cell=3000),
    ],
)
def test_the_rows_are_those_that_were_drawn(which, layout, monkeypatch):
    packed()
    monkeypatch.setattr(oblivious, "layout_of", lambda *_, **__: layout)
    data, x = opened(), opened(reading="memory").train[0]
    sampler = samplers(len(x))[which]
    draws = drawn_ahead(sampler, seed=3)
    for first, last in ((0, 40), (17, 30), (39, 40)):
        steps = []
        for step, (rows,), mask in data.stored.minibatches(("x",), draws, first, last):
            indices, drawn = draws(step)
            np.testing.assert_array_equal(mask, drawn)
            np.testing.assert_array_equal(rows[mask.reshape(-1)], x[indices[mask]])
            assert not rows[~mask.reshape(-1)].any()
            steps.append(step)
        assert steps == list(range(first // 4 * 4, last, 4))


@pytest.mark.parametrize("which", some_of(range(3), 3))
def test_samples_from_the_file_are_uniform(which, monkeypatch):
    """By the records themselves, which carry their numbers: the statistics of the sampler's own
    tests.
    """
    packed(num_rows=100)
    data, steps = opened(), 6000
    numbers = np.rint((opened(reading="memory").train[0][:, 0].astype(float) + 1) * 2**19).astype(
        int
    )
    assert sorted(numbers) == list(range(100))
    sampler = samplers(100, capacity=45)[which]
    member = np.zeros((steps, 100), bool)
    for step, (rows,), mask in data.stored.minibatches(
        ("x",), drawn_ahead(sampler, seed=which, at_once=50), 0, steps
    ):
        found = np.rint((rows[:, 0].astype(float) + 1) * 2**19).astype(int).reshape(mask.shape)
        for place, (row, there) in enumerate(zip(found, mask, strict=True)):
            member[step + place, row[there]] = True
    tally = uniformity.tally([member])
    if which == 1:
        # minibatches of an epoch are disjoint, so that counts are even by construction: of one step
        # of each
        tally = uniformity.tally([member[::10]])
    assert uniformity.even_inclusion(tally)
    assert uniformity.even_pairs(tally)


# --- overflow -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "steps", "rate"), [(10_000, 50, 0.01), (100, 7, 0.3), (2, 3, 0.5), (10**6, 1, 1e-5)]
)
@pytest.mark.parametrize("log_failure", [-5.0, -40.0, -110.0])
def test_cells_overflow_no_more_often_than_is_charged(group, steps, rate, log_failure):
    cell, trials = cell_size(group, steps, rate, log_failure), group * steps
    assert stats.binom.logsf(cell, trials, rate) <= log_failure
    enough = int(stats.binom.isf(np.exp(log_failure), trials, rate)) if log_failure > -30 else cell
    assert cell <= 1.5 * enough + 20
    # of draws without replacement from a table four times as large: the sum of s hypergeometric
    # counts
    one = stats.hypergeom(4 * group, round(4 * group * rate), group)
    if steps == 1:
        assert one.logsf(cell) <= log_failure
    elif group <= 100:
        law = one.pmf(np.arange(group + 1))
        total = law
        for _ in range(steps - 1):
            total = np.convolve(total, law)
        assert total[cell + 1 :].sum() <= np.exp(log_failure) + 1e-14
    # of random allocation: each record enters one of the steps with probability s q
    if steps * rate <= 1:
        assert stats.binom.logsf(cell, group, steps * rate) <= log_failure


def test_cells_have_room_for_all_records_at_rate_one():
    assert cell_size(100, 3, 1.0, -100.0) == 300


def test_a_cell_that_overflows_ends_the_fit_before_anything_is_written(
    trace, monkeypatch, made_up_steps
):
    packed()
    layout = Layout(steps=16, buckets=1, group=1, groups=2, cell=20)
    monkeypatch.setattr(oblivious, "layout_of", lambda *_, **__: layout)
    results = []
    calls = trace.of(lambda: results.append(wb.fit("logistic", opened(), **grouped(PLAN))))
    assert results[0].status == "failed"
    assert "has no room for" in results[0].message
    assert not [call for call in calls if call[1] == "scratch"]


def test_the_plan_charges_for_passes_that_may_fail():
    settings = PrivacySettings(1.0, 1e-6, 1000, 0.01, "without_replacement", 1.0, 10_000, None)
    plain, charged = (make_plan(settings, 10_000, reads) for reads in (False, True))
    assert charged.overflow_delta - plain.overflow_delta == pytest.approx(
        (1 + np.e) * 1000 * READING_FAILURE, rel=1e-6
    )
    large = PrivacySettings(95.0, 1e-6, 1000, 0.01, "without_replacement", 1.0, 10_000, None)
    kept = make_plan(large, 10_000, True)
    assert 20.0 < kept.settings.epsilon < kept.requested_epsilon == 95.0
    assert kept.overflow_delta <= 1e-9 < kept.overflow_delta * np.exp(0.1)


# --- what is promised, and what is refused --------------------------------------------------------


def test_only_oblivious_fits_are_promised_against_an_observer_of_the_storage(made_up_steps):
    packed()
    np.savez("clear.npz", x=np.zeros((50, 2)), y=np.arange(50) % 2)
    wb.data.pack("clear.npz", "clear.wbr", target="y", bounds=(0, 1))
    cases = [
        (opened(reading=reading), reading != "direct")
        for reading in ("oblivious", "memory", "direct")
    ]
    cases += [
        (wb.data.open("clear.wbr"), False),
        (wb.data.from_npz("clear.npz", bounds=(0, 1)), False),
    ]
    for data, hides in cases:
        guarantee = wb.fit("logistic", data, **grouped(PLAN)).guarantee
        assert guarantee.against_storage == hides
        assert ("an observer of the storage" in guarantee.statement()) == hides
        assert type(guarantee).from_dict(guarantee.to_dict()) == guarantee


def test_a_sampler_whose_draws_may_not_spread_is_refused():
    packed()
    with pytest.raises(
        ArgumentError, match=r"^sampler='shuffle': cannot be used with oblivious reading"
    ):
        wb.fit("logistic", opened(), **grouped(sampler="shuffle", **PLAN))


@pytest.mark.thorough
def test_too_little_memory_is_refused_with_what_is_needed():
    packed(width=200, num_rows=5000)
    data = opened()
    sampler = PoissonSampler(5000, 0.9, 5000)
    with pytest.raises(ArgumentError, match=r"^memory=0.015625: is too little"):
        list(data.stored.minibatches(("x",), drawn_ahead(sampler), 0, 5))
    ledger = wb.ledger.Ledger("l.db")
    with pytest.raises(ArgumentError, match=r"^memory=0.015625: is too little"):
        wb.fit(
            "logistic",
            data,
            **grouped({**PLAN, "sampling_rate": 0.9, "ledger": ledger, "checkpoint": "run"}),
        )
    assert not ledger.datasets()  # nothing is spent on it, and no key is left behind
    assert not Path("run").exists()


def test_a_folder_where_no_scratch_file_can_be_written_is_refused(monkeypatch):
    packed()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(ArgumentError, match=r"^scratch=.* cannot be written"):
        opened()
    assert opened(reading="memory").num_train > 0


@pytest.mark.parametrize("change", ["altered", "swapped", "replayed"])
def test_cells_that_were_changed_are_refused(change, monkeypatch):
    packed()
    layout = Layout(steps=4, buckets=2, group=1, groups=2, cell=3000)
    monkeypatch.setattr(oblivious, "layout_of", lambda *_, **__: layout)
    former, write = {}, blocks.write_at

    def attacked(handle, path, offset, content):
        if path.name.endswith(".scratch"):
            content, size = bytearray(content), len(content)
            if change == "altered":
                content[7] ^= 1
            elif change == "swapped" and offset:
                content = former[offset - size]
            elif change == "replayed" and offset in former:  # that of the pass before
                content = former[offset]
            former.setdefault(offset, bytes(content))
        write(handle, path, offset, content)

    monkeypatch.setattr(blocks, "write_at", attacked)
    reading = opened().stored.minibatches(("x",), drawn_ahead(samplers(3000)[0]), 0, 40)
    if change == "replayed":
        assert [next(reading)[0], next(reading)[0]] == [0, 4]
    with pytest.raises(RecordsError, match="was altered, moved or replaced"):
        next(reading)


@pytest.mark.thorough
def test_a_disk_that_fills_while_records_are_spread_ends_the_fit(monkeypatch, place):
    packed()
    write = os.pwrite

    def full(handle, content, offset):
        if ".scratch" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content, offset)

    monkeypatch.setattr(os, "pwrite", full)
    result = wb.fit("logistic", opened(), **grouped(PLAN))
    assert result.status == "failed"
    assert "No space left on device" in result.message
    assert not list(place.glob("*.scratch")) + list(place.glob(".*.scratch"))


def test_no_scratch_file_has_a_name_while_it_is_used(place):
    packed()
    reading = opened().stored.minibatches(("x",), drawn_ahead(samplers(3000)[0]), 0, 40)
    next(reading)
    assert not list(place.glob("*.scratch")) + list(place.glob(".*.scratch"))
    reading.close()
    with pytest.raises(ArgumentError, match=r"^scratch='nowhere': must be a folder"):
        opened(scratch="nowhere")


# --- memory ---------------------------------------------------------------------------------------

MEASURED = """
import sys, tracemalloc
import numpy as np
import workbench as wb

class Draws:
    name, capacity, sampling_rate, at_once = "poisson", 2600, 2000 / 1_600_000, 4
    def __call__(self, first):
        rng = np.random.default_rng(first)
        mask = np.zeros((4, 2600), bool)
        mask[:, :2000] = True
        indices = np.where(mask, rng.integers(0, 1_600_000, (4, 2600)), 0).astype(np.int32)
        return indices, mask

data = wb.data.open("large.wbr", key_file="large.key", reading="oblivious", memory=1 / 64)
names = ("x", "y")
tracemalloc.start()
brought = 0
for step, rows, mask in data.stored.minibatches(names, Draws(), 0, int(sys.argv[1])):
    brought += 1
print(tracemalloc.get_traced_memory()[1], brought)
"""


@pytest.mark.integration
def test_memory_stays_under_its_bound_at_ten_times_as_many_records():
    num_rows = 1_600_000
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (num_rows, 24)).astype(np.float32)
    np.savez("large.npz", x=x, y=np.zeros(num_rows, np.int32))
    np.savez("held.npz", x=x[:10], y=np.zeros(10, np.int32))
    wb.data.pack(
        "large.npz",
        "large.wbr",
        encrypt=True,
        key_file="large.key",
        evaluation="held.npz",
        target="y",
        bounds=(-1, 1),
    )
    assert Path("large.wbr").stat().st_size > 9 * 2**24
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "60"], capture_output=True, text=True, check=True
    )
    peak, brought = map(int, done.stdout.split())
    assert brought == 15
    assert peak < 2**24


def test_frames_are_packed_without_their_index():
    frame = pd.DataFrame({"a": np.arange(100.0), "y": np.arange(100) % 2}, index=np.arange(100) * 7)
    frame.to_parquet("i.parquet")
    wb.data.pack("i.parquet", "i.wbr", target="y", bounds=(0, 100), evaluation_fraction=0.3)
    in_memory = wb.data.from_frame(frame, target="y", bounds=(0, 100), evaluation_fraction=0.3)
    np.testing.assert_array_equal(wb.data.open("i.wbr").train[0], in_memory.train[0])
