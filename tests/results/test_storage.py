"""Results as folders: complete, readable, and without anything private."""

import dataclasses
import json
import re

import h5py
import jax
import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.noise.chacha20 import key_from_seed
from workbench.results import FitResult, HistoryPoint, _atomic, arviz_adapter, storage

FILES = {"result.json", "params.npz", "posterior.nc", "curves.png", "report.html"}
TEXTS = ("result.json", "report.html")


@pytest.fixture(scope="module")
def saved(done, tmp_path_factory):
    return done.save(tmp_path_factory.mktemp("runs") / "new" / "a")


@pytest.fixture(scope="module")
def saved_secret(secret, tmp_path_factory):
    return secret[1].save(tmp_path_factory.mktemp("secret"))


def refuse_constant(text):
    raise AssertionError(f"{text} is not JSON")


def test_a_result_is_five_files_in_a_new_folder(saved):
    assert {file.name for file in saved.iterdir()} == FILES


def test_saved_files_can_be_read_by_others(saved):
    assert {name: (saved / name).stat().st_mode & 0o444 for name in FILES} == dict.fromkeys(
        FILES, 0o444
    )


def test_a_loaded_result_equals_the_saved_one(done, saved):
    loaded = wb.load(saved)
    for field in dataclasses.fields(FitResult):
        before, after = getattr(done, field.name), getattr(loaded, field.name)
        if field.name in ("params", "draws", "variational_draws"):
            assert set(before) == set(after)
            for name in before:
                assert np.array_equal(before[name], after[name])
                assert before[name].dtype == after[name].dtype
        elif field.name in (
            "definition",
            "public_records",
        ):  # the model is looked up again, records are not kept
            assert after is None
        else:
            assert before == after, field.name


@pytest.mark.thorough
def test_a_cancelled_and_a_private_result_come_back_too(cancelled, secret, tmp_path):
    for name, result in (("cancelled", cancelled), ("secret", secret[1])):
        loaded = wb.load(result.save(tmp_path / name))
        assert (loaded.status, loaded.guarantee, loaded.history) == (
            result.status,
            result.guarantee,
            result.history,
        )


@pytest.mark.thorough
def test_a_loaded_result_can_be_summarised_reported_and_saved(done, saved, tmp_path):
    loaded = wb.load(saved)
    assert loaded.summary_table().equals(done.summary_table())
    loaded.save(tmp_path)
    assert (tmp_path / "result.json").read_text() == (saved / "result.json").read_text()


def test_result_file_is_plain_json(done, saved):
    values = json.loads((saved / "result.json").read_text(), parse_constant=refuse_constant)
    assert values["format"] == 3
    assert values["guarantee"]["epsilon"] == done.guarantee.epsilon
    assert values["metrics_label"] == "public data"
    assert "draws" not in values


@pytest.mark.thorough
def test_a_metric_that_is_not_finite_is_null_in_json_and_comes_back_as_nan(done, tmp_path):
    metrics = {**done.metrics, "elbo": float("nan")}
    result = dataclasses.replace(
        done, metrics=metrics, history=(*done.history[:-1], HistoryPoint(300, metrics))
    )
    result.save(tmp_path)
    values = json.loads((tmp_path / "result.json").read_text(), parse_constant=refuse_constant)
    assert values["metrics"]["elbo"] is None
    assert values["history"][-1]["elbo"] is None
    assert np.isnan(wb.load(tmp_path).metrics["elbo"])
    assert np.isnan(wb.load(tmp_path).history[-1].metrics["elbo"])


def test_picture_is_a_png(saved):
    assert (saved / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_file_in_place_of_the_folder_is_found(tmp_path):
    file = tmp_path / "taken"
    file.write_text("mine")
    with pytest.raises(ArgumentError, match="cannot write there") as caught:
        storage.check_folder(file)
    assert caught.value.argument == "out"
    assert repr(str(file)) in str(caught.value)
    assert file.read_text() == "mine"


def test_a_file_among_the_parents_of_the_folder_is_found(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ArgumentError, match=r"^out="):
        storage.check_folder(tmp_path / "taken" / "run")


def test_a_folder_that_refuses_files_is_found(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage.tempfile, "TemporaryFile", refuse)
    with pytest.raises(ArgumentError, match=r"^out=.*cannot write there \(Permission denied\)"):
        storage.check_folder(tmp_path)


def test_checking_a_folder_leaves_no_trace(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").write_text("mine")
    for folder in (tmp_path / "old", tmp_path / "old" / "a" / "b"):
        assert storage.check_folder(folder) == folder
    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*")] == [
        "old",
        "old/file",
    ]


@pytest.mark.parametrize("missing", ["result.json", "params.npz", "posterior.nc"])
def test_a_folder_without_a_result_says_which_file_is_missing(saved, tmp_path, missing):
    for name in FILES - {missing}:
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    with pytest.raises(
        ArgumentError, match=f"holds no saved result \\({missing} is missing\\)"
    ) as caught:
        wb.load(tmp_path)
    assert caught.value.argument == "folder"
    assert repr(str(tmp_path)) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged"),
        (b'{"format": 3, "status', "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"{}", "format 3"),
        (b'{"format": 2}', "format 3"),
        (b"[]", "result.json"),
        (b'{"format": 3}', "status is missing"),
    ],
)
def test_a_result_file_that_is_no_result_is_named(saved, tmp_path, content, reason):
    for name in ("params.npz", "posterior.nc"):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ArgumentError, match=reason) as caught:
        wb.load(tmp_path)
    assert caught.value.argument == "folder"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["params.npz", "posterior.nc"])
def test_a_damaged_file_of_arrays_is_named(saved, tmp_path, name):
    for file in FILES:
        (tmp_path / file).write_bytes((saved / file).read_bytes())
    (tmp_path / name).write_bytes(b"rubbish")
    with pytest.raises(ArgumentError, match=f"{name} is damaged"):
        wb.load(tmp_path)


@pytest.mark.parametrize("kind", ["link", "group", "storage", "virtual"])
def test_a_result_that_reads_other_files_is_refused(saved, tmp_path, kind):
    """A result from somebody else would read the files of the user who opens it."""
    for file in FILES:
        (tmp_path / file).write_bytes((saved / file).read_bytes())
    with h5py.File(tmp_path / "elsewhere.h5", "w") as other:
        other["posterior/secret"] = np.ones((1, 4))
    (tmp_path / "elsewhere.raw").write_bytes(bytes(32))
    with h5py.File(tmp_path / "posterior.nc", "a") as own:
        if kind == "group":
            del own["posterior"]
            own["posterior"] = h5py.ExternalLink("elsewhere.h5", "/posterior")
        elif kind == "link":
            own["posterior/secret"] = h5py.ExternalLink("elsewhere.h5", "/posterior/secret")
        elif kind == "storage":
            own["posterior"].create_dataset(
                "secret", (1, 4), "f8", external=str(tmp_path / "elsewhere.raw")
            )
        else:
            layout = h5py.VirtualLayout((1, 4), "f8")
            layout[:] = h5py.VirtualSource(
                str(tmp_path / "elsewhere.h5"), "posterior/secret", (1, 4)
            )
            own["posterior"].create_virtual_dataset("secret", layout)
    with pytest.raises(
        ArgumentError, match=r"^folder=.*posterior\.nc is damaged, or not the file that was saved"
    ):
        wb.load(tmp_path)


@pytest.mark.thorough
def test_constants_and_labels_of_matrices_come_back(tmp_path):
    result = wb.fit("hierarchical_logistic", "hierarchical", epsilon=8.0, iterations=5, seed=1)
    loaded = wb.load(result.save(tmp_path))
    assert np.array_equal(loaded.constants["group_features"], result.constants["group_features"])
    assert loaded.constants["group_features"].dtype == np.float32
    assert loaded.coordinates == {
        name: (list(rows), list(columns)) for name, (rows, columns) in result.coordinates.items()
    }
    assert loaded.released == ("group_weights",)
    assert list(loaded.summary_table().index) == list(result.summary_table().index)


def holds(folder, number):
    """Names of the files in which ``number`` stands: as text cut to six digits, as bytes, or among
    the saved draws.
    """
    digits = str(number)[:8].encode()
    patterns = [np.array(number, kind).tobytes() for kind in (np.float32, np.float64)]
    found = [
        file.name
        for file in folder.iterdir()
        if any(bits in file.read_bytes() for bits in patterns)
    ]
    found += [name for name in TEXTS if digits in (folder / name).read_bytes()]
    draws = arviz_adapter.load_draws(folder / "posterior.nc") | dict(np.load(folder / "params.npz"))
    return found + [name for name, value in draws.items() if np.any(value == np.float32(number))]


def test_the_search_for_a_number_finds_one_that_is_there(secret, saved_secret):
    _, result = secret
    assert "result.json" in holds(saved_secret, result.guarantee.noise_multiplier)
    assert "intercept" in holds(saved_secret, result.draws["intercept"][7])


def test_no_value_of_a_private_record_is_in_the_files(saved_secret, private_data, planted):
    _, as_scaled = planted
    assert np.float32(as_scaled) in private_data.train[0]
    for number in planted:
        assert holds(saved_secret, number) == []


def test_the_key_of_a_secret_run_is_not_in_the_files(secret, saved_secret):
    assert files_with_key(saved_secret, secret[0].key) == set()


def test_the_key_made_from_a_seed_is_not_in_the_files(saved):
    assert files_with_key(saved, key_from_seed(1)) == set()


def files_with_key(folder, key):
    """Names of the files that hold a word of ``key``, as decimal or hexadecimal digits or
    as bytes.
    """
    words = np.asarray(jax.random.key_data(key)).ravel()
    assert len(words) >= 8
    spellings = [f"{word}" for word in words] + [f"{word:08x}" for word in words]
    found = {
        name
        for name in TEXTS
        if any(re.search(rf"(?i)\b{text}\b", (folder / name).read_text()) for text in spellings)
    }
    return found | {
        file.name
        for file in folder.iterdir()
        if any(word.tobytes() in file.read_bytes() for word in words)
    }


@pytest.mark.parametrize("name", ["result.json", "params.npz", "report.html"])
def test_a_folder_that_holds_a_folder_of_a_files_name_is_found_before_the_fit(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ArgumentError, match=f"{name} in it is a folder") as caught:
        storage.check_folder(tmp_path)
    assert caught.value.argument == "out"


@pytest.mark.parametrize("name", ["a\0b", "a" * 300])
def test_a_folder_that_cannot_have_its_name_is_found(tmp_path, name):
    with pytest.raises(
        ArgumentError, match=r"^out=.*(must be the path of a folder|cannot be a path)"
    ):
        storage.check_folder(tmp_path / name)


def copied(saved, folder):
    for name in FILES:
        (folder / name).write_bytes((saved / name).read_bytes())


def sealed(folder, change=lambda values: None):
    """Change result.json, and bring all digests up to date, as somebody who knows the
    format can.
    """
    values = json.loads((folder / "result.json").read_text())
    values["files"] = {
        name: _atomic.digest((folder / name).read_bytes()) for name in values["files"]
    }
    change(values)
    values.pop("digest", None)
    (folder / "result.json").write_text(json.dumps({**values, "digest": storage.digest_of(values)}))


@pytest.mark.parametrize(
    ("field", "stated"), [("epsilon", 0.5), ("epsilon_taken", 0.01), ("noise_multiplier", 0.9)]
)
def test_an_epsilon_below_what_its_noise_spends_is_refused(saved, tmp_path, field, stated):
    copied(saved, tmp_path)

    def change(values):
        promised = values["guarantee"]
        promised[field] = stated * promised[field]
        promised["epsilon_taken"] = min(promised["epsilon_taken"], promised["epsilon"])

    sealed(tmp_path)
    wb.load(tmp_path)
    sealed(tmp_path, change)
    expected = "epsilon" if field == "noise_multiplier" else field
    with pytest.raises(ArgumentError, match=rf"damaged: {expected} must be at least [\d.]+, which"):
        wb.load(tmp_path)


def test_a_result_of_a_former_version_does_not_say_whether_the_fit_had_arrived(saved, tmp_path):
    copied(saved, tmp_path)
    sealed(tmp_path, lambda values: values.pop("convergence"))
    assert wb.load(tmp_path).convergence is None


@pytest.mark.parametrize("name", ["params.npz", "posterior.nc"])
def test_whatever_is_damaged_in_a_file_of_arrays_is_one_sentence(saved, tmp_path, name):
    copied(saved, tmp_path)
    content = (saved / name).read_bytes()
    random = np.random.default_rng(11)
    said = []
    for place in range(40):
        damaged = bytearray(content[: len(content) if place % 2 else random.integers(len(content))])
        first = int(random.integers(max(1, min(len(damaged), 3000))))
        damaged[first : first + 40] = random.bytes(len(damaged[first : first + 40]))
        (tmp_path / name).write_bytes(damaged)
        sealed(tmp_path)
        try:
            wb.load(tmp_path)
        except ArgumentError as error:
            said.append(str(error))
    assert len(said) >= 20
    assert all(f"{name} is " in sentence and "\n" not in sentence for sentence in said)


def test_json_in_json_in_json_is_damage(saved, tmp_path):
    copied(saved, tmp_path)
    (tmp_path / "result.json").write_text("[" * 100_000)
    with pytest.raises(ArgumentError, match=r"result\.json is damaged"):
        wb.load(tmp_path)


@pytest.mark.parametrize("kind", ["link", "virtual"])
def test_draws_in_other_files_are_not_read(saved, tmp_path, kind):
    copied(saved, tmp_path)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones((1, 9))
    with h5py.File(tmp_path / "posterior.nc", "a") as file:
        if kind == "link":
            file["posterior"]["more"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")
        else:
            layout = h5py.VirtualLayout((1, 9), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "secret", (1, 9))
            file["posterior"].create_virtual_dataset("more", layout)
    sealed(tmp_path)
    with pytest.raises(ArgumentError, match="it links to other files"):
        wb.load(tmp_path)


@pytest.mark.thorough
def test_a_picture_that_cannot_be_drawn_takes_neither_the_numbers_nor_the_report(
    done, tmp_path, monkeypatch
):
    def breaks(*_):
        raise ValueError("ParseFatalException:\n  Expected end of text")

    monkeypatch.setattr("workbench.plots.png", breaks)
    with pytest.warns(UserWarning, match="could not be") as caught:
        done.save(tmp_path)
    assert all("\n" not in str(warning.message) for warning in caught)
    assert {file.name for file in tmp_path.iterdir()} == FILES - {"curves.png"}
    assert wb.load(tmp_path).guarantee == done.guarantee
