"""Device, boxes and buttons."""

import pytest

from workbench.fitting import devices
from workbench.fitting.devices import DeviceInfo
from workbench.widgets.workbench.run_panel import RunPanel


@pytest.fixture
def panel(monkeypatch):
    found = [DeviceInfo("gpu:0", "NVIDIA H200", 2**37), DeviceInfo("cpu:0", "cpu", 2**34)]
    monkeypatch.setattr(devices, "devices", lambda: found)
    heard = []
    panel = RunPanel(lambda: heard.append(1))
    panel.heard = heard
    panel.find_devices().join(30)
    return panel


def test_every_device_is_offered_with_its_memory(panel):
    assert [text for text, _ in panel.device.control.options] == [
        "automatic: gpu:0 (NVIDIA H200, 128.0 GiB)",
        "gpu:0 (NVIDIA H200, 128.0 GiB)",
        "cpu:0 (cpu, 16.0 GiB)",
    ]
    assert [value for _, value in panel.device.control.options] == ["", "gpu:0", "cpu:0"]
    assert panel.device.value == ""


def test_a_choice_survives_that_devices_are_found_again(panel):
    panel.device.value = "cpu:0"
    panel.find_devices().join(30)
    assert panel.device.value == "cpu:0"


def test_changes_are_told(panel):
    panel.heard.clear()
    panel.device.value = "cpu:0"
    panel.baseline.value = True
    panel.evaluate_private.value = True
    assert len(panel.heard) == 3


def test_only_buttons_that_do_something_can_be_pressed(panel):
    def pressable():
        return [not button.disabled for button in (panel.fit, panel.stop, panel.resume)]

    assert pressable() == [True, False, False]
    panel.show_running(True, can_resume=True)
    assert pressable() == [False, True, False]
    panel.show_running(False, can_resume=True, resumes="Resume continues what was stopped.")
    assert pressable() == [True, False, True]
    assert panel.resume.tooltip == "Resume continues what was stopped."
    panel.show_running(False)
    assert pressable() == [True, False, False]
    assert panel.resume.tooltip == "Continue the fit that was stopped"


def test_every_control_is_described(panel):
    for field in (panel.device, panel.baseline, *panel.of_private_records):
        assert field.control.description
    for button in (panel.fit, panel.stop, panel.resume):
        assert button.description
        assert button.tooltip
    for box in (panel.baseline, panel.evaluate_private):
        assert "outside the guarantee" in box.control.description
    assert "inside the guarantee" in panel.covered_scores.control.description


def test_a_device_that_is_gone_is_told_beside_the_menu(panel):
    panel.show({"device": "no such device."})
    assert "no such device." in panel.device.error
    panel.show({})
    assert panel.device.error == ""
