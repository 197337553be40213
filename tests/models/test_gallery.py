"""Each file of the gallery imports public names only, so a copy of it runs alone."""

import ast
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import gallery
from workbench._validate import ArgumentError

FOLDER = Path(gallery.__file__).parent
DATA = {
    "gmm": "mixture",
    "hierarchical_logistic": "hierarchical",
    "logistic": "breast_cancer",
    "neural_classifier": "tokens",
    "vae": "digits",
}
OPTION = {
    "gmm": "num_components=3",
    "hierarchical_logistic": "intercept=true",
    "logistic": "prior_scale=2",
    "neural_classifier": "network=gru",
    "vae": "latent=2",
}
FIT = ("--epsilon", "2", "--iterations", "20")


def imported(path):
    """(module, name) of what a file imports from the workbench."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not [
                alias.name for alias in node.names if alias.name.split(".")[0] == "workbench"
            ]
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "workbench":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.fixture(params=some_of(gallery.__all__, 5))
def copied(request, tmp_path, monkeypatch):
    """(name of a built-in model, a copy of its file, alone in a folder that is the working one)."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return request.param, Path(shutil.copy(FOLDER / f"{request.param}.py", tmp_path / "my_copy.py"))


def test_the_list_of_built_in_models_is_the_folder():
    assert (
        {path.stem for path in FOLDER.glob("*.py")}
        == {*gallery.__all__, "__init__"}
        == {*DATA, "__init__"}
    )
    assert set(gallery.__all__) <= set(wb.models.names()) & set(wb.models.__all__)
    for name in gallery.__all__:
        assert wb.models.origin(name) == "built-in"
        assert getattr(wb.models, name)().name == name


@pytest.mark.parametrize("name", gallery.__all__)
def test_a_gallery_file_imports_public_names_only(name):
    found = list(imported(FOLDER / f"{name}.py"))
    assert found
    for module, public in found:
        assert public in importlib.import_module(module).__all__
        assert not any(
            part.startswith("_") or part == "gallery" for part in (*module.split("."), public)
        )
        # a module is public where the room lists it
        room, _, rest = module.removeprefix("workbench.").partition(".")
        assert module in ("workbench", "workbench.models") or (
            room == "models" and rest in wb.models.__all__
        )


def test_a_copy_is_found_without_naming_the_function(copied):
    name, path = copied
    model = wb.models.from_file(path)
    built_in = getattr(wb.models, name)()
    assert (model.name, model.options) == (name, built_in.options)
    assert model.model is not built_in.model


def test_a_copy_takes_options_and_checks_them(copied):
    name, path = copied
    option, _, text = OPTION[name].partition("=")
    value = {"true": True}.get(text, int(text) if text.isdigit() else text)
    assert wb.models.from_file(path, **{option: value}).options[option] == value
    with pytest.raises(ArgumentError) as caught:
        wb.models.from_file(path, **{option: -1})
    assert (caught.value.argument, caught.value.value) == (option, -1)
    with pytest.raises(ArgumentError) as caught:
        wb.models.from_file(path, no_such_option=1)
    assert caught.value.argument == "no_such_option"


@pytest.mark.integration
def test_a_copy_runs_alone(copied):
    """In another process, in a folder that has nothing else, with real steps."""
    name, path = copied
    for words in (
        ("-c", "import my_copy"),
        (
            "-m",
            "workbench",
            "fit",
            "--model",
            "./my_copy.py",
            "--data",
            DATA[name],
            *FIT,
            "--quiet",
        ),
    ):
        ended = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd=path.parent
        )
        assert ended.returncode == 0, ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "first", ["workbench.gallery.gmm", "workbench.gallery", "workbench.models.registry"]
)
def test_gallery_and_framework_may_be_imported_in_any_order(first):
    code = f"import {first}, workbench.models as models; assert models.gmm().name == 'gmm'"
    subprocess.run([sys.executable, "-c", code], check=True)
