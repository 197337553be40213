"""The files of a released folder, which may be damaged or forged, as checks read them."""

from __future__ import annotations

import functools
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from workbench import _folders, _json
from workbench._schema import FormError, listed, mapped, number, optional, record, text, whole
from workbench._validate import ArgumentError, in_one_line
from workbench.privacy.guarantee import Guarantee
from workbench.releases.excerpt import total_in_words
from workbench.releases.journal import MOST_BYTES, PLAIN_NAME
from workbench.releases.signing import SIGNATURE
from workbench.releases.tables import INDEX, REPORT, Tables
from workbench.results import FitResult, load

__all__ = [
    "BARE_NOTEBOOK",
    "CLAIM",
    "DATA",
    "DEPLOYMENT",
    "DESCRIPTION",
    "LEDGER",
    "MANIFEST",
    "NOTEBOOK",
    "REPORT",
    "REQUIREMENTS",
    "SCRIPT",
    "STATEMENT",
    "Contents",
    "Gap",
]

MANIFEST, STATEMENT, LEDGER = "manifest.json", "statement.txt", "ledger.json"
SCRIPT, CLAIM = "check_epsilon.py", "claim.html"
DATA, REQUIREMENTS = "data.yaml", "requirements.txt"
NOTEBOOK, BARE_NOTEBOOK = "notebook.ipynb", "notebook_without_outputs.ipynb"
DEPLOYMENT, DESCRIPTION = "deployment.yaml", "description.yaml"

_ROW = {
    **dict.fromkeys(("number", "planned"), whole()),
    **dict.fromkeys(("key", "dataset", "unit", "model", "status", "version", "chain"), text()),
    **dict.fromkeys(("rule", "began"), text()),
    "taken": optional(whole()),
    "ended": optional(text()),
    "guarantee": mapped(lambda *_: None),
}
_TOTAL = {
    "epsilon": optional(number(at_least=0)),
    "delta": number(above=0, below=1),
    **dict.fromkeys(("relation", "method"), text()),
    "fits": whole(),
}
_LEDGER = {"format": whole(1, 1), "key": text(), "fits": listed(record(_ROW))}
_FORMS = {
    MANIFEST: record({"format": whole(1, 1), "workbench": text(), "files": mapped(text())}),
    SIGNATURE: record({"format": whole(1, 1), "key": text(), "signature": text()}),
    LEDGER: record({**_LEDGER, "total": record(_TOTAL)}),
}


class Gap(Exception):
    """Why a check cannot be made: a file that it needs is missing or cannot be read."""


class Contents:
    """A released folder. What cannot be read raises ``Gap``, with a sentence that names the file.

    :param folder: that ``workbench.release`` wrote.
    :param signer: the public key of who should have signed it; None for anybody or nobody.
    """

    def __init__(self, folder: Path, signer: str | None = None) -> None:
        self.folder, self.signer = folder, signer

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The names of what is in the folder, but for hidden files of file managers."""
        return frozenset(path.name for path in self.folder.iterdir() if path.name[0] != ".")

    @functools.cached_property
    def irregular(self) -> list[str]:
        """Links and folders, which no release has."""
        return [path.name for path in self.folder.iterdir() if path.is_symlink() or path.is_dir()]

    @functools.cache  # noqa: B019
    def bytes_of(self, name: str) -> bytes:
        """The content of a file."""
        if not PLAIN_NAME.fullmatch(name):
            raise Gap(f"{name!r} is no plain name of a file.")
        if name in self.irregular:
            raise Gap(f"{name} is no file.")
        try:
            return _folders.content(self.folder / name, MOST_BYTES)
        except FileNotFoundError:
            raise Gap(f"{name} is missing.") from None
        except OSError as error:
            raise Gap(f"{name} cannot be read ({error.strerror}).") from None

    def text_of(self, name: str) -> str:
        """The content of a file of text."""
        try:
            return self.bytes_of(name).decode("utf-8")
        except UnicodeDecodeError:
            raise Gap(f"{name} is no text in UTF-8.") from None

    def values_of(self, name: str) -> dict[str, Any]:
        """The values in a JSON file, in the form that such a file has."""
        try:
            values = _json.loads(self.bytes_of(name))
            _FORMS.get(name, mapped(lambda *_: None))("", values)
        except FormError as error:
            raise Gap(f"{name} is damaged: {error}") from None
        except (ValueError, RecursionError) as error:
            raise Gap(f"{name} is no JSON ({type(error).__name__}).") from None
        return values

    @functools.cached_property
    def index(self) -> dict[str, Any]:
        """The values in result.json."""
        return self.values_of(INDEX)

    @functools.cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee in result.json, whatever else is wrong there."""
        try:
            return Guarantee.from_dict(self.index.get("guarantee", {}))
        except FormError as error:
            raise Gap(f"result.json is damaged: guarantee.{error}") from None

    @functools.cached_property
    def result(self) -> FitResult | Tables:
        """The result in the folder."""
        if self.irregular:
            raise Gap(f"{self.irregular[0]} is a hidden folder or a link.")
        try:
            return Tables.from_index(self.index) if "kind" in self.index else load(self.folder)
        except FormError as error:
            raise Gap(f"{INDEX} is damaged: {error}") from None
        except ArgumentError as error:
            raise Gap(in_one_line(error.expectation)) from None

    @property
    def entry(self) -> str:
        """The registry's entry that follows from the result, the answers and the ledger's part."""
        # here, because it imports all kinds of results
        from workbench.releases.registry import deployment, text_of

        spent = total_in_words(self.values_of(LEDGER)) if LEDGER in self.names else ""
        try:
            entry = deployment(self.result, self.folder / DESCRIPTION, spent=spent)
        except ArgumentError as error:
            raise Gap(f"{DESCRIPTION}: {in_one_line(str(error))}") from None
        return text_of(entry)

    @functools.cached_property
    def report(self) -> Page:
        """The report."""
        page = Page()
        page.feed(self.text_of(REPORT))
        page.close()
        return page


class Page(HTMLParser):
    """The text of a page, without what is in styles.

    :ivar blocks: of cells and paragraphs, with single spaces.
    :ivar programs: what a browser would run or fetch, which no report of ours has.
    """

    _INLINE = frozenset(("strong", "em", "i", "span", "b", "code"))
    _PROGRAMS = frozenset(("script", "iframe", "object", "embed", "link", "form", "base"))

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self.programs: set[str] = set()
        self._pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """End a block where another begins."""
        handlers = {name for name, _ in attrs if name.startswith(("on", "http-equiv"))}
        self.programs |= handlers | ({tag} & self._PROGRAMS)
        if tag not in self._INLINE:
            self._end()

    def handle_endtag(self, tag: str) -> None:
        """End a block."""
        if tag == "style":
            self._pieces.clear()
        if tag not in self._INLINE:
            self._end()

    def handle_data(self, data: str) -> None:
        """Add to the block."""
        self._pieces.append(data)

    def close(self) -> None:
        """End the last block."""
        super().close()
        self._end()

    def _end(self) -> None:
        block = " ".join("".join(self._pieces).split())
        self._pieces.clear()
        if block:
            self.blocks.append(block)
