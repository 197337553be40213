"""What is declared in several places agrees: dependencies, packages, versions."""

import re
import tomllib
from pathlib import Path

import yaml

import workbench
from tests import bounds

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"matplotlib": "matplotlib-base"}


def split_bound(requirement):
    name, bound = re.fullmatch(r"([A-Za-z0-9_-]+)(>=[\d.]+)", requirement).groups()
    return name.lower(), bound


def declared_to_pip():
    return dict(split_bound(requirement) for requirement in PROJECT["project"]["dependencies"])


def declared_to_conda():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    flat = [entry for entry in entries if isinstance(entry, str)]
    flat += [entry for group in entries if isinstance(group, dict) for entry in group["pip"]]
    return dict(split_bound(entry) for entry in flat if ">=" in entry)


def test_environment_yml_has_the_same_dependencies_and_lower_bounds():
    pip = {CONDA_NAMES.get(name, name): bound for name, bound in declared_to_pip().items()}
    assert declared_to_conda() == pip


def test_the_oldest_packages_that_are_tested_are_those_declared():
    pinned = dict(requirement.split("==") for requirement in bounds.oldest())
    assert {
        name: f">={version}" for name, version in pinned.items()
    }.items() >= declared_to_pip().items()
    assert {"cryptography", "pyarrow", "distributed"} <= pinned.keys()


def test_environment_yml_is_python_3_12_and_installs_the_package_itself():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert "python=3.12" in entries
    assert "--editable ." in next(entry["pip"] for entry in entries if isinstance(entry, dict))


def test_owner_fixed_packages_are_dependencies():
    fixed = {
        "jax",
        "numpyro",
        "fourier-accountant",
        "jupyterlab",
        "ipywidgets",
        "arviz",
        "scikit-learn",
        "matplotlib",
    }
    assert fixed <= declared_to_pip().keys()


def test_every_folder_of_code_is_installed():
    packages = set(PROJECT["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "workbench").glob("**/__init__.py")
    }
    assert packages == folders | {"workbench.gallery", "workbench.notebooks"}


def test_models_are_not_installed_under_a_name_of_their_own():
    assert "models" not in PROJECT["tool"]["setuptools"]["packages"]


def test_version_is_stated_once_more_in_the_package():
    assert workbench.__version__ == PROJECT["project"]["version"]


def test_public_names_all_load():
    for name in workbench.__all__:
        assert getattr(workbench, name) is not None
