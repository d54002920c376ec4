"""The processes of `make mutate`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="mutmut makes the mutants")

from mutation import trial
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


@pytest.mark.parametrize(("packages", "is_kept"), [("client log", True), ("log", False), ("client", False)])
def test_mutants_are_made_again_for_other_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str, is_kept: bool
) -> None:
    """Of another package the workplace has copies without mutants."""
    monkeypatch.setattr(trial, "WORKPLACE", tmp_path / "mutants")
    monkeypatch.setattr(trial, "_ALL_MADE", tmp_path / "mutants" / "all-made")
    monkeypatch.chdir(Path(trial.__file__).parents[2])
    # Of a module that exists: mutants of other modules are removed in any case.
    made = tmp_path / "mutants" / "src" / "felice" / "__init__.py"
    made.parent.mkdir(parents=True)
    made.touch()
    trial._ALL_MADE.write_text("client log")
    trial._clear_workplace(packages)
    assert made.exists() == is_kept
