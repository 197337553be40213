"""What tests share: programs that are kept, and fits whose steps are made up."""

import os
import zlib

import numpy as np
import pytest

from tests import compiled
from workbench.fitting import fits


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    return compiled.folder()


def put(folder, name, content, age=0):
    file = folder / f"{name}-cache"
    file.write_bytes(content)
    os.utime(file, (file.stat().st_atime, file.stat().st_mtime - age))
    return file


def names(folder):
    return sorted(file.name for file in folder.glob("*-cache"))


def test_programs_are_kept_apart_by_what_decides_them(kept, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    other = compiled.folder()
    monkeypatch.setattr(compiled, "_processor", lambda: "another")
    assert len({kept, other, compiled.folder()}) == 3


def test_a_program_that_is_half_written_is_dropped(kept):
    compiled.tidy(kept)
    whole = zlib.compress(os.urandom(1000))
    for name, content in {"whole": whole, "half": whole[:500], "empty": b"", "other": b"\x28\xb5\x2f\xfd..."}.items():
        put(kept, name, content)
    compiled.tidy(kept)
    assert names(kept) == ["other-cache", "whole-cache"]


def test_the_oldest_programs_go_first(kept, monkeypatch):
    compiled.tidy(kept)
    for age, name in enumerate(["new", "older", "oldest"]):
        put(kept, name, zlib.compress(os.urandom(1000)), age * 100)
    monkeypatch.setattr(compiled, "MOST_BYTES", 2100)
    compiled.tidy(kept)
    assert names(kept) == ["new-cache", "older-cache"]


@pytest.mark.usefixtures("made_up_steps")
def test_made_up_fits_repeat_and_go_on_as_real_ones_do(private_data, monkeypatch):
    def prepared(seed):
        return fits.prepare("logistic", private_data, epsilon=1.0, iterations=30, average=True, seed=seed)

    def params(fit):
        result = fit.result()
        assert result.status == "done"
        return result.params["weights_loc"]

    monkeypatch.setattr("jax.stages.Lowered.compile", lambda *_, **__: pytest.fail("compiled"))
    whole, again, other, paused = prepared(1), prepared(1), prepared(2), prepared(1)
    for fit in (whole, again, other):
        list(fit.run())
    chunks = iter([False, True])
    list(paused.run(lambda: next(chunks)))
    assert paused.can_resume
    list(paused.run())
    assert np.array_equal(params(whole), params(again))
    assert np.array_equal(params(whole), params(paused))
    assert not np.array_equal(params(whole), params(other))
