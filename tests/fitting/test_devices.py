"""Devices as a fit may be sent to."""

import os

import jax
import pytest

import workbench as wb
from workbench.fitting import devices
from workbench.fitting.devices import DeviceInfo


def test_the_processor_is_there_with_the_memory_of_the_machine():
    info = devices.devices()[-1]
    assert info.name == "cpu:0"
    assert info.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert str(info) == f"cpu:0 ({info.kind}, {info.memory / 2**30:.1f} GiB)"


@pytest.mark.thorough
def test_a_fit_runs_on_what_the_list_names():
    result = wb.fit(
        "logistic",
        "breast_cancer",
        epsilon=1.0,
        iterations=3,
        execution=wb.Execution(device=devices.devices()[0].name),
    )
    assert result.settings["device"].startswith(devices.devices()[0].name)


class Gpu:
    platform, id, device_kind = "gpu", 1, "NVIDIA H200"

    @staticmethod
    def memory_stats():
        return {"bytes_limit": 3 * 2**30, "bytes_in_use": 5}


@pytest.mark.parametrize(("stats", "shown"), [(Gpu.memory_stats, ", 3.0 GiB"), (lambda: None, "")])
def test_gpus_come_first_with_their_own_memory(monkeypatch, stats, shown):
    processor = jax.devices("cpu")
    gpu = Gpu()
    monkeypatch.setattr(gpu, "memory_stats", stats, raising=False)
    monkeypatch.setattr(jax, "devices", lambda kind=None: processor if kind == "cpu" else [gpu])
    found = devices.devices()
    assert [info.name for info in found] == ["gpu:1", "cpu:0"]
    assert str(found[0]) == f"gpu:1 (NVIDIA H200{shown})"


def test_unknown_memory_is_left_out():
    assert str(DeviceInfo("tpu:0", "TPU", None)) == "tpu:0 (TPU)"
