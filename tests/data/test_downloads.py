"""Where published data sets are looked for."""

import http.client
import pathlib
import urllib.error

import pytest

from workbench import ArgumentError
from workbench.data.downloads import data_folder, fetch_openml, find_in_folder, openml_folder


def test_without_the_variable_there_is_no_folder_of_data(nothing_at_hand, tmp_path):
    assert data_folder() is None
    assert find_in_folder("data") is None
    assert openml_folder() == tmp_path / "cache" / "dpvi-workbench" / "openml"


def test_downloads_are_kept_under_the_home_folder_by_default(nothing_at_hand, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert openml_folder() == pathlib.Path.home() / ".cache/dpvi-workbench/openml"


def test_the_first_name_that_is_there_is_found(nothing_at_hand, monkeypatch):
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    (nothing_at_hand / "b.csv").write_text("")
    assert find_in_folder("a.csv", "b.csv") == nothing_at_hand / "b.csv"
    assert find_in_folder("a.csv") is None
    assert openml_folder() == nothing_at_hand / "openml"


def test_the_cache_is_used(openml, tmp_path):
    queries = openml("answer")
    assert fetch_openml("adult", "Do it by hand.", name="adult", version=2) == "answer"
    (query,) = queries
    assert (query["name"], query["version"]) == ("adult", 2)
    assert query["data_home"] == str(tmp_path / "cache" / "dpvi-workbench" / "openml")


@pytest.mark.parametrize(
    "failure",
    [
        urllib.error.URLError("Name or service not known"),
        TimeoutError(),
        ConnectionResetError("reset\nby peer"),
        ValueError("No active dataset adult found"),
        http.client.IncompleteRead(b""),
        PermissionError("cache"),
        EOFError(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failed_download_says_what_to_do(openml, failure):
    openml(failure)
    with pytest.raises(
        ArgumentError, match=r"^data='adult': could not be downloaded from OpenML \(.+\)\. Do it by hand\."
    ) as caught:
        fetch_openml("adult", "Do it by hand.")
    assert "\n" not in str(caught.value)


def test_a_machine_without_a_network_fails_at_once(nothing_at_hand):
    with pytest.raises(ArgumentError, match="no network in a test"):
        fetch_openml("adult", "Do it by hand.", name="adult", version=2)
