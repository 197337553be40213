"""Programs are kept for fits on public data alone, in a folder of the user's that stays small and
whole.
"""

import os
import subprocess
import sys
import threading
import zlib

import pytest

from workbench import _compiled

SCRIPT = """
import sys
import threading
import types
import jax
import workbench as wb
from workbench import _compiled
from workbench._folders import cache

kept = lambda: {file.name for file in cache().rglob("*-cache")}
with _compiled.kept(False):
    jax.jit(lambda x: x * 3)(1.0)
with _compiled.kept(True), _compiled.kept(False):
    jax.jit(lambda x: x * 5)(1.0)
jax.jit(lambda x: x * 7)(1.0)


class Fit:
    data = types.SimpleNamespace(is_public=True, evaluation_is_public=True)

    @_compiled.keeping
    def run(self):
        yield 1
        yield 2


steps = Fit().run()
assert next(steps) == 1
jax.jit(lambda x: x * 17)(1.0)  # of somebody else, while the generator rests
assert list(steps) == [2]
Fit.data.evaluation_is_public = False
assert [jax.jit(lambda x: x * 19)(1.0) for _ in Fit().run()]
with _compiled.kept(True):
    other = threading.Thread(target=lambda: jax.jit(lambda x: x * 23)(1.0))
    other.start()
    other.join()
assert kept() == set(), kept()
with _compiled.kept(True):
    jax.jit(lambda x: x * 11)(1.0)
jax.jit(lambda x: x * 13)(1.0)
print(len(kept()))
"""

FIVE_STEPS = """
import jax
import workbench as wb

events = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
wb.fit("logistic", "breast_cancer", epsilon=1.0, iterations=5, progress=False, ledger=False)
print(events.count("/jax/core/compile/backend_compile_duration"))
"""


def run(tmp_path, script=SCRIPT, **environment):
    """Standard output of a script, as a user's process with nothing kept and nothing set
    runs it.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**mine, "XDG_CACHE_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_programs_of_private_records_and_of_the_rest_of_the_process_are_not_kept(tmp_path):
    assert run(tmp_path) >= 1
    (place,) = (tmp_path / "dpvi-workbench" / "programs").iterdir()
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.thorough
def test_one_setting_switches_it_off(tmp_path):
    assert run(tmp_path, JAX_ENABLE_COMPILATION_CACHE="0") == 0


@pytest.mark.thorough
def test_a_home_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert run(tmp_path / "file") == 0


@pytest.mark.thorough
def test_a_fit_has_few_programs(tmp_path):
    assert 5 <= run(tmp_path, FIVE_STEPS) <= 15


@pytest.mark.parametrize("name", ["a-cache", "b-cache"])
def test_what_is_half_written_is_dropped_and_the_oldest_where_there_is_too_much(tmp_path, name):
    place, other = tmp_path / "now", tmp_path / "before"
    _compiled.tidy(place)
    other.mkdir()
    whole = zlib.compress(b"program" * 1000)
    (place / "broken-cache").write_bytes(whole[:-5])
    (other / "a-cache").write_bytes(whole)
    (place / "b-cache").write_bytes(whole)
    oldest = next(tmp_path.rglob(name))
    os.utime(oldest, (1, 1))
    _compiled.tidy(place)
    assert {file.name for file in tmp_path.rglob("*-cache")} == {"a-cache", "b-cache"}
    _compiled.tidy(place, len(whole))
    assert {file.name for file in tmp_path.rglob("*-cache")} == {"a-cache", "b-cache"} - {name}


def test_processes_may_tidy_one_folder_at_once(tmp_path):
    place = tmp_path / "now"
    _compiled.tidy(place)
    for number in range(200):
        (place / f"{number}-cache").write_bytes(b"broken")
    threads = [threading.Thread(target=_compiled.tidy, args=(place,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(place.glob("*-cache")) == []
