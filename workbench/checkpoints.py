"""Checkpoints of fits: written while they run, so that what was computed is not lost, and found again.

Each fit has a folder of its own under ``runs()``. Every some seconds it gets a file with the state (parameters, optimiser,
key, step), the plan's digest and how far the fit may go before the next one; the two newest are kept. At the end of all
steps the released parameters take their place, without the key.

*Randomness is never used for other data.* The noise of a step follows from the run's key and the step's number alone, and
steps between the last checkpoint and a crash may have been seen. They are repeated bit for bit, which tells nothing new, and
only so: a run is taken up again only with the same records (by their keyed fingerprint), the same plan and the same program
on the same kind of machine (``plan_digest``), and after a crash only on a processor that repeats exactly. With anything else
the same noise would be added to other sums, and their difference would show what the noise hides. After a stop nothing needs
to be repeated.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import shutil
import sys
import time
import types
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from workbench import __version__, _folders, _validate
from workbench.inference.checkpoint import load_arrays, load_facts, save_arrays, save_state
from workbench.inference.dpvi import DPVI, DPVIState
from workbench.privacy.plan import PrivacyPlan
from workbench.settling import Settled, is_array

__all__ = ["Checkpoint", "Checkpoints", "new_folder", "newest", "plan_digest", "repeats_exactly", "runs", "saved_runs"]

FORMAT = 1

SECONDS = 10.0  # between two checkpoints,
_SHARE = 0.02  # or longer, so that writing takes no more of the time than this
_KEPT = 2  # checkpoints of a run
_RUNS_KEPT = 20  # finished runs, and as many unfinished ones
_FIRST_SHARE = 20  # the first checkpoint covers a twentieth of the steps
_AHEAD = 2.0  # times the steps that are expected until the next one
_FINISHED = "finished.npz"
_NOT_OF_THE_STEPS = ("draws", "evaluate_private")  # settings


def runs() -> Path:
    """Where the folders of fits are, unless they are told otherwise."""
    return _folders.state() / "runs"


# ---- what a checkpoint belongs to ---------------------------------------------------------------------------------------


def plan_digest(settled: Settled, plan: PrivacyPlan, dpvi: DPVI) -> str:
    """32 hexadecimal digits: equal for fits that, from one key and the same records, give the same numbers bit for bit.

    It covers the settings, the calibrated noise and the sampler's padding, the code of model and guide, the versions of all
    that computes, and the kind of machine.
    """
    facts = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("jax", "jaxlib", "numpyro", "numpy", "optax")},
        "workbench": __version__,
        "python": sys.version.split()[0],
        "machine": [settled.device.platform, settled.device.device_kind, platform.machine(), _processor(), _cores()],
        "flags": os.environ.get("XLA_FLAGS", ""),
        "precision": [str(getattr(jax.config, name)) for name in ("jax_enable_x64", "jax_default_matmul_precision")],
        "model": settled.model.name,
        "options": sorted((name, repr(value)) for name, value in settled.model.options.items()),
        "code": [_code_digest(part) for part in (settled.model.model, settled.model.guide)],
        "constants": {name: _value_digest(value) for name, value in settled.constants.items()},
        "privacy": asdict(plan.settings),
        "sampler": repr(plan.sampler),
        "mechanism": repr(plan.mechanism),
        "noise_size": dpvi.noise_size,
        "settings": {name: value for name, value in asdict(settled.settings).items() if name not in _NOT_OF_THE_STEPS},
        "optimizer": None if settled.optimizer is None else _code_digest(settled.optimizer),
    }
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


@functools.cache
def _processor() -> str:
    """The processor's name where it can be told: another one may round differently."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.processor()


def _cores() -> int:
    """Those that this process may use: sums are split among them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def repeats_exactly(device: jax.Device) -> bool:
    """Whether the same program gives the same numbers in another process, to the last bit; GPUs choose kernels by speed."""
    return bool(device.platform == "cpu")


def _value_digest(value: Any) -> str:
    content = repr(value).encode()
    if is_array(value):
        content = f"{value.dtype}{np.shape(value)}".encode() + np.ascontiguousarray(value).tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _code_digest(part: Any) -> str:
    """Of a function's code and what it holds on to; of other objects their type and attributes."""
    digest, seen = hashlib.blake2b(digest_size=16), set[int]()

    def add(value: Any) -> None:
        if isinstance(value, types.CodeType):
            digest.update(value.co_code)
            for each in (value.co_names, value.co_varnames, value.co_consts):
                add(each)
        elif is_array(value):
            digest.update(_value_digest(np.asarray(value)).encode())
        elif isinstance(value, (tuple, list, set, frozenset, dict)):
            items = value.items() if isinstance(value, dict) else value
            for each in sorted(items, key=repr) if isinstance(value, (set, frozenset)) else items:
                add(each)
        elif value is None or isinstance(value, (str, bytes, int, float, complex, bool)):
            digest.update(repr(value).encode())
        elif id(value) not in seen:
            seen.add(id(value))
            digest.update(f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}".encode())
            for name in ("__code__", "__defaults__", "__kwdefaults__", "func", "args", "keywords", "__func__"):
                add(getattr(value, name, None))
            for cell in getattr(value, "__closure__", None) or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    add(cell.cell_contents)
            if not isinstance(value, (types.ModuleType, type)) and hasattr(value, "__dict__"):
                add({name: each for name, each in vars(value).items() if not name.startswith("__")})

    add(part)
    return digest.hexdigest()


# ---- writing ------------------------------------------------------------------------------------------------------------


class Checkpoints:
    """Writes the checkpoints of one run.

    :param folder: of the run. :param facts: JSON-ready, what ``resuming`` needs beside the state.
    :param mark: called with the step up to which the run may go from here on, when a checkpoint is on the disk.
    """

    def __init__(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        iterations: int,
        mark: Callable[[int], None],
    ) -> None:
        self.folder = folder
        self._facts, self._iterations, self._mark = dict(facts), iterations, mark
        self._seen = int(facts.get("reached", 0))  # before the run was taken up again
        self._reached = 0  # the step up to which the newest checkpoint lets the run go
        self._began: tuple[int, float] | None = None
        self._due = -math.inf

    def before(self, state: DPVIState, limit: int, progress: Callable[[], Mapping[str, Any]]) -> None:
        """Called before each chunk, which goes to step ``limit``; writes a checkpoint where one is due.

        :param progress: facts about the run so far, JSON-ready.
        :raises OSError: if it cannot be written; the chunk must not run then.
        """
        now = time.perf_counter()
        if limit <= self._reached and now < self._due:
            return
        step = int(state.step)
        if self._began is None:
            self._began = step, now
            reached = max(limit, step + math.ceil(self._iterations / _FIRST_SHARE))
        else:
            pace = (step - self._began[0]) / max(now - self._began[1], 1e-9)
            reached = limit + math.ceil(_AHEAD * SECONDS * pace)
        reached = min(self._iterations, reached)
        self.write(state, reached, progress())
        self._mark(reached)
        self._reached = reached
        after = time.perf_counter()
        self._due = after + max(SECONDS, (after - now) / _SHARE)

    def write(self, state: DPVIState, reached: int, progress: Mapping[str, Any]) -> None:
        """A checkpoint of ``state``, from which the run goes no further than ``reached``."""
        step = int(state.step)
        try:
            self._make_folder()
            facts = {**self._facts, **progress, "step": step, "reached": max(reached, self._seen)}
            save_state(state, self.folder / f"step-{step:012d}.npz", facts)
        except OSError as error:
            raise OSError(f"no checkpoint could be written in {self.folder} ({error.strerror or error}).") from error
        for old in sorted(self.folder.glob("step-*.npz"))[:-_KEPT]:
            old.unlink(missing_ok=True)

    def finish(self, params: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """All steps are taken: keep the release, and delete the states with their key.

        :raises OSError: if it cannot be written; the states are kept then.
        """
        self._make_folder()
        facts = {**self._facts, **progress, "step": self._iterations, "reached": self._iterations}
        save_arrays(self.folder / _FINISHED, params, facts)
        for state in self.folder.glob("step-*.npz"):
            state.unlink(missing_ok=True)
        _prune(self.folder.parent)

    def _make_folder(self) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)


def _prune(folder: Path) -> None:
    """Delete all but the newest runs in ``runs()``; a folder of the user's own choice is left as it is."""
    if folder != runs():
        return
    found = saved_runs()
    finished = [run for run in found if (run / _FINISHED).exists()]
    others = [run for run in found if run not in finished]
    for old in (*finished[:-_RUNS_KEPT], *others[:-_RUNS_KEPT]):
        shutil.rmtree(old, ignore_errors=True)


def new_folder(key: str | None = None) -> Path:
    """The folder of a fit with this key, or of a new one."""
    return runs() / (key or uuid.uuid4().hex)


# ---- reading ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """The newest file of a run.

    :param path: of the file. :param facts: as written.
    """

    path: Path
    facts: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """Of a state, or released parameters by name."""
        return load_arrays(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether all steps were taken."""
        return self.path.name == _FINISHED

    @property
    def repeats(self) -> bool:
        """Whether steps may have been taken after it was written, which going on from it would repeat."""
        return bool(self.facts["reached"] > self.facts["step"])


def newest(path: str | Path) -> Checkpoint:
    """The newest checkpoint of a run's folder that is whole; or the one in the file ``path``.

    :raises ArgumentError: naming ``path``, if there is none, or it was written by another version.
    """
    place = Path(path).expanduser()
    files = [place] if place.is_file() else [place / _FINISHED, *sorted(place.glob("step-*.npz"), reverse=True)]
    problem: _validate.ArgumentError | None = None
    for file in files:
        if not file.exists():
            continue
        try:
            facts = load_facts(file)
        except _validate.ArgumentError as error:
            problem = problem or error
            continue
        if facts.get("format") != FORMAT:
            raise _validate.ArgumentError("path", str(path), f"is no checkpoint of format {FORMAT}, which is read here.")
        return Checkpoint(file, facts)
    raise problem or _validate.ArgumentError("path", str(path), "holds no checkpoint of a fit.")


def saved_runs() -> list[Path]:
    """Folders of runs in ``runs()``, oldest first."""
    found = []
    for folder in runs().iterdir() if runs().is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another process may delete old ones
            found.append((folder.stat().st_mtime, folder))
    return [folder for _, folder in sorted(found) if folder.is_dir()]
