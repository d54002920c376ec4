"""The Apps that a Python file defines, and the modules beside the file that it imports.

Keeps true: the file may import what `python FILE` could import. A file that is read again gets its modules as they are
            then, also after a read that failed.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from felice.cli.faults import Fault

if TYPE_CHECKING:
    from felice.pipelines.streams.on_spark.modules import SentModule
    from felice.streams import App

_not_the_users: frozenset[str] = frozenset(sys.modules)
"""What was imported before the first file was read."""


def apps_in(path: Path, names: Sequence[str] = ()) -> list[App]:
    """The Apps of a file with these names.

    Without names: the App of the variable `app`, otherwise every App of the file.
    """
    from felice.streams import App

    found = _run(path.resolve())
    apps = list({id(value): value for value in found.values() if isinstance(value, App)}.values())
    if not apps:
        raise Fault(f"{path} defines no App")
    by_name = {app.name: app for app in apps}
    if len(by_name) < len(apps):
        raise Fault(f"{path} defines several Apps with one name; their names are {_listed(apps)}")
    if unknown := [name for name in names if name not in by_name]:
        raise Fault(f"{path} defines no App {unknown[0]!r}; it defines {_listed(apps)}")
    if names:
        return [by_name[name] for name in dict.fromkeys(names)]
    return [found["app"]] if isinstance(found.get("app"), App) else apps


def app_in(path: Path, name: str | None = None) -> App:
    """The App of a file with this name. Without a name: the App of the variable `app`, or the only App of the file."""
    apps = apps_in(path, () if name is None else (name,))
    if len(apps) != 1:
        raise Fault(f"{path} defines {_listed(apps)}; choose one with --app")
    return apps[0]


def _listed(apps: Iterable[App]) -> str:
    return ", ".join(sorted(app.name for app in apps))


def modules_beside(path: Path) -> tuple[SentModule, ...]:
    """The modules that have been imported and lie beside a file, or in a package beside it."""
    from felice.pipelines.streams.on_spark.modules import modules_of, note_imported

    modules = modules_of(_neighbours(path.resolve().parent))
    note_imported(modules)
    return modules


def _run(path: Path) -> dict[str, Any]:
    for name in _neighbours(path.parent):
        del sys.modules[name]
    from felice.pipelines.errors import PlainError
    from felice.pipelines.streams.topology import TopologyError

    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # The file is run and not imported: pickling sends functions of an imported module by name.
    try:
        return runpy.run_path(str(path), run_name="felice_app")
    except (PlainError, ValueError, TypeError) as error:
        if not isinstance(error, PlainError | TopologyError) and not _is_refused(error):
            raise
        raise Fault(f"{path}, line {_line_of(path, error)}: {error}") from None


def _is_refused(error: Exception) -> bool:
    """Whether Felice raised an error, rather than the program or a library that the program calls."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith("felice.")


def _line_of(path: Path, error: Exception) -> int:
    """The line of the file that led to an error."""
    return [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)][-1]


def _neighbours(directory: Path) -> list[str]:
    new = set(sys.modules) - _not_the_users
    roots = {name for name in new if "." not in name and _lies_in(directory, sys.modules[name])}
    return [name for name in new if name.partition(".")[0] in roots]


def _lies_in(directory: Path, module: ModuleType) -> bool:
    """Whether a module or package lies directly in a directory. Links count where they are."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return any(Path(place).parent.resolve() == directory for place in places if place)
