"""A long session stays as large as it was after its first fits."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import workbench as wb
from tests.fitting.fits_in_a_row import table

SCRIPT = Path(__file__).with_name("fits_in_a_row.py")


@pytest.mark.filterwarnings("ignore::workbench.ledger.reservation.LedgerWarning")
@pytest.mark.usefixtures("made_up_steps")
def test_fits_of_other_tables_compile_nothing_on_the_side(monkeypatch):
    """What is compiled outside of ``program_cache`` stays in JAX's caches for as long as the process lives."""
    compiled = []

    def listen(event, seconds, **more):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(more.get("fun_name", event))

    def fit(seed):
        frame = table(np.random.default_rng(seed), 400)
        wb.fit(
            "yes ~ x", frame, family="bernoulli", schema={"x": (0, 10), "yes": bool}, epsilon=1, delta=1e-4, iterations=20
        )

    for seed in range(2):
        fit(seed)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        fit(2)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert set(compiled) <= {"jit(declared)", "jit(_start)"}  # gone with the functions that they were made of


@pytest.mark.integration
def test_two_hundred_fits_grow_a_process_by_less_than_100_mib():
    out = subprocess.run([sys.executable, SCRIPT, "200"], check=True, capture_output=True, text=True, timeout=3600).stdout
    sizes = dict(map(int, line.split()) for line in out.splitlines())
    assert sizes[200] - sizes[10] < 100, out
