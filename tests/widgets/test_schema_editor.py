"""Declarations about a table, and their controls."""

import dataclasses

import pytest
from ipywidgets.widgets.widget import _instances

from workbench.data import Categorical
from workbench.fitting.columns import Price
from workbench.widgets.workbench.declarations import (
    ABOVE_LIMIT,
    CLASSES,
    NUMBER,
    OUTCOMES,
    ROLES,
    YES_OR_NO,
    ColumnDeclaration,
    TableDeclaration,
)
from workbench.widgets.workbench.learning import Learning, offered, price_words
from workbench.widgets.workbench.schema_editor import SchemaEditor

AGE = ColumnDeclaration("age", low="0", high="120")
SEX = ColumnDeclaration("sex", "category", values="f, m")
ILL = ColumnDeclaration("ill", "target")
KIND = ColumnDeclaration("kind", "target", outcome=CLASSES)
STAY = ColumnDeclaration("stay", "target", outcome=NUMBER)
LONG = ColumnDeclaration("stay", "target", outcome=ABOVE_LIMIT)
SCHOOL = ColumnDeclaration("school", "group", groups="north, south")


def table(*columns, **options):
    return TableDeclaration(columns, **options)


def changed(column, **values):
    return dataclasses.replace(column, **values)


@pytest.fixture
def changes():
    return []


@pytest.fixture
def make(changes):
    """Makes an editor of columns and records its changes."""
    made = []

    def editor(*columns, roles=None, declaration=None, learning=None):
        made.append(
            SchemaEditor(
                columns,
                roles or {},
                lambda: changes.append(1),
                declaration,
                learning=learning,
            )
        )
        return made[-1]

    yield editor
    for each in made:
        each.close()


def controls(box):
    """The controls of a box by their description."""
    found = {}
    for child in box.children:
        if hasattr(child, "children"):
            found |= controls(child)
        elif getattr(child, "description", ""):
            found[child.description] = child
    return found


def errors(box):
    """All error texts that are visible in a box."""
    if hasattr(box, "children"):
        return "".join(errors(child) for child in box.children if child.layout.display != "none")
    value = getattr(box, "value", "")
    return value if isinstance(value, str) and 'role="alert"' in value else ""


# ---- declarations --------------------------------------------------------------------------------


def test_options_are_those_of_from_frame():
    columns = (
        changed(AGE, whole=True),
        changed(SEX, values='f, m, "other, or none"', other=True),
        ColumnDeclaration("smoker", "yes / no"),
        changed(ILL, positive="yes"),
        SCHOOL,
        ColumnDeclaration("notes", "leave out"),
    )
    declared = table(
        *columns, unit=" patient ", evaluation_fraction="0.3", evaluation_is_public=True
    )
    assert declared.problems() == {}
    assert declared.options(names_columns=True) == {
        "target": "ill",
        "positive": "yes",
        "schema": {
            "age": (0, 120, int),
            "sex": Categorical(("f", "m", "other, or none"), other=True),
            "smoker": bool,
        },
        "group": "school",
        "groups": ["north", "south"],
        "evaluation_fraction": 0.3,
        "evaluation_is_public": True,
        "unit": "patient",
    }


def test_common_bounds_of_numbers_alone_are_written_once():
    declared = table(AGE, ColumnDeclaration("dose"), ILL, same_bounds=True, low="-1", high="2.5")
    assert declared.options(names_columns=True) == {"target": "ill", "bounds": (-1, 2.5)}
    mixed = dataclasses.replace(declared, columns=(AGE, SEX))
    assert mixed.options(names_columns=True)["schema"] == {"age": (-1, 2.5), "sex": ["f", "m"]}


def test_columns_that_are_left_out_are_not_among_the_features():
    left_out = ColumnDeclaration("id", "leave out")
    declared = table(AGE, left_out, same_bounds=True, low="0", high="9")
    assert declared.options(names_columns=True) == {"bounds": (0, 9), "features": ["age"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a, b", ["a", "b"]),
        ("10", 10),
        ("1, 0", ["1", "0"]),
        ('"a, or b" , c', ["a, or b", "c"]),
        ('5" pipe, 6" pipe', ['5" pipe', '6" pipe']),
    ],
)
def test_classes_are_names_or_their_number(text, value):
    assert changed(KIND, classes=text).target_options() == {"classes": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.0", 1.0), ("01", "01"), ("yes", "yes"), ("1e4", "1e4"), (" b ", "b")],
)
def test_positive_value_is_a_number_only_as_it_is_spelled(text, value):
    given = changed(ILL, positive=text).target_options()["positive"]
    assert given == value
    assert type(given) is type(value)


@pytest.mark.parametrize(
    ("declared", "argument", "words"),
    [
        (table(changed(AGE, low="")), "schema['age']", "type the lowest value"),
        (table(changed(AGE, low="", high=" ")), "schema['age']", "lowest and the highest"),
        (table(changed(AGE, low="young")), "schema['age']", "lowest value must be a number"),
        (table(changed(AGE, low="5", high="5")), "schema['age']", "lowest < highest"),
        (table(changed(AGE, low="nan")), "schema['age']", "finite"),
        (table(changed(AGE, low="0.1", high="0.9", whole=True)), "schema['age']", "whole number"),
        (table(changed(SEX, values=" , ")), "schema['sex']", "all values"),
        (table(changed(SEX, values="f, f")), "schema['sex']", "is repeated"),
        (table(changed(SEX, values='f, "m, x')), "schema['sex']", "mark is not closed"),
        (table(AGE, changed(KIND, classes="a")), "classes", "two or more"),
        (table(AGE, changed(KIND, classes="a, b, a")), "classes", "different"),
        (table(AGE, changed(KIND, classes='"a, b')), "classes", "Write a value that has a comma"),
        (table(AGE, KIND), "classes", "all classes"),
        (table(AGE, changed(LONG, threshold="many")), "threshold", "finite number"),
        (table(AGE, LONG), "threshold", "number above which"),
        (table(AGE, changed(STAY, low="1")), "schema['stay']", "highest value"),
        (table(AGE, ILL, changed(ILL, name="dead")), "schema['dead']", "only one column"),
        (table(AGE, changed(SCHOOL, groups="")), "groups", "all groups"),
        (table(AGE, changed(SCHOOL, groups="a, a")), "groups", "is repeated"),
        (table(ILL), "features", "at least one column"),
        (table(AGE, same_bounds=True), "bounds", "lowest and the highest"),
        (
            table(AGE, changed(AGE, name="b"), same_bounds=True, low="1", high="x"),
            "bounds",
            "highest value must be a number",
        ),
        (table(AGE, changed(ILL, kind=str)), "positive", "value that means yes"),
        (table(AGE, evaluation_fraction="1"), "evaluation_fraction", "less than 1"),
        (table(AGE, evaluation_fraction=""), "evaluation_fraction", "finite number"),
    ],
)
def test_each_problem_names_its_field_and_what_to_do(declared, argument, words):
    problems = declared.problems()
    assert list(problems) == [argument]
    assert words in problems[argument]


def test_empty_fields_are_needs_and_wrong_ones_are_not():
    declared = table(
        changed(AGE, low="", high=""),
        changed(AGE, name="dose", low="1", high=""),
        changed(AGE, name="x", low="a", high=""),
        changed(SEX, values=""),
        changed(ILL, kind=str),
        changed(SCHOOL, groups=""),
    )
    assert declared.needs() == {
        "schema['age']": ("lowest and highest", "age"),
        "schema['dose']": ("highest", "dose"),
        "schema['sex']": ("all values", "sex"),
        "positive": ("value that means yes", "ill"),
        "groups": ("all groups", "school"),
    }
    assert set(declared.problems()) == {*declared.needs(), "schema['x']"}
    assert table(AGE, same_bounds=True).needs() == {"bounds": ("lowest and highest", "all numbers")}
    assert list(table(ILL).needs()) == ["features"]


def test_a_way_with_missing_values_is_an_option_unless_it_is_the_default():
    assert table(AGE, missing="drop").options(names_columns=True) == {
        "schema": {"age": (0, 120)},
        "missing": "drop",
    }
    assert "missing" not in table(AGE).options(names_columns=True)


EMPTY = (
    ColumnDeclaration("age", kind=float),
    ColumnDeclaration("visits", whole=True),
    ColumnDeclaration("sex", "category", kind=str),
    ColumnDeclaration("smoker", "yes / no", kind=bool),
    ColumnDeclaration("ill", "target", kind=str),
    ColumnDeclaration("school", "group", kind=str),
)


def test_what_is_left_empty_is_declared_by_its_type_where_a_fit_learns():
    declared = table(*EMPTY, learns=True, missing="drop", unit="patient")
    assert declared.problems() == {}
    assert declared.learned == ("age", "visits", "sex", "ill", "school")
    types = {"age": float, "visits": int, "sex": str, "smoker": bool, "ill": str, "school": str}
    assert declared.fit_settings() == {"schema": types, "missing": "drop", "unit": "patient"}
    assert list(types) == list(declared.fit_settings()["schema"])
    assert not dataclasses.replace(declared, learns=False).learned


def test_a_declaration_of_some_columns_stays():
    person = ColumnDeclaration("who", "person id", max_rows="3")
    columns = (AGE, EMPTY[2], changed(ILL, outcome=CLASSES, classes="no, yes"), SCHOOL, person)
    declared = table(*columns, learns=True)
    assert declared.learned == ("sex",)
    assert declared.fit_settings() == {
        "schema": {
            "age": (0, 120),
            "sex": str,
            "ill": ["no", "yes"],
            "school": ["north", "south"],
        },
        "unit_id": "who",
        "max_rows": 3,
    }
    stay = changed(STAY, low="0", high="365")
    assert table(EMPTY[0], stay, learns=True).fit_settings()["schema"]["stay"] == (0, 365)
    assert table(AGE, SEX, changed(ILL, kind=bool), learns=True).learned == ()


@pytest.mark.parametrize(
    ("declared", "argument", "words"),
    [
        (table(changed(AGE, low=""), learns=True), "schema['age']", "type the lowest value"),
        (table(EMPTY[0], same_bounds=True, low="1", learns=True), "bounds", "highest"),
        (table(EMPTY[0], changed(ILL, positive="yes"), learns=True), "positive", "both classes"),
        (table(EMPTY[0], changed(LONG, threshold="3"), learns=True), "threshold", "all columns"),
        (table(EMPTY[0], LONG, learns=True), "threshold", "number above which"),
        (
            table(EMPTY[0], evaluation_is_public=True, learns=True),
            "evaluation_is_public",
            "all declared",
        ),
        (
            table(EMPTY[0], evaluation_fraction="0.3", learns=True),
            "evaluation_fraction",
            "all declared",
        ),
    ],
)
def test_what_cannot_be_learned_is_said(declared, argument, words):
    problems = declared.problems()
    assert list(problems) == [argument]
    assert words in problems[argument]


def test_images_need_no_columns():
    assert table().problems() == {}
    assert table(unit="scan", evaluation_fraction=" 0.20").options(names_columns=False) == {
        "unit": "scan"
    }


# ---- controls ------------------------------------------------------------------------------------


def test_declarations_begin_empty_and_follow_the_controls(make, changes):
    editor = make(ColumnDeclaration("age"), ColumnDeclaration("sex", "category"))
    row = controls(editor.row("age"))
    assert list(row) == ["age", "lowest", "highest", "whole numbers"]
    assert row["lowest"].value == row["highest"].value == ""
    assert row["lowest"].placeholder
    row["lowest"].value, row["highest"].value, row["whole numbers"].value = "0", "120", True
    controls(editor.row("sex"))["all values"].value = "f, m"
    controls(editor.row("sex"))["other values allowed"].value = True
    assert len(changes) == 5
    assert editor.declaration() == table(changed(AGE, whole=True), changed(SEX, other=True))


def test_another_role_asks_for_other_things_and_keeps_what_was_typed(make):
    editor = make(ColumnDeclaration("age"))
    controls(editor.row("age"))["lowest"].value = "3"
    asked = {}
    for role in ROLES:
        controls(editor.row("age"))["age"].value = role
        asked[role] = list(controls(editor.row("age")))[1:]
    assert asked == {
        "number": ["lowest", "highest", "whole numbers"],
        "category": ["all values", "other values allowed"],
        "yes / no": [],
        "target": ["what it is", "value that means yes"],
        "group": ["all groups"],
        "person id": ["most rows of one person"],
        "leave out": [],
    }
    controls(editor.row("age"))["age"].value = "number"
    assert controls(editor.row("age"))["lowest"].value == "3"


def test_what_a_target_is_decides_what_is_asked_of_it(make, changes):
    editor, asked = make(ColumnDeclaration("age", "target")), {}
    menu = controls(editor.row("age"))["what it is"]
    assert (menu.value, menu.options) == (YES_OR_NO, OUTCOMES)
    controls(editor.row("age"))["value that means yes"].value = "9"
    for outcome in OUTCOMES:
        menu.value = outcome
        assert controls(editor.row("age"))["what it is"] is menu  # which keeps the focus
        asked[outcome] = list(controls(editor.row("age")))[2:]
    assert asked == {
        YES_OR_NO: ["value that means yes"],
        ABOVE_LIMIT: ["limit"],
        CLASSES: ["all classes"],
        NUMBER: ["lowest", "highest"],
    }
    assert len(changes) == 1 + len(OUTCOMES) - 1
    assert editor.declaration().columns[0].outcome == NUMBER
    menu.value = YES_OR_NO
    assert editor.declaration().columns[0].target_options() == {"positive": 9}


@pytest.mark.parametrize(
    ("kind", "outcome"), [(bool, YES_OR_NO), (int, YES_OR_NO), (str, YES_OR_NO), (float, NUMBER)]
)
def test_a_target_begins_as_what_its_type_suggests(make, kind, outcome):
    editor = make(ColumnDeclaration("age", "target", kind=kind))
    assert controls(editor.row("age"))["what it is"].value == outcome


def test_only_the_fields_of_what_a_target_is_count():
    column = changed(ILL, positive="9", threshold="3", classes="a, b", low="0", high="1")
    made = {name: changed(column, outcome=name).target_options() for name in OUTCOMES}
    assert made == {
        YES_OR_NO: {"positive": 9},
        ABOVE_LIMIT: {"threshold": 3},
        CLASSES: {"classes": ["a", "b"]},
        NUMBER: {"target_bounds": (0, 1)},
    }


def test_a_target_is_learned_as_what_it_is():
    kinds = ((KIND, str), (STAY, float), (changed(STAY, kind=str), float), (ILL, float))
    for column, type_ in kinds:
        declared = table(EMPTY[0], column, learns=True)
        assert declared.problems() == {}
        assert declared.fit_settings()["schema"][column.name] is type_


def test_problems_stand_beside_their_rows_and_go_away(make):
    editor = make(AGE, ColumnDeclaration("<b>dose</b>"), ILL, SCHOOL)
    given = {
        "schema['age']": "one",
        "<b>dose</b>": "two",
        "positive": "three",
        "groups": "four",
        "unit": "five",
        "bounds": "six",
        "data": "seven",
    }
    assert editor.show(given) == {"data": "seven"}
    assert "age: one" in errors(editor.row("age"))
    assert "&lt;b&gt;dose&lt;/b&gt;: two" in errors(editor.row("<b>dose</b>"))
    assert "value that means yes: three" in errors(editor.row("ill"))
    assert "all groups: four" in errors(editor.row("school"))
    assert "five" in editor.unit.error
    assert "bounds of all numbers: six" in errors(editor.view)
    assert "<b>" not in errors(editor.view)
    assert editor.show({}) == {}
    assert errors(editor.view) == ""


def test_what_is_needed_stands_in_one_line_until_it_is_typed(make):
    editor = make(
        ColumnDeclaration("age"), ColumnDeclaration("dose"), ColumnDeclaration("sex", "category")
    )

    def needed():
        assert editor.show(editor.declaration().problems()) == {}
        return editor._needed.value.partition("Still")[2].removesuffix("</div>")

    assert needed() == " needed: lowest and highest of age, dose; all values of sex."
    assert errors(editor.view) == ""
    assert editor.leave_out.layout.display == "none"  # nothing would be left to learn from
    row = controls(editor.row("age"))
    row["lowest"].value = "0"
    assert needed() == " needed: highest of age; lowest and highest of dose; all values of sex."
    row["highest"].value = "-1"
    assert needed() == " needed: lowest and highest of dose; all values of sex."
    assert "age: the lowest and the highest value must be finite" in errors(editor.row("age"))
    row["highest"].value = "9"
    assert editor.leave_out.layout.display == "none" or needed()
    assert editor.leave_out.layout.display is None
    editor.leave_out.click()
    assert [column.role for column in editor.declaration().columns] == [
        "number",
        "leave out",
        "leave out",
    ]
    assert controls(editor.row("sex"))["sex"].value == "leave out"
    assert needed() == ""
    assert editor.leave_out.layout.display == "none"


def test_many_needs_are_counted(make):
    editor = make(*(ColumnDeclaration(f"c{number}") for number in range(10)))
    editor.show(editor.declaration().problems())
    assert "lowest and highest of c0, c1, c2, c3, c4, c5 and 4 more." in editor._needed.value


def test_the_first_question_is_what_to_predict(make, changes):
    editor = make(
        ColumnDeclaration("age"),
        ColumnDeclaration("sex", "category"),
        ColumnDeclaration("name", "leave out"),
    )
    question = editor.view.children[0].children[0].children[0]
    assert (question.description, question.value) == ("What do you want to predict?", "")
    assert [value for _, value in question.options] == ["", "age", "sex", "name"]

    def roles():
        shown = [controls(editor.row(name))[name].value for name in ("age", "sex", "name")]
        assert shown == [column.role for column in editor.declaration().columns]
        return shown

    question.value = "sex"
    assert roles() == ["number", "target", "leave out"]
    assert "value that means yes" in controls(editor.row("sex"))
    question.value = "name"
    assert roles() == ["number", "category", "target"]
    assert len(changes) == 2
    controls(editor.row("name"))["name"].value = "leave out"
    assert question.value == ""
    controls(editor.row("age"))["age"].value = "target"
    assert question.value == "age"
    assert len(changes) == 4
    question.value = ""
    assert roles() == ["number", "category", "leave out"]


def test_long_tables_scroll_and_short_ones_do_not(make):
    assert (
        "dpvi-schema-long"
        not in make(*(ColumnDeclaration(f"c{number}") for number in range(12))).table._dom_classes
    )
    assert (
        "dpvi-schema-long"
        in make(*(ColumnDeclaration(f"c{number}") for number in range(13))).table._dom_classes
    )


def test_notes_say_why_a_column_is_left_out(make):
    editor = make(AGE, ColumnDeclaration("id", "leave out", note="Left out: <b>"))
    note = editor.row("id").children[0].children[2]
    assert "Left out: &lt;b&gt;" in note.value
    controls(editor.row("id"))["id"].value = "number"
    assert note.layout.display == "none"


def test_common_bounds_take_the_place_of_each_columns(make):
    editor = make(AGE, SEX)
    editor.same_bounds.value = True
    assert list(controls(editor.row("age"))) == ["age", "whole numbers"]
    assert list(editor.declaration().problems()) == ["bounds"]
    editor.low.value, editor.high.value = "0", "1"
    assert editor.declaration().options(names_columns=True)["schema"]["age"] == (0, 1)
    editor.same_bounds.value = False
    assert controls(editor.row("age"))["highest"].value == "120"


def test_roles_can_be_limited(make):
    editor = make(AGE, ILL, roles={"age": ("number", "leave out"), "ill": ("target",)})
    assert controls(editor.row("age"))["age"].options == ("number", "leave out")
    assert controls(editor.row("ill"))["ill"].options == ("target",)


def test_sixty_columns_have_rows_at_a_time(make, changes):
    columns = [ColumnDeclaration(f"c{number}") for number in range(60)]
    editor = make(*columns)
    assert "c59" in controls(editor.view)
    assert not editor.rows_shown.visible
    wide = make(*columns, ColumnDeclaration("name", "category"))
    shown = controls(wide.view)
    assert {"c0", "c59"} <= set(shown)
    assert "name" not in shown
    assert "has 61 columns and shows 60" in wide.view.children[2].value
    assert wide.rows_shown.control.options == (("1 to 60", 0), ("61 to 61", 60))
    wide.rows_shown.value = 60
    assert len(changes) == 1
    last = controls(wide.view)
    assert not {"c0", "c59"}.intersection(last)
    last["name"].value = "category"
    assert wide.show({"schema['c3']": "look here"}) == {"c3": "look here"}
    controls(wide.row("name"))["all values"].value = "a, b"
    wide.low.value, wide.high.value = "0", "1"
    assert wide.declaration().options(names_columns=True)["schema"]["name"] == ["a", "b"]
    controls(wide.row("name"))["name"].value = "leave out"
    wide.rows_shown.value = 0
    wide.same_bounds.value = False
    assert "lowest" in controls(wide.row("c7"))
    wide.same_bounds.value = True


def test_target_and_group_of_many_columns_have_menus_and_rows(make):
    columns = [ColumnDeclaration(f"c{number}") for number in range(60)]
    wide = make(*columns, ColumnDeclaration("name", "category"))
    shown = controls(wide.view)
    wide.low.value, wide.high.value = "0", "1"
    options = wide.declaration().options(names_columns=True)
    assert options["bounds"] == (0, 1)
    assert options["features"] == [column.name for column in columns]
    shown["What do you want to predict?"].value = "c7"
    assert wide.table.children[1].children[0] is wide.row("c7")
    controls(wide.row("c7"))["what it is"].value = ABOVE_LIMIT
    controls(wide.row("c7"))["limit"].value = "0.5"
    shown["group column"].value = "name"
    controls(wide.row("name"))["all groups"].value = "a, b"
    options = wide.declaration().options(names_columns=True)
    assert (options["target"], options["threshold"], options["group"], options["groups"]) == (
        "c7",
        0.5,
        "name",
        ["a", "b"],
    )
    assert "features" not in options
    shown["What do you want to predict?"].value = "name"
    assert shown["group column"].value == ""
    shown["What do you want to predict?"].value = ""
    assert [column.role for column in wide.declaration().columns] == ["number"] * 60 + ["leave out"]


def test_an_earlier_declaration_is_gone_on_from(make):
    editor = make(ColumnDeclaration("age"), ColumnDeclaration("sex", "category"))
    controls(editor.row("age"))["age"].value = "leave out"
    editor.unit.value = "patient"
    kept = editor.declaration()
    again = make(ColumnDeclaration("age"), ColumnDeclaration("sex", "category"), declaration=kept)
    assert again.declaration() == kept


def test_nothing_is_left_open():
    before = set(_instances)
    editor = SchemaEditor((AGE, SEX, ILL, SCHOOL), {}, lambda: None)
    controls(editor.row("age"))["age"].value = "category"
    editor.same_bounds.value = True
    editor.same_bounds.value = False
    assert len(set(_instances) - before) > 50
    editor.close()
    assert set(_instances) == before


def test_every_control_has_a_description(make):
    editor = make(AGE, SEX, ILL, SCHOOL, ColumnDeclaration("smoker", "yes / no"))

    def boxes(box):
        for child in box.children:
            if hasattr(child, "children"):
                yield from boxes(child)
            else:
                yield child

    for control in boxes(editor.view):
        assert type(control).__name__ == "HTML" or control.description


# ---- columns that a fit learns -------------------------------------------------------------------


@pytest.fixture
def chosen():
    """What a screen says about its model, and the regressions that were chosen."""
    state = {"learns": False, "formula": "", "chosen": []}
    choose = lambda *regression: state["chosen"].append(regression)  # noqa: E731
    learning = Learning(lambda: state["learns"], lambda: state["formula"], choose)
    return state, learning


def test_a_regression_is_offered_that_learns_what_is_needed(make, chosen):
    state, learning = chosen
    columns = (changed(EMPTY[0], name="age now"), *EMPTY[2:4], SCHOOL, EMPTY[4])
    editor = make(*columns, learning=learning)
    editor.show(editor.declaration().problems())
    assert editor.learn.layout.display is None
    assert "Still needed" in editor._needed.value
    editor.learn.click()
    formula = "ill ~ `age now` + sex + smoker + (1 | school)"
    assert state["chosen"] == [(formula, "bernoulli")]
    assert formula in editor.learn.tooltip
    state |= {"learns": True, "formula": formula}
    assert editor.show(editor.declaration().problems()) == {}
    assert editor.learn.layout.display == "none"
    assert editor._needed.value == errors(editor.view) == ""
    assert "inside its guarantee: age now, sex." in editor._learned.value
    assert controls(editor.row("sex"))["all values"].placeholder == "learned"
    assert not editor.evaluation_fraction.visible
    editor.show_price("It takes 7 %.")
    assert "It takes 7 %." in editor._learned.value
    row = controls(editor.row("age now"))
    row["lowest"].value, row["highest"].value = "0", "120"
    controls(editor.row("sex"))["all values"].value = "f, m"
    yes = controls(editor.row("ill"))["value that means yes"]
    assert yes.placeholder == "needs 0 and 1, or yes and no"
    controls(editor.row("ill"))["what it is"].value = CLASSES
    editor.show(editor.declaration().problems())
    assert controls(editor.row("ill"))["all classes"].placeholder == "learned"
    controls(editor.row("ill"))["all classes"].value = "no, yes"
    editor.show(editor.declaration().problems())
    assert "7 %" not in editor._learned.value
    assert controls(editor.row("sex"))["all values"].placeholder == 'all values: a, b, "c, d"'
    assert editor.evaluation_fraction.visible


def test_nothing_is_offered_without_a_target_or_such_a_model(make, chosen):
    for editor in (make(*EMPTY), make(*EMPTY[:4], learning=chosen[1])):
        editor.show(editor.declaration().problems())
        assert editor.learn.layout.display == "none"


@pytest.mark.parametrize(
    ("typed", "family"),
    [
        ({"kind": float}, "gaussian"),
        ({"kind": bool}, "bernoulli"),
        ({"kind": int}, ""),
        ({"kind": str}, "bernoulli"),
        ({"positive": "2"}, "bernoulli"),
        ({"outcome": YES_OR_NO}, "bernoulli"),
        ({"outcome": NUMBER}, "gaussian"),
        ({"outcome": ABOVE_LIMIT}, "bernoulli"),
        ({"outcome": CLASSES, "classes": "a, b"}, "bernoulli"),
        ({"outcome": CLASSES, "classes": "a, b, c"}, "categorical"),
        ({"outcome": CLASSES, "classes": "a"}, ""),
        ({"outcome": CLASSES}, "categorical"),
    ],
)
def test_the_family_follows_from_what_is_declared_of_the_target(typed, family):
    assert offered(table(AGE, changed(ILL, **typed))) == ("ill ~ age", family)


def test_the_price_has_the_numbers_of_the_plan():
    assert price_words(None) == ""
    words = price_words(Price(("age", "ward"), 0.12, 0.05))
    assert "age, ward takes 12 % of the privacy budget" in words
    assert words.endswith("are declared, it takes 5 %.")
    assert price_words(Price(("age",), 0.15, 0.15)).endswith("it takes as much.")
