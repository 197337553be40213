"""Releases as zip files, exact versions, and notebooks of which only labelled outputs stay."""

import importlib.metadata
import io
import json
import os
import zipfile

import pytest

import workbench as wb
from tests.releases.conftest import forge
from workbench import _html
from workbench.releases import journal
from workbench.results.card import SEEDED


def output(page, **more):
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": page, **more}}


COVERED = output(f"<p>score .8{_html.badge('covered')}</p>")
PUBLIC = output([f"<p>a picture{_html.badge('public data')}", "</p>"])
SECRETS = [
    output("<p>SECRET age 41</p>"),
    output(f"<p>SECRET{_html.badge('covered')}{_html.badge('outside the guarantee')}</p>"),
    output("<p>covered SECRET</p>"),
    output(f"<p>SECRET{_html.badge('covered')}{SEEDED}</p>"),
    {"output_type": "stream", "name": "stdout", "text": ["SECRET"]},
    {"output_type": "error", "ename": "E", "evalue": "SECRET", "traceback": ["SECRET"]},
    {"output_type": "display_data", "metadata": {}, "data": {"image/png": "SECRET"}},
]


@pytest.fixture
def notebook(tmp_path):
    """A notebook with labelled outputs and with others."""
    cells = [
        {"cell_type": "markdown", "metadata": {"papermill": "SECRET"}, "source": "# A study"},
        {
            "cell_type": "code",
            "execution_count": 3,
            "metadata": {},
            "source": "wb.fit(...)",
            "outputs": [COVERED, PUBLIC, *SECRETS],
        },
    ]
    content = {
        "cells": cells,
        "metadata": {"widgets": "SECRET", "papermill": "SECRET", "kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "study.ipynb").write_text(json.dumps(content))
    return tmp_path / "study.ipynb"


@pytest.fixture
def packed(released_public, notebook, tmp_path):
    return wb.release(released_public, tmp_path / "release.zip", notebook=notebook)


def failures(folder):
    return {f.check: f.sentence for f in wb.verify(folder) if f.status == "failed"}


def test_a_zip_has_the_same_checks(packed, released_public, tmp_path):
    assert failures(packed) == {}
    assert len(wb.verify(packed).findings) == len(wb.verify(released_public).findings)
    again = wb.release(released_public, tmp_path / "again.zip")
    assert again.read_bytes() == wb.release(released_public, tmp_path / "b.zip").read_bytes()
    with pytest.raises(wb.ArgumentError, match=r"out=.*new zip file"):
        wb.release(released_public, packed)


def test_the_command_makes_and_reads_a_zip(command, released_public, notebook, tmp_path):
    out = tmp_path / "out.zip"
    options = ("--out", out, "--notebook", notebook)
    assert command("release", released_public, *options) == (0, "", f"Saved: {out}\n")
    code, text, err = command("verify", out)
    assert (code, err) == (2, "")  # public records have no ledger
    assert "passed: notebook. All outputs of the notebook are labelled" in text


def test_only_labelled_outputs_stay(packed):
    with zipfile.ZipFile(packed) as archive:
        contents = {name: archive.read(name).decode("latin-1") for name in archive.namelist()}
    assert not any("SECRET" in text for text in contents.values())
    with_outputs = json.loads(contents["notebook.ipynb"])
    shown = with_outputs["cells"][1]["outputs"]
    assert shown[:2] == [COVERED, PUBLIC]
    assert len(shown) == 2 + len(SECRETS)
    assert all("This output was removed" in entry["text"][0] for entry in shown[2:])
    bare = json.loads(contents["notebook_without_outputs.ipynb"])
    assert bare["cells"][1]["outputs"] == []
    assert bare["cells"][1]["source"] == "wb.fit(...)"
    assert bare["metadata"] == {"kernelspec": {"name": "python3"}}


def test_an_output_that_is_put_back_is_named(released_public, notebook, tmp_path):
    folder = wb.release(released_public, tmp_path / "folder", notebook=notebook)
    assert failures(folder) == {}
    forge(
        folder,
        "notebook.ipynb",
        lambda values: values["cells"][1]["outputs"].append(SECRETS[0]),
    )
    assert "has an output without a label, in cell 2" in failures(folder)["notebook"]


def test_a_notebook_without_outputs_is_the_same_notebook(released_public, notebook, tmp_path):
    folder = wb.release(released_public, tmp_path / "folder", notebook=notebook)
    file = folder / "notebook_without_outputs.ipynb"
    file.write_text(file.read_text().replace("wb.fit(...)", "wb.fit()"))
    forge(folder, "manifest.json", lambda values: None)
    assert "is not notebook.ipynb without its outputs" in failures(folder)["notebook"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"nbformat": 3, "cells": [], "metadata": {}, "nbformat_minor": 1}',
        b'{"nbformat": 4, "cells": [3], "metadata": {}, "nbformat_minor": 1}',
        b'{"nbformat": 4, "cells": [{"outputs": ["x"]}], "metadata": {}, "nbformat_minor": 1}',
        b'{"nbformat": 4, "cells": [{"outputs": [{"data": []}]}], "metadata": {}}',
        b'{"nbformat": 4, "cells": [{"outputs": [{"data": {"text/html": 5}}]}], "metadata": {}, '
        b'"nbformat_minor": 1}',
        b'{"nbformat": 4, "cells": [], "metadata": [], "nbformat_minor": 1}',
        b'{"nbformat": 4, "cells": [], "metadata": {}}',
        b"[" * 10**5,
    ],
)
def test_what_is_no_notebook_is_refused(released_public, tmp_path, content):
    (tmp_path / "x.ipynb").write_bytes(content)
    with pytest.raises(wb.ArgumentError, match=r"notebook=.*must be a notebook"):
        wb.release(released_public, tmp_path / "new", notebook=tmp_path / "x.ipynb")
    assert not (tmp_path / "new").exists()


def test_versions_are_exact(packed):
    with zipfile.ZipFile(packed) as archive:
        lines = archive.read("requirements.txt").decode().splitlines()
    pins = dict(line.split("==") for line in lines)
    assert pins["jax"] == importlib.metadata.version("jax")
    assert pins["jaxlib"] == importlib.metadata.version("jaxlib")  # of a dependency
    assert pins["dpvi-workbench"] == wb.__version__
    assert "pytest" not in pins
    assert len(pins) == len(lines)


# ---- zip files from anybody ----------------------------------------------------------------------


def forged(path, *members, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name", ["../out", "/tmp/out", "a/b", "..", "C:\\out", "a\nb", ".hidden", "a/"]
)
def test_no_file_of_a_zip_leaves_its_folder(tmp_path, name):
    path = forged(tmp_path / "x.zip", ("manifest.json", "{}"), (name, "x"))
    with pytest.raises(wb.ArgumentError, match=r"folder=.*names that no release has"):
        wb.verify(path)
    assert sorted(os.listdir(tmp_path)) == ["x.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_zip_that_is_none_or_too_large_is_refused(tmp_path, packed, monkeypatch):
    twice = forged(tmp_path / "twice.zip", ("a", "x"), ("a", "y"))
    many = forged(tmp_path / "many.zip", *((f"a{number}", "x") for number in range(101)))
    content = packed.read_bytes()
    damaged, cut = tmp_path / "damaged.zip", tmp_path / "cut.zip"
    middle = len(content) // 2
    damaged.write_bytes(content[:middle] + b"\0" * 64 + content[middle + 64 :])
    cut.write_bytes(content[:middle])
    for path, words in (
        (twice, "names that no release has"),
        (many, "has 101 files"),
        (damaged, "no zip file that can be read"),
        (cut, "no zip file that can be read"),
    ):
        with pytest.raises(wb.ArgumentError, match=f"folder=.*{words}"):
            wb.verify(path)
    monkeypatch.setattr(journal, "MOST_BYTES", 2**20)
    bomb = forged(tmp_path / "bomb.zip", ("manifest.json", b"\0" * 2**21))
    assert bomb.stat().st_size < 2**14
    with pytest.raises(wb.ArgumentError, match=r"has 1 files of 2 MiB, more than a release has"):
        wb.verify(bomb)


def test_a_zip_that_lies_about_a_size_writes_no_more_than_it_says(tmp_path):
    """The size in the directory of the zip is what is limited, and what is read."""
    path = forged(tmp_path / "x.zip", ("manifest.json", b"\0" * 2**20))
    content = bytearray(path.read_bytes())
    size = (2**20).to_bytes(4, "little")
    for header in (b"PK\x03\x04", b"PK\x01\x02"):
        start = content.index(header)
        place = content.index(size, start)
        content[place : place + 4] = (16).to_bytes(4, "little")
    path.write_bytes(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.infolist()[0].file_size == 16
    with pytest.raises(wb.ArgumentError, match=r"folder=.*no zip file that can be read"):
        wb.verify(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_in_place_of_a_zip_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.zip")
    with pytest.raises(wb.ArgumentError, match=r"folder="):
        wb.verify(tmp_path / "x.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_of_another_compression_is_not_read(tmp_path, method):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("manifest.json", "{}" * 1000)
    content = bytearray(path.read_bytes())
    content[48] ^= 255  # of its data
    path.write_bytes(content)
    with pytest.raises(wb.ArgumentError, match=r"folder=.*compressed in another way"):
        wb.verify(path)


@pytest.mark.usefixtures("made_up_steps")
def test_a_card_of_a_fit_with_a_seed_does_not_stay(private_data):
    for seed, is_private in ((5, True), (None, False)):
        result = wb.fit(
            "logistic", private_data, epsilon=1.0, iterations=20, seed=seed, ledger=False
        )
        assert journal.may_be_private(output(result._repr_html_())) == is_private
