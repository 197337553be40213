"""The devices that a fit can run on, as JAX sees them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench import _validate
from workbench._validate import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax

    Devices = int | str | Sequence[str | jax.Device] | jax.sharding.Mesh | None

__all__ = [
    "DeviceInfo",
    "check_devices",
    "device_named",
    "devices",
    "devices_named",
]


def device_named(argument: str, name: str | jax.Device | None) -> jax.Device:
    """The device called "cpu", "gpu" or "gpu:1"; None stands for JAX's first one.

    :raises ArgumentError: naming ``argument``, if there is no such device.
    """
    import jax

    if isinstance(name, jax.Device):
        return name
    if name is None:
        return jax.local_devices()[0]
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    try:
        if not kind:  # JAX would take "" for its first device
            raise ValueError
        return {device.id: device for device in jax.devices(kind)}[int(number or 0)]
    except (RuntimeError, KeyError, ValueError):
        available = ", ".join(f"{device.platform}:{device.id}" for device in jax.devices())
        raise ArgumentError(argument, name, f"no such device; JAX sees {available}.") from None


def devices_named(
    devices: Devices, first: str | jax.Device | None = None, axis: str = "records"
) -> tuple[jax.Device, ...]:
    """The devices among which records, or lanes, are spread.

    :param devices: how many of the kind of ``first``, or "all" of them, those of other processes
        too; or a list of names or devices, or a mesh of JAX's with one axis, ``axis``; or None for
        ``first`` alone.
    :param first: as of ``device_named``. :param axis: what they are devices of.
    :raises ArgumentError: naming ``devices``.
    """
    import jax

    chosen = _found(devices, first, axis)
    used = {device.process_index for device in chosen}
    if used != {jax.process_index()} and len(chosen) < len(jax.devices(chosen[0].platform)):
        raise ArgumentError("devices", devices, 'must be "all", or only devices of this process.')
    return chosen


def _found(devices: Devices, first: str | jax.Device | None, axis: str) -> tuple[jax.Device, ...]:
    import jax

    if devices is None:
        if first is None and jax.process_count() > 1:
            raise ArgumentError(
                "devices",
                None,
                f'must be given with {jax.process_count()} processes: "all" for one fit of them '
                "all, or "
                "one device for each process's own fit.",
            )
        return (device_named("device", first),)
    if isinstance(devices, jax.sharding.Mesh):
        if devices.axis_names != (axis,):
            raise ArgumentError(
                "devices", devices.axis_names, f'must be a mesh with exactly one axis, "{axis}".'
            )
        devices = list(devices.devices)
    if isinstance(devices, (list, tuple)):
        if first is not None:
            raise ArgumentError(
                "devices", devices, f"names devices, and so does device={first!r}: leave one out."
            )
        chosen = tuple(device_named("devices", name) for name in devices)
        if (
            not chosen
            or len(set(chosen)) < len(chosen)
            or len({device.platform for device in chosen}) > 1
        ):
            raise ArgumentError("devices", devices, "must be different devices of one kind.")
        return chosen
    if isinstance(devices, str) and devices == "all":
        return tuple(jax.devices(device_named("device", first).platform))
    available = jax.local_devices(backend=device_named("device", first).platform)
    try:
        number = _validate.integer(
            "devices",
            # from the command line
            int(devices) if isinstance(devices, str) and devices.isdecimal() else devices,
            at_least=1,
        )
    except ArgumentError:
        raise ArgumentError(
            "devices",
            devices,
            'must be a whole number of at least 1, "all", or a list of device names.',
        ) from None
    if jax.process_count() > 1:
        raise ArgumentError(
            "devices",
            number,
            f'does not say which of {jax.process_count()} processes: name them, or "all".',
        )
    if number > len(available):
        raise ArgumentError(
            "devices", number, f"is more than there are: JAX sees {len(available)} of that kind."
        )
    return tuple(available[:number])


def check_devices(argument: str, devices: Devices) -> None:
    """:raises ArgumentError: naming ``devices``, unless it is as ``devices_named`` takes it."""
    devices_named(devices)


@dataclass(frozen=True)
class DeviceInfo:
    """One device.

    :param name: the value for ``fit(device=)``, such as "cpu:0" or "gpu:1".
    :param kind: its maker's name for it.
    :param memory: in bytes; None if it is not known.
    """

    name: str
    kind: str
    memory: int | None

    def __str__(self) -> str:
        """Name, kind and memory, as in "gpu:0 (NVIDIA H200, 139.8 GiB)"."""
        memory = f", {self.memory / 2**30:.1f} GiB" if self.memory else ""
        return f"{self.name} ({self.kind}{memory})"


def _system_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system knows
        return None


def devices() -> list[DeviceInfo]:
    """List all devices, JAX's default first and the CPU last. The first call starts JAX: a second
    or more with GPUs.
    """
    import jax

    jax_devices = list(jax.devices())
    if jax_devices[0].platform != "cpu":
        jax_devices += jax.devices("cpu")
    infos = []
    for device in jax_devices:
        on_cpu = device.platform == "cpu"
        memory = _system_memory() if on_cpu else (device.memory_stats() or {}).get("bytes_limit")
        infos.append(DeviceInfo(f"{device.platform}:{device.id}", device.device_kind, memory))
    return infos
