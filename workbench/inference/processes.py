"""Processes that take the steps of one fit together, each with its own devices, begun with
``jax.distributed``.

Every process makes the same calls in the same order, because each of them waits for the others.
Only the first process writes files and the ledger. The others follow what it decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils

from workbench._validate import ArgumentError

__all__ = ["ALONE", "ProcessError", "Processes"]

_LONGEST = 500  # bytes of a message


class ProcessError(RuntimeError):
    """Another process of the same fit refused it, or has ended."""


@dataclass(frozen=True)
class Processes:
    """The processes of a fit.

    :param count: 1 for a fit in one process, in which nothing is exchanged; else all that
        ``jax.distributed`` began.
    """

    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that decides and writes."""
        return self.count == 1 or jax.process_index() == 0

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Make a ``ProcessError`` of what JAX raises when a process has ended in the middle of an
        exchange.
        """
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if self.count == 1:
                raise
            reason = str(error).partition("\n")[0]
            raise ProcessError(
                f"a process of this fit has ended, or cannot be reached ({reason})."
            ) from error

    def require_one(self, feature: str) -> None:
        """:raises ArgumentError: naming ``devices``, for what does not exchange what its processes
        draw or decide.
        """
        if self.count > 1:
            raise ArgumentError(
                "devices", f"of {self.count} processes", f"{feature} takes one process."
            )

    def gathered(self, local: np.ndarray) -> np.ndarray:
        """``local`` of every process, in their order; equal in all of them. Its type and shape must
        be the same everywhere.

        :raises ProcessError: if a process has ended.
        """
        if self.count == 1:
            return local[np.newaxis]
        with self.exchanging():
            return np.asarray(multihost_utils.process_allgather(local))

    def from_first(self, local: bytes) -> bytes:
        """``local`` of the first process, in all of them. The others give as many bytes, which do
        not leave them.
        """
        drawn = np.frombuffer(local if self.is_first else bytes(len(local)), np.uint8)
        return self.gathered(drawn)[0].tobytes()

    def by_first(self, action: Callable[[], None]) -> None:
        """Call ``action`` in the first process, while the others wait for it.

        :raises Exception: in the first process what ``action`` raises, in the others a
            ``ProcessError`` with its words.
        """
        problem: Exception | None = None
        if self.is_first:
            try:
                action()
            except Exception as error:
                problem = error
        words = "" if problem is None else str(problem) or type(problem).__name__
        reported = self.from_first(words.encode()[:_LONGEST].ljust(_LONGEST, b"\0")).rstrip(b"\0")
        if problem is not None:
            raise problem
        if reported:
            raise ProcessError(f"process 0 ended the fit: {reported.decode(errors='replace')}")

    def agreed(self, limit: int) -> int:
        """The ``limit`` of the first process; 0 if that of any is 0, which asks all to stop."""
        limits = self.gathered(np.array([limit], np.int32))
        return int(limits[0, 0]) if limits.all() else 0

    def leave(self) -> None:
        """Ask the others, which are at ``agreed``, to stop."""
        with contextlib.suppress(ProcessError):
            self.agreed(0)

    def end_together(self) -> None:
        """Makes the other processes wait until the first has arrived too."""
        with contextlib.suppress(*(ProcessError,) if self.is_first else ()):
            self.agreed(1)

    def require_same(self, digests: Mapping[str, str]) -> None:
        """Compare digests of what must be the same in every process.

        :param digests: 32 hexadecimal digits by the name of what they are of.
        :raises ArgumentError: naming ``processes``, in all of them alike.
        """
        rows = [np.frombuffer(bytes.fromhex(digest), np.uint8) for digest in digests.values()]
        of_all = self.gathered(np.stack(rows))
        for process, digest in np.argwhere((of_all != of_all[0]).any(axis=-1)):
            name = list(digests)[digest]
            raise ArgumentError(
                "processes", self.count, f"process {process} has another {name} than process 0."
            )


ALONE = Processes()
