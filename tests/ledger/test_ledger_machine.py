"""The ledger against a model of it in plain Python, through any sequence of what processes may do
to it.
"""

import contextlib
import dataclasses
import sqlite3
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from tests.conftest import examples
from tests.privacy.promises import promise
from workbench.ledger.ledger import CapError, DatasetId, Ledger, LedgerError
from workbench.ledger.renyi_filter import Cap, taken_part

FITS = [promise(epsilon, steps=40, delta=1e-5) for epsilon in (0.2, 1.0)]
NAMES = st.sampled_from(["clinic", "ward"])


@dataclasses.dataclass
class Fit:
    """What the model knows of a fit."""

    name: str
    guarantee: object
    rule: str
    status: str = "reserved"
    seen: int = 0
    reached: int = 0
    taken: int | None = None

    @property
    def counted(self):
        return self.guarantee.steps if self.taken is None else self.taken


class LedgerMachine(RuleBasedStateMachine):
    """Every fit is counted once, and whole until its end is known; no cap is passed."""

    keys = Bundle("keys")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.fits, self.caps = {}, {}

    @property
    def book(self):
        """Another object each time, as in another process."""
        return Ledger(self.path)

    def before(self, name, without=None):
        own = [fit for key, fit in self.fits.items() if fit.name == name and key != without]
        counting = [fit for fit in own if fit.counted or fit.rule == "plan"]
        return [
            fit.guarantee if fit.rule == "plan" else taken_part(fit.guarantee, fit.counted)
            for fit in counting
        ]

    def expected_rule(self, name, guarantee, without=None):
        cap = self.caps.get(name)
        if cap is None:
            return "no cap"
        before = self.before(name, without)
        if cap.allows(map(cap.loss, [*before, guarantee])):
            return "filter"
        return "plan" if not before and cap.kept_by_plan([guarantee]) else None

    @rule(target=keys, name=NAMES, fit=st.sampled_from(FITS), over=st.booleans())
    def reserve(self, name, fit, over):
        expected = self.expected_rule(name, fit)
        records = DatasetId(name, "patient", lambda key: f"{name:0<32}")
        try:
            (key,) = self.book.reserve(
                records, [fit], model="logistic", over_cap="because" if over else None
            )
        except CapError:
            assert expected is None
            assert not over
            return multiple()
        self.fits[key] = Fit(name, fit, expected or "override")
        return key

    @rule(name=NAMES, epsilon=st.sampled_from([0.9, 1.5, 3.0]))
    def cap(self, name, epsilon):
        self.book.add(DatasetId(name, "patient", lambda key: f"{name:0<32}"))
        self.caps[name] = self.book.set_cap(name, epsilon, 1e-5, why="a test").cap
        assert self.caps[name] == Cap.checked(epsilon, 1e-5)

    @rule(key=keys, step=st.integers(0, 60))
    def mark(self, key, step):
        fit = self.fits[key]
        if fit.status != "reserved":
            with contextlib.suppress(LedgerError):
                self.book.mark([key], step)
                raise AssertionError("a fit that has ended may go no further")
            return
        self.book.mark([key], step)
        fit.reached = max(fit.reached, min(40, step))

    @rule(key=keys, data=st.data())
    def settle(self, key, data):
        """Once more does nothing: what was settled stays."""
        fit = self.fits[key]
        taken = data.draw(st.integers(0, fit.reached))
        self.book.settle(key, taken)
        if fit.status == "reserved":
            fit.status, fit.taken = "settled", max(taken, fit.seen)

    @rule(key=keys)
    def crash_and_recover(self, key):
        fit = self.fits[key]
        if fit.status != "reserved":
            return
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.execute("UPDATE spends SET owner = 'gone' WHERE key = ?", (key,))
        assert [spend.key for spend in self.book.recover()] == [key]
        fit.status, fit.taken = "recovered", fit.reached

    @rule(key=keys, over=st.booleans())
    def resume(self, key, over):
        fit = self.fits[key]
        rule = fit.rule
        if fit.taken is not None and fit.rule not in ("override", "plan"):
            rule = self.expected_rule(fit.name, fit.guarantee, without=key)
        seen = fit.reached if fit.taken is None else fit.taken
        try:
            self.book.resume(key, over_cap="because" if over else None, reserved_here=True)
        except CapError:
            assert rule is None
            assert not over
            return
        fit.rule, fit.status, fit.seen, fit.taken = rule or "override", "reserved", seen, None

    @invariant()
    def nothing_is_lost_or_counted_twice(self):
        spends = self.book.spends()
        assert [spend.key for spend in spends] == list(self.fits)
        for spend, fit in zip(spends, self.fits.values(), strict=True):
            assert (spend.status, spend.reached, spend.counted, spend.rule) == (
                fit.status,
                fit.reached,
                fit.counted,
                fit.rule,
            )
            assert spend.counted >= 0

    @invariant()
    def caps_are_kept_but_on_purpose(self):
        """Of data sets whose cap was there from the beginning."""
        for entry in self.book.datasets():
            spends = [spend for spend in self.book.spends() if spend.dataset == entry.number]
            if (
                entry.cap is None
                or entry.after
                or any(spend.rule == "override" for spend in spends)
            ):
                continue
            parts = [spend.under_filter for spend in spends if spend.under_filter is not None]
            if any(spend.rule == "plan" for spend in spends):
                assert len(spends) == 1 or all(not spend.counted for spend in spends[:-1])
            else:
                assert entry.cap.allows(map(entry.cap.loss, parts))

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(examples(20, few=5), stateful_step_count=25)
