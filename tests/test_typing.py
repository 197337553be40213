"""What editors and type checkers see of the package, whose names load on first use."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

import workbench as wb

PACKAGE = Path(wb.__file__).parent
LAZY = [
    path for path in sorted(PACKAGE.glob("**/__init__.py")) if "def __getattr__" in path.read_text()
]
MISTAKES = """
import workbench as wb

result = wb.fit("logistic", "breast_cancer", epsilon="one")
wb.fit("logistic", "breast_cancer", epsilon=1.0, no_such=3)
result.sumary()
wb.privacy.epsilon(sampling_rate=0.1, noise_multiplier=1.0, steps="many", delta=1e-5)
wb.data.load(3)
wb.fit("logistic", "breast_cancer", epsilon=1.0, sampler="shuffle")
wb.fit("logistic", "breast_cancer", epsilon=1.0, privacy=wb.Privacy(sampler=3))
wb.sweep("logistic", "breast_cancer", epsilons=1.0, execution=wb.Execution(device="cpu", draws=3))
wb.fit(lambda x, y=None: None, "breast_cancer", epsilon=1.0, privacy=wb.Privacy(sampler="shuffle"))
"""


@pytest.fixture(autouse=True)
def parsed_apart(tmp_path_factory, monkeypatch):
    """Another process may be writing what jedi keeps of parsed files for this user."""
    folder = tmp_path_factory.getbasetemp() / "parsed"
    monkeypatch.setattr(jedi.settings, "cache_directory", str(folder))


def imported_for_checkers(path):
    """Names that a file imports under ``if TYPE_CHECKING``."""
    blocks = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    return {alias.name for block in blocks for node in block.body for alias in node.names}


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.name)
def test_type_checkers_see_every_name_that_loads_on_first_use(path):
    module = importlib.import_module(".".join(path.parent.relative_to(PACKAGE.parent).parts))
    defined = {name for node in ast.parse(path.read_text()).body for name in defined_by(node)}
    assert set(module.__all__) - imported_for_checkers(path) - defined == set()


def defined_by(node):
    """Names that a statement of a module binds when the module is imported."""
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets]
    return []


@pytest.mark.integration
def test_mypy_finds_every_mistake_in_a_users_file(tmp_path):
    (tmp_path / "user.py").write_text(MISTAKES)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "user.py")],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
    )
    errors = [
        line.split("user.py:")[1]
        for line in run.stdout.splitlines()
        if "user.py:" in line and ": error:" in line
    ]
    assert {int(error.split(":")[0]) for error in errors} == {4, 5, 6, 7, 8, 9, 10, 11}, run.stdout


def test_an_editor_shows_the_arguments_of_fit():
    (signature,) = jedi.Interpreter("wb.fit(", [{"wb": wb}]).get_signatures()
    assert {"model", "data", "epsilon", "delta", "iterations", "privacy"} <= {
        each.name for each in signature.params
    }


@pytest.mark.parametrize(
    ("group", "name"), [("Privacy", "sampler"), ("Training", "draws"), ("Execution", "device")]
)
def test_an_editor_shows_what_a_group_has(group, name):
    (in_notebook,) = jedi.Interpreter(f"wb.{group}(", [{"wb": wb}]).get_signatures()
    (in_file,) = jedi.Script(f"import workbench as wb\nwb.{group}(").get_signatures()
    for signature in (in_notebook, in_file):
        assert name in {parameter.name for parameter in signature.params}


def test_an_editor_completes_a_result():
    code = (
        'import workbench as wb\nresult = wb.fit("logistic", "breast_cancer", epsilon=1.0)\nresult.'
    )
    members = {each.name for each in jedi.Script(code, path="user.py").complete()}
    assert {"summary", "coefficients", "guarantee", "predict", "save"} <= members
