"""Where published data sets are looked for, and what a download must be."""

import hashlib
import pathlib

import pooch
import pytest

from workbench import ArgumentError
from workbench.data.downloads import data_folder, download_folder, downloaded, find_in_folder

FILES = {"a.txt": hashlib.sha256(b"a").hexdigest(), "b.txt": f"md5:{hashlib.md5(b'b').hexdigest()}"}


@pytest.fixture
def two_files(served):
    address, folder, asked = served
    for name in "ab":
        (folder / f"{name}.txt").write_text(name)
    return address, folder, asked


def test_without_the_variable_there_is_no_folder_of_data(nothing_at_hand, tmp_path):
    assert data_folder() is None
    assert find_in_folder("data") is None
    assert download_folder() == tmp_path / "cache" / "dpvi-workbench" / "downloads"


def test_downloads_are_kept_under_the_home_folder_by_default(nothing_at_hand, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert download_folder() == pathlib.Path.home() / ".cache/dpvi-workbench/downloads"


def test_the_first_name_that_is_there_is_found(nothing_at_hand, monkeypatch):
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    (nothing_at_hand / "b.csv").write_text("")
    assert find_in_folder("a.csv", "b.csv") == nothing_at_hand / "b.csv"
    assert find_in_folder("a.csv") is None
    assert download_folder() == nothing_at_hand / "downloads"


def test_files_are_downloaded_once(two_files, tmp_path, capfd):
    address, _, asked = two_files
    level = pooch.get_logger().level
    for _ in range(2):
        files = downloaded("letters", address, FILES, "Do it by hand.")
        assert [file.read_text() for file in files] == ["a", "b"]
        assert {file.parent for file in files} == {
            tmp_path / "cache" / "dpvi-workbench" / "downloads" / "letters"
        }
    assert asked == ["/a.txt", "/b.txt"]
    assert capfd.readouterr() == ("", "")
    assert pooch.get_logger().level == level


def test_a_file_that_is_another_one_is_downloaded_again_and_refused_if_it_stays_so(two_files):
    address, folder, asked = two_files
    first, _ = downloaded("letters", address, FILES, "Do it by hand.")
    first.write_text("altered")
    assert downloaded("letters", address, FILES, "Do it by hand.")[0].read_text() == "a"
    first.write_text("altered")
    (folder / "a.txt").write_text("altered too")
    with pytest.raises(
        ArgumentError,
        match=r"^data='letters': could not be downloaded \(.*hash.*\)\. Do it by hand\.",
    ):
        downloaded("letters", address, FILES, "Do it by hand.")
    assert asked.count("/a.txt") == 3


@pytest.mark.parametrize("kind", ["missing", "no network", "no folder"])
def test_a_failed_download_says_what_to_do(request, monkeypatch, tmp_path, kind):
    if kind == "no network":
        request.getfixturevalue("nothing_at_hand")
        address = "https://example.org/"
    else:
        address, folder, _ = request.getfixturevalue("two_files")
    if kind == "missing":
        (folder / "b.txt").unlink()
    if kind == "no folder":
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "file"))
    with pytest.raises(
        ArgumentError, match=r"^data='letters': could not be downloaded \(.+\)\. Do it by hand\."
    ) as caught:
        downloaded("letters", address, FILES, "Do it by hand.")
    assert "\n" not in str(caught.value)
