"""Options of the test run."""

import ast
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a loaded machine inputs and examples take long; that is not a failure.
settings.register_profile("loaded_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded_machine")

# Until Python 3.11.8 a syntax tree fails with a SystemError if another one is made meanwhile, because the depth of all
# trees is counted in one place (gh-106905): by another thread, or by a finalizer whose warning is printed. pytest makes
# a tree for each module of Felice that a test imports, and for each failure.
_parse, _parses = ast.parse, threading.RLock()


def _parse_alone(*arguments: Any, **options: Any) -> Any:
    with _parses:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _parse(*arguments, **options)
        finally:
            if collects:
                gc.enable()


setattr(ast, "parse", _parse_alone)  # noqa: B010  # For mypy, a module's function cannot be replaced.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what the scenarios do now into their text files"
    )
    parser.addoption(
        "--failures-to", type=Path, metavar="FILE", help="write the names of tests that failed, a line each"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """`make test` runs pytest for several parts of the tests, side by side, and prints the files of all at its end."""
    file: Path | None = config.getoption("--failures-to")
    if file is not None:
        failed, errors = (terminalreporter.getreports(outcome) for outcome in ("failed", "error"))
        lines = [f"FAILED {report.nodeid}" for report in failed] + [
            f"ERROR {report.nodeid}" for report in errors
        ]
        file.write_text("".join(line + "\n" for line in lines))


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rooms of a broker of which nothing runs. A test that changes one has rooms of its own (`rooms.rooms_of`)."""
    from rooms import rooms_of

    return rooms_of(tmp_path_factory.mktemp("rooms"))
