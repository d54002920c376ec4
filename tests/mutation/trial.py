"""Generates mutants, runs the quick tests against a sample of them, and asks mypy about those that survive."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
import pytest
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation import diff_apply
from mutmut.stats import status_by_exit_code

from mutation import operators, steady

# The quick tests of each package.
PACKAGES = {
    "log": ("unit/log", "properties/log"),
    "replication": (
        "unit/replication",
        "unit/server/test_full_disks.py",
        "scenarios/test_replication.py",
        "scenarios/test_share.py",
        "properties/replication",
    ),
    "coordinator": (
        "unit/coordinator",
        "scenarios/test_groups.py",
        "scenarios/test_transactions.py",
        "scenarios/test_share_state.py",
        "properties/coordinator",
    ),
    "controller": ("unit/controller", "scenarios/test_controller.py"),
    "migration": ("unit/migration", "unit/cli/test_migration.py"),
    # Most of the administration only forwards requests: the tests with a broker in the same process try it.
    "client": (
        "unit/client",
        "properties/client",
        "scenarios/test_epoch_member.py",
        "unit/cli",
        "conformance/test_client_admin.py",
        "conformance/test_client_aio.py",
        "conformance/test_client_calls.py",
        "conformance/test_client_groups.py",
        "conformance/test_client_transactions_admin.py",
    ),
}
WORKPLACE = Path("mutants")
_SOURCES = Path("src/felice")
# Names the packages whose mutants are all there. Without this file the last run ended while it wrote mutants.
_ALL_MADE = WORKPLACE / "all-made"


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test noticed."""

    mutant: str
    diff: str
    refused_by_mypy: bool
    has_tests: bool

    def __str__(self) -> str:
        notes = [
            *([] if self.has_tests else ["no quick test calls the function"]),
            *(["refused by mypy"] if self.refused_by_mypy else []),
        ]
        return f"# {self.mutant}{''.join(f' ({note})' for note in notes)}\n{self.diff}"


def package_of(target: str) -> str:
    return target.partition("/")[0]


def generate(targets: Sequence[str]) -> list[str]:
    """Writes every mutant of the targets' packages below `mutants/` and returns their names."""
    packages = " ".join(sorted({package_of(target) for target in targets}))
    config().only_mutate = [f"{_SOURCES}/{package}/*" for package in packages.split()]
    operators.install()
    steady.install()
    _clear_workplace(packages)
    with _quiet():
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.create_mutants(1)
    _ALL_MADE.write_text(packages)
    return [name for _, name, _ in mutmut.collect_source_file_mutation_data(mutant_names=())[0]]


def _clear_workplace(packages: str) -> None:
    """Keeps the mutants of files that did not change, which take a minute to make, and nothing else.

    mutmut takes a copy without mutants, which it made for a run of other packages, for a file that did not change.
    """
    if not _is_reusable(packages):
        shutil.rmtree(WORKPLACE / "src", ignore_errors=True)
    shutil.rmtree(WORKPLACE / "tests", ignore_errors=True)
    for leftover in [_ALL_MADE, WORKPLACE / "mutmut.log", *_without_source()]:
        leftover.unlink(missing_ok=True)
    WORKPLACE.mkdir(exist_ok=True)


def _is_reusable(packages: str) -> bool:
    if not _ALL_MADE.exists() or _ALL_MADE.read_text() != packages:
        return False
    return _ALL_MADE.stat().st_mtime >= Path(operators.__file__).stat().st_mtime


def _without_source() -> list[Path]:
    """Mutants of modules that were removed: tests must not find them."""
    return [path for path in WORKPLACE.glob("src/**/*.py") if not path.relative_to(WORKPLACE).exists()]


def chosen(mutants: Sequence[str], target: str) -> list[str]:
    """The mutants of a package (`log`), of a folder (`coordinator/group`) or of a file (`log/segment.py`)."""
    prefix = f"felice.{target.removesuffix('.py').strip('/').replace('/', '.')}."
    found = [mutant for mutant in mutants if mutant.startswith(prefix)]
    if not found:
        sys.exit(f"no mutants below {_SOURCES / target}; packages: {', '.join(PACKAGES)}")
    return found


def survivors_of(mutants: Sequence[str], target: str) -> list[Survivor]:
    """Runs the tests of the target's package against each mutant, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        verdicts = process.submit(_verdicts, mutants, PACKAGES[package_of(target)]).result()
    return [_survivor(name, verdict) for name, verdict in sorted(verdicts.items()) if _survives(verdict)]


def _verdicts(mutants: Sequence[str], tests: Sequence[str]) -> dict[str, str]:
    """mutmut keeps what it knows of tests in global state: hence a process for each package."""
    config().pytest_add_cli_args_test_selection = [f"tests/{name}" for name in tests]
    (WORKPLACE / "mutmut-stats.json").unlink(missing_ok=True)
    with ending_in_children(), _quiet():
        mutmut._run(list(mutants), 1)
    tried = mutmut.collect_source_file_mutation_data(mutant_names=list(mutants))[0]
    return {name: status_by_exit_code[verdict] for _, name, verdict in tried}


@contextlib.contextmanager
def ending_in_children() -> Iterator[None]:
    """A mutant's process that leaves its tests with SystemExit must not go on as the process that forked it."""
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != owner:
            os._exit(pytest.ExitCode.TESTS_FAILED)


def _survives(verdict: str) -> bool:
    assert verdict not in ("not checked", "check was interrupted by user"), verdict
    return verdict in ("survived", "no tests", "skipped")


def _survivor(name: str, verdict: str) -> Survivor:
    path = diff_apply.find_mutant(name).path
    diff = diff_apply.get_diff_for_mutant(name, path=path)
    return Survivor(name, diff, _is_refused_by_mypy(name, Path(path)), verdict != "no tests")


def _is_refused_by_mypy(name: str, path: Path) -> bool:
    shadow = WORKPLACE / "shadow.py"
    shadow.write_text(source_with(name, path))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(WORKPLACE / "mypy"), "--shadow-file", path, shadow],
        capture_output=True,
        env={**os.environ, "MYPYPATH": "src"},
    )
    return done.returncode == 1


def source_with(name: str, path: Path) -> str:
    """The text of the file with this one mutant in it."""
    found = diff_apply.read_functions_from_index(name, path)
    assert found, name
    module = diff_apply.read_orig_module(path)
    return module.deep_replace(_original(module, name), found[1]).code  # type: ignore[union-attr]


def _original(module: cst.Module, name: str) -> cst.FunctionDef:
    function, class_name = diff_apply.orig_function_and_class_names_from_key(name)
    for node in module.body:
        if class_name is None:
            candidates: Sequence[cst.CSTNode] = [node]
        elif isinstance(node, cst.ClassDef) and node.name.value == class_name:
            candidates = node.body.body
        else:
            continue
        for candidate in candidates:
            if isinstance(candidate, cst.FunctionDef) and candidate.name.value == function:
                return candidate
    raise LookupError(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What mutmut prints goes to a file, whose end is shown if mutmut gives up."""
    terminal = sys.__stdout__
    with open(WORKPLACE / "mutmut.log", "a+") as log:
        sys.__stdout__ = log
        try:
            with contextlib.redirect_stdout(log):
                yield
        except SystemExit:
            log.seek(0)
            print(log.read()[-5_000:], file=terminal)
            raise
        finally:
            sys.__stdout__ = terminal
