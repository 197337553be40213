"""What owners and coordinator agree on before anything is computed, and what follows from it."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from workbench import _schema, _validate
from workbench._numbers import upper
from workbench._validate import ArgumentError
from workbench.data import Schema
from workbench.data.look import Look, scales_form
from workbench.fitting.fits import planned_of
from workbench.fitting.one_shot import STATISTICS, OneShot
from workbench.fitting.settings import AUTO
from workbench.owners import files
from workbench.owners.agreements import (
    LOOK,
    SETTINGS,
    against_another_owner,
    agreement,
    blank_of,
    request_of,
    side_of,
)
from workbench.owners.shares import Shares
from workbench.privacy.plan import default_delta

__all__ = ["Plan", "as_plan", "plan", "read_plan"]

_FORM = _schema.record(
    {
        "model": _schema.text(empty=False),
        "options": _schema.mapped(_schema.anything),
        "schema": _schema.mapped(_schema.mapped(_schema.anything)),
        "owners": _schema.listed(_schema.text(empty=False)),
        "colluders": _schema.whole(),
        "epsilon": _schema.number(above=0),
        "delta": _schema.number(above=0, below=1),
        "num_records": _schema.whole(at_least=2),
        "settings": _schema.mapped(_schema.anything),
        "name": _schema.text(empty=False),
        "counts_with": _schema.text(),
    }
)


@dataclass(frozen=True)
class Plan:
    """What is fitted to whose records, and what it may cost; public. Made by ``plan``.

    >>> schema = {"days": (0, 30), "age": (18, 90)}
    >>> terms = {"epsilon": 1.0, "num_records": 3000}
    >>> plan = wb.owners.plan(
    ...     "days ~ age", schema=schema, owners=["Bern", "Cork"], **terms
    ... )
    >>> plan.owners, len(plan.digest)
    (('Bern', 'Cork'), 64)

    :param model: a formula, or the name of a model of a whole table.
    :param options: of the model. :param schema: of its columns, as ``Schema.to_dict`` has it.
    :param owners: their names. :param colluders: c, how many may tell others what noise they added.
    :param num_records: an upper bound on the records of all owners together, public.
    :param settings: of the fit, as of ``wb.fit``: its estimator, and where that takes steps
        iterations, sampling_rate, clip and learning_rate; and ``look``, scales that were learned.
    :param name: one that no other plan has.
    :param counts_with: of an earlier look, with which ledgers count the plan together; "" for none.
    """

    model: str
    options: Mapping[str, Any]
    schema: Mapping[str, Any]
    owners: tuple[str, ...]
    colluders: int
    epsilon: float
    delta: float
    num_records: int
    settings: Mapping[str, Any]
    name: str
    counts_with: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the whole plan, 64 hexadecimal digits, which all keys and sums name."""
        return files.digest_of(self._content())

    def _content(self) -> dict[str, Any]:
        return {**asdict(self), "owners": list(self.owners)}

    @property
    def shares(self) -> Shares:
        """How the noise is divided."""
        return Shares.checked(len(self.owners), self.colluders)

    @property
    def rounds(self) -> int:
        """How many sums each owner releases: the steps of the fit, or 1."""
        rounds: int = self.settings.get("iterations", 1)
        return rounds

    def question(self) -> str:
        """What an owner is asked, in words. :raises ArgumentError: where it cannot be done so."""
        times = "one release" if self.rounds == 1 else f"{self.rounds} releases"
        numbers = "counts of the columns" if self.model == LOOK else "sums"
        earlier = " Their scales were learned by an earlier look." * bool(self.settings.get("look"))
        return (
            f"{self.model}: {times} of {numbers} over the records of {', '.join(self.owners)}, at "
            f"most {self.num_records} together. It costs each owner epsilon = "
            f"{upper(self.epsilon)}, delta = {upper(self.delta)}. {self._against_owners} Columns: "
            f"{', '.join(self.schema)}; the plan has their ranges and levels.{earlier}"
        )

    @functools.cached_property
    def _against_owners(self) -> str:
        """What the promise is against those who know a part of the noise."""
        if self.colluders == 1:
            return (
                "This also holds against each of the other owners, who knows the noise that it "
                "added, even together with the coordinator."
            )
        if self.colluders:
            return (
                f"This also holds against any {self.colluders} of the other owners, even if they "
                "and the coordinator tell each other what they know, such as the noise that they "
                "added."
            )
        epsilon = against_another_owner(self, side_of(self).guarantee)
        return (
            "This holds as long as no owner tells others what noise it added. Each of the other "
            f"owners knows its own noise: against it epsilon is {upper(epsilon)} at the same delta."
        )

    def save(self, path: str | Path) -> Path:
        """Write the plan to a new file. :raises ArgumentError: naming ``path``."""
        return files.write_new("path", _validate.path("path", path), "plan", self._content())

    def position(self, owner: str) -> int:
        """The place of an owner. :raises ArgumentError: naming ``owner``."""
        if owner not in self.owners:
            raise _validate.unknown_name("owner", owner, self.owners)
        return self.owners.index(owner)

    def require_of(self, argument: str, path: object, content: Mapping[str, Any]) -> None:
        """:raises ArgumentError: if a file is of another plan, or of none of its owners."""
        if content["plan"] != self.digest:
            reason = "belongs to another plan: everybody must have the same file of the plan."
            raise ArgumentError(argument, str(path), reason)
        if content["owner"] not in self.owners:
            raise ArgumentError(argument, str(path), "is of nobody in the plan.")

    def require_all(self, argument: str, owners: Collection[str], missing: str) -> None:
        """:raises ArgumentError: naming an owner of whom something is missing."""
        for owner in self.owners:
            if owner not in owners:
                raise ArgumentError(
                    argument,
                    owner,
                    f"{missing} is missing, and without it there is no result: the plan has "
                    f"{len(self.owners)} owners, {', '.join(self.owners)}.",
                    remedy=f"Wait for it, or agree on a new plan without {owner}.",
                )


def plan(
    model: str,
    *,
    schema: Any,
    owners: Sequence[str],
    epsilon: float,
    num_records: int,
    delta: float | None = None,
    colluders: int = 1,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    look: Look | None = None,
) -> Plan:
    """A plan for one fit to the records of several owners, checked as far as it can be without
    records.

    Linear regressions, whole tables and looks at the columns take one release of sums, which may
    go by files (``write_sum``, ``fit``). All else takes steps, a round of sums each (``answer``,
    ``coordinate``).

    >>> schema = {"days": (0, 30), "age": (18, 90)}
    >>> plan = wb.owners.plan(
    ...     "days ~ age",
    ...     schema=schema,
    ...     owners=["Aarhus", "Bern", "Cork"],
    ...     epsilon=1.0,
    ...     num_records=3000,
    ... )
    >>> plan.colluders, plan.delta
    (1, 0.0001)

    :param model: a formula, such as "days ~ age", the name of a model, or "look" for noised counts
        of the columns.
    :param schema: ranges and levels of all columns that are used, as of ``wb.data.from_frame``.
    :param owners: a name for each, which the owners recognise.
    :param num_records: an upper bound on the records of all owners together, public.
    :param delta: by default the largest power of ten below 1 / ``num_records``.
    :param colluders: c, of how many owners the promise holds even if they tell others the noise
        that they added. With 0 it does not hold against the owners themselves, as each knows its
        own noise.
    :param options: of a formula family, link and priors, else those of the model.
    :param settings: estimator, iterations, sampling_rate, clip and learning_rate, as of ``wb.fit``;
        what is left out is chosen.
    :param look: what a plan of "look" came to, from which scales are learned; its epsilon counts
        beside this one. Without it the declared ranges stand for how columns are spread.
    :raises ArgumentError: naming the argument and its value.
    """
    if isinstance(owners, str) or not isinstance(owners, Sequence):
        raise ArgumentError("owners", owners, "must be a list of names.")
    names = tuple(_validate.label("owners", name) for name in owners)
    if len(set(names)) < len(names):
        raise ArgumentError("owners", list(names), "has a name twice.")
    division = Shares.checked(len(names), colluders)
    number = _validate.integer("num_records", num_records, at_least=2)
    chosen = default_delta(number) if delta is None else delta
    try:
        declared = Schema.from_declaration(schema)
    except ArgumentError as error:
        if not isinstance(schema, Mapping) or not any(isinstance(x, type) for x in schema.values()):
            raise
        raise ArgumentError(
            error.argument,
            error.value,
            f"{error.expectation} Ranges and levels are not learned from several owners.",
        ) from None
    made = Plan(
        _validate.text("model", model),
        dict(options or {}),
        declared.to_dict(),
        names,
        division.colluders,
        _validate.epsilon("epsilon", epsilon),
        _validate.probability("delta", chosen),
        number,
        dict(settings or {}),
        uuid.uuid4().hex,
    )
    try:
        _FORM("", made._content())
        _ = made.digest
    except (_schema.FormError, TypeError, ValueError) as error:
        raise ArgumentError("options", dict(options or {}), f"must fit in JSON: {error}") from None
    for setting in made.settings:
        _validate.choice("settings", setting, [name for name in SETTINGS if name != "look"])
    if made.model == LOOK:
        for name, value in (("options", options), ("settings", settings), ("look", look)):
            if value:
                raise ArgumentError(name, value, "is not for a look at the columns.")
        side_of(made)
        return made
    if look is None:
        return _complete(made, {"look": 0.0})
    scales = {"look": _scales_of(made, look)}
    return _complete(replace(made, counts_with=look.token), scales)


def _scales_of(made: Plan, look: Any) -> Any:
    """The scales of a look for the columns of a plan. :raises ArgumentError: naming ``look``."""
    if not isinstance(look, Look) or not look.owners:  # ledgers know the charge of these
        raise ArgumentError("look", look, 'must be what a plan of the model "look" came to.')
    schema = Schema.from_dict(made.schema)
    request = request_of(made, schema, blank_of(made, schema), "made-up records")
    return planned_of(replace(request, look=look))[0].settings.look


def _complete(plan: Plan, scales: Mapping[str, Any]) -> Plan:
    """A plan with the settings that it leaves out. :param scales: the setting ``look``.

    :raises ArgumentError: as ``agreement``.
    """
    made = replace(plan, settings={**plan.settings, **scales})
    if not plan.settings:
        try:
            one = replace(made, settings={"estimator": STATISTICS, **scales})
            agreement(one)
        except ArgumentError as error:
            if error.argument != "estimator":
                raise
        else:
            return one
    spec = agreement(made).spec
    fixed, privacy = spec.estimation.fixed_settings, spec.privacy
    clip = AUTO if privacy.adapts_clip else privacy.clip
    if isinstance(spec.estimation, OneShot):
        return replace(made, settings={"estimator": STATISTICS, **scales})
    values = (fixed["estimator"], privacy.iterations, privacy.sampling_rate, clip)
    chosen = zip(SETTINGS, (*values, spec.settings.learning_rate, scales["look"]), strict=True)
    return replace(made, settings=dict(chosen))


def read_plan(path: str | Path) -> Plan:
    """The plan that ``Plan.save`` wrote.

    :raises ArgumentError: naming ``plan``, if it cannot be read or is damaged.
    """
    content = files.read("plan", path, "plan", _FORM)
    names = tuple(content["owners"])
    made = Plan(**{**content, "owners": names})
    if len(set(names)) < len(names):
        raise ArgumentError("plan", str(path), "is damaged: it has an owner twice.")
    # what people read before they agree
    composed = {text: _validate.label("plan", text) for text in (*names, made.model, *made.schema)}
    for name in names:
        if composed[name] != name:
            raise ArgumentError("plan", str(path), f"is damaged: {name!r} is written unusually.")
    _ = made.shares
    return made


def as_plan(plan: Plan | str | Path) -> Plan:
    """A plan, or the one in a file, with all settings of its steps.

    :raises ArgumentError: naming ``plan``.
    """
    read = plan if isinstance(plan, Plan) else read_plan(plan)
    settings = dict(read.settings)
    look = settings.get("look")
    is_one = settings == {"estimator": STATISTICS, "look": look}
    is_whole = set(settings) == set(SETTINGS) and type(read.rounds) is int
    is_look = not (settings or read.options or read.counts_with)
    if not (is_look if read.model == LOOK else is_one or is_whole):
        reason = "is damaged: it must have all settings of its steps, or of none."
        raise ArgumentError("plan", read.model, reason)
    is_known = bool(read.counts_with) if look else type(look) in (int, float)
    try:
        scales_form("look", look or {})
    except _schema.FormError:
        is_known = False
    if read.model != LOOK and not is_known:
        reason = "is damaged: scales that are learned must come with the look that they are from."
        raise ArgumentError("plan", read.model, reason)
    return read
