"""The Data part of the screen through its traits, without a browser."""

import dataclasses
import gzip
import html
import re

import numpy as np
import pandas as pd
import pytest
from ipywidgets.widgets.widget import _instances

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.widgets.workbench.data_panel import FILE, VARIABLE, DataPanel

DOSE = 123.456789  # of every row, so that no part of the private table can slip through
TEXT = "zebrafish"
NUMBER_OF_ROWS = 8317


def private_table(rows=NUMBER_OF_ROWS):
    """A table whose every private value is easy to find: doses, one kind of animal, a target of two
    odd values.
    """
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "dose": DOSE + np.arange(rows) * 0,
            "animal": [TEXT] * rows,
            "alive": random.random(rows) < 0.5,
            "tank": random.choice(["north", "south"], rows),
            "ill": random.choice([7741, 7742], rows),
        }
    )


@dataclasses.dataclass
class Screen:
    """A panel, the variables that it sees, and the number of reported changes."""

    panel: DataPanel
    variables: dict
    changes: list

    @property
    def chosen(self):
        """What the menu of sources shows."""
        return self.panel.named.control.label

    def choose(self, variable):
        self.panel.named.value = VARIABLE
        self.panel.refresh()
        self.panel.variable.value = variable

    def open(self, path):
        self.panel.named.value = FILE
        self.panel.path.value = str(path)

    def send(self, name, content):
        """Do what a browser does when a file is chosen."""
        self.panel.named.value = FILE
        entry = {
            "name": name,
            "type": "text/csv",
            "size": len(content),
            "content": memoryview(content),
            "last_modified": 0,
        }
        self.panel.upload.set_state({"value": [entry]})

    def declare(self, **columns):
        """Fill in the rows of columns by the labels of their controls: {"lowest": "0", "role":
        "number"}.
        """
        for column, values in columns.items():
            for description, value in values.items():
                self.control(column if description == "role" else description, column).value = value

    def control(self, description, column=None):
        box = self.panel.view if column is None else self.panel._editor.row(column)
        return next(
            widget
            for widget in widgets_of(box)
            if getattr(widget, "description", None) == description
        )

    def texts(self):
        """The text on the screen, without hidden parts."""
        return html.unescape(
            " ".join(
                str(widget.value)
                for widget in displayed(self.panel.view)
                if hasattr(widget, "value")
            )
        )

    def state(self):
        """The state of all widgets in this process, sent to the browser or not."""
        held = [
            repr(widget.get_state()) + repr(widget.trait_values())
            for widget in list(_instances.values())
        ]
        # without ids and addresses
        return re.sub(r"[0-9a-f]{32}|0x[0-9a-f]+", "", html.unescape("".join(held)))


def widgets_of(box):
    yield box
    for child in getattr(box, "children", ()):
        yield from widgets_of(child)


def displayed(box):
    if box.layout.display != "none":
        yield box
        for child in getattr(box, "children", ()):
            yield from displayed(child)


@pytest.fixture
def screen():
    variables, changes, made = {}, [], []

    def make(start="breast_cancer", **given):
        variables.update(given)
        made.append(DataPanel(start, lambda: changes.append(1), lambda: variables))
        return Screen(made[-1], variables, changes)

    yield make
    for panel in made:
        panel.close()


def run(code, variables=()):
    return eval(code, {"wb": wb, **dict(variables)})


def same(one, other):
    """Whether two data sets are equal in every field, arrays entry by entry."""
    for field in dataclasses.fields(wb.data.Dataset):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("train", "evaluation"):
            assert len(left) == len(right)
            assert all(
                np.array_equal(a, b) and a.dtype == b.dtype
                for a, b in zip(left, right, strict=True)
            )
        elif isinstance(left, np.ndarray):
            assert np.array_equal(left, right)
        else:
            assert left == right, field.name
    return True


DECLARED = {
    "dose": {"lowest": "0", "highest": "200"},
    "animal": {"all values": f"{TEXT}, goldfish", "other values allowed": True},
    "tank": {"role": "group", "all groups": "north, south, west"},
    "ill": {"role": "target", "value that means yes": "7742"},
}
DECLARED = {
    column: dict(sorted(values.items(), key=lambda item: item[0] != "role"))
    for column, values in DECLARED.items()
}


# ---- sources -------------------------------------------------------------------------------------


def test_named_set_is_told_and_loaded_by_its_name(screen):
    shown = screen("mixture")
    source = shown.panel.source()
    assert (source.name, source.code, source.evaluation_is_public) == ("mixture", "'mixture'", True)
    assert same(source.load(), wb.data.load(run(source.code)))
    assert "CC0" in shown.texts()
    assert "synthetic record" in shown.texts()
    shown.panel.named.value = "breast_cancer"
    assert shown.panel.source().key != source.key
    assert "tumour" in shown.texts()
    assert shown.panel.problems() == {}


def test_an_unknown_name_is_refused(screen):
    with pytest.raises(ArgumentError, match="breast_cancer"):
        screen("breast_cancr")
    with pytest.raises(ArgumentError, match="Dataset"):
        screen(3)


def test_a_given_data_set_stands_first_among_the_named(screen, private_data):
    shown = screen(private_data)
    assert shown.panel.named.control.options[0] == ("clinic", "clinic")
    source = shown.panel.source()
    assert source.load() is private_data
    assert (source.name, source.code, source.evaluation_is_public) == ("clinic", "data", False)
    shown.variables["patients"] = private_data
    assert shown.panel.source().code == "patients"
    assert "One record is one patient." in shown.texts()


def test_variables_are_offered_without_their_numbers_of_rows(screen, private_data):
    arrays = {
        "x": np.zeros((NUMBER_OF_ROWS, 2)),
        "y": np.zeros(NUMBER_OF_ROWS),
        "cube": np.zeros((4, 4, 4)),
    }
    shown = screen(
        frame=private_table(), d=private_data, _hidden=private_table(), text="a", **arrays
    )
    shown.choose("frame")
    labels = [label for label, _ in shown.panel.variable.control.options]
    assert labels == ["d (data set)", "frame (table, 5 columns)", "x (array, 2 columns)"]
    assert [name for _, name in shown.panel.target.control.options] == ["", "y"]
    assert not shown.panel.target.visible
    shown.panel.variable.value = "x"
    assert shown.panel.target.visible
    assert str(NUMBER_OF_ROWS) not in shown.state()


def test_a_data_set_variable_goes_by_its_own_name(screen, private_data):
    shown = screen(d=private_data)
    shown.choose("d")
    source = shown.panel.source()
    assert (source.name, source.code, source.evaluation_is_public) == ("d", "d", False)
    assert source.load() is run(source.code, shown.variables)


def test_a_frame_is_declared_and_its_code_makes_the_same(screen):
    shown = screen(frame=private_table())
    shown.choose("frame")
    shown.declare(**DECLARED)
    shown.control("what one row is").value = "fish"
    shown.control("share of evaluation records (0 to 1)").value = "0.25"
    source = shown.panel.source()
    assert source.code == (
        "wb.data.from_frame(frame, target='ill', positive=7742, schema={'dose': (0, 200), "
        "'animal': wb.data.Categorical(['zebrafish', 'goldfish'], other=True), 'alive': bool}, "
        "group='tank', groups=['north', 'south', 'west'], evaluation_fraction=0.25, unit='fish', "
        "name='frame')"
    )
    loaded = source.load()
    assert same(loaded, run(source.code, shown.variables))
    assert (loaded.unit, loaded.groups, loaded.classes) == (
        "fish",
        ("north", "south", "west"),
        ("(other)", "7742"),
    )


def test_a_frame_with_numbers_for_names_of_columns(screen):
    frame = pd.DataFrame(np.random.default_rng(1).uniform(size=(50, 3)))
    shown = screen(frame=frame)
    shown.choose("frame")
    shown.declare(**{"0": {"lowest": "0", "highest": "1"}, "1": {"role": "leave out"}})
    shown.declare(**{"2": {"role": "target", "what it is": "yes above a limit", "limit": "0.5"}})
    assert same(shown.panel.source().load(), run(shown.panel.source().code, shown.variables))


def test_common_bounds(screen):
    shown = screen(
        frame=private_table()[["dose", "alive", "ill"]].assign(weight=np.arange(NUMBER_OF_ROWS))
    )
    shown.choose("frame")
    shown.declare(
        ill={"role": "target", "value that means yes": "7741"}, alive={"role": "leave out"}
    )
    shown.control("same bounds for all numbers").value = True
    assert list(shown.panel.problems()) == ["bounds"]
    shown.panel._editor.low.value, shown.panel._editor.high.value = "0", "10000"
    source = shown.panel.source()
    assert "bounds=(0, 10000), features=['dose', 'weight']" in source.code
    assert same(source.load(), run(source.code, shown.variables))


def test_wide_table_by_one_pair_of_bounds(screen):
    frame = (
        pd.DataFrame(np.random.default_rng(1).uniform(size=(60, 100)))
        .add_prefix("pixel ")
        .assign(ill=[0, 1] * 30)
    )
    shown = screen(frame=frame)
    shown.choose("frame")
    shown.control("What do you want to predict?").value = "ill"
    shown.panel._editor.low.value, shown.panel._editor.high.value = "0", "1"
    source = shown.panel.source()
    assert source.code == "wb.data.from_frame(frame, target='ill', bounds=(0, 1), name='frame')"
    assert same(source.load(), run(source.code, shown.variables))


@pytest.mark.parametrize("target", ["", "y"])
def test_arrays(screen, target):
    random = np.random.default_rng(1)
    shown = screen(x=random.uniform(size=(80, 3)), y=random.integers(0, 2, 80))
    shown.choose("x")
    shown.panel.target.value = target
    shown.declare(
        x1={"lowest": "0", "highest": "1"},
        x2={"lowest": "0", "highest": "1"},
        x3={"role": "leave out"},
    )
    source = shown.panel.source()
    arrays = "x, y" if target else "x"
    assert (
        source.code
        == f"wb.data.from_arrays({arrays}, schema={{'x1': (0, 1), 'x2': (0, 1)}}, name='x')"
    )
    assert same(source.load(), run(source.code, shown.variables))


@pytest.mark.parametrize("name", ["fish.csv", "fish.csv.gz", "fish.parquet"])
def test_files(screen, tmp_path, name):
    file, table = tmp_path / name, private_table(300)
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
        table.to_parquet(file)
    else:
        text = table.to_csv(index=False).encode()
        file.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    shown = screen()
    shown.open(file)
    shown.declare(**DECLARED)
    source = shown.panel.source()
    assert source.code.startswith(
        f"wb.data.from_{'parquet' if 'parquet' in name else 'csv'}({str(file)!r}, target='ill'"
    )
    loaded = source.load()
    assert loaded.name == "fish"
    assert same(loaded, run(source.code))


@pytest.mark.parametrize("shape", [(60, 2), (60, 4, 4)])
def test_npz_files(screen, tmp_path, shape):
    file, random = tmp_path / "scans.npz", np.random.default_rng(1)
    np.savez(file, x=random.uniform(size=shape), y=random.integers(0, 2, 60))
    shown = screen()
    shown.open(file)
    if len(shape) == 2:
        shown.declare(x1={"lowest": "0", "highest": "1"}, x2={"lowest": "0", "highest": "1"})
    else:
        assert "type all classes" in shown.panel.problems()["classes"]
        shown.panel.show(shown.panel.problems())
        assert "Still needed: all classes of y." in shown.texts()
        shown.declare(y={"all classes": "no, yes"})
        assert "classes=['no', 'yes']" in shown.panel.source().code
        shown.declare(y={"all classes": "2"})
    shown.control("what one row is").value = "scan"
    source = shown.panel.source()
    assert same(source.load(), run(source.code))
    assert source.load().unit == "scan"


def test_npz_file_with_groups(screen, tmp_path):
    file = tmp_path / "schools.npz"
    np.savez(
        file,
        x=np.random.default_rng(1).uniform(size=(60, 1)),
        y=[0, 1] * 30,
        group=["a", "b", "c"] * 20,
    )
    shown = screen()
    shown.open(file)
    shown.declare(x1={"lowest": "0", "highest": "1"}, group={"all groups": "a, b, c"})
    source = shown.panel.source()
    assert same(source.load(), run(source.code))
    assert source.load().groups == ("a", "b", "c")


def test_npz_file_with_identifiers(screen, tmp_path):
    file = tmp_path / "visits.npz"
    x, patients = np.random.default_rng(1).uniform(size=(60, 1)), np.repeat(np.arange(20), 3)
    np.savez(
        file, x=x, y=[0, 1] * 30, patient_id=patients, weight=patients / 7, scans=np.zeros((60, 2))
    )
    shown = screen()
    shown.open(file)
    shown.declare(x1={"lowest": "0", "highest": "1"})
    source = shown.panel.source()
    assert source.load().units is None
    shown.declare(patient_id={"role": "person id", "most rows of one person": "2"})
    data, other = shown.panel.source().load(), run(shown.panel.source().code)
    assert (data.unit, data.units.max_rows) == (other.unit, other.units.max_rows) == ("patient", 2)
    assert set(data.units.counts) == {2}
    assert np.array_equal(data.units.counts, other.units.counts)


def test_an_upload_gives_what_its_file_would(screen, tmp_path, monkeypatch):
    content = private_table(300).to_csv(index=False).encode()
    shown = screen()
    shown.send("my fish.csv", content)
    shown.declare(**DECLARED)
    source = shown.panel.source()
    assert source.code.startswith("wb.data.from_csv('my fish.csv', target='ill'")
    assert "Uploaded: my fish.csv" in shown.texts()
    (tmp_path / "my fish.csv").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert same(source.load(), run(source.code))
    shown.panel.path.value = "other.csv"
    assert "Uploaded" not in shown.texts()


# ---- a file of one's own -------------------------------------------------------------------------

CLINIC = "patient_id;visit;age;dose;sex;smoker;notes;ill\n" + "".join(
    f"{number};2024-03-{1 + number % 28:02};{20 + number % 60 if number % 7 else ''};"
    f"{number % 5},5;{'fm'[number % 2]};"
    f"{('True', 'False', '')[number % 3]};said {number};{('yes', 'no')[number % 2]}\n"
    for number in range(NUMBER_OF_ROWS)
)


@pytest.mark.parametrize("by", ["file", "upload"])
def test_a_file_with_semicolons_dates_ids_and_missing_values(screen, tmp_path, monkeypatch, by):
    """From the file to a valid plan without a mark that the user did not cause."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic.csv").write_text(CLINIC)
    shown = screen()

    def marks():
        shown.panel.show(shown.panel.problems())
        return shown.texts().count('role="alert"')

    if by == "file":
        shown.open("clinic.csv")
    else:
        shown.send("clinic.csv", CLINIC.encode())
    assert "Semicolons between the columns, decimal commas, 8 columns." in shown.texts()
    assert marks() == 0
    assert "Still needed: lowest and highest of age, dose; all values of sex, ill." in shown.texts()
    roles = {column.name: column.role for column in shown.panel._editor.declaration().columns}
    assert roles == {
        "patient_id": "leave out",
        "visit": "leave out",
        "age": "number",
        "dose": "number",
        "sex": "category",
        "smoker": "yes / no",
        "notes": "leave out",
        "ill": "category",
    }
    assert all(
        words in shown.texts()
        for words in ("name is that of an id", "Left out: dates", "free text")
    )
    shown.control("What do you want to predict?").value = "ill"
    assert marks() == 0
    assert "value that means yes of ill" in shown.texts()
    shown.declare(age={"lowest": "0", "highest": "120"}, dose={"lowest": "0", "highest": "10"})
    shown.declare(sex={"all values": "f, m"}, ill={"value that means yes": "yes"})
    assert marks() == 0
    assert "Still needed" not in shown.texts()
    source = shown.panel.source()
    assert source.code == (
        "wb.data.from_csv('clinic.csv', separator=';', decimal=',', target='ill', "
        "positive='yes', schema={'age': (0, 120), 'dose': (0, 10), 'sex': ['f', 'm'], 'smoker': "
        "bool}, missing='drop')"
    )
    loaded = source.load()
    assert same(loaded, run(source.code))
    kept = sum(1 for number in range(NUMBER_OF_ROWS) if number % 7 and number % 3 != 2)
    assert loaded.num_train + loaded.num_evaluation == kept


def test_rows_are_counted_for_whom_asks(screen):
    shown = screen(frame=private_table())
    assert shown.panel.count_button.layout.display == "none"
    shown.send("clinic.csv", CLINIC.encode())
    assert shown.panel.count_button.layout.display is None
    assert not any(each in shown.state() for each in (str(NUMBER_OF_ROWS), "8\u202f317", "8,317"))
    shown.panel.count_button.click()
    assert "8\u202f317 rows x 8 columns" in shown.texts()
    assert "⚠ outside the guarantee" in shown.panel._counted.value
    assert shown.chosen == "clinic.csv, 8\u202f317 rows"
    shown.choose("frame")
    assert "8\u202f317 rows" not in shown.state()
    shown.panel.count_button.click()
    assert "8\u202f317 rows x 5 columns" in shown.texts()
    shown.panel.named.value = "breast_cancer"
    assert "8\u202f317 rows" not in shown.state()


def test_the_menu_names_the_file_or_the_variable_that_is_chosen(screen, tmp_path):
    shown = screen(frame=private_table())
    shown.panel.named.value = FILE
    assert shown.chosen == FILE
    shown.send("clinic.csv", CLINIC.encode())
    assert (shown.panel.named.value, shown.chosen) == (FILE, "clinic.csv")
    other = tmp_path / "other.csv"
    other.write_text(CLINIC)
    shown.open(other)
    assert shown.chosen == "other.csv"
    shown.choose("frame")
    assert (shown.panel.named.value, shown.chosen) == (VARIABLE, "frame")
    shown.panel.named.value = "breast_cancer"
    assert [text for text, _ in shown.panel.named.control.options[-2:]] == [VARIABLE, FILE]


def test_the_separator_can_be_chosen(screen):
    content = b"age, in years;dose, in grams\n" + b"47;2,5\n" * 50
    shown = screen()
    shown.send("doses.csv", content)
    assert "Commas between the columns, 3 columns." in shown.texts()
    shown.panel.separator.value = ";"
    assert "Semicolons between the columns, decimal commas, 2 columns." in shown.texts()
    shown.declare(
        **{
            "age, in years": {"lowest": "0", "highest": "120"},
            "dose, in grams": {"role": "leave out"},
        }
    )
    assert shown.panel.source().load().feature_names == ("age, in years",)
    shown.send("others.csv", b"a,b\n1,2\n")
    assert shown.panel.separator.value == ""
    assert "Commas between the columns, 2 columns." in shown.texts()
    assert shown.panel._editor.declaration().missing == "drop"


def test_missing_values_of_a_variable_have_a_remedy_for_all_columns(screen):
    frame = private_table(200)
    frame.loc[3, "dose"] = np.nan
    shown = screen(frame=frame)
    shown.choose("frame")
    shown.declare(**DECLARED)
    with pytest.raises(
        ArgumentError, match="All rows with missing values can be left out at once"
    ) as caught:
        shown.panel.source().load()
    assert caught.value.argument == "schema['dose']"
    for way, records in (("drop", 199), ("middle", 200)):
        shown.panel._editor.missing.value = way
        source = shown.panel.source()
        assert f"missing={way!r}" in source.code
        loaded = source.load()
        assert same(loaded, run(source.code, shown.variables))
        assert loaded.num_train + loaded.num_evaluation == records


# ---- keys ----------------------------------------------------------------------------------------


def test_key_changes_with_the_records_and_what_is_declared_alone(screen, tmp_path):
    frame = private_table(200)
    shown = screen(frame=frame)
    shown.choose("frame")
    shown.declare(**DECLARED)

    def key():
        hash(shown.panel.source().key)
        return shown.panel.source().key

    first = key()
    assert key() == first
    frame.loc[0, "dose"] = 5.0
    second = key()
    assert second != first
    shown.variables["frame"] = frame.copy()
    assert key() == second
    shown.declare(dose={"highest": "201"})
    assert key() != second
    shown.declare(dose={"highest": "200"})
    assert key() == second

    file = tmp_path / "fish.csv"
    frame.to_csv(file, index=False)
    shown.open(file)
    shown.declare(**DECLARED)
    first = key()
    assert key() == first
    frame.head(100).to_csv(file, index=False)
    assert key() != first


# ---- what may be seen ----------------------------------------------------------------------------


def leaks(shown):
    """Which planted private facts any widget holds."""
    state = shown.state()
    planted = (f"{DOSE:.4g}", str(DOSE), TEXT, str(NUMBER_OF_ROWS), f"{NUMBER_OF_ROWS:,}")
    return [each for each in planted if each in state]


@pytest.mark.parametrize("by", some_of(["variable", "file", "upload"], 3, 2))
def test_no_widget_holds_anything_of_private_rows_before_the_box_is_ticked(screen, tmp_path, by):
    table = private_table()
    table["ill"] = np.where(table["ill"] == 7741, "no", "yes")
    shown = screen(frame=table)
    content = table.to_csv(index=False).encode()
    if by == "variable":
        shown.choose("frame")
    elif by == "file":
        (tmp_path / "fish.csv").write_bytes(content)
        shown.open(tmp_path / "fish.csv")
    else:
        shown.send("fish.csv", content)
    assert leaks(shown) == []
    assert shown.panel.upload.value == ()
    assert shown.panel.upload.get_state()["value"] == []
    shown.declare(
        dose={"lowest": "0", "highest": "200"},
        animal={"role": "leave out"},
        tank={"role": "leave out"},
    )
    shown.declare(ill={"role": "target", "value that means yes": "yes"})
    dataset = shown.panel.source().load()
    shown.panel.show_dataset(dataset)
    assert leaks(shown) == []
    assert "rows of this data set are private" in shown.texts()
    assert "outside the guarantee" in shown.texts()
    shown.panel.private_rows.value = True
    assert leaks(shown) == [f"{DOSE:.4g}"]
    assert "⚠ outside the guarantee" in shown.panel._preview.value
    assert shown.panel._preview.value.count("123.5") == 5
    shown.panel.private_rows.value = False
    assert leaks(shown) == []


def test_rows_are_not_shown_of_another_source_than_they_were_asked_for(screen, private_data):
    shown = screen(private_data)
    shown.panel.show_dataset(private_data)
    shown.panel.private_rows.value = True
    other = dataclasses.replace(private_data, name="other")
    shown.variables["other"] = other
    shown.choose("other")
    assert not shown.panel.private_rows.value
    assert shown.panel._preview.value == ""
    shown.panel.show_dataset(other)
    assert "private, so none" in shown.panel._preview.value


def test_a_changed_declaration_takes_the_preview_away(screen):
    shown = screen(frame=private_table(200))
    shown.choose("frame")
    shown.declare(**DECLARED)
    shown.control("the evaluation records are public").value = True
    assert shown.panel.source().evaluation_is_public
    shown.panel.show_dataset(shown.panel.source().load())
    assert "public data" in shown.panel._preview.value
    assert TEXT in shown.panel._preview.value
    assert "north" in shown.panel._preview.value
    shown.control("the evaluation records are public").value = False
    assert shown.panel._preview.value == shown.panel._declared.value == ""


def test_public_records_are_decoded(screen):
    shown = screen("breast_cancer")
    dataset = shown.panel.source().load()
    shown.panel.show_dataset(dataset)
    first = dataset.schema.decode(dataset.evaluation[0][:1])
    assert f"{first.iloc[0, 0]:.4g}" in shown.panel._preview.value
    assert dataset.classes[dataset.evaluation[1][0]] in shown.panel._preview.value
    assert all(sentence in shown.texts() for sentence in dataset.declarations())
    shown.panel.show_dataset(None)
    assert shown.panel._preview.value == shown.panel._declared.value == ""


def test_public_images_are_small_pictures(screen):
    shown = screen("digits")
    shown.panel.show_dataset(shown.panel.source().load())
    assert shown.panel._preview.value.count("data:image/png") == 5
    assert "8 x 8" in shown.panel._preview.value


def test_a_broken_upload_is_told_beside_its_field(screen):
    shown = screen()
    shown.send("fish.csv", b'a,b\n"zebra\n')
    shown.panel.show(shown.panel.problems())
    assert "fish.csv cannot be read as CSV" in shown.texts()
    assert shown.panel.upload.value == ()
    assert "zebra" not in shown.state()


# ---- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "argument"),
    [
        (lambda table: table.assign(dose=[f"{DOSE}!"] * len(table)), "schema['dose']"),
        (lambda table: table.assign(ill=[991, None, 993] * (len(table) // 3)), "target"),
        (lambda table: table.assign(ill=[True, False, True] * (len(table) // 3)), "positive"),
    ],
)
def test_errors_of_the_records_do_not_quote_them(screen, spoil, argument):
    shown = screen(frame=private_table(300))
    shown.choose("frame")
    shown.declare(dose={"lowest": "0", "highest": "200"}, animal={"all values": TEXT})
    shown.declare(
        tank={"role": "group", "all groups": "north, south"},
        ill={"role": "target", "value that means yes": "7742"},
    )
    shown.variables["frame"] = spoil(shown.variables["frame"])
    with pytest.raises(ArgumentError) as caught:
        shown.panel.source().load()
    told = str(caught.value)
    assert caught.value.argument == argument
    assert not any(planted in told for planted in ("991", str(DOSE), "300", "row(s)"))
    assert caught.value.__cause__ is caught.value.__context__ is None
    shown.panel.show({caught.value.argument: caught.value.expectation})
    column = {"target": "ill", "positive": "ill"}.get(argument, argument[8:-2])
    box = shown.panel._editor.row(column)
    assert caught.value.expectation in html.unescape(
        " ".join(str(getattr(each, "value", "")) for each in widgets_of(box))
    )


def test_missing_declarations_are_told_in_one_line(screen):
    """Nobody caused them, so nothing is marked."""
    shown = screen(frame=private_table(50))
    shown.choose("frame")
    problems = shown.panel.problems()
    assert set(problems) == {
        "schema['dose']",
        "schema['animal']",
        "schema['tank']",
        "schema['ill']",
    }
    assert "type the lowest and the highest value" in problems["schema['dose']"]
    assert shown.control("lowest", "dose").value == ""
    with pytest.raises(ArgumentError, match="dose"):
        shown.panel.source()
    shown.panel.show(problems)
    assert 'role="alert"' not in shown.texts()
    assert (
        "Still needed: lowest and highest of dose, ill; all values of animal, tank."
        in shown.texts()
    )
    shown.panel.show(problems | {"epsilon": "must be positive."})
    assert "epsilon: must be positive." in shown.panel._problem.value
    shown.panel.show({"ill": "look here"})
    assert "ill: look here" in shown.texts()
    assert "Still needed" not in shown.texts()
    shown.declare(dose={"lowest": "many"})
    shown.panel.show(shown.panel.problems())
    assert shown.texts().count('role="alert"') == 1
    assert "dose: the lowest value must be a number, without commas: 0.5 or 50000." in shown.texts()
    assert "Still needed: all values of animal, tank; lowest and highest of ill." in shown.texts()


def test_file_problems_stand_beside_the_path(screen, tmp_path):
    shown = screen()
    shown.panel.named.value = FILE
    assert "upload one" in shown.panel.problems()["path"]
    (tmp_path / "broken.parquet").write_bytes(b"zebra")
    for name, words in (
        ("nowhere.csv", "no such file"),
        ("fish.txt", "must end in"),
        ("broken.parquet", "as Parquet."),
    ):
        shown.open(tmp_path / name)
        problems = shown.panel.problems()
        assert list(problems) == ["path"]
        shown.panel.show(problems)
        assert words in html.unescape(shown.panel._lines["path"].value)
        assert shown.panel._problem.value == ""
    with pytest.raises(ArgumentError, match=r"broken\.parquet"):
        shown.panel.source()


def test_a_variable_that_is_gone_or_changed_is_told(screen):
    shown = screen(frame=private_table(50))
    shown.choose("frame")
    shown.variables["frame"] = shown.variables["frame"].rename(columns={"dose": "amount"})
    assert "Refresh" in shown.panel.problems()["variable"]
    shown.panel.refresh()
    assert "schema['amount']" in shown.panel.problems()
    del shown.variables["frame"]
    problems = shown.panel.problems()
    assert "Refresh" in problems["variable"]
    shown.panel.show(problems)
    assert "Refresh" in shown.panel._lines["variable"].value
    shown.panel.refresh()
    assert shown.panel.variable.value == ""
    assert "make a DataFrame" in shown.panel.problems()["variable"]


def test_repeated_names_of_columns_are_told(screen):
    shown = screen(frame=pd.DataFrame(np.zeros((4, 2)), columns=["a", "a"]))
    shown.choose("frame")
    assert "'a'" in shown.panel.problems()["variable"]


def test_names_are_escaped(screen):
    evil = "<img src=x onerror=alert(1)>"
    shown = screen(frame=pd.DataFrame({evil: [1.0, 2.0], "b": [1.0, 2.0]}))
    shown.choose("frame")
    shown.panel.show(shown.panel.problems())
    values = [
        widget.value for widget in widgets_of(shown.panel.view) if type(widget).__name__ == "HTML"
    ]
    assert any("&lt;img" in value for value in values)
    assert not any("<img" in value for value in values)


# ---- the session ---------------------------------------------------------------------------------


def test_declarations_survive_a_look_at_something_else(screen):
    shown = screen(frame=private_table(50), other=private_table(50)[["dose"]])
    shown.choose("frame")
    shown.declare(**DECLARED)
    before = shown.panel.source()
    shown.panel.variable.value = "other"
    assert list(shown.panel.problems()) == ["schema['dose']"]
    shown.panel.named.value = "breast_cancer"
    shown.panel.named.value = VARIABLE
    shown.panel.variable.value = "frame"
    assert shown.panel.source().code == before.code


def test_widgets_of_old_tables_are_closed(screen):
    shown = screen(frame=private_table(50), other=private_table(50)[["dose"]])
    shown.choose("frame")
    count = len(_instances)
    for _ in range(3):
        shown.panel.variable.value = "other"
        assert len(_instances) < count
        shown.panel.variable.value = "frame"
    assert len(_instances) == count


def test_closing_leaves_nothing_open():
    before = set(_instances)
    panel = DataPanel("breast_cancer", lambda: None, dict)
    panel.close()
    assert set(_instances) == before


def test_every_change_is_told(screen):
    shown = screen(frame=private_table(50))
    assert shown.changes == []
    shown.choose("frame")
    count = len(shown.changes)
    assert count > 0
    shown.declare(dose={"lowest": "0"})
    shown.control("the evaluation records are public").value = True
    assert len(shown.changes) == count + 2
    shown.panel.private_rows.value = True
    assert len(shown.changes) == count + 2
