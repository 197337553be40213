"""The results of a fit: the guarantee, the posterior, pictures and files."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ipywidgets as widgets

from workbench import plots
from workbench._numbers import count
from workbench._validate import ArgumentError
from workbench.plots.metrics import in_words, score_name
from workbench.results.summaries import INTERVAL
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.latest import Latest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.data import Dataset
    from workbench.fitting.prepared import PreparedFit
    from workbench.privacy.guarantee import Guarantee
    from workbench.results.fit_result import FitResult

__all__ = [
    "PICTURES",
    "ResultPanel",
    "drawn",
    "ended",
    "guarantee_card",
    "picture_of",
    "pictures_of",
    "posterior_table",
    "promise_card",
    "written",
]

_IN_FOLDER = {
    "report (HTML page)": ("report.html", "text/html"),
    "posterior draws (NetCDF, for ArviZ)": ("posterior.nc", "application/x-netcdf"),
    "parameters (NumPy .npz)": ("params.npz", "application/octet-stream"),
    "settings and guarantee (JSON)": ("result.json", "application/json"),
    "everything (zip)": ("result.zip", "application/zip"),
}
PICTURES = {
    "picture (PNG)": ("png", "image/png"),
    "picture (SVG)": ("svg", "image/svg+xml"),
    "picture (PDF)": ("pdf", "application/pdf"),
}
T = TypeVar("T")
_PICTURE_WIDTH = 700
_NAMED = 2  # coefficients in a sentence
_NOTHING_LEARNT = markup.fact("Learnt", "Nothing yet")
_NO_GUARANTEE = "The guarantee of a fit appears here when it has ended."
_NO_POSTERIOR = "The posterior summary of a fit appears here when it has ended."
_SETS = 30  # of twins
_TWINS = (
    f"Twins are {_SETS} synthetic tables for people who may not see the records. They do the same "
    "analysis of each, and wb.combine makes one answer, whose intervals count the privacy noise. "
    "Twins cost no further privacy."
)
_LARGEST_LINK = 20 * 2**20  # bytes; a link embeds the whole file in the page


def _row(*parts: widgets.Widget) -> widgets.HBox:
    """Buttons, which keep their width, and what they did."""
    *buttons, outcome = parts
    for button in buttons:
        button.layout.flex = "0 0 auto"
    outcome.layout.flex, outcome.layout.min_width = "1 1 200px", "0"
    return widgets.HBox(parts, layout=widgets.Layout(flex_flow="row wrap"))


def _button(label: str, icon: str, tooltip: str, press: Callable[[], None]) -> Any:
    """A button that waits for a result."""
    return fields.button(label, press, tooltip, icon=icon, disabled=True, layout={"width": None})


class ResultPanel:
    """What was learnt and promised in a line each, warnings, guarantee, posterior, pictures and
    export, which the screen displays in different places.
    """

    def __init__(self) -> None:
        self._result: Any = None
        self._dataset: Any = None
        self._latest, self._files = Latest("dpvi-pictures"), Latest("dpvi-files")
        self.warnings = fields.line()
        self.learnt, self.promised = widgets.HTML(_NOTHING_LEARNT), fields.line()
        self.guarantee = widgets.HTML(markup.quiet(_NO_GUARANTEE))
        self.posterior = widgets.HTML(markup.quiet(_NO_POSTERIOR))
        self.picture = fields.choice("picture", "picture", [("none yet", "")], "")
        self.drawing = widgets.HTML()
        self.image = widgets.HTML()
        self.pictures = widgets.VBox([self.picture.view, self.drawing, self.image])
        self.kind = fields.choice("file", "file", [*_IN_FOLDER, *PICTURES], next(iter(_IN_FOLDER)))
        self.make = _button("Make file", "download", "Make a file to download", self._make_file)
        self.link = widgets.HTML()
        self.folder = fields.text(
            "folder",
            "folder",
            "runs/mine",
            help="On the kernel's machine. wb.load reads the result from there.",
        )
        self.save = _button("Save", "save", "Save all files into the folder", self._save)
        self.publish = _button(
            "Release",
            "certificate",
            "Write a folder, or a file that ends in .zip, that a reviewer can check",
            self._publish,
        )
        self.saved = widgets.HTML()
        self.twins = _button(
            "Save twins",
            "clone",
            "Save synthetic tables and a README into the folder whose name ends in _twins",
            self._save_twins,
        )
        self.twins_saved = widgets.HTML()
        self.code = widgets.HTML()
        self.cells = widgets.HTML()
        self.export = widgets.VBox(
            [
                widgets.HTML(markup.heading("Files")),
                self.kind.view,
                _row(self.make, self.link),
                self.folder.view,
                _row(self.save, self.publish, self.saved),
                widgets.HTML(markup.quiet(_TWINS)),
                _row(self.twins, self.twins_saved),
                widgets.HTML(markup.heading("Code")),
                self.code,
                self.cells,
            ]
        )
        self.picture.on_change(self._ask_for_picture)

    @property
    def says_what_ended(self) -> bool:
        """Whether the last fit's promise is shown."""
        return bool(self.promised.value)

    def show_code(self, call: str, cells: str) -> None:
        """The code that repeats what the controls say, as one call and as notebook cells."""
        self.code.value = markup.fold(
            "Copy as code", markup.code_box(f"import workbench as wb\n{call}")
        )
        self.cells.value = markup.fold(
            "Copy as cells for a notebook or a .py file", markup.code_box(cells)
        )

    def clear(self) -> None:
        """Remove the results of the last fit, because a new one begins."""
        self._result = self._dataset = None
        self.guarantee.value, self.posterior.value = (
            markup.quiet(_NO_GUARANTEE),
            markup.quiet(_NO_POSTERIOR),
        )
        self.picture.control.options = [("none yet", "")]
        for line in (self.drawing, self.link, self.saved, self.twins_saved, self.image):
            line.value = ""
        for line in (self.warnings, self.promised):
            fields.say(line, "")
        self.learnt.value = _NOTHING_LEARNT
        for button in (self.make, self.save, self.publish, self.twins):
            button.disabled = True

    def show_reached(self, prepared: PreparedFit, metrics: Mapping[str, Any], steps: int) -> None:
        """After the last step, show what is known before the posterior is drawn."""
        score = _score(metrics, prepared.data.evaluation_label)
        self.learnt.value = markup.fact("Learnt", score, "The posterior is being drawn.")
        self._promise(prepared.guarantee(steps))

    def mark(self, *, is_old: bool) -> None:
        """Fade pictures that are of another model or of other records than are chosen."""
        fields.set_style(self.image, "dpvi-old", is_old)

    def _promise(self, guarantee: Guarantee) -> None:
        fields.say(self.promised, promise_card("Promised", guarantee))

    def show_ahead(self, verdict: str) -> None:
        """Before a fit, show what can be learnt. :param verdict: on the noise of the plan."""
        if not self.says_what_ended:
            self.learnt.value = markup.fact("Learnt", "Nothing yet", verdict)

    def show(
        self,
        result: FitResult,
        dataset: Dataset | None,
        cautions: tuple[str, ...],
        spent: str = "",
        *,
        number: int = 0,
    ) -> None:
        """Show ``result``.

        :param dataset: whose evaluation records pictures may show beside the release; None for the
            fit's public ones.
        :param cautions: about the fit's settings.
        :param spent: what the ledger says after the fit.
        :param number: of the fit on this screen.
        """
        self._result, self._dataset = result, dataset
        fields.say(self.warnings, "".join(map(markup.problem, result.cautions)))
        self.learnt.value = markup.fact("Learnt", *_learnt_in_brief(result))
        self._promise(result.guarantee)
        self.guarantee.value = guarantee_card(result, cautions, spent, number)
        self.posterior.value = posterior_table(result)
        for button in (self.make, self.save, self.publish, self.twins):
            button.disabled = False
        self.picture.control.options = pictures_of(result) or [("none", "")]
        self._ask_for_picture()

    def _ask_for_picture(self) -> None:
        result, name = self._result, self.picture.value
        if result is None or not name:
            return
        dataset = self._dataset
        self.drawing.value = markup.quiet(f"drawing {name}...")

        def done(picture: str | Exception) -> None:
            if isinstance(picture, Exception):
                self.drawing.value, self.image.value = (
                    markup.problem(f"{name} cannot be drawn: {picture}"),
                    "",
                )
            else:
                self.image.value = markup.scrolls(picture, name, "overflow-x:auto")
                self.drawing.value = ""

        self._ask(self._latest, lambda: picture_of(result, name, dataset), done)

    def _ask(
        self, latest: Latest, work: Callable[[], T], done: Callable[[T | Exception], None]
    ) -> None:
        """Ask ``latest`` for ``work`` on the result that is shown now; nothing is done with what it
        makes once another is shown.
        """
        result = self._result
        latest.ask(work, lambda made: done(made) if result is self._result else None)

    def _make_file(self) -> None:
        kind, result = self.kind.value, self._result
        if result is None:
            return
        build: Callable[[], tuple[str, bytes, str]]
        if kind in PICTURES:
            form, media = PICTURES[kind]
            name, dataset = self.picture.value or "curves", self._dataset
            build = lambda: (f"{name}.{form}", drawn(result.plot(name, dataset), form), media)  # noqa: E731
        else:
            file, media = _IN_FOLDER[kind]
            build = lambda: (file, _file_of(result, file), media)  # noqa: E731
        self.link.value = markup.quiet("making the file...")

        def done(made: tuple[str, bytes, str] | Exception) -> None:
            if isinstance(made, Exception):
                self.link.value = markup.problem(f"The file cannot be made: {made}")
            elif len(made[1]) > _LARGEST_LINK:
                self.link.value = markup.problem(
                    f"{made[0]} is too large to download ({len(made[1]) / 2**20:.0f} MiB): save "
                    "it into a folder instead."
                )
            else:
                name, content, media = made
                size = f"{count(max(1, len(content) // 1024))} KiB"
                self.link.value = markup.download(f"Download {name} ({size})", name, content, media)

        self._ask(self._files, build, done)

    def _path(self) -> Path | None:
        """Where to write; None, with an error beside the field, if nothing is typed."""
        self.folder.show_error("")
        if self._result is None:
            return None
        if not self.folder.value.strip():
            self.folder.show_error("type the name of a folder.")
            return None
        return Path(self.folder.value).expanduser()

    def _save(self) -> None:
        path = self._path()
        if path is None:
            return
        try:
            self._say_saved(self._result.save(path))
        except (ArgumentError, OSError) as error:
            self._say_saved(error)

    def _publish(self) -> None:
        """Write the release that ``wb.verify`` checks, in the background."""
        from workbench.releases import release

        path, result = self._path(), self._result
        if path is None:
            return
        self.saved.value = markup.quiet("writing the release...")
        self._ask(self._files, lambda: release(result, path, ledger=result.ledger), self._say_saved)

    def _say_saved(self, made: Path | Exception) -> None:
        self.saved.value = (
            markup.quiet(f"saved in {made.resolve()}") if isinstance(made, Path) else ""
        )
        if isinstance(made, ArgumentError) and made.argument != "out":
            self.folder.show_error(made.expectation)
        elif isinstance(made, ArgumentError):
            self.folder.show_error(f"{made.expectation.rstrip('.')}; choose another folder.")
        elif isinstance(made, OSError):
            reason = made.strerror or made
            self.folder.show_error(f"cannot write there ({reason}); choose another folder.")
        elif isinstance(made, Exception):
            self.folder.show_error(f"cannot be written: {made}")

    def _save_twins(self) -> None:
        """Write twins of as many rows as there are records beside the folder of the result."""
        result, name = self._result, self.folder.value.strip()
        self.folder.show_error("" if name else "type the name of a folder.")
        if result is None or not name:
            return
        self.twins_saved.value = markup.quiet("drawing the tables...")

        def save() -> tuple[Path, list[str]]:
            from workbench.results.twins import Twins

            twins = Twins(result, _SETS, result.settings["num_records"], None, None)
            return twins.save(Path(f"{name}_twins").expanduser()), twins.cautions

        def done(saved: tuple[Path, list[str]] | Exception) -> None:
            if isinstance(saved, Exception):
                self.twins_saved.value = markup.problem(f"Twins cannot be saved: {saved}")
            else:
                cautions = "".join(map(markup.problem, saved[1]))
                self.twins_saved.value = markup.quiet(f"saved in {saved[0]}") + cautions

        self._ask(self._files, save, done)

    def close(self) -> None:
        """Stop drawing and forget the result."""
        self._latest.close()
        self._files.close()
        self._result = self._dataset = None


def pictures_of(result: FitResult) -> list[str]:
    """Names of a result's pictures but its curves, those of its model first."""
    names = [name for name in result.pictures if name != "curves"]
    first = (
        [name for name in result.definition.pictures if name in names]
        if result.definition is not None
        else []
    )
    return [*first, *(name for name in names if name not in first)]


def picture_of(result: FitResult, name: str, dataset: Dataset | None = None) -> str:
    """A picture of a result in the page's theme, as HTML. :param dataset: as
    of ``FitResult.plot``.
    """
    figure = result.plot(name, dataset)
    has_images = any(axes.get_images() for axes in figure.axes)
    return markup.image(
        plots.svg(figure), f"picture: {name}", _PICTURE_WIDTH, is_drawn=not has_images
    )


def drawn(figure: Figure, form: str) -> bytes:
    """A figure as a file: "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form)
    return buffer.getvalue()


def _file_of(result: FitResult, name: str) -> bytes:
    """One of the files that ``result.save`` writes, or all of them as "result.zip"."""
    with tempfile.TemporaryDirectory() as directory:
        folder = result.save(Path(directory, "result"))
        if name == "result.zip":
            return Path(
                shutil.make_archive(str(Path(directory, "packed")), "zip", folder)
            ).read_bytes()
        return Path(folder, name).read_bytes()


def ended(result: FitResult) -> str:
    """How a fit ended, in the words of buttons."""
    return "stopped" if result.status == "cancelled" else str(result.status)


def written(result: FitResult, cautions: tuple[str, ...], spent: str) -> tuple[str, str]:
    """(title, HTML) of a fit as output that needs no widgets."""
    run = f"{result.model} on {result.data['name']}, {ended(result)}, {result.guarantee.label()}"
    curves = plots.png(result.plot("curves")) if result.history else b""
    picture = markup.image(curves, "ELBO and a score over steps", 700) if curves else ""
    return run, picture + guarantee_card(result, cautions, spent) + posterior_table(result)


def guarantee_card(
    result: FitResult, cautions: tuple[str, ...], spent: str = "", number: int = 0
) -> str:
    """The guarantee's statement, what the ledger says after the fit, and cautions about the
    settings.
    """
    which = f"fit {number}: " if number else ""
    title = (
        f"Guarantee of {which}{result.model} on {result.data['name']}, {result.guarantee.label()}"
    )
    paragraphs = result.guarantee.statement().split("\n\n")
    return markup.card(title, [*paragraphs, *filter(None, [spent])], cautions)


def promise_card(title: str, guarantee: Guarantee) -> str:
    """What a guarantee promises, in two lines."""
    bound = guarantee.label(with_delta=True)
    if guarantee.is_private:
        bound += f" per {guarantee.unit}"
    request = guarantee.asked_for
    reason = f"{request}, more than rounding leaves room for. " if request else ""
    return markup.fact(title, bound, reason + guarantee.in_brief())


def _learnt_in_brief(result: FitResult) -> tuple[str, str]:
    """(the score or what became of the fit, what the release tells of coefficients)."""
    if result.status == "failed":
        return "The fit failed", "Try a smaller learning rate or C, or a larger epsilon."
    score = _score(result.metrics, result.metrics_label, result.metric_intervals)
    return score, _clear_of_zero(result)


def _score(
    metrics: Mapping[str, Any],
    label: str,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """The score, with its interval if it has one and the label of its evaluation records, or why
    there is none.
    """
    score = in_words(metrics, (score_name(metrics) or "elbo",), intervals)
    if score:
        return f"{score[0]}: {label}"
    return "No score" if label == "public data" else "No score: no public evaluation records"


def _clear_of_zero(result: FitResult) -> str:
    """In a sentence, which coefficients of a regression the release tells apart from zero, all at
    once; for others, where to look.
    """
    from workbench.results.coefficients import ranked

    coefficients = ranked(result, INTERVAL)
    if not coefficients or result.interval_warning:
        return (
            "Posterior shows what the release says about each quantity."
            if result.draws
            else "Pictures show the fit."
        )
    has_other = any(coefficient.name.endswith("=(other)") for coefficient in coefficients)
    remark = " (other): levels of too few records to show." if has_other else ""
    names = [coefficient.name for coefficient in coefficients if coefficient.is_clear]
    if not names:
        return f"None is jointly clear of zero ({result.release_label}).{remark}"
    more = f", {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    signs = "all signs" if len(names) > 1 else "sign"
    return (
        f"Clear of zero: {', '.join(names[:_NAMED])}{more} "
        f"({signs} right: {100 * INTERVAL:g} %; {result.release_label}).{remark}"
    )


def posterior_table(result: FitResult) -> str:
    """A summary of the posterior with its label and, if intervals are too narrow, a warning."""
    from workbench.results.report import summary_rows

    label = (
        "covered by the guarantee" if result.release_label == "covered" else result.release_label
    )
    clipping = "" if result.gradient_norms is None else markup.quiet(result.gradient_norms.words())
    if not result.draws:
        return f"<div>{markup.badge(label)}</div>{clipping}" + markup.quiet(
            "This model has no global latent variables to summarise. What was learnt are network "
            "parameters, which are in the files. Its pictures show what they do."
        )
    caption = (
        f"Posterior mean, sd and {100 * INTERVAL:g} % highest-density interval. "
        f"{result.interval_words}"
    )
    columns = [
        "quantity",
        "mean",
        "sd",
        "low",
        "high",
        *(["noise sd"] if result.posterior_kind == "variational" else ()),
    ]
    return (
        f"<div>{markup.badge(label)}</div>{markup.problem(result.doubts)}"
        f"{markup.quiet(caption)}{clipping}"
        f"{_scrolling(markup.table(columns, summary_rows(result)))}{_in_own_units(result)}"
    )


def _scrolling(table: str) -> str:
    return markup.scrolls(table, "posterior", "max-height:360px;overflow:auto;max-width:46em")


def _in_own_units(result: FitResult) -> str:
    """A fold with a regression's coefficients in the columns' own units; "" for other models."""
    from workbench.results.report import coefficient_rows

    head, rows = coefficient_rows(result)
    return (
        markup.fold("In the units of the columns", _scrolling(markup.table(head, rows)))
        if rows
        else ""
    )
