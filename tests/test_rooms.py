"""The folders of ``workbench/`` are its architecture: imports go down, from a room to those that
stand before it here.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# from the ground up; what begins with an underscore at the top of the package may be used by all
ROOMS = (
    *("noise", "sampling", "clipping", "privacy", "data", "record_model", "inference", "posterior"),
    *("plots", "models", "gallery", "formula", "ledger", "results", "fitting", "sklearn"),
    *("owners", "auditing", "sweeps", "releases", "widgets", "teaching", "cli"),
)
# ``models.get`` knows the built-in models, which are written like anybody's: with what ``models``
# offers
ALLOWED = {
    ("workbench.models.registry", "gallery"),
    # types of names that load on first use
    ("workbench.models", "gallery"),
    ("workbench.models", "formula"),
}
MOST_LINES = 620


def modules():
    """{dotted name: path} of the package as it is installed."""
    paths = [*ROOT.glob("workbench/**/*.py"), *ROOT.glob("models/*.py")]
    named = {}
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "workbench" else ("workbench", "gallery", *parts[1:])
        named[".".join(parts).removesuffix(".__init__")] = path
    return named


MODULES = modules()


def room_of(module):
    """The room of a module; None for helpers and the package itself."""
    parts = module.split(".")
    return None if len(parts) < 2 or parts[1].startswith("_") else parts[1]


def imported(source, known=MODULES):
    """Modules of the workbench that ``source`` imports, wherever in it, also for types alone."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "workbench"
        ):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module
        elif isinstance(node, ast.Import):
            yield from (
                alias.name for alias in node.names if alias.name.split(".")[0] == "workbench"
            )


def goes_up(module, target):
    """Whether an import is against the order; helpers and the package's door use no room, except to
    start the command.
    """
    to = room_of(target)
    if to is None or room_of(module) == to or (module, to) in ALLOWED:
        return False
    if room_of(module) is None:
        return module not in ("workbench", "workbench.__main__")
    return ROOMS.index(to) > ROOMS.index(room_of(module))


def imports_of(room, is_wrong):
    """Imports in a room for which ``is_wrong(module, target)``."""
    return [
        f"{module} imports {target}"
        for module, path in MODULES.items()
        if room_of(module) == room
        for target in imported(path.read_text())
        if is_wrong(module, target)
    ]


def test_every_folder_is_a_room_and_every_room_a_folder():
    assert {room_of(module) for module in MODULES} - {None} == set(ROOMS)
    loose = [
        path.name for path in (ROOT / "workbench").glob("*.py") if not path.name.startswith("_")
    ]
    assert loose == []


@pytest.mark.parametrize("room", [*ROOMS, None])
def test_imports_go_down(room):
    assert imports_of(room, goes_up) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("workbench.privacy.plan", "from workbench import ledger"),
        (
            "workbench.plots.curves",
            "def f():\n    from workbench.results.fit_result import FitResult",
        ),
        ("workbench.inference.step", "import workbench.models"),
        ("workbench._validate", "from workbench.data import Dataset"),
        (
            "workbench.sampling.poisson",
            "if TYPE_CHECKING:\n    from workbench.privacy.plan import PrivacyPlan",
        ),
    ],
)
def test_a_planted_import_that_goes_up_is_found(module, source):
    assert any(goes_up(module, target) for target in imported(source))


def is_of_another_room(module, target):
    """Whether ``target`` is an underscored module of another room than that of ``module``."""
    room, parts = room_of(target), target.split(".")
    return room not in (None, room_of(module)) and any(part.startswith("_") for part in parts[2:])


@pytest.mark.parametrize("room", [*ROOMS, None])
def test_no_room_uses_underscored_modules_of_another(room):
    assert imports_of(room, is_of_another_room) == []


def test_a_planted_import_of_an_underscored_module_is_found():
    (target,) = imported("from workbench.clipping import _uses")
    assert is_of_another_room("workbench.inference.step", target)
    assert not is_of_another_room("workbench.clipping.bookkeeping", target)


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "gallery"])
def test_every_room_says_what_it_is_for(room):
    folder = ROOT / "workbench" / room
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# {room}/\n")
    assert "It must never" in text
    assert len(text.splitlines()) <= 15
    modules = re.findall(r"`([\w/]+\.py)`", text)
    assert modules
    assert [name for name in modules if not (folder / name).exists()] == []
    assert (ROOT / re.search(r"pytest (\S+) -q", text)[1]).is_dir()


def test_the_table_of_rooms_is_in_their_order():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)/`\]\(\S+\) \| (.*) \|$", text, re.MULTILINE)
    assert tuple(room for room, _ in rows) == ROOMS
    assert max(len(content) for _, content in rows) <= 100


def test_no_module_outgrows_its_name():
    assert {
        name: n
        for name, path in MODULES.items()
        if (n := len(path.read_text().splitlines())) > MOST_LINES
    } == {}
