"""The processes of `make mutate`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="mutmut makes the mutants")

from mutation.trial import PACKAGES, ending_in_children


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tests_of_each_package_exist(package: str) -> None:
    tests = Path(__file__).parent.parent
    assert [name for name in PACKAGES[package] if not (tests / name).exists()] == []


def test_a_forked_process_that_exits_in_its_tests_ends_there_and_has_noticed_the_mutant() -> None:
    child = -1
    try:
        with ending_in_children():
            child = os.fork()
            if child == 0:
                raise SystemExit(0)
    except SystemExit:
        os._exit(99)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == pytest.ExitCode.TESTS_FAILED
