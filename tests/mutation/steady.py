"""Leaves out tests that fail without a mutant: on a busy machine a test that depends on time must not end the run."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest
from mutmut.mutation import trampoline
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.workers import isolation

_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and not _is_mutant_there():
        _failed.add(report.nodeid)


def _is_mutant_there() -> bool:
    return trampoline.get_mutant_under_test() not in ("", "stats")


class SteadyRunner(PytestRunner):
    """mutmut's, which goes on after a failure where no mutant is there to cause it."""

    def _pytest_args_regular_run(self, tests: Iterable[str]) -> list[str]:
        arguments = [*super()._pytest_args_regular_run(tests), "-p", __name__]
        return arguments if _is_mutant_there() else [word for word in arguments if word != "-x"]

    def run_stats(self, *, tests: Iterable[str]) -> int:
        return _without_failures(super().run_stats(tests=tests))

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        if not _is_mutant_there():
            return 0  # all of them ran a moment ago, to find out which functions they call
        return super().run_tests(mutant_name=mutant_name, tests=tests)


def _without_failures(ended: int) -> int:
    for nodeid in sorted(_failed):
        print(f"left out, it fails without a mutant: {nodeid}", file=sys.stderr)
        state().duration_by_test.pop(nodeid, None)
        for tests in state().tests_by_mangled_function_name.values():
            tests.discard(nodeid)
    _failed.clear()
    return 0 if ended == pytest.ExitCode.TESTS_FAILED else ended


class NoCallStack:
    """mutmut's own, a context variable that every call sets, crashed Python 3.11; who calls whom is not asked for."""

    @staticmethod
    def get() -> tuple[None, int]:
        return None, 0

    @staticmethod
    def set(frame: object) -> None:
        return None

    @staticmethod
    def reset(token: object) -> None:
        return None


def install() -> None:
    """mutmut has no option for its runner."""
    isolation.PytestRunner = SteadyRunner  # type: ignore[misc]
    trampoline.MutmutCallStack = NoCallStack  # type: ignore[assignment, misc]
