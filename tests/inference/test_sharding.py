"""Records that are spread over devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "part", ["not thorough", pytest.param("thorough", marks=pytest.mark.thorough)]
)
def test_on_eight_devices(part):
    """In a process of its own: XLA decides when it starts how many devices it simulates."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        part,
        str(HERE / "on_eight_devices.py"),
    ]
    done = subprocess.run(
        command, env=environment, cwd=HERE.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
