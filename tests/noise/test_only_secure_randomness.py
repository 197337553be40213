"""No draw that privacy rests on comes from another generator than ``workbench.noise.chacha20``.

The source of every module is read: whatever names a generator of JAX, NumPyro, NumPy, SciPy, Python
or the operating system is found where it stands, and is an offence unless it is listed here with a
reason. What a step compiles to is read as well.
"""

import ast
import functools
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from numpyro.optim import Adam

from tests import zoo
from workbench.inference import DPVI, step
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

ROOT = pathlib.Path(__file__).parents[2]
FAST_KEY = "workbench.noise.chacha20.fast_key"

# modules and functions that draw, or that make keys of another generator
GENERATORS = (
    "jax.random",
    "jax.lax.rng_bit_generator",
    "jax.lax.rng_uniform",
    "numpy.random",
    "numpyro.handlers.seed",
    "os.getrandom",
    "os.urandom",
    "random",
    "scipy.stats.qmc",
    "secrets",
    "uuid",
    FAST_KEY,
)
# a key of ChaCha20 stays one through these
KEY_HANDLING = {
    f"jax.random.{name}" for name in ("fold_in", "key_data", "key_impl", "split", "wrap_key_data")
}
METHODS = {"rvs"}  # of SciPy's distributions
ARGUMENTS = {"random_state", "rng_key", "rng_seed"}  # of pandas, scikit-learn and NumPyro

# where minibatches are drawn and noise is added: nothing may be allowed here
PRIVATE_ROOMS = ("workbench/noise/mechanism.py", "workbench/sampling/")


class Use(NamedTuple):
    """A generator named in a module: its path, the functions and classes around the place, the
    generator.
    """

    path: str
    within: str
    generator: str


_SPLIT_SEED = (
    "which published rows are evaluation records follows from a public seed and the row's place"
)
_SUBSET_SEED = "which public rows a subset takes follows from a public seed and the row's place"
_CHACHA20 = "its keys are of ChaCha20"
_MADE_UP = "records that are made up from a public seed"
_NO_PRIVACY = "of private=False, which adds no noise and says so"
_RELEASED = "draws from a posterior that is released already"
_INDEPENDENT = "made-up tables of independent columns, with which released scores are compared"
_NAME = "a name that no other thing has; no noise comes from it"
ALLOWED = {
    Use("workbench/noise/chacha20.py", "new_key", "os.urandom"): "the source of secret keys",
    Use("workbench/noise/normals.py", "_normal_chunk", "jax.random.bits"): _CHACHA20,
    Use("workbench/noise/normals.py", "normal.at_once", "jax.random.bits"): _CHACHA20,
    Use("workbench/noise/integers.py", "rounded_gaussian", "jax.random.bits"): _CHACHA20,
    Use("workbench/noise/integers.py", "_of_keys.chunk", "jax.random.bits"): _CHACHA20,
    Use(
        "workbench/data/dependence.py", "PairScores.dependence", "numpy.random.default_rng"
    ): _INDEPENDENT,
    Use("workbench/data/dependence.py", "_of_independent", "numpy.random.Generator"): _INDEPENDENT,
    Use("workbench/formula/squares.py", "_measured", "numpy.random.default_rng"): _RELEASED,
    Use("workbench/data/splits.py", "evaluation_rows", "numpy.random.Generator"): _SPLIT_SEED,
    Use("workbench/data/splits.py", "evaluation_rows", "numpy.random.PCG64"): _SPLIT_SEED,
    Use("workbench/data/dataset.py", "Dataset.subset", "numpy.random.Generator"): _SUBSET_SEED,
    Use("workbench/data/dataset.py", "Dataset.subset", "numpy.random.PCG64"): _SUBSET_SEED,
    Use(
        "workbench/fitting/prepared.py", "PreparedFit._begin", "os.urandom"
    ): "the key of digests that processes compare",
    Use(
        "workbench/data/storage/form.py", "new_id", "os.urandom"
    ): "the name of a file, and the salt of its key",
    Use(
        "workbench/data/storage/keys.py", "_in_keyring", "os.urandom"
    ): "the secret key of records at rest",
    Use("workbench/data/storage/new_file.py", "_locked_file", "uuid.uuid4"): _NAME,
    Use(
        "workbench/data/storage/oblivious.py", "minibatches", "os.urandom"
    ): "the key of one scratch file",
    Use(
        "workbench/data/storage/packing.py", "_scratch_for", "os.urandom"
    ): "the key of one scratch file",
    Use(
        "workbench/data/storage/persons.py", "Persons.__init__", "os.urandom"
    ): "the key of hashes that find persons",
    Use(
        "workbench/_keys.py", "make_key", "os.urandom"
    ): "secret keys of fingerprints, ledgers and records at rest",
    Use("workbench/sklearn/_estimator.py", "PrivateEstimator.__new__", "secrets.token_hex"): _NAME,
    Use("workbench/widgets/kit/presses.py", "Presses.__init__", "secrets.token_hex"): _NAME,
    Use("workbench/ledger/ledger.py", "Ledger.reserve", "uuid.uuid4"): _NAME,
    Use("workbench/owners/planning.py", "plan", "uuid.uuid4"): _NAME,
    Use(
        "workbench/owners/rounds.py", "answered", "uuid.uuid4"
    ): "tells an owner's program from others, of os.urandom; no noise or mask depends on it",
    Use(
        "workbench/formula/regression.py", "Regression._correction", "numpyro.handlers.seed"
    ): "latents that records do not use",
    Use(
        "workbench/formula/regression.py", "Regression._correction", "rng_seed"
    ): "latents that records do not use",
    Use(
        "workbench/formula/shapes.py", "OneSign.sample", "jax.random.dirichlet"
    ): "draws of a prior, from the caller's key",
    Use(
        "workbench/results/clipping_bias.py", "_unlearned", "jax.random.key"
    ): "draws of a prior, for its width",
    Use("workbench/ledger/owners.py", "own", "uuid.uuid4"): _NAME,
    Use("workbench/fitting/checkpoints.py", "new_folder", "uuid.uuid4"): _NAME,
    Use("workbench/fitting/single_release.py", "charged", "uuid.uuid4"): _NAME,
    Use("workbench/fitting/choosing.py", "planned", "uuid.uuid4"): _NAME,
    Use("workbench/fitting/run_log.py", "RunLog.begin", "uuid.uuid4"): _NAME,
    Use("workbench/fitting/run_log.py", "RunLog._digest_in_ledger", "uuid.uuid4"): _NAME,
    Use("workbench/results/_atomic.py", "replace", "uuid.uuid4"): _NAME,
    Use("workbench/sweeps/prepared.py", "PreparedSweep.__post_init__", "uuid.uuid4"): _NAME,
    Use("workbench/data/synthetic.py", "hierarchical", "numpy.random.default_rng"): _MADE_UP,
    Use("workbench/data/synthetic.py", "mixture", "numpy.random.default_rng"): _MADE_UP,
    Use("workbench/data/synthetic.py", "tokens", "numpy.random.default_rng"): _MADE_UP,
    Use("workbench/teaching/simulations.py", "_cloud", "numpy.random.default_rng"): _MADE_UP,
    Use(
        "models/neural_classifier.py", "_starting_value", "jax.random.normal"
    ): "starting values, which depend on no record",
    Use(
        "models/vae.py", "_parameters", "jax.random.normal"
    ): "starting values, which depend on no record",
    Use(
        "workbench/models/relations.py", "_started", "numpyro.handlers.seed"
    ): "reads the structure off blank records",
    Use(
        "workbench/models/relations.py", "dependence.values_of_sites", "numpyro.handlers.seed"
    ): "the same, of blank records",
    Use(
        "workbench/models/relations.py", "dependence.values_of_sites", "rng_seed"
    ): "reads the structure off blank records",
    Use(
        "workbench/models/independence.py", "_are_independent", "numpyro.handlers.seed"
    ): "reads the structure of the guide",
    Use(
        "workbench/models/pictures.py", "samples", "numpy.random.default_rng"
    ): "codes to decode into a picture",
    Use(
        "workbench/record_model/base_noise.py", "signs", "jax.random.rademacher"
    ): "where gradients are taken; the point is released",
    Use(
        "workbench/posterior/noise_aware.py", "_priors.of_two_draws", "jax.random.key"
    ): "two traces of a prior, compared",
    Use(
        "workbench/posterior/joint_prior.py", "JointPrior.__init__", "jax.random.key"
    ): "two traces of a prior, the same",
    Use(
        "workbench/posterior/joint_prior.py", "JointPrior.sample", "jax.random.key"
    ): "draws of a prior",
    Use(
        "workbench/posterior/joint_prior.py", "JointPrior._traced", "jax.random.key"
    ): "latents are given; it is not used",
    Use("workbench/posterior/_quadratic_chain.py", "draws", "numpy.random.Generator"): _RELEASED,
    Use(
        "workbench/fitting/posterior.py", "noise_aware_draws", "numpy.random.default_rng"
    ): _RELEASED,
    Use(
        "workbench/fitting/baseline.py", "FitWithoutPrivacy._posterior", "numpy.random.default_rng"
    ): _NO_PRIVACY,
    Use("workbench/posterior/normal_likelihood.py", "draw", "numpy.random.Generator"): _NO_PRIVACY,
    Use(
        "workbench/posterior/normal_likelihood.py", "_derivatives.loss", "jax.random.key"
    ): "records have no noise; not used",
    Use(
        "workbench/posterior/normal_likelihood.py", "_shapes", "jax.random.key"
    ): "only shapes are used",
    **{
        Use("workbench/formula/likelihoods.py", within, f"jax.random.{name}"): (
            "draws from a likelihood"
        )
        for within, names in {
            "TimeToEvent.sample": ["exponential"],
            "InverseGaussianOfMean.sample": ["normal", "uniform"],
            "PoissonOfMean.sample_positive": ["poisson"],
            "NegativeBinomialOfMean.sample_positive": ["gamma", "poisson"],
            "_WithZeros.sample": ["bernoulli"],
            "_first_hazard": ["uniform"],
        }.items()
        for name in names
    },
    **{
        Use("workbench/formula/new_groups.py", "_random", f"numpy.random.{name}"): (
            "effects of groups that no record has, from the release and public names"
        )
        for name in ("default_rng", "Generator")
    },
    Use(
        "workbench/results/description.py", "prior_draws.one", "numpyro.handlers.seed"
    ): "draws of a prior",
    Use("workbench/fitting/one_shot.py", "OneShot.draws", "numpy.random.default_rng"): _RELEASED,
    **{
        Use("workbench/fitting/sums.py", within, "numpy.random.Generator"): _RELEASED
        for within in (
            *("Sums.prior", "OfRegression.prior", "OfTable.prior", "OfCells.prior"),
            *("Sums.posterior", "OfRegression.posterior", "OfTable.posterior", "OfCells.posterior"),
        )
    },
    Use(
        "workbench/fitting/sums.py", "_with_functions", "jax.random.key"
    ): "latents are given; it is not used",
    Use(
        "workbench/fitting/one_shot.py", "_split", FAST_KEY
    ): "two traces of a prior; nothing is drawn for a fit",
    Use("workbench/posterior/gram_chain.py", "draw", "numpy.random.Generator"): _RELEASED,
    Use(
        "workbench/posterior/_ellipses.py", "Ellipses.__init__", "numpy.random.Generator"
    ): _RELEASED,
    **{
        Use("workbench/posterior/joint_cells.py", within, "numpy.random.Generator"): _RELEASED
        for within in ("draw", "prior_draws", "_probabilities", "_Chain.__init__")
    },
    Use("workbench/models/joint_cells.py", "Decomposable.sample", "jax.random.uniform"): _RELEASED,
    **{
        Use("workbench/posterior/joint_normal.py", within, "numpy.random.Generator"): _RELEASED
        for within in ("draw", "prior_draws", "_normal_wishart", "_Chain.__init__")
    },
    Use(
        "workbench/posterior/gram_chain.py", "_Chain.__init__", "numpy.random.Generator"
    ): _RELEASED,
    Use(
        "workbench/posterior/statistics.py", "linear_gaussian", "jax.random.key"
    ): "two traces of a prior, compared",
    Use(
        "workbench/posterior/statistics.py", "_require_normal", "jax.random.key"
    ): "latents are given; it is not used",
    Use(
        "workbench/record_model/elbo.py", "predictive.one", "jax.random.key"
    ): "latents are given; it is not used",
    Use(
        "workbench/models/by_record.py", "said_of.densities", "jax.random.key"
    ): "latents are given; it is not used",
    Use(
        "workbench/results/prediction.py", "Predictor.ranks.rank", FAST_KEY
    ): "draws of a model to rank a target among; the seeds are ChaCha20's",
    Use(
        "workbench/results/prediction.py", "Predictor.ranks.rank", "jax.random.uniform"
    ): "breaks ties of such ranks",
    Use(
        "workbench/fitting/posterior.py", "functions_of.one", "jax.random.key"
    ): "latents are given; it is not used",
    **{
        Use("workbench/posterior/noise_aware.py", within, "numpy.random.Generator"): _RELEASED
        for within in ("draw", "of_quadratics", "_locations")
    },
    **{
        Use("workbench/posterior/_curvature_chain.py", within, "numpy.random.Generator"): _RELEASED
        for within in ("curvatures", "_drawn", "_Chains.__init__")
    },
    Use(
        "workbench/results/prediction.py", "Predictor.split", FAST_KEY
    ): "starting values that are not used",
    Use("workbench/results/prediction.py", "Predictor._held_out", FAST_KEY): _RELEASED,
    Use("workbench/results/prediction.py", "Predictor._mean", FAST_KEY): _RELEASED,
    Use("workbench/results/prediction.py", "Predictor.by_record", FAST_KEY): _RELEASED,
    Use("workbench/results/prediction.py", "Predictor._trace", "numpyro.handlers.seed"): _RELEASED,
    Use("workbench/results/prediction.py", "Predictor.sample", "jax.random.randint"): _RELEASED,
    Use("workbench/results/prediction.py", "synthetic_key", FAST_KEY): _RELEASED,
    Use("workbench/results/synthesis.py", "synthetic_records", "jax.random.randint"): _RELEASED,
    Use("workbench/results/twins.py", "Twins.__init__", "numpy.random.default_rng"): _RELEASED,
    Use("workbench/results/twins.py", "Twins._table", "numpy.random.default_rng"): _RELEASED,
    Use(
        "workbench/inference/state.py", "fast_child", FAST_KEY
    ): "starting values, metrics and draws of what is released",
    Use(
        "workbench/inference/assemble.py", "_require_separate_records", FAST_KEY
    ): "its shape alone",
    Use(
        "workbench/inference/step.py", "PrivateStep.draw", FAST_KEY
    ): "base noise of the guide; no guarantee rests on it",
    Use(
        "workbench/inference/svi.py", "DPVI.evaluate", FAST_KEY
    ): "draws of latents for a number without a guarantee",
    Use(
        "workbench/record_model/plates.py", "abstract_trace", "jax.random.key"
    ): "shapes alone; nothing is computed",
    Use(
        "workbench/record_model/plates.py", "abstract_trace.run", "numpyro.handlers.seed"
    ): "shapes alone; nothing is computed",
    Use(
        "workbench/record_model/additivity.py", "_require_sums", "numpy.random.default_rng"
    ): "made-up records",
    Use(
        "workbench/record_model/additivity.py", "_made_up", "numpy.random.Generator"
    ): "made-up records",
    Use(
        "workbench/record_model/base_noise.py", "seeded", "numpyro.handlers.seed"
    ): "hands the guide its base noise",
    Use(
        "workbench/record_model/base_noise.py", "_RecordSeed", "numpyro.handlers.seed"
    ): "hands the guide its base noise",
    Use(
        "workbench/auditing/attack.py", "clipped_gradients", "jax.random.key"
    ): "base noise of the attacker's own guess",
    Use(
        "workbench/auditing/canaries.py", "table_canaries", "numpy.random.default_rng"
    ): "made-up records of the auditor",
    Use(
        "workbench/plots/_plate_layout.py", "_set_across", "random.Random"
    ): "orders of a drawing to try, from a fixed seed",
    Use(
        "workbench/auditing/running.py", "_attacked", "jax.random.bernoulli"
    ): "the auditor's coins, " + _CHACHA20,
}


class _Reader(ast.NodeVisitor):
    """Collects the uses of a module."""

    def __init__(self, path, tree):
        self.path, self.around, self.uses = path, [], set()
        self.imported = {}  # local name: what it stands for
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self.imported[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom):
                package = (
                    list(pathlib.PurePosixPath(path).parts[: -node.level]) if node.level else []
                )
                module = ".".join([*package, *filter(None, [node.module])])
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (
                        module if alias.name == "*" else f"{module}.{alias.name}"
                    )
                    if alias.name == "*":
                        self.note(module)
        self.visit(tree)

    def note(self, name):
        drawn = any(
            name == generator or name.startswith(f"{generator}.") for generator in GENERATORS
        )
        if (drawn and name not in KEY_HANDLING) or name in METHODS | ARGUMENTS:
            self.uses.add(Use(self.path, ".".join(self.around), name))

    def visit_Attribute(self, node):
        names, whole = [], node
        while isinstance(whole, ast.Attribute):
            names.append(whole.attr)
            whole = whole.value
        if isinstance(whole, ast.Name):
            self.note(".".join([self.imported.get(whole.id, f"<{whole.id}>"), *reversed(names)]))
        else:
            self.visit(whole)
        for name in METHODS.intersection(names):
            self.note(name)

    def visit_Name(self, node):
        if node.id in self.imported:
            self.note(self.imported[node.id])

    def visit_keyword(self, node):
        if node.arg in ARGUMENTS:
            self.note(node.arg)
        self.visit(node.value)

    def _inside(self, node):
        self.around.append(node.name)
        self.generic_visit(node)
        self.around.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside  # noqa: N815


def uses_of(path, source):
    """The uses of generators in the module ``source``."""
    return _Reader(path, ast.parse(source)).uses


@functools.cache
def all_uses():
    modules = sorted([*ROOT.glob("workbench/**/*.py"), *ROOT.glob("models/**/*.py")])
    return {
        use
        for module in modules
        for use in uses_of(module.relative_to(ROOT).as_posix(), module.read_text())
    }


def test_every_generator_that_is_named_is_allowed_with_a_reason():
    assert all_uses() - set(ALLOWED) == set()


def test_nothing_is_allowed_that_is_there_no_longer():
    assert set(ALLOWED) - all_uses() == set()


def test_nothing_is_allowed_where_minibatches_and_noise_are_drawn():
    assert not [use for use in ALLOWED if use.path.startswith(PRIVATE_ROOMS)]
    assert all((ROOT / room).exists() for room in PRIVATE_ROOMS)


@pytest.mark.parametrize(
    ("offence", "generator"),
    [
        ("import jax\ndef draw(key):\n    return jax.random.normal(key)", "jax.random.normal"),
        ("import jax\ndef draw(key):\n    return jax.random.key(0)", "jax.random.key"),
        ("from jax import random\ndef draw(key):\n    return random.bits(key)", "jax.random.bits"),
        (
            "from jax import random as r\ndef draw(key):\n    return [r.uniform][0](key)",
            "jax.random.uniform",
        ),
        (
            "from jax.random import choice as pick\ndef draw(key):\n    return pick(key)",
            "jax.random.choice",
        ),
        (
            "def draw(key):\n    import jax.random as r\n    return getattr(r, 'normal')(key)",
            "jax.random",
        ),
        (
            "from jax import lax\ndef draw(key):\n    return lax.rng_bit_generator(key)",
            "jax.lax.rng_bit_generator",
        ),
        (
            "import numpy as np\ndef draw(key):\n    return np.random.default_rng().normal()",
            "numpy.random.default_rng",
        ),
        ("import numpy as np\ndef draw(key):\n    return f(np.random)", "numpy.random"),
        (
            "import numpy.random\ndef draw(key):\n    return numpy.random.rand()",
            "numpy.random.rand",
        ),
        ("import random\ndef draw(key):\n    return random.gauss(0, 1)", "random.gauss"),
        ("import secrets\ndef draw(key):\n    return secrets.randbelow(9)", "secrets.randbelow"),
        ("import os\ndef draw(key):\n    return os.urandom(32)", "os.urandom"),
        ("from scipy import stats\ndef draw(key):\n    return stats.norm.rvs(9)", "rvs"),
        ("from scipy import stats\ndef draw(key):\n    return stats.norm().rvs(9)", "rvs"),
        ("def draw(frame):\n    return frame.sample(9, random_state=0)", "random_state"),
        (
            "from numpyro import handlers\ndef draw(key):\n    return handlers.seed(f, key)",
            "numpyro.handlers.seed",
        ),
        (
            f"from {FAST_KEY.rpartition('.')[0]} import fast_key\ndef draw(key):\n    return "
            "fast_key(key)",
            FAST_KEY,
        ),
        (
            "from ..noise import chacha20\ndef draw(key):\n    return chacha20.fast_key(key)",
            FAST_KEY,
        ),
    ],
)
def test_a_planted_offence_is_found(offence, generator):
    path = "workbench/sampling/planted.py"
    assert uses_of(path, offence) == {Use(path, "draw", generator)}


def test_a_planted_import_of_everything_is_found():
    path = "workbench/sampling/planted.py"
    assert uses_of(path, "from numpy.random import *") == {Use(path, "", "numpy.random")}


def test_secure_draws_and_names_alone_are_no_offence():
    source = """
import jax
from workbench.noise.chacha20 import stream
from workbench.noise.normals import normal
def draw(key, random):
    words = stream(jax.random.fold_in(key, 1), 0, 4)
    return normal(jax.random.split(key)[0], (3,)), random.choice, words, "numpy.random"
"""
    assert uses_of("workbench/sampling/planted.py", source) == set()


# --- what a step compiles to ----------------------------------------------------------------------

STEP = DPVI(
    zoo.logistic,
    zoo.logistic_guide,
    Adam(0.1),
    privacy=(PoissonSampler(60, 0.2, 60), GaussianMechanism(1.0, 1.0)),
)


def generators_compiled(draw):
    """Which other generators the compiled ``draw(minibatch, noise, base noise)`` holds."""
    key = key_from_seed(0)
    STEP.init(key, *zoo.logistic_data(60))
    text = jax.jit(lambda key: draw(*STEP.draw(key, jnp.int32(0)))).lower(key).as_text()
    return {
        name for name in ("threefry", "rng_bit_generator", "rng_uniform", "philox") if name in text
    }


@pytest.mark.parametrize("large", [False, True])
def test_minibatch_and_noise_compile_to_no_other_generator(monkeypatch, large):
    """Large noise is drawn by itself, small noise from the words of the step's stream."""
    monkeypatch.setattr(step, "_LARGE", 0 if large else 2**16)
    assert generators_compiled(lambda minibatch, noise, base_noise: (minibatch, noise)) == set()


def test_another_generator_would_be_seen_in_what_is_compiled():
    drawn = generators_compiled(
        lambda minibatch, noise, base_noise: (
            noise.units + jax.random.randint(base_noise, noise.units.shape, 0, 9)
        )
    )
    assert drawn == {"threefry"}
