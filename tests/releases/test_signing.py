"""Signatures of released folders."""

import json

import pytest

import workbench as wb
from tests.releases.conftest import seal
from workbench.releases import signing


@pytest.fixture
def signed(released_public, tmp_path, quick_report):
    """A signed release, and the public key."""
    folder = wb.release(released_public, tmp_path / "signed", sign=True)
    return folder, json.loads((folder / "signature.json").read_text())["key"]


def answer(folder, **options):
    """(status, sentence) of the check of the signature."""
    return next(
        (f.status, f.sentence) for f in wb.verify(folder, **options) if f.check == "signature"
    )


def test_a_signature_is_that_of_the_owners_key(signed, released_public, tmp_path):
    folder, key = signed
    assert answer(folder) == ("passed", f"Signed with {key}: ask whose key that is.")
    assert answer(folder, signer=key.upper())[0] == "passed"
    failed = {finding.check for finding in wb.verify(folder) if finding.status == "failed"}
    assert failed == {"report"}  # which this test did not make
    again = wb.release(released_public, tmp_path / "again", sign=True)
    assert answer(again, signer=key)[0] == "passed"  # the key is kept


def test_who_forges_the_manifest_cannot_sign_it(signed, monkeypatch, tmp_path):
    folder, key = signed
    (folder / "statement.txt").write_text("There is no risk.\n")
    seal(folder)
    assert answer(folder) == ("failed", "signature.json is not a signature of this manifest.json.")
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "forger"))
    manifest = (folder / "manifest.json").read_bytes()
    (folder / "signature.json").write_bytes(signing.sign(signing.private_key(), manifest))
    assert answer(folder)[0] == "passed"  # by a key that nobody knows
    status, sentence = answer(folder, signer=key)
    assert (status, sentence[:44]) == ("failed", "signature.json is of another key than was as")
    (folder / "signature.json").unlink()
    assert answer(folder)[0] == "passed"
    assert answer(folder, signer=key)[0] == "failed"


@pytest.mark.parametrize(
    "content", ["{}", "[", '{"format": 1, "key": "xy", "signature": ""}', '{"format": 1}']
)
def test_a_damaged_signature_fails(signed, content):
    (signed[0] / "signature.json").write_text(content)
    assert answer(signed[0])[0] == "failed"


def test_without_the_package_nothing_is_claimed(signed, released_public, monkeypatch, tmp_path):
    folder, _ = signed
    monkeypatch.setattr(signing, "_ed25519", lambda: None)
    assert answer(folder) == (
        "not checked",
        "To check the signature: pip install cryptography.",
    )
    with pytest.raises(wb.ArgumentError, match="pip install cryptography"):
        wb.release(released_public, tmp_path / "new", sign=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("signer", ["", "abc", 3, "g" * 64])
def test_what_is_no_key_is_refused(signed, signer):
    with pytest.raises(wb.ArgumentError, match="signer="):
        wb.verify(signed[0], signer=signer)


def test_the_key_is_for_its_owner_alone(signed, tmp_path):
    from workbench import _folders

    path = _folders.state() / "releases.key"
    assert path.stat().st_mode & 0o077 == 0
    assert path.read_bytes().hex() not in (signed[0] / "signature.json").read_text()
    path.write_bytes(b"short")
    with pytest.raises(wb.ArgumentError, match="holds 5 bytes instead of 32"):
        wb.release(signed[0], tmp_path / "more", sign=True)
