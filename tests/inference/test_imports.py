import json
import subprocess
import sys

LATER_ROOMS = (
    "ipywidgets",
    "IPython",
    "arviz",
    "dp_accounting",
    "fourier_accountant",
    "matplotlib",
    "sklearn",
    "pandas",
    "jupyterlab",
    "notebook",
    "xarray",
)

BLOCKER = f"""
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {LATER_ROOMS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (blocked)", name=name)

sys.meta_path.insert(0, Blocker())
"""

FIVE_STEPS = """
import numpy as np
import numpyro
import numpyro.distributions as dist
import workbench.inference as inference
from workbench.noise.mechanism import GaussianMechanism
from workbench.noise.chacha20 import new_key
from workbench.sampling import PoissonSampler

def model(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1), obs=x)

def guide(x, num_records=None):
    numpyro.sample("mean", dist.Normal(numpyro.param("loc", 0.0), 0.1))

x = np.ones(20, np.float32)
dpvi = inference.DPVI(
    model, guide, numpyro.optim.Adam(0.1), privacy=(PoissonSampler(20, 0.5, 20),
    GaussianMechanism(1.0, 1.0))
)
state = dpvi.init(new_key(), x)
*_, last = inference.run(dpvi.private_step, dpvi.hyper, state, (x,), 5)
print(last.status, last.step)
"""


def python(code):
    """Standard output of ``code`` in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


A_CLIPPED_SUM = """
import jax.numpy as jnp
from workbench.clipping import clipped_sum

def loss(u, record):
    return 0.5 * jnp.sum((u - record) ** 2)

records = jnp.array([[3.0, 4.0], [0.0, 0.0]])
total, norms = clipped_sum(loss, jnp.zeros(2), records, jnp.ones(2, bool), 1.0)
print([f"{float(number):.2f}" for number in (*total, *norms)])
"""


def test_core_trains_where_only_jax_and_numpyro_are_installed_and_clipping_where_only_jax_is():
    only_jax = BLOCKER.replace(repr(LATER_ROOMS), repr((*LATER_ROOMS, "numpyro", "optax")))
    numpyro_too = f"del sys.meta_path[0]\n{BLOCKER}{BLOCKED}{FIVE_STEPS}"
    assert python(only_jax + A_CLIPPED_SUM + numpyro_too).splitlines() == [
        "['-0.60', '-0.80', '5.00', '0.00']",
        "No module named 'pandas' (blocked)",
        "done 5",
    ]


BLOCKED = """
try:
    import pandas
except ModuleNotFoundError as error:
    print(error)
"""


def test_rooms_ask_for_nothing_of_the_later_ones_even_where_they_are_installed():
    """The package itself starts no JAX and no plots, and its privacy room no accountant."""
    rooms = ["workbench", "workbench.privacy", "workbench.inference"]
    listings = python(
        f"import importlib, json, sys\nfor room in {rooms}:\n    importlib.import_module(room)\n"
        "    print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    package, privacy, inference = (set(json.loads(line)) for line in listings.splitlines())
    assert "workbench" in package
    numeric = {"jax", "jaxlib", "numpyro", "optax", "numpy", "scipy"}
    assert not package & (numeric | set(LATER_ROOMS))
    assert not privacy & {"dp_accounting", "scipy", "jax"}
    assert not inference & set(LATER_ROOMS)
