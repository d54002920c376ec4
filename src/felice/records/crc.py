"""CRC-32C, by the C module of the `crc32c` package.

Importing that package asks `importlib.metadata` for its own version and builds a command line parser. That takes
16 ms, a sixth of a broker's start. So its C module is loaded directly; if that fails, the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_PACKAGE = "crc32c"
_MODULE = "crc32c._crc32c"


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec(_PACKAGE)
    spec = package and PathFinder.find_spec(_MODULE, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as of_package

        return of_package
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] = module.crc32c
    return found


crc32c = _load()
