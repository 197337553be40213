"""XLA's programs, kept between processes: compiling is most of what a small fit takes.

Records are arguments of a program and not in it. But a program has their shapes, and so their
number, and it has whatever a model reads besides its arguments. Both may be private. Programs are
therefore kept only of threads that work on a fit of public data: not of private records, and not of
what else the process compiles. ``JAX_ENABLE_COMPILATION_CACHE=0`` keeps none. Where the user has
given JAX a folder of their own (``JAX_COMPILATION_CACHE_DIR``), all of this is left to JAX.

JAX finds a program by its text, its compile options and its own version. The folder's name adds
what else decides what comes out. A file that a killed process left half written would be met by
every later run, so each is looked at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import math
import os
import platform
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax._src import config as jax_config

from workbench import _folders

__all__ = ["MOST_BYTES", "folder", "keeping", "kept", "tidy"]

MOST_BYTES = 2**28  # of all versions together; a fit leaves about one MB
_LOOKED_AT = "looked-at"
# how long compiling must take for a program to be kept: of one thread, while it is used as a
# context
_least_seconds: Any = getattr(jax_config, "persistent_cache_min_compile_time_secs", None)


@contextlib.contextmanager
def kept(is_public: bool) -> Iterator[None]:
    """Have JAX keep what this thread compiles within, or not.

    :param is_public: whether all data of the fit within are public.
    """
    if not _is_on():
        yield
        return
    with _least_seconds(0.0 if is_public else math.inf):
        yield


def keeping(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method, or a generator, of something with ``data``, within ``kept``; a generator while it
    works, not between.
    """
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def steps(self: Any, *arguments: Any, **options: Any) -> Any:
            with contextlib.closing(method(self, *arguments, **options)) as works:
                while True:
                    with kept(_is_public(self.data)):
                        try:
                            result = next(works)
                        except StopIteration as ended:
                            return ended.value
                    yield result

        return steps

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        with kept(_is_public(self.data)):
            return method(self, *arguments, **options)

    return call


def _is_public(data: Any) -> bool:
    """Whether all of a data set is: programs have the shapes of evaluation records, too."""
    return bool(data.is_public and data.evaluation_is_public)


def folder(root: Path) -> Path:
    """Where programs for this machine, Python, JAX and these XLA flags are kept under ``root``."""
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib")]
    facts = [
        *versions,
        platform.python_version(),
        os.environ.get("XLA_FLAGS", ""),
        _processor(),
        str(os.cpu_count()),
    ]
    return root / hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()


def tidy(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Make the folder ``path``, drop broken programs from it, and the oldest of all versions while
    there are too many.

    :param most_bytes: of all programs together.
    :raises OSError: where it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # anyone who can write there can have this process run anything
    path.mkdir(mode=0o700, exist_ok=True)
    mark = path / _LOOKED_AT
    before = mark.stat().st_mtime if mark.exists() else 0.0
    mark.touch()
    sizes = {}
    for file in path.parent.glob("*/*-cache"):
        with contextlib.suppress(FileNotFoundError):  # of another process that tidies
            facts = file.stat()
            if (
                file.parent == path
                and facts.st_mtime >= before
                and not _is_whole(file.read_bytes())
            ):
                file.unlink()
            else:
                sizes[file] = facts.st_mtime, facts.st_size
    excess = sum(size for _, size in sizes.values()) - most_bytes
    for file, (_, size) in sorted(sizes.items(), key=lambda item: item[1]):
        if excess <= 0:
            break
        file.unlink(missing_ok=True)
        excess -= size


@functools.cache
def _is_on() -> bool:
    """Whether programs can be kept, which then begins."""
    config: Any = jax.config
    if (
        not config.jax_enable_compilation_cache
        or config.jax_compilation_cache_dir is not None
        or _least_seconds is None
    ):
        return False
    path = folder(_folders.cache() / "programs")
    try:
        tidy(path)
        facts = path.stat()
        if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
            return False  # another user could have this process run anything
    except OSError:  # a home that cannot be written
        return False
    # of a file that another process is writing, or a disk that is full: JAX compiles then
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning
    )
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", math.inf)
    return True


def _is_whole(content: bytes) -> bool:
    """Of a file as JAX writes it where no other compressor is installed; one by another compressor
    is left to JAX.
    """
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(content)
    except zlib.error:
        return content.startswith(b"\x28\xb5\x2f\xfd")  # zstd's first bytes
    return unpacking.eof


def _processor() -> str:
    """Its architecture, name and what it can do: programs for another one may stop with an illegal
    instruction.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(
        [platform.machine(), *sorted({line for line in lines if line.startswith(wanted)})]
    )
