"""What all commands share: the parser, forms of values, options for settings of a fit, output and
Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, NoReturn

from workbench import _folders, _interrupt, _json, _validate
from workbench._validate import ArgumentError
from workbench.fitting.settings import AUTO, about, default_of

__all__ = [
    "DONE",
    "FAILED",
    "STOPPED",
    "UNUSABLE",
    "Options",
    "Parser",
    "add_all",
    "add_command",
    "add_json",
    "add_quiet",
    "add_settings",
    "bounds",
    "check_out",
    "in_options",
    "named_values",
    "number",
    "out_folder",
    "schema",
    "stopped_by_interrupt",
    "values_of",
    "written",
]

_MOST_BYTES = 2**25  # of a file with declarations
DONE, FAILED, UNUSABLE, STOPPED = 0, 1, 2, _interrupt.STOPPED  # exit codes


# {option: its help, and how it is read}
Options = dict[str, tuple[str, dict[str, Any]]]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with exit code 2. What begins like a negative number is a
    value, as in -1:1.

    Options must be spelt out: ``--no-p`` is not ``--no-privacy``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"allow_abbrev": False})
        self._negative_number_matcher = re.compile(r"^-[\d.]")

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")


def add_command(commands: Any, name: str, purpose: str, details: str = "") -> Any:
    """The parser of a command.

    :param commands: the parsers to which it is added.
    :param purpose: one line for the list of commands, with which the command's help begins.
    :param details: further sentences of the command's help.
    """
    description = f"{purpose[:1].upper()}{purpose[1:]}. {details}".strip()
    return commands.add_parser(name, help=purpose, description=description)


# ---- forms of values -----------------------------------------------------------------------------


def number(text: str) -> float:
    """A number as people write it: 2000, 1e-5 or 1/569. Whole numbers are exact."""
    with contextlib.suppress(
        ValueError
    ):  # also of thousands of digits, which are infinite as a float
        return int(text)
    numerator, _, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator) if denominator else float(numerator)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number.") from None


def _json_file(argument: str, text: str) -> Any:
    path = Path(text)
    if not path.is_file():
        raise ArgumentError(
            argument, text, "is no regular file." if path.exists() else "no such file."
        )
    try:
        return _json.loads(_folders.content(path, _MOST_BYTES))
    except OSError as error:
        raise ArgumentError(argument, text, f"cannot be read ({error.strerror}).") from None
    except RecursionError:
        raise ArgumentError(argument, text, "is nested too deeply.") from None
    except ValueError as error:
        raise ArgumentError(argument, text, f"cannot be read as JSON: {error}.") from None


def words(text: str) -> str:
    """The text of an argument, which is UTF-8 also where the locale knows no accents."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def bounds(texts: Sequence[str]) -> Any:
    """Declared bounds from ``LOW:HIGH`` for all features, ``FEATURE=LOW:HIGH`` for each, or one
    JSON file of pairs.
    """
    if len(texts) == 1 and texts[0].endswith(".json"):
        return _json_file("bounds", texts[0])
    declared = {}
    for text in map(words, texts):
        name, equals, pair = text.rpartition("=")
        low, colon, high = pair.partition(":")
        try:
            values = (float(low), float(high))
        except ValueError:
            colon = ""
        if not colon or (not equals and len(texts) > 1):
            raise ArgumentError(
                "bounds",
                text,
                "write FEATURE=LOW:HIGH for each feature, LOW:HIGH for all, or name a .json file.",
            )
        if not equals:
            return values
        if name in declared:
            raise ArgumentError("bounds", text, f"declares {name!r} twice.")
        declared[name] = values
    return declared


def schema(text: str) -> Any:
    """A declared schema from a JSON file: ``{"age": {"kind": "numeric", "low": 0, "high": 120},
    ...}``.
    """
    return _json_file("schema", text)


def named_values(
    texts: Sequence[str], option: str = "option", example: str = "prior_scale=2"
) -> dict[str, Any]:
    """``{name: value}`` from ``NAME=VALUE`` items. A value is read as JSON, or else taken as text.

    :param option: that has the items. :param example: of them.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ArgumentError(option, text, f"write NAME=VALUE, as in --{option} {example}.")
        if name in options:
            raise ArgumentError(option, text, f"sets {name!r} twice.")
        try:
            options[name] = _json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
        except ValueError as error:
            raise ArgumentError(option, text, f"cannot be read as JSON: {error}.") from None
        except RecursionError:
            raise ArgumentError(option, text, "is nested too deeply.") from None
    return options


_OVER_CAP = "To exceed it on purpose, which is recorded, give --over-cap REASON."
_OTHER_LEDGER = "Name another file with --ledger or $WORKBENCH_LEDGER"
_REMEDIES = {  # by code of an ``ArgumentError``
    "epsilon too large": "For public or made-up data, --no-privacy fits without noise.",
    "no epsilon": "Give --epsilon; for public or made-up data, --no-privacy fits without noise.",
    "without privacy": "For a private fit, leave out --no-privacy.",
    "over cap": _OVER_CAP,
    "cap relation": _OVER_CAP,
    "no folder": f"{_OTHER_LEDGER}.",
    "other devices": "Give --devices or --processes.",
    "declaration": "--bounds NAME=LOW:HIGH declares a number's range, and a file of --schema "
    'declares numbers as {"kind": "numeric", "low": 0, "high": 10}, '
    'optionally with "whole": true or "missing": true, categories as ["a", "b"] or {"kind": '
    '"categorical", "categories": ["0", "10"]}, optionally with "other": true, and yes or no '
    'as {"kind": "boolean"}.',
    "no records": "Name their file, as in --given FILE.csv.",
    "new groups": "With --new-groups a new group has an effect drawn from Normal(0, sd), and a "
    "missing one is a declared group at random.",
}


def in_options(error: ArgumentError) -> str:
    """The message of an error, with what to do in options of the command."""
    return error.worded(_REMEDIES)


# ---- output --------------------------------------------------------------------------------------


def check_out(out: str | None) -> None:
    """Refuse an output file whose folder does not exist."""
    if out is not None and not Path(out).expanduser().parent.is_dir():
        raise ArgumentError("out", out, "cannot write there.")


def out_folder(arguments: argparse.Namespace) -> Path | None:
    """The folder of ``--out``, which is new or empty; None without one."""
    from workbench.results.storage import check_folder

    return None if arguments.out is None else check_folder(arguments.out)


def written(text: str, out: str | None) -> None:
    """Write ``text`` to a file, or to standard output."""
    if out is None:
        try:
            text.encode(sys.stdout.encoding or "utf-8")
        except UnicodeEncodeError as error:
            letter = text[error.start]
            reason = (
                f"standard output is {error.encoding}, which has no {letter!a}: set "
                "PYTHONIOENCODING=utf-8."
            )
            raise ArgumentError("out", None, reason) from None
        sys.stdout.write(text)
        return
    try:
        Path(out).expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError("out", out, f"cannot write there ({error.strerror}).") from None
    sys.stderr.write(f"Saved: {out}\n")


# ---- Ctrl-C --------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_by_interrupt(words: str) -> Iterator[Callable[[], bool]]:
    """Print ``words`` at Ctrl-C instead of ending the process, and yield a function that says
    whether it was pressed.

    What epsilon is being spent on must be kept. Afterwards the command is at its end and Ctrl-C
    does nothing, where before it would have ended the process at once (``_interrupt``).
    """
    interrupted = threading.Event()

    def stop(*_: object) -> None:
        interrupted.set()
        sys.stderr.write(f"\n{words}\n")

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if previous is _interrupt.leave else previous)


# ---- options -------------------------------------------------------------------------------------


def add_all(command: argparse._ActionsContainer, options: Options) -> None:
    """The options of a table."""
    for option, (text, kind) in options.items():
        command.add_argument(option, help=text, **kind)


def values_of(arguments: argparse.Namespace, options: Iterable[str]) -> dict[str, Any]:
    """{argument: value} of options, by the names of either."""
    names = (option.removeprefix("--").replace("-", "_") for option in options)
    return {name: getattr(arguments, name) for name in names}


def _number_or_word(word: str) -> Callable[[str], Any]:
    return lambda text: text if text == word else number(text)


def add_settings(
    command: argparse._ActionsContainer, names: Iterable[str], **defaults: Any
) -> None:
    """Options for settings of a fit, as their table has them.

    :param defaults: of this command, by setting, where they are other than those of a fit.
    """
    for name in names:
        setting, default = about(name), defaults.get(name, default_of(name))
        required = default is MISSING
        default = None if required else default
        option, words = f"--{name.replace('_', '-')}", setting.phrase(default)
        if setting.check is _validate.flag:
            action: Any = argparse.BooleanOptionalAction if default is None else "store_true"
            command.add_argument(option, action=action, default=default, help=words)
        else:
            is_number = setting.range or setting.check is _validate.seed
            kind: Callable[[str], Any] = number if is_number else str
            if name == "clip":
                kind = _number_or_word(AUTO)
            command.add_argument(
                option,
                type=kind,
                default=default,
                required=required,
                help=words,
                metavar=setting.symbol.upper() or name.rpartition("_")[2].upper(),
            )


def add_json(command: argparse._ActionsContainer) -> None:
    """The option ``--json``."""
    command.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )


def add_quiet(command: argparse._ActionsContainer) -> None:
    """The option ``--quiet``."""
    command.add_argument("--quiet", action="store_true", help="show no progress bar")
