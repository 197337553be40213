"""Fits of several rounds: three owners and a coordinator over HTTP, and what is refused."""

import contextlib
import json
import math
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import workbench as wb
from tests import fakes
from tests.conftest import SHARED_STATE
from workbench.inference import norm_counts
from workbench.ledger.ledger import CapError, Ledger
from workbench.noise.chacha20 import new_key
from workbench.owners import files, rounds, transport
from workbench.owners.agreements import agreement
from workbench.owners.owner import Ready
from workbench.owners.rounds import Meeting, OwnersError, answered
from workbench.owners.sums import OwnSums
from workbench.owners.transport import Channel

pytestmark = pytest.mark.usefixtures("checked_models")

OWNERS = ["Aarhus", "Bern", "Cork"]
SCHEMA = {"ill": ["no", "yes"], "age": (18, 90)}
STEPS = {"iterations": 6, "sampling_rate": 0.5, "learning_rate": 0.05}
HERE = "http://127.0.0.1:{}"


def table(size, seed):
    random = np.random.default_rng(seed)
    age = random.uniform(18, 90, size)
    chance = 1 / (1 + np.exp(-(age - 54) / 10))
    return pd.DataFrame({"age": age, "ill": np.where(random.random(size) < chance, "yes", "no")})


TABLES = [table(size, seed) for seed, size in enumerate([70, 41, 0])]


def a_plan(**changes):
    facts = {"schema": SCHEMA, "owners": OWNERS, "epsilon": 8.0, "delta": 1e-3, "num_records": 300}
    return wb.owners.plan("ill ~ age", **({**facts, "settings": STEPS} | changes))


def a_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def plan():
    return a_plan()


@pytest.fixture(scope="module")
def side(plan):
    return agreement(plan)


def keys_in(folder):
    return sorted(folder.glob("*.key.json"))


def readies(plan, folder, tables=TABLES):
    """Owners that are ready, one after the other: models are traced by one thread at a time."""
    folder.mkdir(exist_ok=True)
    keys = [wb.owners.make_key(plan, owner, folder) for owner in plan.owners]
    return [
        Ready.of(plan, owner, frame, keys, owner)
        for owner, frame in zip(plan.owners, tables, strict=False)
    ]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alone(ready, server):
    """One owner answers here."""
    with Channel.to(server, None) as channel:
        return answered(ready, channel, False, None, lambda number: None)


@contextlib.contextmanager
def answering(owners, server, *, ledger=False, on_round=lambda number: None, **options):
    """The outcomes of owners that answer from threads, by their place."""
    outcomes = {}

    def of(place, ready):
        try:
            with Channel.to(server, options.get("certificate")) as channel:
                outcomes[place] = answered(ready, channel, ledger, None, on_round)
        except Exception as error:
            outcomes[place] = error

    threads = [threading.Thread(target=of, args=pair) for pair in enumerate(owners)]

    def begin():
        until = time.monotonic() + 60
        while not listens(int(server.rpartition(":")[2])) and time.monotonic() < until:
            time.sleep(0.05)
        for thread in threads:
            thread.start()

    beginning = threading.Thread(target=begin)
    beginning.start()
    yield outcomes
    beginning.join()
    for thread in threads:
        thread.join(60)


@pytest.fixture(scope="module")
def run(plan, tmp_path_factory):
    """(the result, what the owners returned, steps of the snapshots)."""
    folder = tmp_path_factory.mktemp("rounds")
    with pytest.MonkeyPatch.context() as patch:
        fakes.split_once(patch)
        patch.setenv("WORKBENCH_STATE", str(folder / "state"))
        owners, port, steps = readies(plan, folder / "keys"), a_port(), []
        with answering(owners, HERE.format(port), ledger=None) as outcomes:
            result = wb.owners.coordinate(
                plan,
                keys_in(folder / "keys"),
                port=port,
                on_snapshot=lambda snapshot: steps.append(snapshot.step),
            )
        spends = Ledger().spends()
        patch.setenv("WORKBENCH_STATE", SHARED_STATE)
    return result, outcomes, steps, spends


def test_three_owners_have_one_result(run, plan):
    result, outcomes, steps, spends = run
    assert (result.status, result.message, steps[-1]) == ("done", "", 6)
    assert [outcomes[place].epsilon for place in range(3)] == [8.0] * 3
    assert len(spends) == 3
    assert {row.guarantee.steps for row in spends} == {6}
    guarantee = result.guarantee
    assert (guarantee.steps, guarantee.steps_taken, guarantee.sampling_rate) == (6, 6, 0.5)
    assert "learned the noised total of each of 6 rounds and nothing" in guarantee.statement()
    assert np.isfinite(result.coefficients()["mean"]).all()


def test_a_look_may_go_over_the_network_too(tmp_path):
    plan = wb.owners.plan(
        "look", schema=SCHEMA, owners=OWNERS, epsilon=8.0, delta=1e-3, num_records=300
    )
    owners, port = readies(plan, tmp_path), a_port()
    with answering(owners, HERE.format(port)) as outcomes:
        seen = wb.owners.coordinate(plan, keys_in(tmp_path), port=port)
    assert [outcomes[place].epsilon for place in range(3)] == [seen.guarantee.epsilon] * 3
    yes = (pd.concat(TABLES)["ill"] == "yes").sum()
    counts = {column.name: seen.values[places] for column, places in seen.counting.slices()}
    assert abs(counts["ill"][1] - yes) < 6 * seen.deviation


def test_the_promise_counts_the_noise_of_all_but_one(run):
    guarantee = run[0].guarantee
    remaining = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    epsilon = wb.privacy.epsilon(
        sampling_rate=0.5,
        noise_multiplier=guarantee.noise_multiplier,
        steps=6,
        delta=remaining,
    )
    assert epsilon <= guarantee.epsilon


def test_the_posterior_counts_the_noise_of_all(side):
    hyper = side.spec.hyper(side.privacy, side.step)
    of_all = side.privacy.mechanism.standard_deviation * math.sqrt(3 / 2)
    assert float(hyper.standard_deviation) == pytest.approx(of_all, rel=1e-6)


def whole(plan, frame):
    """An owner's side whose records all enter each round and are rounded one by one."""
    side = agreement(plan, frame, "records")
    performance = side.step.performance._replace(strategy="loop")
    return replace(side, step=replace(side.step, performance=performance))


def without_noise(side, number, point):
    key = new_key()
    sums = OwnSums.of(side)
    sums.begin(key)
    summed = sums.at(number, point)
    noise = side.step.draw(key, number, sums._hyper).noise.units
    return (summed.words - np.asarray(noise).view(np.uint32)).view(np.int32), summed.spacings


@pytest.fixture(scope="module")
def bare_sums():
    """Sums of three rounds without their noise: of each owner, and of all records together."""
    plan = a_plan(settings={**STEPS, "sampling_rate": 1.0})
    point = np.array([0.7, -0.4], np.float32)
    with pytest.MonkeyPatch.context() as patch:
        fakes.split_once(patch)
        apart = [without_noise(whole(plan, frame), 3, point) for frame in TABLES]
        together = without_noise(whole(plan, pd.concat(TABLES)), 3, point)
    return plan, point, apart, together


def test_the_total_of_a_round_is_that_of_the_pooled_records_bit_for_bit(bare_sums):
    _, _, apart, (pooled, spacings) = bare_sums
    assert all(found == spacings for _, found in apart)
    assert np.array_equal(sum(units for units, _ in apart), pooled)
    assert not apart[2][0].any()  # of an owner without records


def test_the_total_of_a_round_is_the_sum_of_clipped_gradients(bare_sums):
    """By NumPy alone, in 64 bits."""
    plan, point, _, (units, spacings) = bare_sums
    frame = pd.concat(TABLES)
    x = (frame["age"].to_numpy() - 54) / 36
    ill = (frame["ill"] == "yes").to_numpy()
    sums = []
    for slope, intercept in (point, point[::-1]):  # whichever comes first in the vector
        residual = 1 / (1 + np.exp(-(slope * x + intercept))) - ill
        gradients = residual[:, None] * np.stack([x, np.ones_like(x)], axis=1)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        sums.append((gradients * np.minimum(1, plan.settings["clip"] / norms)).sum(0))
    expected = [sums[0], sums[1][::-1]]
    actual = units[:2] * spacings[0]
    errors = [np.abs(actual - candidate).max() for candidate in expected]
    assert min(errors) < 1e-3 * np.abs(actual).max()


def test_the_noise_of_all_rounds_and_owners_is_the_planned_one():
    """Sums of owners without records are noise: its variance over 3 owners and many rounds."""
    plan = a_plan(settings={**STEPS, "iterations": 400})
    side = agreement(plan, table(0, 0), "nobody")
    shares = [OwnSums.of(side) for _ in plan.owners]
    for share in shares:
        share.begin(new_key())
    size, sums = side.step.noise_size, []
    for number in range(400):
        parts = [share.at(number, share.start) for share in shares]
        units = sum(part.words for part in parts).view(np.int32)
        sums.append(units[:size] * parts[0].spacings[0])
    planned = side.privacy.mechanism.standard_deviation / side.step.share_of_sum
    squares = np.sum(np.square(sums)) / (planned**2 * 3 / 2)
    # a spacing leaves room for rounding, so the noise is a little more than planned
    assert squares > chi2.isf(1 - 1e-6, 400 * size)
    assert squares < 1.05 * chi2.isf(1e-6, 400 * size)


def test_a_round_has_its_own_noise_and_minibatch_and_none_without_a_key(plan):
    sums = OwnSums.of(agreement(plan, TABLES[0], "some"))
    with pytest.raises(RuntimeError, match="begin"):
        sums.at(0, sums.start)
    sums.begin(new_key())
    first = sums.at(0, sums.start)
    with pytest.raises(wb.ArgumentError):
        sums.at(0, sums.start)
    assert not np.array_equal(first.words, sums.at(1, sums.start).words)


def test_an_adapted_clip_travels_with_the_question():
    plan = a_plan(settings={**STEPS, "iterations": 60, "clip": "auto"})
    assert plan.settings["clip"] == "auto"
    sums = OwnSums.of(agreement(plan, TABLES[0], "some"))
    sums.begin(new_key())
    first, second = (sums.at(number, sums.start, rung) for number, rung in ((0, 0), (1, -4)))
    assert second.spacings[0] == pytest.approx(first.spacings[0] / 4)


# the meeting, without a network


class Played:
    """Messages of owners of ``plan``, and a meeting that gets them."""

    def __init__(self, plan, side, **options):
        self.plan, self.side = plan, side
        self.meeting = Meeting(plan, side, "k", **{"patience": 0.5} | options)

    def greeting(self, owner, **changes):
        content = {"plan": self.plan.digest, "owner": owner, "keys": "k", "session": "s"} | changes
        return files.text_with("greeting", content).encode()

    def joined(self):
        for owner in self.plan.owners:
            self.meeting.receive(self.greeting(owner))
        self.meeting.gather()

    def sum_of(self, owner, number=0, words=None, **changes):
        content = {
            "plan": self.plan.digest,
            "keys": "k",
            "owner": owner,
            "round": number,
            "grid": dict(self.side.grid),
            "spacings": [0.5, 0.25],
            "words": encoded(np.zeros(self.side.size) if words is None else words),
        } | changes
        content["checksum"] = files.digest_of(content)
        return files.text_with("sum", content).encode()

    def total(self, messages, number=0):
        """The total of a round whose sums are these messages."""
        outcome = Future()

        def ask():
            try:
                point = np.zeros(2, np.float32)
                outcome.set_result(self.meeting.total_of(number, point, 0))
            except Exception as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.05)
        for message in messages:
            self.meeting.receive(message)
        thread.join(10)
        return outcome.result(0)


def encoded(words):
    import base64

    return base64.b64encode(np.asarray(words).astype("<u4").tobytes()).decode()


@pytest.fixture
def played(plan, side):
    return Played(plan, side)


def test_totals_are_sums_modulo_2_to_the_32_times_their_spacing(played):
    played.joined()
    size = played.side.size
    words = [np.full(size, 2**32 - 5), np.full(size, 3), np.full(size, 4)]
    summed, counts = played.total(
        played.sum_of(owner, words=part) for owner, part in zip(OWNERS, words, strict=True)
    )
    assert summed.tolist() == [2 * 0.5] * 2
    assert counts.tolist() == [2 * 0.25] * norm_counts.RANGES


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (lambda played: played.greeting("Bern", plan="0" * 64), "belongs to another plan"),
        (lambda played: played.greeting("Dover"), "is of nobody in the plan"),
        (
            lambda played: played.greeting("Aarhus", session="t"),
            "stop that program. If it no .* 16",
        ),
        (lambda played: played.greeting("Bern", keys="other"), "read the code to each other"),
        (lambda played: played.sum_of("Bern"), "is not a file of an owners' greeting"),
        (lambda played: b"\xff", "is no JSON file, or damaged"),
    ],
)
def test_a_greeting_that_does_not_belong_here_is_refused(played, message, words):
    played.meeting.receive(played.greeting("Aarhus"))
    with pytest.raises(wb.ArgumentError, match=words):
        played.meeting.receive(message(played))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (lambda played: played.sum_of("Bern", plan="0" * 64), "belongs to another plan"),
        (lambda played: played.sum_of("Aarhus"), "has answered round 1 already"),
        (lambda played: played.sum_of("Bern", number=1), "has answered round 2 already"),
        (lambda played: played.sum_of("Bern", keys="other"), "other keys than the coordinator"),
        (
            lambda played: played.sum_of("Bern").replace(b'"round": 0', b'"round": 7'),
            "was altered after it was written",
        ),
        (lambda played: played.greeting("Bern", session="t"), "leave that program running"),
    ],
)
def test_a_sum_that_does_not_belong_here_is_refused(played, message, words):
    played.joined()
    with pytest.raises(OwnersError, match="Bern and Cork did not answer in round 1 of 6"):
        played.total(first_and_refused(played, message, words))
    _, late = played.meeting.receive(played.sum_of("Bern"))
    assert "Bern and Cork did not answer in round 1" in json.loads(late.result(0))["end"]


def first_and_refused(played, message, words):
    """The first owner's sum, and no other message once the one was refused."""
    yield played.sum_of("Aarhus")
    with pytest.raises(wb.ArgumentError, match=words):
        played.meeting.receive(message(played))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"words": np.zeros(1)}, "has 1 numbers"),
        ({"spacings": [0.5, 0.5]}, "the masks do not cancel"),
        ({"spacings": []}, "the masks do not cancel"),
        ({"grid": {"level": 3}}, "computed its sum for other noise"),
        ({"words": np.full(8, 2**31)}, "add up to what no records give"),
    ],
)
def test_sums_that_do_not_go_together_give_no_total(played, changes, words):
    played.joined()
    if "grid" in changes:
        changes = {"grid": {**played.side.grid, **changes["grid"]}}
    if "words" in changes and len(changes["words"]) > 1:
        changes = {"words": np.full(played.side.size, 2**31)}
    messages = [played.sum_of(owner) for owner in OWNERS[:2]]
    last = played.sum_of("Cork", **changes)
    with pytest.raises(OwnersError, match=words):
        played.total([*messages, last])


def test_an_owner_that_goes_ends_the_fit_for_all(played):
    played.joined()

    def going():
        yield played.sum_of("Aarhus")
        for changes in ({"keys": "other"}, {"session": "t"}):
            with pytest.raises(wb.ArgumentError):
                played.meeting.dismiss(played.greeting("Bern", **changes))
        played.meeting.dismiss(played.greeting("Bern"))

    with pytest.raises(OwnersError, match="Bern left in round 1 of 6, and without its sums"):
        played.total(going())
    _, late = played.meeting.receive(played.sum_of("Cork"))
    assert "Bern left" in json.loads(late.result(0))["end"]


def test_an_owner_that_goes_before_the_start_may_join_again(played):
    for owner in OWNERS[:2]:
        played.meeting.receive(played.greeting(owner))
    played.meeting.dismiss(played.greeting("Bern"))
    with pytest.raises(wb.ArgumentError, match="has not joined"):
        played.meeting.dismiss(played.greeting("Bern"))
    for owner in OWNERS[1:]:
        played.meeting.receive(played.greeting(owner, session="again"))
    played.meeting.gather()


def test_an_owner_that_falls_silent_is_awaited_again_and_may_come_back(played, monkeypatch):
    """Its process died between two polls, so no connection told of it."""
    monkeypatch.setattr(rounds, "SILENCE", 0.3)
    replies = [played.meeting.receive(played.greeting(owner))[1] for owner in OWNERS]
    played.meeting.gather()
    assert replies[1].cancel()  # the poll is over
    assert played.meeting.joined == OWNERS
    with pytest.raises(wb.ArgumentError, match="owner='Bern': takes part from another program"):
        played.meeting.receive(played.greeting("Bern", session="again"))
    point = np.zeros(2, np.float32)
    with ThreadPoolExecutor(1) as pool:
        round_of_all = pool.submit(played.meeting.total_of, 0, point, 0)
        time.sleep(0.5)
        assert not played.meeting.has_begun
        assert not replies[0].done()  # so nobody is charged
        assert played.meeting.joined == ["Aarhus", "Cork"]
        _, reply = played.meeting.receive(played.greeting("Bern", session="again"))
        assert json.loads(reply.result(5))["round"] == 0
        assert [asked.done() for asked in replies] == [True] * 3
        with pytest.raises(wb.ArgumentError, match="leave that program running"):
            played.meeting.receive(played.greeting("Bern"))
        for owner in OWNERS:
            played.meeting.receive(played.sum_of(owner))
        assert len(round_of_all.result(5)) == 2


def test_a_poll_that_is_over_is_answered_when_it_is_asked_again(plan, side, monkeypatch):
    """Over HTTP, where a program says nothing more after its first poll."""
    monkeypatch.setattr(transport, "_POLL", 0.05)
    monkeypatch.setattr(rounds, "SILENCE", 0.2)
    played, port = Played(plan, side), a_port()
    with transport.listening(played.meeting, "127.0.0.1", port, None):
        for session in ("s", "again"):
            greeting = played.greeting("Bern", session=session)
            assert httpx.post(HERE.format(port), content=greeting).status_code == 202
            assert not played.meeting._asking()
            time.sleep(0.3)
            assert played.meeting.joined == []


def test_an_owner_may_ask_again_what_is_asked(played):
    played.joined()

    def asking():
        _, reply = played.meeting.receive(played.greeting("Bern"))
        assert json.loads(reply.result(0))["round"] == 0
        yield played.sum_of("Bern")
        _, reply = played.meeting.receive(played.greeting("Bern"))
        assert not reply.done()  # it has answered, and waits
        for owner in ("Aarhus", "Cork"):
            yield played.sum_of(owner)

    assert len(played.total(asking())) == 2


def test_owners_wait_longer_than_a_request(owners_of, plan, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "_POLL", 0.02)
    port = a_port()
    with answering(owners_of, HERE.format(port)) as outcomes:
        result = wb.owners.coordinate(plan, keys_in(tmp_path / "keys"), port=port)
    assert result.status == "done"
    assert all(outcome.epsilon == 8.0 for outcome in outcomes.values())


def test_a_stop_while_owners_are_awaited_is_heeded(plan, side):
    played = Played(plan, side, stop=lambda: True)
    with pytest.raises(OwnersError, match="stopped before all owners had joined"):
        played.meeting.gather()


# over HTTP


@pytest.fixture
def owners_of(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    return readies(plan, tmp_path / "keys")


@pytest.fixture
def one_owner(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    (ready,) = readies(plan, tmp_path / "keys", TABLES[:1])
    return ready


def test_an_owner_that_fails_in_a_round_leaves_a_partial_result(owners_of, plan, tmp_path):
    def failing(number):
        if number == 3 and threading.current_thread() is chosen[0]:
            raise KeyError("a full disk")

    chosen, port = [], a_port()

    def note(number):
        if not chosen:
            chosen.append(threading.current_thread())
        failing(number)

    with answering(owners_of, HERE.format(port), on_round=note) as outcomes:
        result = wb.owners.coordinate(plan, keys_in(tmp_path / "keys"), port=port)
    assert result.status == "failed"
    assert "left in round" in result.message
    errors = list(outcomes.values())
    assert sorted(type(error).__name__ for error in errors) == ["KeyError"] + ["OwnersError"] * 2


def capped(owners_of, tmp_path):
    """A ledger with a cap that the second owner's records cannot keep."""
    ledger = Ledger(tmp_path / "capped.sqlite")
    spec = owners_of[1].side.spec
    dataset = ledger.add(spec.columns.dataset_id).number
    ledger.set_cap(dataset, 1.0, 1e-3, why="agreed")
    return ledger


def test_a_cap_that_does_not_allow_it_refuses_before_the_others_wait(owners_of, tmp_path):
    ledger = capped(owners_of, tmp_path)
    with pytest.raises(CapError):
        answered(owners_of[1], None, ledger, None, print)  # without a channel
    assert not ledger.spends()


def test_a_cap_that_comes_meanwhile_ends_the_fit_before_a_sum_leaves(
    owners_of, plan, tmp_path, monkeypatch
):
    port, ledger = a_port(), capped(owners_of, tmp_path)
    monkeypatch.setattr(Ready, "require_cap", lambda *_: None)
    with (
        answering(owners_of, HERE.format(port), ledger=ledger) as outcomes,
        pytest.raises(OwnersError, match=r"^Bern left in round 1 of 6"),
    ):
        wb.owners.coordinate(plan, keys_in(tmp_path / "keys"), port=port)
    assert isinstance(outcomes[1], CapError)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"round": 3, "point": "", "rung": 0, "end": ""}, "skipped a round"),
        ({"round": 0, "point": "", "rung": 0, "end": "no more"}, "no more"),
        ({"round": 0, "point": "AAAA", "rung": 0, "end": ""}, "a point of another size"),
        ({"round": 0, "point": "AAAAAA==", "rung": 0, "end": ""}, "a point of another size"),
        ({"round": 0, "point": "AAAAAAAAAAA=", "rung": 2**31, "end": ""}, "rung must be a whole"),
        ({"round": 0, "point": "AAAAAAAAAAA=", "rung": 0.5, "end": ""}, "rung must be a whole"),
    ],
)
def test_questions_out_of_turn_are_not_answered(one_owner, monkeypatch, reply, words):
    text = files.text_with("question", reply)
    monkeypatch.setattr(Channel, "send", lambda channel, *message: text)
    with pytest.raises((OwnersError, wb.ArgumentError), match=words):
        alone(one_owner, HERE.format(1))
    assert one_owner.sums._state is None  # nothing was charged


def test_a_round_too_many_is_not_answered(one_owner, monkeypatch):
    asked = []

    def send(channel, message, *patience):
        number = len(asked)
        asked.append(message)
        point = encoded(np.zeros(2, "<f4").view("<u4"))
        return files.text_with("question", {"round": number, "point": point, "rung": 0, "end": ""})

    monkeypatch.setattr(Channel, "send", send)
    with pytest.raises(OwnersError, match="more rounds than planned"):
        alone(one_owner, HERE.format(1))
    assert len(asked) == 1 + 6


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("127.0.0.1:8920", "must be an address"),
        ("http://coordinator.example:8920", "must begin with https"),
        ("ftp://127.0.0.1", "must be an address"),
        ("http://127.0.0.1:x", "must be an address"),
        ("https://[bad", "must be an address"),
    ],
)
def test_servers_that_cannot_be_trusted_are_refused(one_owner, server, words):
    with pytest.raises(wb.ArgumentError, match=words):
        alone(one_owner, server)


def test_a_coordinator_that_is_not_there_is_said(one_owner, monkeypatch):
    monkeypatch.setattr(transport, "_EARLY", 0.6)
    with pytest.raises(wb.ArgumentError, match="cannot be reached"):
        alone(one_owner, HERE.format(a_port()))


def test_what_is_not_encrypted_goes_through_no_proxy(one_owner, monkeypatch):
    monkeypatch.setattr(transport, "_EARLY", 0.0)
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen()
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with pytest.raises(wb.ArgumentError, match="cannot be reached"):
            alone(one_owner, HERE.format(a_port()))
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize(
    "settings", [{}, {"estimator": "aligned"}, {**STEPS, "iterations": 6.0}, {"seed": 1}]
)
def test_a_plan_whose_steps_are_not_told_in_full_is_refused(plan, settings, tmp_path):
    part = replace(plan, settings=settings)
    with pytest.raises(wb.ArgumentError, match="all settings of its steps"):
        wb.owners.make_key(part.save(tmp_path / "plan.json"), "Bern", tmp_path)


def test_others_may_reach_a_coordinator_by_tls_alone(plan):
    with pytest.raises(wb.ArgumentError, match="certificate=None: is needed to listen at 0"):
        wb.owners.coordinate(plan, [], host="0.0.0.0")


@pytest.fixture
def certificate(tmp_path):
    """(PEM file of a certificate of this machine, that of its key)."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "coordinator")])
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (tmp_path / "certificate.pem").write_bytes(made.public_bytes(encoding))
    plain = serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    )
    return tmp_path / "certificate.pem", tmp_path / "key.pem"


def test_rounds_go_over_tls(owners_of, plan, certificate, tmp_path):
    public, private = certificate
    port = a_port()
    server = f"https://127.0.0.1:{port}"
    with answering(owners_of, server, certificate=public) as outcomes:
        result = wb.owners.coordinate(
            plan,
            keys_in(tmp_path / "keys"),
            port=port,
            certificate=public,
            private_key=private,
        )
    assert result.status == "done"
    assert all(outcome.epsilon == 8.0 for outcome in outcomes.values())


def test_one_release_goes_over_http_too(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    facts = {"schema": {"days": (0, 30), "age": (18, 90)}, "owners": OWNERS[:2]}
    plan = wb.owners.plan("days ~ age", epsilon=8.0, delta=1e-3, num_records=300, **facts)
    assert plan.rounds == 1
    tables = [frame.assign(days=frame["age"] / 5) for frame in TABLES[:2]]
    port = a_port()
    with answering(readies(plan, tmp_path / "keys", tables), HERE.format(port)):
        result = wb.owners.coordinate(plan, keys_in(tmp_path / "keys"), port=port)
    assert result.status == "done"
    assert result.guarantee.released == "sums"


def test_a_model_whose_intervals_count_no_noise_is_refused():
    schema = {"age": (18, 90), "stay": (0, 30)}
    facts = {"owners": OWNERS, "epsilon": 8.0, "delta": 1e-3, "num_records": 300}
    with pytest.raises(wb.ArgumentError, match="has no intervals that count the noise"):
        wb.owners.plan("gmm", schema=schema, **facts, settings={"iterations": 20})


def test_a_plan_of_many_rounds_has_no_file_for_each(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path))
    keys = [wb.owners.make_key(plan, owner, tmp_path) for owner in plan.owners]
    with pytest.raises(wb.ArgumentError, match=r"answer it with wb.owners.answer"):
        wb.owners.write_sum(plan, "Bern", TABLES[1], keys, tmp_path)
