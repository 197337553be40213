"""Released folders that several test files look at, and what a forger does to them."""

import functools
import hashlib
import json
import shutil

import pytest
from matplotlib.figure import Figure

import workbench as wb
from tests import fakes
from workbench.privacy import check_epsilon
from workbench.releases import journal
from workbench.results import FitResult, report, storage

a_picture = functools.cache(functools.partial(report._image, "any", lambda: Figure((1, 1))))
packages = journal.requirements
epsilon_of = check_epsilon.epsilon_of


@functools.cache
def requirements(versions):
    return packages(dict(versions))


@functools.cache
def epsilon_once(phases, delta):
    return epsilon_of(list(phases), delta)


@pytest.fixture(autouse=True)
def quick_release(monkeypatch):
    """A test's own releases have one picture in the place of all, which take most of the time;
    those of fixtures of several tests have theirs. The same steps are counted once.
    """
    monkeypatch.setattr(
        check_epsilon, "epsilon_of", lambda phases, delta: epsilon_once((*phases,), delta)
    )
    monkeypatch.setattr(FitResult, "plot", lambda *_: Figure((1, 1)))
    monkeypatch.setattr(report, "_image", lambda name, draw: a_picture())
    monkeypatch.setattr(
        journal, "requirements", lambda versions: requirements((*versions.items(),))
    )


def fitted(data, **options):
    """A fit of made-up steps, with secret noise."""
    with fakes.installed():
        return wb.fit("logistic", data, epsilon=1.0, delta=1e-4, iterations=40, **options)


@pytest.fixture(scope="session")
def released(private_data, tmp_path_factory):
    """A released fit on private records, whose ledger has another fit."""
    place = tmp_path_factory.mktemp("released")
    ledger = wb.ledger.Ledger(place / "ledger.sqlite")
    fitted(private_data, ledger=ledger)
    return wb.release(fitted(private_data, ledger=ledger), place / "folder", ledger=ledger)


@pytest.fixture(scope="session")
def released_public(tmp_path_factory):
    """A released fit on public records, which no ledger has."""
    return wb.release(fitted("breast_cancer"), tmp_path_factory.mktemp("public") / "folder")


@pytest.fixture
def copy_of(tmp_path):
    """``copy_of(folder)`` is a copy to edit."""

    def copied(folder):
        return shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)

    return copied


def set_in(values, place, value):
    """Set a value in JSON. :param place: names and numbers with points, as in a.b.0."""
    *before, last = (int(word) if word.isdigit() else word for word in place.split("."))
    for name in before:
        values = values[name]
    if value is ...:
        del values[last]
    else:
        values[last] = value


def forge(folder, name, edit):
    """Edit a JSON file of a release, and bring all digests up to date."""
    values = json.loads((folder / name).read_text())
    edit(values)
    (folder / name).write_text(json.dumps(values))
    seal(folder)


def seal(folder):
    """Bring all digests up to date, as a forger does: those within result.json too."""
    index = json.loads((folder / "result.json").read_text())
    if "kind" not in index:
        seal_result(folder, index)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: digest_of(folder / name) for name in manifest["files"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def seal_result(folder, index):
    """Bring the digests in the index of a fit up to date."""
    index["files"] = {name: digest_of(folder / name) for name in index["files"]}
    index.pop("digest")
    index["digest"] = storage.digest_of(index)
    (folder / "result.json").write_text(json.dumps(index))


def digest_of(path):
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


ANSWERS = {
    "name": "A model of tumours",
    "data_curators": "A clinic; Its university",
    "intended_use": "To show that one answer is enough",
    "data_product_region": "Finland",
    "publication_date": "2026-01-31",
    "data_product_sector": "",
    "actors": "Everybody: nobody but the clinic is trusted",
    "future_uses": "Nothing more is planned",
    "preparation": "Nothing was done before",
    "protection": "The records are on an encrypted disk",
    "justification": "The board of the clinic decided",
    "registry_authors": "A reviewer",
    "sources": "",
}
