"""The user's modules that Spark's workers get from the driver, because they cannot import them.

Keeps true: a function of such a module is sent by its name, and a worker imports the source that the module's file
            had when the application started. Modules that the user changes meanwhile reach the workers with the next
            application that starts.
How:        the plan of an application carries the sources, and a finder of Python's import system serves them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType

from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SentModule:
    """A module or package with its source. `path` is that of its file in the driver; None: a package without a file."""

    name: str
    path: str | None
    source: bytes
    is_package: bool


def modules_of(names: Iterable[str]) -> tuple[SentModule, ...]:
    """Imported modules with their sources. A module that is not Python's source is left out."""
    found = (_read(sys.modules[name]) for name in sorted(names))
    return tuple(module for module in found if module is not None)


def _read(module: ModuleType) -> SentModule | None:
    path, is_package = getattr(module, "__file__", None), hasattr(module, "__path__")
    if path is None:
        return SentModule(module.__name__, None, b"", is_package) if is_package else None
    if not path.endswith(".py"):
        return None
    return SentModule(module.__name__, path, Path(path).read_bytes(), is_package)


class _Finder(MetaPathFinder):
    """Finds the modules of the last `install`."""

    def __init__(self) -> None:
        self.modules: dict[str, SentModule] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's specification, or None for the next finder."""
        module = self.modules.get(name)
        if module is None:
            return None
        spec = spec_from_loader(name, _Loader(module), origin=module.path, is_package=module.is_package)
        assert spec is not None, "the loader says whether the module is a package"
        spec.has_location = module.path is not None
        return spec


class _Loader(InspectLoader):
    """Executes the source of one module."""

    def __init__(self, module: SentModule) -> None:
        self._module = module

    def is_package(self, fullname: str) -> bool:
        """Whether the module has others in it."""
        return self._module.is_package

    def get_source(self, fullname: str) -> str:
        """The source, also for tracebacks."""
        return decode_source(self._module.source)

    def get_code(self, fullname: str) -> CodeType:
        """The compiled source, with the path of the file in the driver."""
        return self.source_to_code(self._module.source, self._module.path or f"<package {fullname}>")


_finder = _Finder()
_current: tuple[SentModule, ...] = ()


def note_imported(modules: tuple[SentModule, ...]) -> None:
    """Say that this process, the driver, has imported these modules from their files."""
    global _current
    _current = modules


def install(modules: tuple[SentModule, ...]) -> None:
    """Let this process import these modules from their sources, in place of others with their names."""
    global _current
    if not modules or modules == _current:
        return
    for name in {*_finder.modules, *(module.name for module in modules)}:
        sys.modules.pop(name, None)
    _finder.modules = {module.name: module for module in modules}
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _current = modules
