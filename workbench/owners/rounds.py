"""Fits of many rounds: in each the coordinator says where gradients are taken, every owner answers
with its noised and masked sum, and the coordinator takes a step on the total.

A round is one step of DP-VI, so all that a fit has besides its steps is that of any fit.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from workbench import _schema, _validate
from workbench._compiler import StoppedError
from workbench._validate import ArgumentError
from workbench.data.look import Look
from workbench.fitting.fits import begun
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.progress import ProgressLine
from workbench.inference.compiling import Compilation, Compiling, jit_seldom_called
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.training import EndedError, Snapshot
from workbench.owners import files
from workbench.owners.agreements import Agreement, Side, side_of
from workbench.owners.coordinator import Part, total
from workbench.owners.masks import digest_of_keys, keys_of_all
from workbench.owners.owner import Ready
from workbench.owners.planning import Plan, as_plan
from workbench.owners.sums import flat_point
from workbench.owners.transport import SILENCE, Channel, context_of, listening
from workbench.privacy.guarantee import Guarantee
from workbench.results import FitResult

__all__ = ["PATIENCE", "PORT", "Meeting", "OwnersError", "answer", "coordinate", "fit_of", "opened"]

PORT = 8920
PATIENCE = 600.0  # seconds
_FAR = 2**20
_STOPPED = "the coordinator stopped."
_TWICE = (
    "takes part from another program already: stop that program. If it no longer runs, wait "
    f"{SILENCE:.0f} seconds and begin again."
)
_LATE = (
    "takes part from another program, with which the rounds have begun: leave that program running."
)
_GOODBYE = 5.0
_LOOKS = 0.2  # seconds between two looks at whether to stop
_JOINING = _schema.record({name: _schema.text() for name in ("plan", "owner", "keys", "session")})
_REPLY = _schema.record(
    {
        "round": _schema.whole(),
        "point": _schema.text(),
        "rung": _schema.whole(at_least=-_FAR, at_most=_FAR),
        "end": _schema.text(),
    }
)

Reply: TypeAlias = "Future[str]"


class OwnersError(EndedError):
    """Why a fit of several owners ended before its last round.

    >>> issubclass(wb.owners.OwnersError, OSError)
    True
    """


class Meeting:
    """Where the owners' sums of a round meet. Owners' messages come from other threads.

    :param plan: that all answer. :param side: what follows from it. :param keys: SHA-256 of plan
        and keys, which strangers do not know.
    :param patience: seconds that a round waits for an owner's sum.
    :param stop: asked while it waits.
    """

    def __init__(
        self,
        plan: Plan,
        side: Side,
        keys: str,
        patience: float = PATIENCE,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.side = side
        self._plan, self._patience, self._stop = plan, patience, stop
        self._change = threading.Condition()
        self._keys = keys
        self._joined: dict[str, str] = {}  # session by owner
        self._heard: dict[str, float] = {}  # when, as of ``time.monotonic``
        self._question = ""  # of the round
        self._waiting: dict[str, Reply] = {}  # a cancelled one is awaited no more
        self._parts: dict[str, Part] = {}
        self._round = -1  # whose sums are asked for
        self._end = ""
        self.totals = 0  # that were released
        self._told: set[str] = set()  # those who know that it has ended

    @property
    def joined(self) -> list[str]:
        """The owners that are there, in the plan's order: before the first round those that wait
        for it, or did a moment ago.
        """
        with self._change:
            return [owner for owner in self._plan.owners if self._is_there(owner)]

    @property
    def has_begun(self) -> bool:
        """Whether the first round has."""
        return self._round >= 0

    def _is_there(self, owner: str) -> bool:
        if owner not in self._joined or self._round >= 0:
            return owner in self._joined
        is_silent = time.monotonic() > self._heard[owner] + SILENCE
        return owner in self._asking() or not is_silent

    def _asking(self) -> list[str]:
        """The owners whose message waits for a reply."""
        return [owner for owner, reply in self._waiting.items() if not reply.cancelled()]

    def receive(self, message: bytes) -> tuple[str, Reply]:
        """As of ``Receiver``.

        :raises ArgumentError: naming ``message`` or ``owner``, for one that does not belong here
            now.
        """
        with self._change:
            is_greeting = self._round < 0 or files.is_of("greeting", message)
            owner = self._greeted(message) if is_greeting else self._answered(message)
            reply: Reply = Future()
            self._waiting[owner], self._heard[owner] = reply, time.monotonic()
            if self._end:
                self._reply_end()
            elif self._question and owner not in self._parts:
                self._waiting.pop(owner).set_result(self._question)
            self._change.notify_all()
        return owner, reply

    def _owner_of(self, message: bytes) -> tuple[str, str]:
        """(who greets, its session)."""
        content = files.checked("message", "message", message, "greeting", _JOINING)
        owner = content["owner"]
        self._plan.require_of("message", owner, content)
        if content["keys"] != self._keys:
            reason = "has other keys than the coordinator: read the code to each other."
            raise ArgumentError("owner", owner, reason)
        return owner, content["session"]

    def _greeted(self, message: bytes) -> str:
        """The owner that joins, or asks again what is asked."""
        owner, session = self._owner_of(message)
        if self._round >= 0 and owner not in self._joined:
            raise ArgumentError("owner", owner, "comes after the first round has begun.")
        if self._joined.get(owner, session) != session and self._is_there(owner):
            raise ArgumentError("owner", owner, _TWICE if self._round < 0 else _LATE)
        self._joined[owner] = session
        return owner

    def _answered(self, message: bytes) -> str:
        answer = Part.of(self._plan, "message", "message", message)
        if answer.round != self._round or answer.owner in self._parts:
            reason = f"has answered round {answer.round + 1} already: a round is answered once."
            raise ArgumentError("owner", answer.owner, reason)
        if answer.keys != self._keys:
            raise ArgumentError("owner", answer.owner, "has other keys than the coordinator.")
        self._parts[answer.owner] = answer
        return answer.owner

    def dismiss(self, message: bytes) -> None:
        """Take in that an owner, who greets again, goes. :raises ArgumentError: as ``receive``."""
        owner, session = self._owner_of(message)
        if self._joined.get(owner) != session:
            raise ArgumentError("owner", owner, "has not joined.")
        self.leave(owner)

    def leave(self, owner: str) -> None:
        """Note that an owner is gone: the fit ends, or it may join again if that has not begun."""
        with self._change:
            if self._round < 0 and not self._end:
                self._joined.pop(owner, None)
                self._waiting.pop(owner, None)
                return
        self._told.add(owner)
        self.close(f"{owner} left{self._in_round()}, and without its sums there is no result.")

    def gather(self) -> None:
        """Wait for all owners.

        :raises OwnersError: if it is to stop.
        """
        try:
            self._wait_for(self._asking, None)
        except StoppedError:
            raise OwnersError("stopped before all owners had joined.") from None

    def total_of(self, number: int, point: np.ndarray, rung: int) -> list[np.ndarray]:
        """The noised sums of round ``number``, of gradients at ``point``, over all records.

        :param rung: of C on its ladder, 0 where C does not adapt.
        :raises StoppedError, OwnersError: if there is no total.
        """
        with self._change:
            if not self.has_begun:  # one may have left since they were gathered
                self._wait_for(self._asking, None)
            self._round, self._parts = number, {}
            text = base64.b64encode(point.astype("<f4").tobytes()).decode()
            content = {"round": number, "point": text, "rung": rung, "end": ""}
            self._question = files.text_with("question", content)
            self._reply(self._question)
        self._wait_for(lambda: self._parts, time.monotonic() + self._patience)
        try:
            released = total(self._plan, self.side, self._parts)
        except ArgumentError as error:
            raise OwnersError(str(error)) from None
        self.totals += 1
        if number + 1 == self._plan.rounds:
            self.close("done")
        return released

    def close(self, why: str) -> None:
        """Tell the owners that there is no further round, once. :param why: in a sentence."""
        with self._change:
            if not self._end:
                self._end = why or _STOPPED
                self._reply_end()
                self._change.notify_all()

    def say_goodbye(self) -> None:
        """Wait a moment for owners that still compute, so that they learn why there is no more."""
        until = time.monotonic() + _GOODBYE
        with self._change:
            while not self._told.issuperset(self.joined) and time.monotonic() < until:
                self._change.wait(_LOOKS)

    def _reply_end(self) -> None:
        content = {"round": 0, "point": "", "rung": 0, "end": self._end}
        self._told.update(self._asking())
        self._reply(files.text_with("question", content))

    def _reply(self, text: str) -> None:
        for reply in self._waiting.values():
            if reply.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                reply.set_result(text)
        self._waiting.clear()

    def _wait_for(self, arrived: Callable[[], Collection[str]], until: float | None) -> None:
        with self._change:
            while len(arrived()) < len(self._plan.owners) and not self._end:
                if self._stop():
                    raise StoppedError
                if until is not None and time.monotonic() > until:
                    late = " and ".join(x for x in self._plan.owners if x not in arrived())
                    self.close(f"{late} did not answer{self._in_round()}.")
                self._change.wait(_LOOKS)
            if self._end:
                raise OwnersError(self._end)

    def _in_round(self) -> str:
        return "" if self._round < 0 else f" in round {self._round + 1} of {self._plan.rounds}"


def coordinate(
    plan: Plan | str | Path,
    keys: Iterable[str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    certificate: str | Path | None = None,
    private_key: str | Path | None = None,
    patience: float = PATIENCE,
    stop: Callable[[], bool] = lambda: False,
    on_snapshot: Callable[[Snapshot], Any] = lambda snapshot: None,
) -> FitResult | Look:
    """Wait for the owners of a plan, and fit, or look, with the sums that they answer with.

    The result is that of a private fit to all their records by ``wb.fit``, and its guarantee says
    who learns what. The ledgers of the owners have what it costs. If an owner leaves, it is that
    of the rounds until then, with the status "failed".

    >>> wb.owners.coordinate("plan.json", [], host="0.0.0.0")
    Traceback (most recent call last):
    workbench._validate.ArgumentError: certificate=None: is needed to listen at ...

    :param plan: or its file. :param keys: the files that ``make_key`` wrote, of all owners.
    :param host: address to listen at; with another than this machine's own a certificate is needed.
    :param port: to listen at.
    :param certificate: PEM file of a TLS certificate, which the owners must trust, and
        ``private_key`` its key.
    :param patience: seconds that a round waits for an owner; until all have joined there is no
        limit.
    :param stop: asked between rounds; True ends the fit. :param on_snapshot: as of ``wb.fit``.
    :raises ArgumentError: naming the argument and its value.
    :raises OwnersError: if there was no round, because an owner left.
    """
    with opened(
        plan,
        keys,
        host=host,
        port=port,
        certificate=certificate,
        private_key=private_key,
        patience=patience,
        stop=stop,
    ) as meeting:
        prepared = fit_of(meeting) if isinstance(meeting.side, Agreement) else None
        meeting.gather()
        try:
            if prepared is None:
                (counts,) = meeting.total_of(0, np.zeros(1), 0)
                return meeting.side.result(counts)
            snapshot, line = None, ProgressLine(prepared)
            line.begin()
            for snapshot in prepared.run(stop):
                line.update(snapshot)
                on_snapshot(snapshot)
            if snapshot is not None:
                meeting.close(snapshot.message)
                if snapshot.status == "failed" and not meeting.totals:
                    raise OwnersError(snapshot.message)
            result = prepared.result()
            line.end(result)
            return result
        except StoppedError:
            raise OwnersError("stopped before there was a total.") from None


@contextlib.contextmanager
def opened(
    plan: Plan | str | Path,
    keys: Iterable[str | Path],
    *,
    host: str,
    port: int,
    certificate: str | Path | None,
    private_key: str | Path | None,
    patience: float,
    stop: Callable[[], bool],
) -> Iterator[Meeting]:
    """A meeting that owners can join, until it is left. :param plan: and all others, as of
    ``coordinate``.
    """
    context = context_of(_validate.text("host", host), certificate, private_key)
    agreed = as_plan(plan)
    side = side_of(agreed)
    seconds = _validate.number("patience", patience, above=0)
    digest = digest_of_keys(agreed, keys_of_all(agreed, keys))
    meeting = Meeting(agreed, side, digest, seconds, _validate.function("stop", stop))
    with listening(meeting, host, port, context):
        try:
            yield meeting
        finally:
            meeting.close(_STOPPED)
            meeting.say_goodbye()


def fit_of(meeting: Meeting) -> PreparedFit:
    """The fit of a meeting, whose steps ask the owners."""
    side = meeting.side
    assert isinstance(side, Agreement)
    prepared = begun(side.request, side.spec, side.privacy, side.spec.new_key())
    prepared.functions.steps = _compiled(prepared, meeting)
    return prepared


def _compiled(prepared: PreparedFit, meeting: Meeting) -> Compiling:
    """Steps of ``prepared`` on the totals of ``meeting``."""
    step = prepared.step
    flat, restored = flat_point(step, prepared.state, prepared.hyper)
    compiled = functools.partial(
        jit_seldom_called, device=prepared.device, noise_size=step.noise_size
    )

    def question(state: DPVIState, hyper: Hyperparameters) -> tuple[jax.Array, Any, jax.Array]:
        draws = step.draw(state.key, state.step, hyper)
        rung = None if state.moments is None else state.moments.rung
        u = jax.flatten_util.ravel_pytree(step.point(state, draws, hyper))[0]
        return u, 0 if rung is None else rung, draws.base_noise

    def advanced(
        state: DPVIState,
        base_noise: jax.Array,
        released: list[jax.Array],
        hyper: Hyperparameters,
    ) -> DPVIState:
        summed, *counts = released
        of_norms = counts[0] if counts else None
        return step.advanced(state, base_noise, restored(summed), of_norms, hyper)

    ask, advance = compiled(question), compiled(advanced)

    def chunk(
        state: DPVIState, records: Any, limit: jax.Array, hyper: Hyperparameters
    ) -> DPVIState:
        for number in range(int(state.step), int(limit)):
            u, rung, base_noise = ask(state, hyper)
            released = meeting.total_of(number, np.asarray(u), int(rung))
            arrays = [jnp.asarray(array, flat.dtype) for array in released]
            state = advance(state, base_noise, arrays, hyper)
        return state

    lowered: Future[Any] = Future()
    compilation: Future[Compilation] = Future()
    compilation.set_result(Compilation(chunk, 0.0))
    return Compiling(lowered, compilation)


def answer(
    plan: Plan | str | Path,
    owner: str,
    data: Any,
    keys: Any,
    server: str,
    *,
    certificate: str | Path | None = None,
    name: str | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
    patience: float = PATIENCE,
    stop: Callable[[], bool] = lambda: False,
    on_round: Callable[[int], Any] = lambda number: None,
) -> Guarantee:
    """Answer all rounds of a plan with noised and masked sums of your records.

    The ledger has the charge of all rounds before the first sum leaves, and keeps it whatever
    happens then. A plan is answered once: the secret key is deleted as it is used.

    >>> wb.owners.answer("plan.json", "Bern", None, [], "http://coordinator.example:8920")
    Traceback (most recent call last):
    workbench._validate.ArgumentError: server='http://coordinator.example:8920': is ...

    :param plan: or its file. :param owner: as the plan names it. :param data: the owner's table.
    :param keys: the files that ``make_key`` wrote, of all owners.
    :param server: where the coordinator listens, such as "https://coordinator.example:8920";
        without TLS on this machine alone.
    :param certificate: PEM file of the authority that signed the coordinator's certificate; by
        default those that this machine trusts.
    :param name: of the records in the ledger. :param ledger: as of ``wb.fit``.
    :param over_cap: why to spend more than a cap of these records allows.
    :param patience: seconds that a round may take; until all have joined there is no limit.
    :param stop: asked between rounds and every few seconds of waiting; True ends the fit, for all.
    :param on_round: called with the number of each round that was answered, from 1. An error of it
        ends the fit.
    :return: the guarantee of all rounds.
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it: then no sum has left.
    :raises OwnersError: if the fit ended before its last round, saying why.
    """
    seconds = _validate.number("patience", patience, above=0)
    with Channel.to(server, certificate, _validate.function("stop", stop)) as channel:
        ready = Ready.of(as_plan(plan), owner, data, keys, name)
        return answered(ready, channel, ledger, over_cap, on_round, seconds)


def answered(
    ready: Ready,
    channel: Channel,
    ledger: Any,
    over_cap: str | None,
    on_round: Callable[[int], Any],
    patience: float = PATIENCE,
) -> Guarantee:
    """As ``answer``, by an owner that is ready."""
    rounds = ready.plan.rounds
    greeting = {"plan": ready.plan.digest, "owner": ready.owner, "keys": ready.keys}
    greeting["session"] = uuid.uuid4().hex
    size = ready.sums.start.size
    ready.require_cap(ledger, over_cap)
    try:
        question = _asked(channel.greet(files.text_with("greeting", greeting)))
    except StoppedError:
        raise OwnersError("stopped before the first round: nothing is charged.") from None
    point = _point_of(question, 0, size)  # nothing is charged for a fit that ends before it begins
    with ready.charged(ledger, over_cap) as sums:
        for number in range(rounds):
            content = ready.content(number, sums.at(number, point, question["rung"]))
            try:
                question = _asked(channel.send(files.text_with("sum", content), patience))
            except StoppedError:
                reason = f"stopped in round {number + 1} of {rounds}: the ledger has all of them."
                raise OwnersError(reason) from None
            on_round(number + 1)
            if number + 1 < rounds:
                point = _point_of(question, number + 1, size)
    if question["end"] != "done":
        raise OwnersError(question["end"] or "the coordinator asked for more rounds than planned.")
    return ready.side.guarantee


def _point_of(question: Mapping[str, Any], number: int, size: int) -> np.ndarray:
    """Where gradients are asked for. :raises OwnersError: if that is no question of this round."""
    if question["end"] or question["round"] != number:
        raise OwnersError(question["end"] or "the coordinator skipped a round.")
    try:
        point = np.frombuffer(base64.b64decode(question["point"], validate=True), "<f4")
    except ValueError:
        point = np.empty(0, "<f4")
    if len(point) != size:
        raise OwnersError("the coordinator asked for a point of another size.")
    return point


def _asked(reply: str) -> dict[str, Any]:
    return files.checked("server", "the reply", reply, "question", _REPLY)
