"""Run as a program: fits of one process, or of several that ``jax.distributed`` connects. Prints
one JSON object.

Arguments: which process it is, how many there are, the port of the first, and what to do.
``WORKBENCH_STATE`` is the folder of all.
"""

import dataclasses
import hashlib
import json
import sys
from concurrent.futures import Future

import jax
import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.storage.reading import Stored
from workbench.fitting import digests, prepared
from workbench.fitting.baseline import without_privacy
from workbench.fitting.groups import grouped
from workbench.inference.compiling import Compiling, interval_of, lower
from workbench.inference.processes import ProcessError
from workbench.ledger.ledger import Ledger
from workbench.ledger.reservation import id_of

SETTINGS = {"epsilon": 1.0, "iterations": 40, "devices": "all", "checkpoint": False}


def clinic(*, altered=False):
    """Records whose number no number of processes divides. :param altered: whether the last of them
    is another.
    """
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"dose": random.uniform(0, 200, 80), "ill": random.random(80) < 0.5})
    data = wb.data.from_frame(frame, target="ill", bounds={"dose": (0, 200)}, name="clinic")
    dose, ill = (array.copy() for array in data.train)
    dose[52] = 0.5 if altered else 0.25
    return dataclasses.replace(data, train=(dose[:53], ill[:53]))


def digest(arrays):
    """Of the bits of arrays by name."""
    return hashlib.sha256(
        b"".join(np.asarray(arrays[name]).tobytes() for name in sorted(arrays))
    ).hexdigest()


def uncompiled(step, hyper, state, records, steps, within):
    """As ``compiling.compile_ahead``, for a fit that is refused before it needs a program."""
    lowered = Future()
    lowered.set_result(lower(step, hyper, state, records, interval_of(steps)))
    compilation = Future()
    compilation.set_exception(AssertionError("it was not refused"))
    return Compiling(lowered, compilation)


def seeded(is_first):
    """A fit whose noise follows from a seed."""
    *_, last = wb.prepare("logistic", clinic(), seed=3, **grouped(SETTINGS)).run()
    return {"status": last.status, "params": digest(last.params)}


def opened(name):
    """A file in the folder where this program was started."""
    return wb.data.open(f"{name}.wbr", reading="direct")


def at_rest(is_first):
    """A fit of a file, of which each process has read its part; and one whose last process has
    another file.
    """
    blocks, scan = [], Stored.scan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stored, "scan", lambda *given: (blocks.append(given[2:]), scan(*given))[1])
        fit = wb.prepare("logistic", opened("same"), seed=3, **grouped(SETTINGS))
        fit.on_device  # noqa: B018 - where records are brought to the devices
        read = [(found[0].start, found[0].stop) for found in blocks]
    *_, last = fit.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "compile_ahead", uncompiled)
        other = words(opened("same" if is_first else "other")) if jax.process_count() > 1 else None
    return {"params": digest(last.params), "read": read, "other": other}


def secret(is_first):
    """Two fits with secret keys, and one that the last process stops."""
    answers, fit = [], wb.prepare("logistic", clinic(), **grouped(SETTINGS))
    for stops in (False, False, True):
        words = np.asarray(jax.random.key_data(fit.key))
        *_, last = fit.run(lambda stops=stops: stops and not is_first)
        answers.append(
            {
                "key": digest({"": words}),
                "status": last.status,
                "step": last.step,
                "params": digest(last.params),
            }
        )
        fit = fit.again()
    return answers


def words(data=None, **changes):
    """The error of a fit that is refused before its first step."""
    try:
        wb.fit("logistic", clinic() if data is None else data, **grouped({**SETTINGS, **changes}))
    except (ArgumentError, ProcessError) as error:
        return f"{type(error).__name__}: {error}"


def refused(is_first):
    """{what differs in the last process: the error in this one}."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "compile_ahead", uncompiled)
        return {
            "plan": words(iterations=40 if is_first else 41),
            "data set": words(clinic(altered=not is_first)),
        }


def more_refused(is_first):
    """As ``refused``; None stands for what one process finds by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "compile_ahead", uncompiled)
        if not is_first:
            patch.setattr(digests, "__version__", "0.0")
        found = {"version of Python or of a package": words()}
        patch.setattr(digests, "__version__", wb.__version__)
        jax.config.update("jax_default_matmul_precision", None if is_first else "highest")
        found["precision"] = words()
        jax.config.update("jax_default_matmul_precision", None)
        if is_first:
            ledger = Ledger()
            ledger.set_cap(
                ledger.add(id_of(clinic())).number, 0.5, 0.01, "add_or_remove_one", why="a test"
            )
        with pytest.raises(ArgumentError, match="a fit without privacy takes one process"):
            without_privacy(wb.prepare("logistic", clinic(), **grouped(SETTINGS)))
        with pytest.raises(ArgumentError, match="a sweep takes one process"):
            wb.sweep(
                "logistic",
                clinic(),
                epsilons=1.0,
                iterations=5,
                execution=wb.Execution(devices="all"),
            )
        with pytest.raises(ArgumentError, match="an audit takes one process"):
            wb.audit("logistic", epsilon=1.0, iterations=5, trials=100, devices="all")
        return found | {
            "cap": words(),
            "no devices": words(devices=None),
            "some devices": words(devices=1),
        }


PARTS = {
    "seeded": seeded,
    "at_rest": at_rest,
    "secret": secret,
    "refused": refused,
    "more_refused": more_refused,
}


def main():
    place, count, port = map(int, sys.argv[1:4])
    if count > 1:
        address = f"127.0.0.1:{port}"
        jax.distributed.initialize(address, count, place, coordinator_bind_address=address)
    print(json.dumps({part: PARTS[part](place == 0) for part in sys.argv[4:]}))


if __name__ == "__main__":
    main()
