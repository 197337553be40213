"""XLA's programs, kept between runs of the tests: compiling is most of what the tests do.

JAX finds a program by its text, its compile options and its own version. The folder's name adds what else decides what comes
out. A file that a killed process left half written would be met by every later run, so each is looked at once.
"""

import hashlib
import importlib.metadata
import os
import platform
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1] / ".cache" / "xla"
MOST_BYTES = 2**30  # of all versions together; a whole run of the tests writes about a tenth
_LOOKED_AT = "looked-at"


def folder() -> Path:
    """Where programs for this machine, Python, JAX and these XLA flags are kept."""
    versions = [importlib.metadata.version(name) for name in ("jax", "jaxlib")]
    facts = [*versions, platform.python_version(), os.environ.get("XLA_FLAGS", ""), _processor(), str(os.cpu_count())]
    return ROOT / hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()


def tidy(place: Path) -> None:
    """Drop what is broken in ``place``, and the oldest of all places while they are too large together."""
    place.mkdir(parents=True, exist_ok=True)
    mark = place / _LOOKED_AT
    before = mark.stat().st_mtime if mark.exists() else 0.0
    mark.touch()
    for file in place.glob("*-cache"):
        if file.stat().st_mtime >= before and not _is_whole(file.read_bytes()):
            file.unlink(missing_ok=True)
    found = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in ROOT.glob("*/*-cache"))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, file in found:
        if excess <= 0:
            break
        file.unlink(missing_ok=True)
        excess -= size


def _is_whole(content: bytes) -> bool:
    """Of a file as JAX writes it where no other compressor is installed; one by another compressor is left to JAX."""
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(content)
    except zlib.error:
        return content.startswith(b"\x28\xb5\x2f\xfd")  # zstd's first bytes
    return unpacking.eof


def _processor() -> str:
    """Its architecture, name and what it can do: programs for another one may stop with an illegal instruction."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no Linux
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *sorted({line for line in lines if line.startswith(wanted)})])
