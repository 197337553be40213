"""What the tests of published data sets share: no network, no files of the developer's, and OpenML played by a function."""

import socket

import pytest


@pytest.fixture
def nothing_at_hand(monkeypatch, tmp_path):
    """No folder of data, no package of Debian's, no network; the empty folder that may become WORKBENCH_DATA."""
    from workbench.data import published_images

    def refuse(*_):
        raise OSError("no network in a test")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("WORKBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published_images, "DEBIAN_FASHION_MNIST", tmp_path / "nowhere")
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def openml(monkeypatch, nothing_at_hand):
    """``openml(answer)`` lets scikit-learn's ``fetch_openml`` return or raise ``answer``; the queries are in the list."""
    import sklearn.datasets

    def play(answer):
        queries = []

        def fetch(**query):
            queries.append(query)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        return queries

    return play
