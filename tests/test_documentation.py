"""The documentation says what is so: its code runs, its commands parse, its links lead somewhere,
nothing public is missing.

Conventions of the pages: a fenced block ``python`` runs, the blocks of a page in order in one
namespace, in an empty folder and with a ledger of its own. An expression that ends in ``# ->
VALUE`` must have that value, numbers to the digits written. A block ``python skip: WHY`` is only
parsed. Lines of other blocks that begin with ``workbench`` must be understood by the command's
parser. Examples of docstrings run as doctests. They may use ``wb``, ``np`` and ``pd``, and the
steps of their fits are made up: an example shows no number that depends on what was learnt.
"""

import ast
import contextlib
import doctest
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench.cli.main import parser
from workbench.models import registry
from workbench.privacy.steps import LAWS, NEIGHBOURS, SENSITIVITY
from workbench.results.fit_result import IntervalWarning

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "reference").glob("*.md")),
]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}


def documentation_module(name):
    """A module of the documentation's own, which is not a package."""
    folder = DOCS if name == "figures" else DOCS / "_ext"
    specification = importlib.util.spec_from_file_location(f"docs_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
_EXPECTED = re.compile(r"#\s*->\s*(.+?)\s*$")


def fences(text, of):
    """(info, code) of the fenced blocks whose info ``of`` accepts; those of MyST directives are
    none.
    """
    return [
        (info, code)
        for info, code in _FENCE.findall(text)
        if not info.startswith("{") and of(info.strip())
    ]


def python_blocks(text):
    """(why it is skipped or "", code)."""
    blocks = []
    for info, code in fences(text, lambda info: info.split(" ")[0] == "python"):
        _, _, rest = info.partition(" ")
        assert not rest or re.fullmatch(r"skip: \S.+", rest), (
            f"```{info}: write ```python or ```python skip: WHY"
        )
        blocks.append((rest.removeprefix("skip: "), code))
    return blocks


def run_block(code, namespace):
    """Run ``code``; every expression that ends in ``# -> VALUE`` must have that value."""
    lines = code.splitlines()
    promised = {number for number, line in enumerate(lines, 1) if _EXPECTED.search(line)}
    for statement in ast.parse(code).body:
        expected = _EXPECTED.search(lines[statement.end_lineno - 1])
        if expected is None or not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), "<page>", "exec"), namespace)
            continue
        promised.remove(statement.end_lineno)
        value = eval(compile(ast.Expression(statement.value), "<page>", "eval"), namespace)
        assert says(value, expected[1]), f"{lines[statement.lineno - 1]}\nis {value!r}"
    assert not promised, (
        f"not the last line of an expression: {[lines[number - 1] for number in promised]}"
    )


def says(value, text):
    """Whether ``text`` is ``value``, rounded to the digits that it has where it is a number."""
    try:
        number = float(text.replace(" ", ""))
    except ValueError:
        return text in (str(value), repr(value))
    digits = len(text.partition(".")[2])
    return abs(float(value) - number) <= 0.5000001 * 10.0**-digits


@pytest.fixture
def on_a_page(tmp_path, monkeypatch):
    """The namespace of a page, an empty working folder, a gallery that forgets what
    is registered.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_LEDGER", raising=False)
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    return {"__name__": "__main__"}


FIRST = {"README.md"}  # what newcomers copy; other pages take minutes together


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in FIRST else pytest.mark.integration)
        for page, text in TEXTS.items()
        if python_blocks(text)
    ],
)
def test_code_runs(page, on_a_page):
    for skipped, code in python_blocks(TEXTS[page]):
        if skipped:
            ast.parse(code)
            continue
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            # what a short fit at epsilon 1 deserves
            warnings.simplefilter("ignore", IntervalWarning)
            run_block(code, on_a_page)


def test_a_wrong_value_is_noticed():
    run_block("1 / 3  # -> 0.33\n'a' + 'b'  # -> ab\n", {})
    with pytest.raises(AssertionError):
        run_block("1 / 3  # -> 0.34\n", {})
    with pytest.raises(AssertionError):
        run_block("'a' + 'b'  # -> ba\n", {})
    with pytest.raises(AssertionError, match="last line"):
        run_block("x = 1  # -> 1\n", {})
    with pytest.raises(NameError):
        run_block("undefined  # -> 1\n", {})


# ---- examples ------------------------------------------------------------------------------------

DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NO_EXAMPLE = {  # and why
    "workbench.models.pictures.confusion": "a network's fit draws it; tests/models looks at it",
}


def public_objects():
    """{full name: function or class}, each object under the first of its names."""
    found = {}
    for module in documentation_module("docstrings").public_modules():
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and all(value is not other for other in found.values()):
                found[f"{module.__name__}.{name}"] = value
    return found


def named(code, scope):
    """What ``code`` names of the workbench, as {full names}. ``scope``, {name: full name}, keeps
    what was imported.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            scope |= {
                alias.asname or "workbench": alias.name
                for alias in node.names
                if alias.name.startswith("workbench")
            }
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("workbench"):
            scope |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    found = set()
    for node in ast.walk(tree):
        inner, parts = node, []
        while isinstance(inner, ast.Attribute):
            inner, parts = inner.value, [inner.attr, *parts]
        if isinstance(inner, ast.Name) and inner.id in scope:
            found.add(".".join([scope[inner.id], *parts]))
        if isinstance(node, ast.Call) and picture_of(node):  # pictures are drawn by name
            found.add(f"workbench.models.pictures.{picture_of(node).replace(' ', '_')}")
    return found


def picture_of(call):
    """NAME of ``result.plot("NAME")``, else ""."""
    is_plot = isinstance(call.func, ast.Attribute) and call.func.attr == "plot" and call.args
    return call.args[0].value if is_plot and isinstance(call.args[0], ast.Constant) else ""


def executed():
    """Names that the pages and the notebooks use in code that tests execute."""
    pages = [
        [code for skipped, code in python_blocks(text) if not skipped] for text in TEXTS.values()
    ]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = [
            "".join(cell["source"]).splitlines() for cell in cells if cell["cell_type"] == "code"
        ]
        pages.append(
            ["\n".join(line for line in cell if not line.startswith("%")) for cell in lines]
        )
    found = set()
    for page in pages:
        scope = {}
        for code in page:
            found |= named(code, scope)
    return found


def resolved(name):
    """The object of a full name; None where the name leads nowhere, such as to an attribute of a
    call's result.
    """
    value = wb
    for part in name.split(".")[1:]:
        with contextlib.suppress(ModuleNotFoundError):
            if inspect.ismodule(value) and not hasattr(value, part):
                importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part, None)
    return value


def examples(name, value):
    """Doctests of a public object and its methods."""
    finder = doctest.DocTestFinder()
    return [
        test
        for test in finder.find(value, name, module=False, globs={"wb": wb, "np": np, "pd": pd})
        if test.examples
    ]


PUBLIC = public_objects()
WITH_EXAMPLES = [name for name, value in PUBLIC.items() if examples(name, value)]


@pytest.mark.parametrize("name", some_of(WITH_EXAMPLES, 4))
@pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning")
def test_examples_of_docstrings_run(name, on_a_page, made_up_steps):
    """What made-up steps say of a posterior may well be doubtful."""
    for test in examples(name, PUBLIC[name]):
        said = []
        doctest.DocTestRunner(optionflags=DOCTEST).run(test, out=said.append)
        assert said == [], "".join(said)


def test_every_public_name_has_an_example_that_runs():
    shown = [resolved(name) for name in executed()]
    missing = {
        name
        for name, value in PUBLIC.items()
        if name not in WITH_EXAMPLES and all(value is not each for each in shown)
    }
    assert missing == set(NO_EXAMPLE)


def test_names_in_code_are_noticed():
    scope = {}
    assert named("import workbench as wb\nwb.data.load('x').subset(2)", scope) >= {
        "workbench.data.load"
    }
    assert named("from workbench.noise import new_key\nnew_key()\nwb.fit", scope) == {
        "workbench.noise.new_key",
        "workbench.fit",
        "workbench",
    }
    assert named("result.plot('latent plane')", scope) == {"workbench.models.pictures.latent_plane"}
    assert resolved("workbench.data.load") is wb.data.load
    assert resolved("workbench.data.load.nothing") is None


# ---- commands ------------------------------------------------------------------------------------


def commands(text):
    """What begins with ``workbench`` in the blocks that are neither Python nor a file format."""
    found = []
    for _, code in fences(text, lambda info: info in ("", "sh", "bash", "console", "shell")):
        for line in code.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["workbench"]:
                found.append(words[1:])
    return found


def misunderstood(words):
    """What the parser of the command says against ``words``; "" where it understands them."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
        parser().parse_args(words)
    return said.getvalue()


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if commands(text)])
def test_commands_are_understood(page):
    for words in commands(TEXTS[page]):
        assert misunderstood(words) == "", shlex.join(words)


def test_a_wrong_command_is_noticed():
    assert commands("```\nworkbench fit --data a.csv --epsilon 1  # a comment\n```\n") == [
        ["fit", "--data", "a.csv", "--epsilon", "1"]
    ]
    assert "unrecognized" in misunderstood(
        ["fit", "--data", "a.csv", "--epsilon", "1", "--colour", "red"]
    )


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))
    for page, text in TEXTS.items():
        for _, code in fences(text, lambda info: info in ("", "sh", "bash", "console", "shell")):
            for target in re.findall(r"^make ([a-z-]+)", code, re.M):
                assert target in targets, f"{page}: make {target}"


# ---- what the pages promise about themselves -----------------------------------------------------


class Everything:
    def __contains__(self, name):
        return True


def test_public_names_have_docstrings():
    assert documentation_module("docstrings").undocumented(Everything()) == []


def test_an_undocumented_name_is_noticed(monkeypatch):
    import workbench.plots

    docstrings = documentation_module("docstrings")

    def bare_figure():
        pass

    class Half:
        """Documented, but for a method."""

        def bare(self):
            pass

    monkeypatch.setattr(workbench.plots, "bare_figure", bare_figure, raising=False)
    monkeypatch.setattr(workbench.plots, "Half", Half, raising=False)
    monkeypatch.setattr(
        workbench.plots, "__all__", [*workbench.plots.__all__, "bare_figure", "Half"]
    )
    assert docstrings.undocumented(Everything()) == [
        "workbench.plots.bare_figure has no docstring",
        "workbench.plots.Half.bare has no docstring",
    ]
    assert "workbench.plots.png is on no page of the reference" in docstrings.undocumented(())


def test_a_misplaced_field_is_noticed():
    misplaced = documentation_module("docstrings").misplaced_fields
    assert (
        misplaced(
            [
                "Does it.",
                "",
                ":param q: a share",
                "    of ``:param x:``.",
                ":raises Wrong: if.",
                "",
                "By X.",
            ]
        )
        == []
    )
    assert misplaced(["Does it. :param q: a share."]) == ["Does it. :param q: a share."]
    assert misplaced(["Does it.", "", ":param q: a. :return: b."]) == [":param q: a. :return: b."]
    assert misplaced(["Does it.", ":param q: a share."]) == [":param q: a share."]


def test_the_glossary_has_the_words_of_the_screen():
    from workbench.noise import mechanism
    from workbench.plots import style
    from workbench.privacy import accounting

    glossary = TEXTS["docs/glossary.md"].split("```{glossary}")[1].split("```")[0]
    terms = {line.strip() for line in glossary.splitlines() if line and not line.startswith(" ")}
    words = {
        *LAWS,
        *SENSITIVITY,
        *accounting.ACCOUNTANTS,
        *mechanism.CLIPPINGS,
        *style._MEANINGS,
        *NEIGHBOURS.values(),
        "epsilon",
        "delta",
        "noise multiplier",
        "clipping norm",
        "ELBO",
        "AUC",
        "log-likelihood",
        "record",
        "minibatch",
        "sampling rate",
        "guarantee",
        "ledger",
        "cap",
        "aligned",
        "vanilla",
        "neighbouring relation",
        "canary",
        "outlook",
        "sweep",
    }
    assert words - terms == set()


@pytest.mark.thorough
def test_the_table_of_random_allocation():
    """Each row of choosing_a_sampler.md, rounded up to the digits that it has."""
    rows = re.findall(
        r"^\| ([\d.]+) \| (\d+) \| ([\d.]+) \|((?: [\d.]+ \|){4}) ([\d.]+) % \|$",
        TEXTS["docs/choosing_a_sampler.md"],
        re.M,
    )
    assert len(rows) == 9
    for rate, epochs, sigma, numbers, less in rows:
        plan = {
            "sampling_rate": float(rate),
            "steps": round(int(epochs) / float(rate)),
            "delta": 1e-5,
        }
        samplers = ("poisson", "random_allocation")
        found = [
            wb.privacy.epsilon(sampler=name, noise_multiplier=float(sigma), **plan)
            for name in samplers
        ]
        noises = [
            wb.privacy.noise_multiplier(sampler=name, epsilon=1.0, **plan) for name in samplers
        ]
        for value, text in zip([*found, *noises], numbers.replace("|", " ").split(), strict=True):
            assert 0 <= float(text) - value < 1e-3, (rate, epochs, text, value)
        assert f"{100 * (1 - noises[1] / noises[0]):.1f}" == less


def test_the_table_of_epsilons():
    """Each row of choosing_epsilon_and_delta.md, rounded up to the digits that it has."""
    rows = re.findall(
        r"^\| ([\d.]+) \|(?: ([\d.]+) \|)(?: ([\d.]+) % \|)(?: ([\d.]+) % \|)(?: (\d+) % \|)$",
        TEXTS["docs/choosing_epsilon_and_delta.md"],
        re.M,
    )
    assert len(rows) == 6
    for epsilon, *written in rows:
        plan = {"sampling_rate": 0.1, "steps": 1000}
        sigma = wb.privacy.noise_multiplier(epsilon=float(epsilon), delta=1e-5, **plan)
        found = wb.privacy.trade_off(
            noise_multiplier=sigma, false_positive_rates=[0.01, 0.1], **plan
        )
        values = sigma, 100 * found[0], 100 * found[1], 100 * found[0] / (found[0] + 0.01)
        for value, text in zip(values, written, strict=True):
            step = 10.0 ** -len(text.partition(".")[2])
            assert 0 <= float(text) - value < step, (epsilon, text, value)


def cited(folders=("workbench", "models")):
    """(first author, year) of every work that the code names; years of data sets are not works."""
    pattern = re.compile(
        r"([A-Z][\wäöéü-]{2,})(?:,? (?:and )?[A-Z][\wäöéü-]+)*(?: et al\.)?,? \(?((?:19|20)\d\d)\b"
    )
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        if path.parent.name != "data":
            text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
            found |= set(pattern.findall(text))
    return found


def test_the_references_have_what_the_code_cites():
    references = TEXTS["docs/references.md"]
    lines = [line for line in references.splitlines() if line.startswith("|")]
    missing = [
        (author, year)
        for author, year in cited()
        if not any(author in line and f" {year}" in line for line in lines)
    ]
    assert missing == []
    numbers = {
        number
        for folder in ("workbench", "models")
        for path in (ROOT / folder).rglob("*.py")
        for number in re.findall(r"arXiv:?\s(\d{4}\.\d{4,5})", path.read_text(encoding="utf-8"))
    }
    assert len(numbers) > 5
    assert [number for number in numbers if number not in references] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_to_files_lead_somewhere(page):
    """Sphinx looks at those of the other pages."""
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_paths_that_are_named_exist():
    """Files of the repository, as CONTRIBUTING.md and the references name them."""
    contributing = set(
        re.findall(
            r"`((?:tests|docs|models|workbench|notebooks)/[\w/.]*)`", TEXTS["CONTRIBUTING.md"]
        )
    )
    contributing.remove("notebooks/NAME.ipynb")  # stands for any
    cells = {
        line.rsplit("|", 2)[1]
        for line in TEXTS["docs/references.md"].splitlines()
        if line.startswith("| ")
    }
    modules = {path for cell in cells for path in re.findall(r"`([\w/]+\.py|models/)`", cell)}
    assert len(contributing) > 10
    assert len(modules) > 10
    missing = [path for path in contributing if not (ROOT / path).exists()]
    missing += [
        path
        for path in modules
        if not any((root / path).exists() for root in (ROOT, ROOT / "workbench"))
    ]
    assert missing == []


def test_external_links_are_well_formed():
    """There is no network here: whether they still lead somewhere is ``make docs-links``'s
    to say.
    """
    links = {
        (page, link)
        for page, text in TEXTS.items()
        for link in re.findall(r"https?://[^\s)>\]\"`|]+", text)
    }
    assert len(links) > 20
    for page, link in sorted(links):
        parts = urlsplit(link)
        is_local = parts.hostname in ("localhost", "127.0.0.1")
        assert is_local or (parts.scheme == "https" and "." in (parts.hostname or "")), (
            f"{page}: {link}"
        )
        assert not link.endswith((".", ",", ";", ":")), f"{page}: {link}"


# ---- the built pages -----------------------------------------------------------------------------


def build(source, out):
    """Sphinx as ``make docs`` calls it, but notebooks are not executed."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-n",
        str(source),
        str(out),
    ]
    environment = {**os.environ, "DOCS_NOTEBOOKS": "off", "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of docs/ and notebooks/, built; of figures there are only places."""
    folder = tmp_path_factory.mktemp("documentation")
    shutil.copytree(
        DOCS,
        folder / "docs",
        ignore=shutil.ignore_patterns("_build", "_figures", "notebooks", "__pycache__"),
    )
    shutil.copytree(
        ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns("__pycache__")
    )
    (folder / "docs" / "_figures").mkdir()
    for name in documentation_module("figures").FIGURES:
        shutil.copy(
            ROOT / "notebooks" / "workbench.png", folder / "docs" / "_figures" / f"{name}.png"
        )
    done = build(folder / "docs", folder / "html")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.integration
def test_builds_without_a_warning(built):
    assert (built / "html" / "reference" / "privacy.html").is_file()


@pytest.mark.integration
def test_every_notebook_with_text_is_listed(built):
    listed = (built / "html" / "notebooks" / "index.html").read_text(encoding="utf-8")
    names = [
        path.stem
        for path in (ROOT / "notebooks").glob("*.ipynb")
        if '"markdown"' in path.read_text(encoding="utf-8")
    ]
    assert "quickstart" in names
    for name in names:
        assert f'href="{name}.html"' in listed, name


@pytest.mark.integration
def test_every_command_is_in_the_reference(built):
    page = (built / "html" / "reference" / "command_line.html").read_text(encoding="utf-8")
    names = next(action for action in parser()._actions if action.dest == "command").choices
    assert {"fit", "ledger", "app"} <= set(names)
    for name in names:
        assert f'id="workbench-{name}"' in page, name
    assert "cmdoption-workbench-ledger-cap-epsilon" in page


def test_every_figure_is_made_by_the_script():
    figures = set(documentation_module("figures").FIGURES)
    shown = {name for text in TEXTS.values() for name in re.findall(r"_figures/(\w+)\.png", text)}
    assert shown == figures


@pytest.mark.integration
def test_figures_are_made_alike_twice(tmp_path):
    figures = documentation_module("figures")
    names = list(figures.FIGURES)
    for folder in ("first", "second"):
        figures.make(tmp_path / folder, names)
    for name in names:
        first, second = (tmp_path / folder / f"{name}.png" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes(), name


@pytest.mark.integration
def test_broken_links_and_missing_names_fail(built, tmp_path):
    folder = tmp_path / "all"
    shutil.copytree(built, folder)
    (folder / "docs" / "broken.md").write_text(
        "---\norphan: true\n---\n# Broken\n\n[a page](nowhere.md) [a "
        "heading](glossary.md#no-such-heading) ![a figure](_figures/none.png) "
        "{py:func}`workbench.nothing` {term}`no such word`\n"
    )
    plots = folder / "docs" / "reference" / "plots.md"
    plots.write_text(plots.read_text().replace(".. autofunction:: workbench.plots.png\n", ""))
    failed = build(folder / "docs", folder / "html")
    assert failed.returncode != 0
    for problem in (
        "nowhere.md",
        "no-such-heading",
        "none.png",
        "workbench.nothing",
        "no such word",
        "workbench.plots.png is on no page of the reference",
    ):
        assert problem in failed.stderr, failed.stderr
