"""How messages of owners come to the coordinator: requests over HTTPS, of which the reply to one is
the question of the next round. Tornado and HTTPX do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import math
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from workbench import _validate
from workbench._compiler import StoppedError
from workbench._validate import ArgumentError
from workbench.owners.files import MOST_BYTES

__all__ = ["SILENCE", "Channel", "Receiver", "context_of", "listening"]

_DONE, _LATER, _REFUSED = 200, 202, 409
_POLL, _SLACK = 5.0, 40.0  # seconds after which an owner has to ask again, and waits on top
SILENCE = 3 * _POLL + 1.0  # seconds after which an owner that does not ask again is gone
_EARLY, _PAUSE = 15.0, 0.5  # seconds that an owner waits for the server, and between two tries
_FLUSHES = 0.1  # seconds, for the last replies


class Receiver(Protocol):
    """What takes messages in, from threads of the server."""

    def receive(self, message: bytes) -> tuple[str, Future[str]]:
        """(whose message it is, the reply once there is one, cancelled where the owner has to ask
        again). :raises ArgumentError: if refused.
        """

    def dismiss(self, message: bytes) -> None:
        """Take in that an owner goes. :raises ArgumentError: if refused."""

    def leave(self, owner: str) -> None:
        """Note that the connection of an owner ended while it waited."""


def context_of(
    host: str, certificate: str | Path | None, private_key: str | Path | None
) -> ssl.SSLContext | None:
    """How a server at ``host`` is protected; None where only this machine can reach it.

    :param certificate: PEM file of its TLS certificate, and ``private_key`` its key.
    :raises ArgumentError: naming the argument and its value.
    """
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, private_key)
        except OSError as error:
            reason = f"cannot be used as a TLS certificate with its key ({error})."
            raise ArgumentError("certificate", str(certificate), reason) from None
    elif not _is_here(host):
        raise ArgumentError(
            "certificate", None, f"is needed to listen at {host}, which others can reach."
        )
    return context


@contextlib.contextmanager
def listening(
    receiver: Receiver, host: str, port: int, context: ssl.SSLContext | None
) -> Iterator[None]:
    """A server that hands messages to ``receiver``, in a thread of its own.

    :param context: of ``context_of``.
    :raises ArgumentError: naming ``port``.
    """
    number = _validate.integer("port", port, at_least=1, at_most=65535)
    _package("tornado")
    ready: Future[asyncio.AbstractEventLoop] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        import tornado.httpserver

        server = tornado.httpserver.HTTPServer(
            _application(receiver), ssl_options=context, max_buffer_size=MOST_BYTES
        )
        try:
            server.listen(number, host)
        except (OSError, UnicodeError) as error:
            reason = f"cannot be listened at ({error})."
            ready.set_exception(ArgumentError("port", f"{host}:{number}", reason))
            return
        ready.set_result(asyncio.get_running_loop())
        await stop.wait()
        server.stop()
        await asyncio.sleep(_FLUSHES)
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop = ready.result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _application(receiver: Receiver) -> Any:
    import tornado.web

    class Handler(tornado.web.RequestHandler):
        owner = ""

        async def delete(self) -> None:
            with self._refusing():
                receiver.dismiss(self.request.body)

        async def post(self) -> None:
            with self._refusing():
                self.owner, reply = receiver.receive(self.request.body)
                await asyncio.wait([asyncio.wrap_future(reply)], timeout=_POLL)
                self.owner = ""
                if reply.cancel():  # before a network takes the connection for idle
                    self.set_status(_LATER)
                    self.finish()
                else:
                    self.finish(reply.result())

        @contextlib.contextmanager
        def _refusing(self) -> Iterator[None]:
            try:
                yield
            except ArgumentError as error:
                self.set_status(_REFUSED)
                self.finish(str(error))

        def on_connection_close(self) -> None:
            if self.owner:
                receiver.leave(self.owner)

    return tornado.web.Application([("/", Handler)], log_function=lambda handler: None)


class Channel:
    """An owner's connection to the coordinator. If it ends with an error after the greeting, it
    says so there.

    :param client: of HTTPX. :param stop: asked before messages, and while a reply is awaited.
    """

    def __init__(self, client: Any, stop: Callable[[], bool]) -> None:
        self._client, self._stop = client, stop
        self._greeting, self._is_known = "", False

    @classmethod
    def to(
        cls,
        server: str,
        certificate: str | Path | None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Channel:
        """One to the coordinator at ``server``.

        :param certificate: PEM file of the authority that is trusted; by default those of the
            machine. :param stop: whether to give up.
        :raises ArgumentError: naming the argument and its value.
        """
        httpx = _package("httpx")
        try:
            address = urlsplit(_validate.text("server", server))
            is_address = address.scheme in ("http", "https") and address.port != 0
        except ValueError:
            is_address = False
        if not is_address or not address.hostname:
            reason = 'must be an address, such as "https://coordinator.example:8920".'
            raise ArgumentError("server", server, reason)
        if address.scheme == "http" and not _is_here(address.hostname):
            reason = "is on another machine: its address must begin with https."
            raise ArgumentError("server", server, reason)
        try:
            context = ssl.create_default_context(cafile=certificate)
        except OSError as error:
            reason = f"cannot be used to check the coordinator's certificate ({error})."
            raise ArgumentError("certificate", str(certificate), reason) from None
        # what is not encrypted goes through no proxy
        trust = address.scheme == "https"
        client = httpx.Client(base_url=server, verify=context, timeout=None, trust_env=trust)
        return cls(client, stop)

    def greet(self, greeting: str) -> str:
        """The reply to a greeting, which says who speaks; a server that is not there yet is
        awaited for a while. :raises ArgumentError: as ``send``.
        """
        self._greeting = greeting
        return self.send(greeting, math.inf, time.monotonic() + _EARLY)

    def send(self, message: str, patience: float, until: float = 0.0) -> str:
        """The reply to a message.

        :param patience: seconds to wait for it.
        :param until: as of ``time.monotonic``, when it is no longer tried to reach the server.
        :raises ArgumentError: naming ``server``, if it cannot be reached or refuses the message;
            ``StoppedError`` if it is to stop.
        """
        httpx, end = _package("httpx"), time.monotonic() + patience
        try:
            reply = self._post(message)
            while reply.status_code == _LATER and time.monotonic() < end:
                reply = self._post(self._greeting)
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ConnectError) and time.monotonic() < until:
                time.sleep(_PAUSE)
                return self.send(message, patience, until)
            reason = f"cannot be reached, or does not answer ({error})."
            raise ArgumentError("server", str(self._client.base_url), reason) from None
        if reply.status_code != _DONE:
            reason = f"refused the message: {reply.text or 'the round took too long'}"
            raise ArgumentError("server", str(self._client.base_url), reason)
        return str(reply.text)

    def _post(self, message: str) -> Any:
        if self._stop():
            raise StoppedError
        reply = self._client.post("/", content=message, timeout=_POLL + _SLACK)
        self._is_known = self._is_known or reply.status_code in (_DONE, _LATER)
        return reply

    def __enter__(self) -> Channel:
        """The same, until it is closed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; after an error the coordinator gets to know that the owner is gone."""
        if kind is not None and self._is_known:
            with contextlib.suppress(Exception):
                self._client.request("DELETE", "/", content=self._greeting, timeout=5)
        self._client.close()


def _package(name: str) -> Any:
    """A package that JupyterLab brings. :raises ArgumentError: naming ``owners``, without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        reason = f"need a package for their rounds: pip install {name}."
        raise ArgumentError("owners", None, reason) from None


def _is_here(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
