"""A long session stays as large as it was after its first fits."""

import itertools
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import workbench as wb
from tests.fitting.fits_in_a_row import table
from workbench import _memory

SCRIPT = Path(__file__).with_name("fits_in_a_row.py")


@pytest.mark.filterwarnings("ignore::workbench.ledger.reservation.LedgerWarning")
@pytest.mark.usefixtures("made_up_steps")
def test_fits_of_other_tables_compile_nothing_on_the_side(monkeypatch):
    """What is compiled outside of ``program_cache`` stays in JAX's caches until they
    are emptied.
    """
    monkeypatch.setattr(_memory, "_fits", itertools.count(1))
    compiled = []

    def listen(event, seconds, **more):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(more.get("fun_name", event))

    def fit(seed):
        frame = table(np.random.default_rng(seed), 400)
        wb.fit(
            "yes ~ x",
            frame,
            family="bernoulli",
            schema={"x": (0, 10), "yes": bool},
            epsilon=1,
            delta=1e-4,
            iterations=20,
        )

    for seed in range(2):
        fit(seed)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        fit(2)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    # gone with the functions that they were made of
    assert set(compiled) <= {"jit(declared)", "jit(_start)"}


@pytest.mark.usefixtures("made_up_steps")
def test_caches_of_jax_are_emptied_now_and_then_and_change_no_fit(monkeypatch):
    def params():
        return wb.fit("logistic", "breast_cancer", epsilon=1.0, iterations=10, seed=1).params

    emptied = []
    monkeypatch.setattr(_memory, "_fits", itertools.count(_memory.FITS_BETWEEN - 1))
    monkeypatch.setattr(
        _memory.jax, "clear_caches", lambda clear=jax.clear_caches: emptied.append(clear())
    )
    before = params()
    assert emptied == []
    params()
    assert emptied == [None]
    after = params()
    assert len(emptied) == 1
    assert sorted(before) == sorted(after)
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.integration
def test_two_hundred_fits_grow_a_process_by_less_than_100_mib():
    out = subprocess.run(
        [sys.executable, SCRIPT, "200"], check=True, capture_output=True, text=True, timeout=3600
    ).stdout
    sizes = dict(map(int, line.split()) for line in out.splitlines())
    assert sizes[200] - sizes[10] < 100, out
