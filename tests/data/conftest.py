"""What the tests of published data sets share: no network, no files of the developer's, and a
server of files.
"""

import functools
import gc
import http.server
import socket
import threading
import warnings

import pytest

from workbench.data import downloads, published


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No folder of data, no package of Debian's; the empty folder that may
    become WORKBENCH_DATA.
    """
    monkeypatch.setattr(downloads, "_RETRIES", 0)
    monkeypatch.delenv("WORKBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(published, "DEBIAN_FASHION_MNIST", tmp_path / "nowhere")
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def nothing_at_hand(nowhere, monkeypatch):
    """The same without a network."""

    def refuse(*_, **__):
        raise OSError("no network in a test")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return nowhere


@pytest.fixture
def served(nowhere, monkeypatch, tmp_path):
    """(address of a server, folder whose files it serves, paths that were asked for); published
    sets come from there.
    """
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setattr(published, "_ADULT_PAGE", address)
    monkeypatch.setattr(published, "_FASHION_PAGE", address)
    yield address, folder, asked
    server.shutdown()
    server.server_close()
    with warnings.catch_warnings():  # pooch closes no connection on which it got an error
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
