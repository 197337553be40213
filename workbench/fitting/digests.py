"""Digests of what decides a fit, by which processes recognise that they are about to take the same
steps.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from workbench import __version__
from workbench.data.dataset import is_at_rest
from workbench.data.look import scales_to_dict
from workbench.fitting.spec import FitSpec
from workbench.inference.batched import cores
from workbench.inference.checkpoint import arrays_of
from workbench.inference.state import DPVIState
from workbench.ledger.fingerprint import secret_key
from workbench.privacy.plan import PrivacyPlan

__all__ = ["FORMAT", "Digests", "content", "keyed", "of_outcome", "repeats_exactly"]

FORMAT = 5  # format version of checkpoint files

_NOT_OF_THE_STEPS = ("draws", "evaluate_private")  # settings that are used after the steps
_OF_DEVICES = ("device", "devices")  # settings that say where steps are taken


@dataclass(frozen=True, repr=False)
class Digests:
    """Digests of a fit, each 32 hexadecimal digits, keyed with a secret.

    A plain hash would let its readers test guesses of the number of records, which may be private.

    :param noise_size: coordinates that get noise.
    :param start: the state before the first step.
    """

    spec: FitSpec
    plan: PrivacyPlan
    noise_size: int
    start: DPVIState

    def of_steps(self, program: str) -> str:
        """Equal for fits that give the same numbers bit for bit from the same key and records.

        It covers the program, which results from model, guide, optimiser and sampler with every
        constant that they read; the records as the model sees them, which may be some of the data
        set's arrays; the settings and the calibrated noise, which the program takes as arguments;
        the versions of the libraries that compute; and the kind of machine. The state before the
        first step counts only if there is a seed, with which other fits may begin; a secret key and
        what followed from it are in the checkpoint.

        :param program: ``compiling.Lowered.digest``.
        """
        return keyed(self._facts(program, secret_key()), b"plan", secret_key())

    def anywhere(self, program: str) -> str:
        """As ``of_steps``, but equal on any number of devices, and so of fits that may round
        differently.

        :param program: that of one device.
        """
        facts = self._facts(program, secret_key())
        facts["settings"] = {
            name: value for name, value in facts["settings"].items() if name not in _OF_DEVICES
        }
        return keyed(
            {**facts, "machine": self.spec.device.platform, "flags": ""}, b"anywhere", secret_key()
        )

    def by_part(self, program: str, secret: bytes) -> dict[str, str]:
        """What processes that take steps together must agree in, by name.

        :param secret: which they share.
        """
        facts = self._facts(program, secret) | {"start": content(arrays_of(self.start), secret)}
        subjects = {
            "version of Python or of a package": ("versions", "workbench", "python"),
            "precision": ("precision",),
            "kind of machine": ("machine", "flags"),
            "data set": ("records",),
            "plan": ("privacy", "sampler", "mechanism", "noise_size", "settings"),
            "model": ("model", "program"),
            "start": ("start",),
        }
        return {
            subject: keyed([facts[name] for name in names], b"process", secret)
            for subject, names in subjects.items()
        }

    def _facts(self, program: str, secret: bytes) -> dict[str, Any]:
        spec, plan = self.spec, self.plan
        return {
            "format": FORMAT,
            "versions": {
                name: version(name) for name in ("jax", "jaxlib", "numpyro", "numpy", "optax")
            },
            "workbench": __version__,
            "python": sys.version.split()[0],
            "machine": [
                spec.device.platform,
                spec.device.device_kind,
                platform.machine(),
                _processor(),
                cores(),
            ],
            "flags": os.environ.get("XLA_FLAGS", ""),
            "precision": [
                str(getattr(jax.config, name))
                for name in ("jax_enable_x64", "jax_default_matmul_precision")
            ],
            "model": spec.model.name,
            "program": program,
            "records": content(
                {str(number): array for number, array in enumerate(spec.records)}, secret
            ),
            "start": None if plan.settings.seed is None else content(arrays_of(self.start), secret),
            "privacy": asdict(plan.settings),
            "sampler": repr(plan.sampler),
            "mechanism": repr(plan.mechanism),
            "noise_size": self.noise_size,
            "settings": _of_steps(spec, _NOT_OF_THE_STEPS),
        }


def _of_steps(spec: FitSpec, without: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in spec.run_settings().items() if name not in without}


def of_outcome(spec: FitSpec, plan: PrivacyPlan) -> int:
    """31 bits of what a look learned and what was chosen by it: the same on all devices, and of
    nothing that a checkpoint does not show, or its readers could test guesses.

    Keys of noise follow from it. Otherwise a run that is taken up before its first step, and
    chooses another C, would add the same draws in another size, and what it hides could be solved
    for.
    """
    facts = {
        "privacy": asdict(plan.settings),
        "mechanism": repr(plan.mechanism),
        "settings": _of_steps(spec, (*_NOT_OF_THE_STEPS, *_OF_DEVICES)),
        "scales": scales_to_dict(spec.scales),
        "learned": dict(spec.learned),
    }
    text = json.dumps(facts, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4, person=b"outcome").digest()) >> 1


def keyed(facts: Mapping[str, Any] | Sequence[Any], purpose: bytes, secret: bytes) -> str:
    """32 hexadecimal digits of JSON-ready facts, which cannot be computed without the secret."""
    text = json.dumps(facts, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16, key=secret, person=purpose).hexdigest()


def content(arrays: Mapping[str, Any], secret: bytes) -> str:
    """32 hexadecimal digits of arrays, which cannot be computed without the secret."""
    digest = hashlib.blake2b(digest_size=16, key=secret, person=b"arrays")
    for name, value in sorted(arrays.items()):
        array: Any = value if is_at_rest(value) else np.asarray(value)
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        for block in array.parts() if is_at_rest(array) else (array,):
            digest.update(np.ascontiguousarray(block).tobytes())
    return digest.hexdigest()


@functools.cache
def _processor() -> str:
    """The processor's name, if it can be found: another processor may round differently."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.processor()


def repeats_exactly(device: jax.Device) -> bool:
    """Whether the same program gives the same bits in another process. GPUs do not: they choose
    kernels by speed.
    """
    return bool(device.platform == "cpu")
