"""The gallery of models by name, and models of the user's own: registered, installed, or in
a file.
"""

import dataclasses
import functools
import os
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

import workbench as wb
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.models import Model, registry


def bare(x, y=None, num_records=None, prior_scale=1.0, intercept=True):
    """Probit regression
    of a binary target.

    Further paragraphs are not part of the summary.
    """
    weights = numpyro.sample(
        "weights", dist.Normal(0, prior_scale).expand([x.shape[-1]]).to_event(1)
    )
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(probs=_probability(x @ weights)), obs=y)


def _probability(score):
    return dist.Normal().cdf(score)


def factory(prior_scale=1.0):
    return Model("inner name", "A model.", bare, options={"prior_scale": prior_scale})


def other_factory():
    return Model("other", "Another model.", bare)


@pytest.fixture(autouse=True)
def same_gallery_afterwards(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(registry, "_warned", set())


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution on sys.path: its metadata and one module, as pip would leave them."""
    modules = []

    def put(name, points, module=None, source=""):
        folder = tmp_path / f"site of {name} {len(modules)}"
        metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[workbench.models]\n{textwrap.dedent(points)}")
        if module is not None:
            (folder / f"{module}.py").write_text(textwrap.dedent(source))
        modules.append(module)
        monkeypatch.syspath_prepend(folder)
        return folder

    yield put
    for module in modules:
        sys.modules.pop(module, None)


SOURCE = """
from workbench.models import Model

def model(x, y=None, num_records=None, scale=1.0): ...

def poisson(scale=1.0):
    return Model("poisson", "Counts.", model, options={"scale": scale})
"""


# ---- by name -------------------------------------------------------------------------------------


def test_gallery_lists_the_logistic_model():
    assert "logistic" in wb.models.names()


def test_every_listed_model_can_be_made_and_says_what_it_is():
    for name in wb.models.names():
        model = wb.models.get(name)
        assert model.name == name
        assert model.summary.endswith(".")


def test_unknown_name_offers_the_nearest():
    with pytest.raises(
        ArgumentError, match=r"^model='logistik': unknown name; did you mean 'logistic'"
    ) as caught:
        wb.models.get("logistik")
    assert caught.value.argument == "model"


def test_a_name_like_no_other_lists_what_there_is():
    with pytest.raises(ArgumentError, match=r"^model='zzz': unknown name; known: .*logistic"):
        wb.models.get("zzz")


@pytest.mark.parametrize("name", [3, None, ["logistic"]])
def test_a_name_that_is_no_text_is_unknown(name):
    for look_up in (wb.models.get, wb.models.origin):
        with pytest.raises(ArgumentError, match="unknown name"):
            look_up(name)


def test_options_reach_the_model():
    expected = {"prior_scale": 2.0, "prior": "laplace", "intercept": True}
    assert wb.models.get("logistic", prior_scale=2.0, prior="laplace").options == expected


def test_names_are_sorted():
    for name in ("zeta", "alpha"):
        wb.models.register(name, factory)
    listed = wb.models.names()
    assert listed == sorted(listed)
    assert {"zeta", "alpha", "logistic"} <= set(listed)


def test_built_in_models_need_no_look_at_what_is_installed(monkeypatch):
    def look():
        raise AssertionError("distributions were read")

    monkeypatch.setattr(registry.importlib.metadata, "distributions", look)
    wb.models.register("mine", factory)
    assert wb.models.get("mine").name == "mine"
    assert wb.models.get("logistic").name == "logistic"
    assert wb.models.origin("logistic") == "built-in"


# ---- registered in this session ------------------------------------------------------------------


def test_a_function_that_returns_a_model_can_be_registered():
    assert wb.models.register("mine", factory) is factory
    model = wb.models.get("mine", prior_scale=3.0)
    assert (model.name, model.model, model.options) == ("mine", bare, {"prior_scale": 3.0})
    assert wb.models.origin("mine") == "registered here"
    assert "mine" in wb.models.names()


def test_a_model_can_be_registered_as_it_is():
    wb.models.register("mine", factory(2.0))
    assert wb.models.get("mine").options == {"prior_scale": 2.0}
    assert wb.models.get("mine", prior_scale=3.0).options == {"prior_scale": 3.0}


def test_a_bare_numpyro_model_can_be_registered():
    wb.models.register("mine", bare)
    model = wb.models.get("mine", prior_scale=3.0)
    assert model.summary == "Probit regression of a binary target."
    assert (model.model, model.predict) == (bare, None)
    assert model.options == {"prior_scale": 3.0, "intercept": True}


@pytest.mark.parametrize("kind", ["function", "model", "numpyro"])
def test_an_unknown_option_is_named(kind):
    wb.models.register("mine", {"function": factory, "model": factory(), "numpyro": bare}[kind])
    with pytest.raises(
        ArgumentError, match=r"^prior_scael=1\.0: unknown option of 'mine'; known: prior_scale"
    ) as caught:
        wb.models.get("mine", prior_scael=1.0)
    assert caught.value.argument == "prior_scael"


def test_register_is_a_decorator_too():
    @wb.models.register("mine")
    def mine(x, num_records=None):
        """My model."""

    assert wb.models.get("mine").model is mine
    assert wb.models.get("mine").summary == "My model."


def test_running_a_cell_again_puts_the_new_function_in_place():
    cell = "def mine(x, num_records=None):\n    '{}.'\nregister('mine', mine)"
    for version in ("first", "second"):
        exec(cell.format(version), {"register": wb.models.register, "__name__": "__main__"})
    assert wb.models.get("mine").summary == "second."


def test_running_a_cell_with_a_model_object_again_puts_the_new_one_in_place():
    for summary in ("first.", "second."):
        wb.models.register("mine", Model("mine", summary, bare))
    assert wb.models.get("mine").summary == "second."


def test_a_name_is_not_taken_over_by_another_function():
    wb.models.register("mine", factory)
    with pytest.raises(
        ArgumentError,
        match=r"^name='mine': is the name of another .*model \(.*factory\).*replace=True",
    ) as caught:
        wb.models.register("mine", other_factory)
    assert caught.value.argument == "name"
    assert wb.models.get("mine").summary == "A model."


def test_functions_that_cannot_be_told_apart_do_not_replace_each_other():
    wb.models.register("mine", functools.partial(factory, prior_scale=1.0))
    with pytest.raises(ArgumentError, match="replace=True"):
        wb.models.register("mine", functools.partial(factory, prior_scale=2.0))


def test_a_name_is_taken_over_on_request():
    wb.models.register("mine", factory)
    wb.models.register("mine", other_factory, replace=True)
    assert wb.models.get("mine").summary == "Another model."


@pytest.mark.parametrize("replace", [False, True])
def test_a_built_in_name_is_never_taken_over(replace):
    with pytest.raises(ArgumentError, match=r"^name='logistic': .*built-in"):
        wb.models.register("logistic", factory, replace=replace)
    assert wb.models.get("logistic").model is not bare


@pytest.mark.parametrize(
    "name", ["", "two words", "a.b", "dir/file", "a:b", "-flag", "1st", "a\n", 3, None, factory]
)
def test_a_name_the_command_line_cannot_take_is_refused(name):
    with pytest.raises(ArgumentError) as caught:
        wb.models.register(name, factory)
    assert (caught.value.argument, caught.value.value) == ("name", name)


@pytest.mark.parametrize("name", ["jälkö", "gp_2", "two-level", "X"])
def test_ordinary_names_are_taken(name):
    wb.models.register(name, factory)
    assert wb.models.get(name).name == name


@pytest.mark.parametrize("value", [None, 3, "logistic", {"model": bare}])
def test_what_is_no_function_cannot_be_registered(value):
    with pytest.raises(ArgumentError, match=r"^factory=.*must be a Model, a function") as caught:
        wb.models.register("mine", value)
    assert caught.value.value == value
    assert "mine" not in wb.models.names()


def test_a_function_that_needs_an_option_is_refused_when_registered():
    with pytest.raises(
        ArgumentError, match=r"^factory='.*<lambda>': must work without arguments .* needs scale\."
    ):
        wb.models.register("mine", lambda *, scale: None)


def test_a_function_that_must_be_given_arrays_is_a_numpyro_model():
    def mine(x, y=None, scale=2.0):
        """Mine."""

    wb.models.register("mine", mine)
    model = wb.models.get("mine", scale=3.0)
    assert (model.model, model.options, model.summary) == (mine, {"scale": 3.0}, "Mine.")
    assert [(option.name, option.kind) for option in wb.models.options("mine")] == [
        ("scale", "number")
    ]


def test_a_numpyro_model_whose_option_has_no_default_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^factory='.*<lambda>': must have defaults for scale\."
    ):
        wb.models.register("mine", lambda x, num_records=None, *, scale: None)


def test_a_function_that_returns_no_model_is_told_when_asked():
    wb.models.register("mine", lambda: 3)
    with pytest.raises(
        ArgumentError, match=r"^model='mine': \(registered here\): its function returned int"
    ):
        wb.models.get("mine")


def test_a_function_that_fails_is_told_with_its_reason():
    def broken():
        raise KeyError("no such thing")

    wb.models.register("mine", broken)
    with pytest.raises(
        ArgumentError, match=r"^model='mine': .* cannot be made: KeyError: 'no such thing'\.$"
    ) as caught:
        wb.models.get("mine")
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_option_with_a_bad_value_is_told_as_the_function_tells_it():
    def picky(prior_scale=1.0):
        raise ArgumentError("prior_scale", prior_scale, "is too large.")

    wb.models.register("mine", picky)
    with pytest.raises(ArgumentError, match=r"^prior_scale=9: is too large"):
        wb.models.get("mine", prior_scale=9)


# ---- what a model needs not say ------------------------------------------------------------------


@pytest.mark.parametrize("part", ["model", "guide", "predict", "score", "check", "coordinates"])
def test_a_part_that_is_no_function_is_refused(part):
    with pytest.raises(ArgumentError, match=rf"^{part}=3: must be a function") as caught:
        dataclasses.replace(factory(), **{part: 3})
    assert caught.value.argument == part


@pytest.mark.parametrize(
    "guide", [None, AutoNormal, AutoMultivariateNormal, AutoMultivariateNormal(bare)]
)
def test_an_automatic_guide_is_made_anew_for_each_fit(guide):
    kind = AutoNormal if guide is None else guide if isinstance(guide, type) else type(guide)
    model = Model("mine", "A model.", bare, guide=guide)
    guides = [model.new_guide(), model.new_guide()]
    assert [type(made) for made in guides] == [kind, kind]
    assert guides[0] is not guides[1]
    assert guide not in guides


def test_a_guide_that_is_a_function_is_taken_as_it_is():
    assert Model("mine", "A model.", bare, guide=factory).new_guide() is factory


@pytest.mark.thorough
@pytest.mark.parametrize(
    "guide", [pytest.param(None, marks=pytest.mark.thorough), AutoMultivariateNormal(bare)]
)
def test_one_model_fits_data_of_different_shapes(private_data, guide):
    model = Model("mine", "A model.", bare, guide=guide)
    sizes = [
        fits.prepare(model, data, epsilon=1.0, iterations=20).step.model.shared_size
        for data in (wb.data.load("breast_cancer"), private_data)
    ]
    assert sizes == [30, 2]


@pytest.mark.parametrize("arrays", [lambda x, y: (x, y, y), lambda x, y: ()])
def test_data_with_another_number_of_arrays_are_refused(private_data, arrays):
    data = dataclasses.replace(private_data, train=arrays(*private_data.train))
    number = len(data.train)
    with pytest.raises(
        ArgumentError,
        match=rf"^data='clinic': has {number} array\(s\) per record, but the model takes x, y",
    ):
        factory().check(data)


@pytest.mark.parametrize(
    "model", [bare, lambda *records, num_records: None, lambda x, y, **options: None]
)
def test_data_that_fit_or_cannot_be_judged_are_accepted(private_data, model):
    Model("mine", "A model.", model).check(private_data)


def test_predictions_of_a_binary_target_are_scored_without_asking():
    scores = factory().score(np.array([0, 1, 1]), np.array([0.1, 0.8, 0.6]))
    assert scores["auc"] == 1.0
    assert scores["log_likelihood"] == pytest.approx(np.mean(np.log([0.9, 0.8, 0.6])))


def test_predictions_of_another_target_are_not_scored_without_asking():
    assert factory().score(np.array([0.5, 7.0]), np.array([0.1, 0.8])) == {}


@pytest.mark.thorough
def test_a_model_that_does_not_predict_is_judged_by_elbo_and_likelihood():
    wb.models.register("mine", bare)
    result = wb.fit("mine", "breast_cancer", epsilon=8.0, iterations=20, seed=1)
    assert list(result.metrics) == ["elbo", "log_likelihood"]
    assert np.all(np.isfinite(list(result.metrics.values())))
    assert (result.status, result.message, result.model) == ("done", "", "mine")
    assert result.model_options == {"prior_scale": 1.0, "intercept": True}
    assert "weights[29]" in result.summary_table().index


@pytest.mark.thorough
def test_a_model_that_predicts_is_scored_by_auc():
    model = dataclasses.replace(
        factory(), predict=lambda latents, x: _probability(jnp.dot(x, latents["weights"]))
    )
    result = wb.fit(model, "breast_cancer", epsilon=8.0, iterations=300, seed=1)
    assert set(result.metrics) == {"elbo", "auc", "log_likelihood"}
    assert result.metrics["auc"] > 0.9


# ---- installed distributions ---------------------------------------------------------------------


def test_a_distribution_offers_its_models_by_its_metadata_alone(install):
    install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", SOURCE)
    assert "poisson" in wb.models.names()
    assert wb.models.origin("poisson") == "count-models"
    assert "plugin_counts" not in sys.modules
    assert wb.models.get("poisson", scale=2.0).options == {"scale": 2.0}
    assert "plugin_counts" in sys.modules


@pytest.mark.parametrize("kind", ["model", "made"])
def test_a_distribution_may_offer_a_model_or_a_numpyro_model(install, kind):
    install(
        "count-models",
        f"counts = plugin_kinds:{kind}",
        "plugin_kinds",
        SOURCE + "\nmade = poisson()",
    )
    assert wb.models.get("counts").name == "counts"
    assert wb.models.get("counts", scale=3.0).options == {"scale": 3.0}


def test_a_model_of_another_group_is_none_of_ours(install):
    install("other", "[console_scripts]\npoisson = plugin_other:poisson")
    assert "poisson" not in wb.models.names()


@pytest.mark.parametrize(
    ("value", "source", "reason"),
    [
        ("plugin_a:nothing", "", "AttributeError: "),
        ("plugin_missing:poisson", None, "ModuleNotFoundError: No module named 'plugin_missing'"),
        (
            "plugin_b:x",
            "import no_such_dependency",
            "ModuleNotFoundError: No module named 'no_such_dependency'",
        ),
        (
            "plugin_c:x",
            "raise RuntimeError('first line\\nsecond')",
            "RuntimeError: first line second",
        ),
        ("plugin_d:x", "import sys; sys.exit(3)", "SystemExit: 3"),
        ("plugin_e:x", "x = 3", "must be a Model"),
        ("two words: x", "", ""),
    ],
)
def test_a_broken_distribution_is_named_with_its_reason_and_hides_no_other(
    install, value, source, reason
):
    install(
        "broken-models",
        f"broken = {value}",
        None if source is None else value.split(":")[0],
        source,
    )
    install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", SOURCE)
    assert {"broken", "poisson", "logistic"} <= set(wb.models.names())
    assert wb.models.get("poisson").summary == "Counts."
    with pytest.raises(ArgumentError) as caught:
        wb.models.get("broken")
    message = str(caught.value)
    assert message.startswith(
        f"model='broken': the distribution 'broken-models' declares it as {value}, which fails: "
    )
    assert reason in message
    assert "\n" not in message
    assert wb.models.origin("broken") == "broken-models"


def test_metadata_that_cannot_be_read_hide_no_other(install):
    install("damaged", "a line without an equals sign")
    install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", SOURCE)
    with pytest.warns(
        UserWarning, match="models of damaged are left out: its entry points cannot be read"
    ):
        assert {"poisson", "logistic"} <= set(wb.models.names())


@pytest.mark.parametrize(
    ("points", "text"),
    [
        (
            "logistic = plugin_counts:poisson",
            "'logistic' of greedy is left out: it has the name of a built-in model",
        ),
        (
            "two words = plugin_counts:poisson",
            "'two words' of greedy is left out: its name must be letters",
        ),
        ("a.b = plugin_counts:poisson", "'a.b' of greedy is left out"),
    ],
)
def test_an_unusable_name_is_left_out_with_one_warning(install, points, text):
    built_in = wb.models.get("logistic")
    install("greedy", points, "plugin_counts", SOURCE)
    with pytest.warns(UserWarning, match=text):
        listed = wb.models.names()
    assert listed.count("logistic") == 1
    assert points.split(" =")[0] not in set(listed) - {"logistic"}
    wb.models.names()  # says it once: a second warning would be an error here
    assert wb.models.get("logistic") == built_in
    assert wb.models.origin("logistic") == "built-in"


def test_of_two_distributions_the_first_on_the_path_has_the_name(install):
    install("second", "poisson = plugin_two:poisson", "plugin_two", SOURCE)
    install("first", "poisson = plugin_one:poisson", "plugin_one", SOURCE)
    with pytest.warns(
        UserWarning, match="'poisson' of second is left out: first has one of the same name"
    ):
        assert wb.models.origin("poisson") == "first"


def test_a_distribution_found_twice_counts_once(install):
    for _ in range(2):
        install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", SOURCE)
    assert wb.models.names().count("poisson") == 1


REGISTERING = SOURCE + "\nfrom workbench.models import register\nregister('poisson', poisson)"


def test_a_distribution_whose_module_registers_too_stays_the_origin(install):
    install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", REGISTERING)
    for _ in range(2):  # the first imports the module
        assert wb.models.get("poisson", scale=2.0).options == {"scale": 2.0}
        assert wb.models.origin("poisson") == "count-models"


def test_a_distribution_that_fails_leaves_no_model_behind(install):
    install(
        "count-models", "broken = plugin_counts:poisson", "plugin_counts", REGISTERING + "\n1 / 0"
    )
    with pytest.raises(ArgumentError, match="ZeroDivisionError"):
        wb.models.get("broken")
    assert "poisson" not in wb.models.names()


def test_what_is_registered_here_comes_before_what_is_installed(install):
    install("count-models", "poisson = plugin_counts:poisson", "plugin_counts", SOURCE)
    wb.models.register("poisson", factory)
    assert wb.models.origin("poisson") == "registered here"
    assert wb.models.get("poisson").model is bare
    assert wb.models.names().count("poisson") == 1


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    def write(source, name="my_model.py"):
        path = tmp_path / name
        path.write_text(SOURCE + textwrap.dedent(source))
        return path

    return write


def test_a_file_that_registers_its_model(file):
    path = file("from workbench.models import register\nregister('counts', poisson)")
    assert (wb.models.from_file(path).name, wb.models.from_file(str(path)).summary) == (
        "counts",
        "Counts.",
    )
    assert "counts" in wb.models.names()


def test_a_file_that_holds_its_model(file):
    assert wb.models.from_file(file("mine = same = poisson(3.0)")).options == {"scale": 3.0}
    assert "poisson" not in wb.models.names()


@pytest.mark.parametrize(
    ("name", "expected"), [("poisson", "poisson"), ("model", "model"), ("mine", "poisson")]
)
def test_anything_in_a_file_can_be_named(file, name, expected):
    path = file("mine = poisson(3.0)\nother = poisson(4.0)")
    made = wb.models.from_file(f"{path}:{name}")
    assert made.options == {"scale": 3.0 if name == "mine" else 1.0}
    assert made.name == expected


def test_a_registered_name_of_a_file_can_be_named(file):
    path = file(
        "from workbench.models import register\nregister('a-b', poisson)\nregister('c', model)"
    )
    assert wb.models.from_file(f"{path}:a-b").name == "a-b"


def test_a_changed_file_is_read_anew(file):
    for scale in (3.0, 4.0, 3.0):
        path = file(
            "from workbench.models import register\nregister('counts', poisson)\nmine = "
            f"poisson({scale})"
        )
        assert wb.models.from_file(f"{path}:mine").options == {"scale": scale}
    assert not list(path.parent.glob("__pycache__"))


def test_a_file_may_import_what_lies_beside_it(file, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in ("helper_beside", "colorsys"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    file("", "helper_beside.py")
    file("raise AssertionError('a file beside the model hid the standard library')", "colorsys.py")
    assert (
        wb.models.from_file(
            file("import helper_beside, colorsys\nmine = helper_beside.poisson()")
        ).name
        == "poisson"
    )
    sys.modules.pop("helper_beside")


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            "",
            "",
            "the file registers no model and holds none; choose one with {path}:NAME, where NAME "
            "is one of model, poisson",
        ),
        (
            "a = poisson(1.0)\nb = poisson(2.0)",
            "",
            "the file has several models; choose one with {path}:NAME, where NAME is one of a, b",
        ),
        ("", ":poison", "unknown name; did you mean 'poisson'"),
        ("mine = 3", ":mine", "must be a Model, a function that returns one"),
        ("def f(): return 3", ":f", r"\(.*\): its function returned int"),
        (
            "raise ValueError('bad\\nluck')",
            "",
            "the file fails in line 8: ValueError: bad luck\\.$",
        ),
        (
            "def helper():\n    1 / 0\nhelper()",
            "",
            "the file fails in line 9: ZeroDivisionError: division by zero",
        ),
        ("def f(:", "", "the file fails in line 8: SyntaxError: "),
        (
            "import no_such_thing",
            "",
            "the file fails in line 8: ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("exit(3)", "", "the file fails.*: SystemExit: 3"),
        ("\0", "", "the file fails.*: "),
        (
            "from workbench.models import register\nregister('logistic', poisson)",
            "",
            "name='logistic': is the name of a built-in",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_on_one_line(file, source, name, message):
    path = file(source)
    with pytest.raises(ArgumentError) as caught:
        wb.models.from_file(f"{path}{name}")
    assert caught.value.argument == "model"
    caught.match(message.format(path=path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path", ["nowhere.py", "nowhere.py:model", "", ".", "my_model.py:", "my_model.py:a b"]
)
def test_a_missing_file_is_refused(file, path):
    folder = file("").parent
    text = os.path.join(folder, path)
    with pytest.raises(ArgumentError, match="no such file") as caught:
        wb.models.from_file(text)
    assert caught.value.value == text


def test_a_file_that_fails_leaves_no_model_behind(file):
    path = file("from workbench.models import register\nregister('counts', poisson)\n1 / 0")
    modules = set(sys.modules)
    with pytest.raises(ArgumentError, match="ZeroDivisionError"):
        wb.models.from_file(path)
    assert "counts" not in wb.models.names()
    assert not {module for module in set(sys.modules) - modules if module.startswith("my_model")}


def test_a_definition_is_known_by_what_was_registered():
    assert registry.definition("logistic") is registry.definition("logistic")
    with pytest.raises(ArgumentError, match="logistik"):
        registry.definition("logistik")
