"""The processes of `make mutate`."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("mutmut", reason="mutmut makes the mutants")

from mutation.trial import ending_in_children


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
