"""Masks cancel in the total, hide all else, and are those of one plan and its keys."""

import hashlib

import numpy as np
import pytest
from scipy.stats import chi2

import workbench as wb
from workbench.noise.chacha20 import stream
from workbench.owners import files, masks
from workbench.owners.masks import Masks, public_key
from workbench.owners.planning import Plan

SCHEMA = wb.data.Schema.from_declaration({"days": (0, 30), "age": (18, 90)}).to_dict()
FALSE_ALARM = 1e-6


def plan_of(owners=("Aarhus", "Bern", "Cork"), **changes):
    facts = {"colluders": 1, "epsilon": 1.0, "delta": 1e-4, "num_records": 500}
    facts |= {"settings": {"estimator": "statistics", "look": 0.0}, "name": "one"}
    return Plan("days ~ age", {}, SCHEMA, tuple(owners), *(facts | changes).values())


PLAN = plan_of()
SECRETS = [hashlib.sha256(bytes([number])).digest() for number in range(3)]
KEYS = [public_key(secret) for secret in SECRETS]


def words(key, size, number=0):
    return np.asarray(stream(key, number, size), np.uint32)


def masked(sums, plan=PLAN, secrets=SECRETS):
    keys = [public_key(secret) for secret in secrets]
    parts = zip(sums, secrets, strict=True)
    return [
        (x + Masks.of(plan, secret, keys, place).at(0, len(x))).astype(np.uint32)
        for place, (x, secret) in enumerate(parts)
    ]


def test_masks_cancel_in_the_total():
    sums = np.arange(3 * 40, dtype=np.uint32).reshape(3, 40) * np.uint32(0x9E3779B1)
    parts = masked(sums)
    assert np.array_equal(np.sum(parts, axis=0, dtype=np.uint32), sums.sum(0, dtype=np.uint32))
    assert not any((part == x).any() for part, x in zip(parts, sums, strict=True))


def test_each_round_has_masks_of_its_own():
    parts = [Masks.of(PLAN, secret, KEYS, place) for place, secret in enumerate(SECRETS)]
    rounds = [[part.at(number, 8) for part in parts] for number in range(3)]
    assert len({words[0].tobytes() for words in rounds}) == 3
    assert not np.sum(rounds, axis=1, dtype=np.uint32).any()


def unlikely(*words):
    """Whether the joint law of the upper four bits of words is not uniform, by a chi-squared test
    with a false alarm of ``FALSE_ALARM``.
    """
    cells = np.zeros(len(words[0]), int)
    for word in words:
        cells = cells * 16 + (word >> np.uint32(28)).astype(int)
    counts = np.bincount(cells, minlength=16 ** len(words))
    expected = len(cells) / len(counts)
    return ((counts - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(counts) - 1)


def test_any_two_files_and_the_total_say_nothing_of_the_third():
    size = 2**16
    for third in (np.zeros(size, np.uint32), np.full(size, 12345, np.uint32)):
        total = np.full(size, 777_777, np.uint32)
        sums = [np.zeros(size, np.uint32), total - third, third]  # the total is always the same
        parts = masked(sums)
        for first, second in ((0, 1), (0, 2), (1, 2)):
            assert not unlikely(parts[first], parts[second])
        assert not unlikely(parts[2])
        assert np.array_equal(np.sum(parts, axis=0, dtype=np.uint32), total)


@pytest.mark.parametrize("bare", [[(0, 2), (1, 2)], [(1, 2)]])
def test_a_planted_leak_is_caught(monkeypatch, bare):
    """Some pairs of owners have no mask, so a sum is bare, or so to one other owner."""
    size, x = 2**16, np.uint32(12345)

    complete = Masks.of

    def leaking(*arguments):
        position, streams = complete(*arguments)
        covered = {
            other: key
            for other, key in streams.items()
            if tuple(sorted((position, other))) not in bare
        }
        return Masks(position, covered)

    monkeypatch.setattr(Masks, "of", leaking)
    parts = masked(np.full((3, size), x, np.uint32))
    assert (np.sum(parts, axis=0, dtype=np.uint32) == 3 * x).all()  # they cancel all the same
    of_first = leaking(PLAN, SECRETS[0], KEYS, 0).streams
    known = words(of_first[2], size) if 2 in of_first else np.uint32(0)
    assert unlikely(parts[2] + known)
    assert unlikely(parts[2]) == (len(bare) == 2)


def test_a_mask_with_few_gaps_is_caught():
    size, x = 2**16, np.uint32(12345)
    part = masked(np.full((3, size), x, np.uint32))[0]
    part[::64] = x
    assert unlikely(part)


def test_what_colluders_know_does_not_uncover_the_others():
    # owner 1 takes all its own masks off the others' files: what is left is still uniform
    size, x = 2**16, np.uint32(12345)
    parts = masked(np.full((3, size), x, np.uint32))
    streams = Masks.of(PLAN, SECRETS[0], KEYS, 0).streams
    uncovered = [parts[other] + words(streams[other], size) for other in (1, 2)]
    assert not any(map(unlikely, uncovered))
    assert (uncovered[0] + uncovered[1] == x + x).all()  # nothing else was left of the masks


def test_masks_are_those_of_the_plan_and_of_all_keys():
    def of(plan, secrets):
        keys = [public_key(secret) for secret in secrets]
        return Masks.of(plan, secrets[0], keys, 0).at(0, 8).tobytes()

    other = [*SECRETS[:2], hashlib.sha256(b"another").digest()]
    rounds = [of(PLAN, SECRETS), of(plan_of(name="two"), SECRETS), of(PLAN, other)]
    rounds += [of(plan_of(epsilon=2.0), SECRETS)]
    assert len(set(rounds)) == 4
    assert of(PLAN, SECRETS) == rounds[0]


def test_the_stream_is_the_one_of_rfc_7748_5869_and_8439():
    # by the reference implementations of the package cryptography alone
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey,
        X25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    plan = plan_of(("Aarhus", "Bern"))
    keys = KEYS[:2]
    everything = hashlib.sha256(bytes.fromhex(plan.digest) + b"".join(keys)).digest()
    pair = everything + b"\0" + keys[0] + b"\1" + keys[1]
    shared = X25519PrivateKey.from_private_bytes(SECRETS[0]).exchange(
        X25519PublicKey.from_public_bytes(keys[1])
    )
    key = HKDF(SHA256(), 32, bytes.fromhex(plan.digest), masks._PURPOSE + pair).derive(shared)
    nonce = (0).to_bytes(4, "little") + b"strm" + bytes(8)  # counter, purpose, number and lane
    encryptor = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor()
    blocks = np.frombuffer(encryptor.update(bytes(4 * 16 * 4)), "<u4").reshape(4, 16)
    expected = blocks.T.reshape(-1)  # the first word of every block, then the second
    actual = Masks.of(plan, SECRETS[0], keys, 0).at(0, 64)
    assert np.array_equal(actual, expected)
    assert np.array_equal(Masks.of(plan, SECRETS[1], keys, 1).at(0, 64), -expected)


def key_file(folder, name, owner, key=KEYS[0], plan=PLAN):
    content = {"plan": plan.digest, "owner": owner, "public_key": key.hex()}
    return files.write_new("folder", folder / name, "key", content)


def test_keys_that_do_not_go_together_are_refused(tmp_path):
    one, two, three = (
        key_file(tmp_path, f"{place}", owner, KEYS[place])
        for place, owner in enumerate(PLAN.owners)
    )
    wrong = {
        "a second key of Bern": [one, two, three, key_file(tmp_path, "x", "Bern", bytes(32))],
        "key of another owner": [one, two, key_file(tmp_path, "y", "Cork", KEYS[1])],
        "another plan": [one, two, key_file(tmp_path, "z", "Cork", plan=plan_of(name="two"))],
        "nobody in the plan": [one, two, three, key_file(tmp_path, "v", "Dover", bytes(32))],
        "Cork": [one, two],
        "64 hexadecimal": [one, two, key_file(tmp_path, "w", "Cork", b"short")],
        "no JSON": [tmp_path.joinpath("text")],
        "owners' key": [PLAN.save(tmp_path / "plan.json")],
    }
    tmp_path.joinpath("text").write_text("{")
    for words, paths in wrong.items():
        with pytest.raises(wb.ArgumentError, match=words) as caught:
            masks.keys_of_all(PLAN, paths)
        assert caught.value.argument == "keys"
    assert masks.keys_of_all(PLAN, [three, one, two]) == KEYS
    assert wb.owners.code(PLAN, [three, one, two]) == wb.owners.code(
        tmp_path / "plan.json", [one, two, three]
    )


def test_a_key_that_shares_nothing_is_refused():
    with pytest.raises(wb.ArgumentError, match="Bern is no key"):
        Masks.of(PLAN, SECRETS[0], [KEYS[0], bytes(32), KEYS[2]], 0)
