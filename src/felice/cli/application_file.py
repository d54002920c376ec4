"""The Apps that a Python file defines, and the modules beside the file that it imports.

Keeps true: the file may import what `python FILE` could import. Spark's workers get the file and these modules by
            value, because they cannot import them. A file that is read again gets its modules as they are then.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from felice.cli.faults import Fault

if TYPE_CHECKING:
    from felice.streams import App

_read: set[str] = set()
"""The names of the modules that lie beside files that were read."""


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
        return [by_name[name] for name in names]
    return [found["app"]] if isinstance(found.get("app"), App) else apps


def app_in(path: Path, name: str | None = None) -> App:
    """The App of a file with this name. Without a name: the App of the variable `app`, or the only App of the file."""
    apps = apps_in(path, () if name is None else (name,))
    if len(apps) != 1:
        raise Fault(f"{path} defines {_listed(apps)}; choose one with --app")
    return apps[0]


def _listed(apps: Iterable[App]) -> str:
    return ", ".join(sorted(app.name for app in apps))


def _run(path: Path) -> dict[str, Any]:
    for name in _read:
        sys.modules.pop(name, None)
    _read.clear()
    directory = str(path.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    before = set(sys.modules)
    # The file is run and not imported: pickling sends functions of an imported module by name.
    found = runpy.run_path(str(path), run_name="felice_app")
    new = set(sys.modules) - before
    beside = {name for name in new if "." not in name and _is_in(directory, sys.modules[name])}
    _read.update(name for name in new if name.partition(".")[0] in beside)
    if beside:
        _send_by_value(beside)
    return found


def _is_in(directory: str, module: ModuleType) -> bool:
    """Whether a module or package lies directly in a directory."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None) or ""]
    return any(str(Path(place).resolve().parent) == directory for place in places)


def _send_by_value(modules: Iterable[str]) -> None:
    """Let pickled functions bring these modules, and the modules in these packages, with them."""
    try:
        from pyspark import cloudpickle
    except ImportError:
        return  # Without Spark there are no workers.
    for name in modules:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
