"""Released folders: each change of one field is caught, with a sentence that names it."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from tests.releases.conftest import fitted, forge, seal, set_in
from workbench.privacy.check_epsilon import recompute
from workbench.releases import writing
from workbench.releases.checks import CHECKS
from workbench.results import arviz_adapter

# a claim of the guarantee that a forger writes, and what a failed check says of it
CLAIMS = {
    "epsilon": (0.5, "epsilon"),
    "delta": (1e-3, "guarantee.delta is 0.001, but settings.delta says 0.0001"),
    "relation": ("replace_one", "guarantee.relation"),
    "unit": ("visit", "guarantee.unit is visit, but data.unit says patient"),
    "sampler": ("random_allocation", "guarantee.sampler is random_allocation, but settings"),
    "sampling_rate": (0.05, "guarantee.sampling_rate is 0.05, but settings.sampling_rate 0.1"),
    "noise_multiplier": (40.0, "noise multiplier (sigma) | 40.0"),
    "clip": (0.5, "guarantee.clip is 0.5, but settings.clip says"),
    "steps": (45, "epsilon must be at least 1.0"),
    "steps_taken": (20, "guarantee.steps_taken is 20 of 40, but status is done"),
    "epsilon_taken": (0.5, "epsilon_taken must be at least"),
    "num_records": (5000, "guarantee.num_records is 5000, but settings.num_records says"),
    "accountant": ("rdp", "guarantee.accountant is rdp"),
    "overflow_delta": (1e-8, "share of delta for minibatch overflow and rounding | 1e-08"),
    "noise_delta": (1e-10, "share of delta for noise that is not exactly Gaussian | 1e-10"),
    "secure_randomness": (False, "guarantee.secure_randomness is false"),
    "caveats": ([], "guarantee.caveats have another N"),
    "clipping": ("automatic", "guarantee.clipping is automatic, but settings.clipping says flat"),
    "arithmetic": ("floating point", "guarantee.arithmetic is floating point"),
    "max_rows": (3, "guarantee.max_rows set is true, but guarantee.caveats says false"),
    "second_opinion": ("confirmed by everybody", "confirmed by everybody"),
    "adapts_clip": (True, "guarantee.adapts_clip is true, but settings.adapts_clip says false"),
    "released": ("sums", "guarantee.released in a single step is true"),
    "against_storage": (True, "It also holds against an observer of the storage"),
    "covers_deletion": (True, "removing any one patient changes any outcome's"),
    "look_noise": (900.0, "guarantee.look_noise > 0 is true, but settings.look 0.0 says false"),
}
OTHERS = {
    "settings.epsilon": (0.5, "settings.epsilon says 0.5"),
    "settings.delta": (1e-3, "settings.delta says 0.001"),
    "settings.iterations": (3, "settings.iterations says 3"),
    "settings.sampling_rate": (0.3, "settings.sampling_rate 0.3"),
    "settings.clip": (0.4, "settings.clip says 0.4"),
    "settings.num_records": (77, "settings.num_records says 77"),
    "settings.seed": (5, "settings.seed 5 says false"),
    "settings.relation": ("replace_one", "settings.relation says replace_one"),
    "settings.look": (0.2, "settings.look 0.2 says true"),
    "settings.covered_scores": (True, "settings.covered_scores says true"),
    "settings.estimator": ("statistics", "settings.estimator says true"),
    "data.unit": ("visit", "data.unit says visit"),
    "gradient_norms.clip": (9.0, "gradient_norms says 9"),
    "status": ("cancelled", "status cancelled"),
    "spend": ("abc", "the fit with the key abc"),
    "model": ("gmm", "its model is logistic, but result.json has gmm"),
    "versions.workbench": ("9.9", "its version is 0.1.0, but result.json has 9.9"),
}
OF_LEDGER = {
    "fits.0.guarantee.epsilon": (0.1, "the row of fit 1 was altered"),
    "fits.0.status": ("reserved", "the row of fit 1 was altered"),
    "fits.1.taken": (3, "the row of fit 2 was altered"),
    "fits.0": (..., "the row of fit 2 was altered, or one before it is missing"),
    "fits.1": (..., "of result.json (spend) is not in it"),
    "key": ("abc", "of result.json (spend) is not in it"),
    "total.epsilon": (1.0, "its total is epsilon 1.0, but its fits spend 1."),
    "total.fits": (1, "its total is of 1 fits, but it has 2"),
}


def failures(folder):
    """The sentences of failed checks, by check."""
    return {f.check: f.sentence for f in wb.verify(folder) if f.status == "failed"}


def test_a_release_passes_all_checks(released):
    answer = wb.verify(released)
    assert [finding.check for finding in answer] == list(CHECKS)
    assert {finding.status for finding in answer} == {"passed"} == {answer.status}
    assert all("\n" not in finding.sentence for finding in answer)
    assert "No check can tell whether these records were used" in str(answer)
    assert "passed: files." in answer._repr_html_()
    assert str(answer).startswith("All 16 checks passed.\n")


def test_public_records_have_no_ledger(released_public):
    answer = wb.verify(released_public)
    assert {f.check: f.status for f in answer if f.status != "passed"} == {"ledger": "not checked"}
    assert answer.status == "not checked"


@pytest.mark.parametrize("public", some_of([False, True]))
def test_a_claim_that_is_changed_with_all_digests_is_named(
    released, released_public, copy_of, public
):
    folder = released_public if public else released
    for field, (value, words) in CLAIMS.items():
        copy = copy_of(folder)
        forge(
            copy, "result.json", lambda values, f=field, v=value: set_in(values["guarantee"], f, v)
        )
        said = " ".join(failures(copy).values())
        assert (words.replace("patient", "tumour") if public else words) in said, field
        if not public and field not in ("epsilon", "relation", "epsilon_taken", "second_opinion"):
            assert field in said or field == "caveats", field


def test_another_field_that_is_changed_with_all_digests_is_named(released, copy_of):
    for place, (value, words) in OTHERS.items():
        copy = copy_of(released)
        forge(copy, "result.json", lambda values, p=place, v=value: set_in(values, p, v))
        assert words in " ".join(failures(copy).values()), place


def test_a_row_of_the_ledger_that_is_changed_is_named(released, copy_of):
    for place, (value, words) in OF_LEDGER.items():
        copy = copy_of(released)
        forge(copy, "ledger.json", lambda values, p=place, v=value: set_in(values, p, v))
        said = failures(copy)
        assert words in said["ledger"], place
        assert list(said) == ["ledger"]


def test_without_new_digests_the_file_is_named(released, copy_of):
    for name in sorted(path.name for path in released.iterdir()):
        copy = copy_of(released)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        if name == "manifest.json":
            continue
        assert f"{name} is not the file that was released" in failures(copy)["files"]
        (copy / name).unlink()
        assert f"{name} is missing" in failures(copy)["files"]
    copy = copy_of(released)
    forge_manifest = json.loads((copy / "manifest.json").read_text())
    del forge_manifest["files"]["statement.txt"]
    (copy / "statement.txt").unlink()
    (copy / "manifest.json").write_text(json.dumps(forge_manifest))
    assert "statement.txt is not in the manifest" in failures(copy)["files"]
    copy = copy_of(released)
    (copy / "another.txt").write_text("")
    assert failures(copy) == {"files": "another.txt is not in the manifest."}
    assert str(wb.verify(copy)).startswith("1 of 16 checks failed: files. Do not accept")


def test_a_digest_that_is_changed_names_its_file(released, copy_of):
    manifest = json.loads((released / "manifest.json").read_text())
    for name, digest in manifest["files"].items():
        copy = copy_of(released)
        changed = {**manifest, "files": {**manifest["files"], name: "0" + digest[1:]}}
        (copy / "manifest.json").write_text(json.dumps(changed))
        if digest[0] != "0":
            assert failures(copy)["files"] == f"{name} is not the file that was released."


@pytest.mark.parametrize(
    ("name", "old", "new", "check", "words"),
    [
        ("statement.txt", "(epsilon = 1)", "(epsilon = 0.1)", "statement", "(epsilon = 0.1)"),
        ("statement.txt", "0.0001 (delta)", "0.00001 (delta)", "statement", "0.00001 (delta)"),
        ("statement.txt", "40 planned", "30 planned", "statement", "30 planned"),
        ("statement.txt", "each patient", "each visit", "statement", "For each visit:"),
        (
            "report.html",
            "(epsilon = 1)",
            "(epsilon = 0.1)",
            "report",
            "report.html says epsilon 0.1",
        ),
        ("report.html", "</body>", "<p>epsilon is 0.2</p></body>", "report", "says epsilon 0.2"),
        ("report.html", "</body>", "<p>\u03b5 = 0.2</p></body>", "report", "says epsilon 0.2"),
        (
            "report.html",
            "</body>",
            "<script>x</script></body>",
            "report",
            "has script: do not open",
        ),
        ("report.html", "<body>", "<body onload=x>", "report", "report.html has onload"),
        ("report.html", ">0.0001<", ">0.00001<", "report", 'report.html lacks "delta | 0.0001"'),
        ("report.html", "<td>whole numbers</td>", "<td>exact</td>", "report", "whole numbers"),
        ("check_epsilon.py", "1.002", "9.002", "script", "check_epsilon.py was altered"),
    ],
)
def test_a_page_that_says_otherwise_is_named(released, copy_of, name, old, new, check, words):
    copy = copy_of(released)
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new, 1))
    seal(copy)
    said = failures(copy)
    assert list(said) == [check]
    assert words in said[check]


def test_numbers_that_agree_with_each_other_but_not_with_epsilon_are_caught(released, copy_of):
    """Who changes the noise everywhere meets the accountants, ours and that of others."""

    def less_noise(values):
        values["guarantee"]["noise_multiplier"] /= 2

    copy = copy_of(released)
    forge(copy, "result.json", less_noise)
    said = failures(copy)
    assert "epsilon must be at least" in said["epsilon"]
    assert "the fit: epsilon" in said["epsilon, by dp-accounting"]
    assert "claimed 1" in said["epsilon, by dp-accounting"]


def test_draws_of_another_fit_are_caught(released, copy_of, tmp_path):
    copy = copy_of(released)
    draws = arviz_adapter.load_draws(copy / "posterior.nc")
    moved = {name: values + np.float32(1) for name, values in draws.items()}
    arviz_adapter.save_draws(arviz_adapter.to_posterior(moved, {}, {}), copy / "posterior.nc")
    assert "posterior.nc is not the file that was released" in failures(copy)["files"]
    assert "posterior.nc is damaged, or not the file" in failures(copy)["form"]


def test_another_version_is_not_a_forgery(released, copy_of):
    copy = copy_of(released)
    forge(copy, "manifest.json", lambda values: values.update(workbench="9.9"))
    (copy / "check_epsilon.py").write_text("pass\n")
    page = (copy / "report.html").read_text()
    (copy / "report.html").write_text(page.replace("somebody", "a"))
    (copy / "statement.txt").write_text(
        (copy / "statement.txt").read_text().replace("somebody", "a")
    )
    seal(copy)
    answer = {finding.check: finding for finding in wb.verify(copy)}
    unknown = [name for name, finding in answer.items() if finding.status == "not checked"]
    assert unknown == ["version", "statement", "report", "script"]
    assert "check again with the version that released it" in answer["version"].sentence
    assert "Another version words it otherwise" in answer["statement"].sentence


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 10**5, b'{"format": 1}', b"[]", b"{}"])
def test_whatever_is_in_a_file_is_one_sentence(released, copy_of, content):
    for name in ("manifest.json", "result.json", "ledger.json", "statement.txt", "report.html"):
        copy = copy_of(released)
        (copy / name).write_bytes(content)
        answer = wb.verify(copy)
        assert answer.status == "failed"
        assert all("\n" not in finding.sentence for finding in answer)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(released, copy_of):
    copy = copy_of(released)
    for name in ("statement.txt", "ledger.json", "report.html", "check_epsilon.py"):
        (copy / name).unlink()
        os.mkfifo(copy / name)
    assert "statement.txt cannot be read" in failures(copy)["files"]


def test_a_manifest_reads_no_file_outside_of_the_folder(released, copy_of, tmp_path):
    (tmp_path / "secret").write_text("x")
    copy = copy_of(released)
    for name in ("../secret", "/etc/hostname", "a\nb", ".."):
        forge_name = json.loads((released / "manifest.json").read_text())
        forge_name["files"][name] = "0" * 64
        (copy / "manifest.json").write_text(json.dumps(forge_name))
        assert "is no plain name of a file" in failures(copy)["files"]


@pytest.mark.parametrize("kind", ["folder", "file", "nothing"])
def test_what_is_no_release_is_refused(tmp_path, kind):
    place = tmp_path / "place"
    {"folder": place.mkdir, "file": place.touch, "nothing": lambda: None}[kind]()
    with pytest.raises(wb.ArgumentError, match=r"folder=.*is no released folder"):
        wb.verify(place)


# ---- making one ----------------------------------------------------------------------------------


def test_a_release_of_a_saved_result_is_that_of_the_result(released_public, tmp_path):
    result = wb.load(released_public)
    again = wb.release(released_public, tmp_path / "again")
    assert wb.load(again).guarantee == result.guarantee
    assert [f.check for f in wb.verify(again) if f.status == "failed"] == []


def test_numbers_outside_of_the_guarantee_are_left_out(private_data, tmp_path):
    result = fitted(private_data, ledger=False, privacy=wb.Privacy(evaluate_private=True))
    assert result.metrics
    folder = wb.release(result, tmp_path / "folder")
    values = json.loads((folder / "result.json").read_text())
    assert (values["metrics"], values["history"], values["metric_intervals"]) == ({}, [], {})
    page = (folder / "report.html").read_text()
    assert not any(f"{value:.3f}" in page for value in result.metrics.values())
    assert failures(folder) == {}


def test_the_ledgers_part_has_no_seed_person_or_folder(released):
    text = (released / "ledger.json").read_text()
    rows = json.loads(text)["fits"]
    assert {name for row in rows for name in row}.isdisjoint(
        {"seed", "who", "owner", "run", "plan"}
    )
    assert os.path.expanduser("~") not in text
    assert str(released.parent) not in text


def test_a_seed_and_a_reason_of_another_fit_are_in_no_file(private_data, tmp_path):
    """Whoever knows a seed takes the noise off, so the total does not hold for them."""
    book = wb.ledger.Ledger(tmp_path / "ledger.sqlite")
    fitted(private_data, ledger=book, seed=987654321)
    book.set_cap(1, 0.1, 1e-5, why="the board decided")
    over = wb.Privacy(over_cap="Jane Roe asked for it")
    folder = wb.release(
        fitted(private_data, ledger=book, privacy=over), tmp_path / "folder", ledger=book
    )
    for file in folder.iterdir():
        content = file.read_bytes()
        assert b"987654321" not in content, file.name
        assert b"Jane Roe" not in content, file.name
    (ledger,) = [finding for finding in wb.verify(folder) if finding.check == "ledger"]
    assert ledger.status == "not checked"
    assert "the seeds of the fits 1" in ledger.sentence


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0},
        {"epsilon": 0.1, "method": "Renyi filter"},
        {"method": "a guess"},
        {"relation": "replace_one"},
    ],
)
def test_a_total_that_its_rows_do_not_give_is_named(released, copy_of, change):
    copy = copy_of(released)
    forge(copy, "ledger.json", lambda values: values["total"].update(change))
    statuses = {finding.check: finding for finding in wb.verify(copy)}
    if change.get("method") == "Renyi filter":
        assert statuses["ledger"].status == "not checked"
    else:
        assert statuses["ledger"].status == "failed"
        assert "its total is" in statuses["ledger"].sentence


def test_hidden_folders_and_links_are_named(released, copy_of, tmp_path):
    """A result is also read from where a save that was interrupted left it."""
    copy = copy_of(released)
    (copy / ".saving-x").mkdir()
    assert ".saving-x is a hidden folder" in failures(copy)["files"]
    (copy / ".saving-x").rmdir()
    (tmp_path / "secret").write_text("nobody reads this")
    (copy / "statement.txt").unlink()
    (copy / "statement.txt").symlink_to(tmp_path / "secret")
    assert "link" in failures(copy)["files"]
    assert "nobody reads this" not in str(wb.verify(copy))


def test_what_cannot_be_released_says_why(private_data, released_public, tmp_path, quick_report):
    result = wb.load(released_public)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(wb.ArgumentError, match=r"out=.*must be a new or an empty folder"):
        wb.release(result, tmp_path / "full")
    with pytest.raises(wb.ArgumentError, match=r"result='epsilon 1': has noise that follows"):
        wb.release(fitted("breast_cancer", seed=1), tmp_path / "new")
    with fakes.installed():
        open_fit = wb.fit("logistic", "breast_cancer", private=False, iterations=5)
    with pytest.raises(wb.ArgumentError, match="promises nothing"):
        wb.release(open_fit, tmp_path / "new")
    counted = fitted(private_data, ledger=wb.ledger.Ledger(tmp_path / "ledger.sqlite"))
    with pytest.raises(wb.ArgumentError, match=r"ledger=.*does not have this fit"):
        wb.release(counted, tmp_path / "new", ledger=tmp_path / "other.sqlite")
    assert not (tmp_path / "new").exists()
    folder = wb.release(counted, tmp_path / "new", ledger=False)
    statuses = {finding.check: finding.status for finding in wb.verify(folder)}
    assert statuses["ledger"] == "not checked"


# ---- the script ----------------------------------------------------------------------------------

WITHOUT_US = """
import runpy, sys
class Blocked:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("workbench", "jax", "numpyro"):
            raise ImportError(name + " is not installed here")
sys.meta_path.insert(0, Blocked())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_script(folder):
    """(exit code, standard output) of the folder's script where the workbench cannot
    be imported.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_US, str(folder / "check_epsilon.py")],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_script_confirms_epsilon_without_the_workbench(released, copy_of):
    code, out = run_script(released)
    assert code == 0
    assert out.startswith("passed: the fit: epsilon 0.999")
    assert "not checked by this script: the shares of delta" in out
    copy = copy_of(released)
    forge(copy, "result.json", lambda values: set_in(values, "guarantee.noise_multiplier", 1.0))
    code, out = run_script(copy)
    assert code == 1
    assert out.startswith("failed: the fit: epsilon")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", float("nan")),
        ("overflow_delta", -0.5),
        ("noise_delta", float("nan")),
        ("delta", 2.0),
        ("steps", 0),
        ("noise_multiplier", -30.0),
        ("sampling_rate", 0.0),
    ],
)
def test_the_script_takes_no_number_that_none_can_have(released, field, value):
    fit = json.loads((released / "result.json").read_text())["guarantee"]
    assert recompute(fit)[0][0] == "passed"
    assert recompute(fit | {field: value})[0][0] == "failed"


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_releases_and_verifies(command, released_public, copy_of, tmp_path):
    out = tmp_path / "out"
    assert command("release", released_public, "--out", out) == (0, "", f"Saved: {out}\n")
    code, text, err = command("verify", out)
    assert (code, err) == (2, "")
    assert text.startswith("No check failed, but 1 of 16 checks could not be made: ledger.\n")
    assert "passed: files. All 10 files are those that were released.\n" in text
    (out / "statement.txt").write_text("There is no risk.\n")
    code, text, _ = command("verify", out, "--json")
    answer = json.loads(text)
    assert (code, answer["status"]) == (1, "failed")
    assert [check["check"] for check in answer["checks"]] == list(CHECKS)
    assert command("verify", tmp_path)[0] == 2


def test_verification_takes_less_than_five_seconds(released):
    """In a new process, of which most is the time to import; another one may have slowed it."""

    def seconds():
        before = os.times().children_user
        subprocess.run([sys.executable, "-m", "workbench", "verify", str(released)], check=True)
        return os.times().children_user - before

    assert any(seconds() < 5 for _ in range(3))


def test_a_cap_and_a_fit_that_took_no_step_are_in_the_ledgers_part(private_data, tmp_path):
    book = wb.ledger.Ledger(tmp_path / "ledger.sqlite")
    first = fitted(private_data, ledger=book)
    book.set_cap(1, 3.0, 1e-5, why="the board decided")
    nothing = wb.Execution(stop=lambda: True)
    fitted(private_data, ledger=book, execution=nothing)
    fitted(private_data, ledger=book)
    folder = wb.release(first, tmp_path / "folder", ledger=book)
    part = json.loads((folder / "ledger.json").read_text())
    assert len(part["fits"]) == part["total"]["fits"] == 2
    assert part["total"]["delta"] == 1e-5
    assert failures(folder) == {}
    assert "All 2 fits on these records together: epsilon" in str(wb.verify(folder))


def test_curves_without_noise_are_left_out_beside_scores_with_noise(
    private_data, tmp_path, copy_of
):
    options = {"ledger": False, "privacy": wb.Privacy(covered_scores=True)}
    result = fitted(private_data, **options)
    exact = wb.load(wb.release(fitted("breast_cancer"), tmp_path / "public")).history
    both = dataclasses.replace(result, history=exact)  # as saved by an earlier version
    folder = wb.release(both, tmp_path / "folder")
    assert wb.load(folder).history == ()
    assert failures(folder) == {}
    copy = copy_of(folder)
    forge(copy, "result.json", lambda values: values.update(history=[{"step": 1, "elbo": -1.0}]))
    assert "history has metrics without noise" in failures(copy)["consistency"]


def test_numbers_outside_of_the_guarantee_are_named(private_data, tmp_path):
    result = fitted(private_data, ledger=False, privacy=wb.Privacy(evaluate_private=True))
    folder = wb.release(result, tmp_path / "folder")
    forge(folder, "result.json", lambda values: values.update(metrics={"auc": 0.7}))
    assert "metrics are not empty" in failures(folder)["consistency"]


def test_a_ledger_that_is_named_must_have_the_fit(private_data, tmp_path):
    result = fitted(private_data, ledger=False)
    book = wb.ledger.Ledger(tmp_path / "ledger.sqlite")
    fitted(private_data, ledger=book)
    with pytest.raises(wb.ArgumentError, match=r"ledger=.*does not have this fit"):
        wb.release(result, tmp_path / "folder", ledger=book)
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("name", ["folder", "new.zip", "empty"])
def test_a_full_disk_leaves_nothing(released_public, tmp_path, monkeypatch, name):
    (tmp_path / "empty").mkdir()
    result, out = wb.load(released_public), tmp_path / name

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "writestr", full)
        patch.setattr(writing, "_seal", writing._seal if out.suffix else full)
        with pytest.raises(wb.ArgumentError, match=r"out=.*No space left on device"):
            wb.release(result, out)
    assert out.exists() == (name == "empty")
    assert failures(wb.release(result, out)) == {}


def test_a_zip_that_cannot_be_written_is_named(released_public, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(wb.ArgumentError, match=r"out=.*cannot write there"):
        wb.release(released_public, tmp_path / "file" / "new.zip")


def test_scores_with_noise_that_were_changed_are_named(private_data, tmp_path, copy_of):
    privacy = wb.Privacy(covered_scores=True)
    folder = wb.release(fitted(private_data, ledger=False, privacy=privacy), tmp_path / "folder")
    assert failures(folder) == {}
    for place, value, words in (
        ("metrics.auc", 5.0, "the score auc is outside its interval"),
        ("metric_intervals.auc", [-2.0, -1.0], "the score auc is outside its interval"),
        ("metrics_label", "public data", "guarantee.score_noise is of private records"),
    ):
        copy = copy_of(folder)
        forge(copy, "result.json", lambda values, p=place, v=value: set_in(values, p, v))
        assert words in failures(copy)["consistency"]
