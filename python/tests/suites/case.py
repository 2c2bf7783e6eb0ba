"""A case of another project's suite, and what came of it here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

OUTCOMES = ("passed", "adapted", "not supported")


@dataclass(frozen=True)
class Refusal:
    """Why a case cannot be as the suite has it, and the error that says so."""

    why: str
    error: type[Exception] | tuple[type[Exception], ...]
    says: str  # what the message has to contain: the argument's name, as a rule

    def check(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except self.error as error:
            assert self.says in str(error), f"{self.why}: {error!r} does not say {self.says!r}"
        else:
            pytest.fail(
                f"{self.why}: supported now. Take the refusal out of python/tests/suites, "
                "then make suites"
            )


@dataclass
class Case:
    """One call of the suite's.

    part: of the op: its gradient, say.
    straight: ours in its place, with arguments of the same meaning.
    check: compares a result with the suite's.
    refusal: where `straight` cannot be. It is then tested that it is refused.
    adapted: what was done instead, and why. Empty: nothing, so that a case with a refusal is
    not supported. instead: the call that was adapted; of a case that is not supported, what
    is left of it."""

    op: str
    name: str
    straight: Callable[[], Any]
    check: Callable[[Any], None]
    refusal: Refusal | None = None
    adapted: tuple[str, ...] = ()
    instead: Callable[[], Any] | None = None
    part: str = ""

    @property
    def outcome(self) -> str:
        if self.adapted:
            return "adapted"
        return "not supported" if self.refusal else "passed"

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.adapted or ((self.refusal.why,) if self.refusal else ())

    def run(self) -> None:
        if self.refusal:
            self.refusal.check(self.straight)
        call = self.instead or (None if self.refusal else self.straight)
        if call is not None:
            self.check(call())


def run_all(cases: Iterable[Case]) -> None:
    """Runs every one, whatever became of the one before."""
    failures = []
    for case in cases:
        try:
            case.run()
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{case.op}, {case.name}: {error!r}")
    assert not failures, "\n".join(failures)
