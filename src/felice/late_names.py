"""Names that a package offers, and imports when they are first used.

    __getattr__, __dir__, __all__ = late_names(__name__, {"felice.testing.broker": "Broker Record"})

So the import of one module of the package does not import all of its modules. The package repeats the imports under
`TYPE_CHECKING`, each `as` the same name, for type checkers and editors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def late_names(
    package: str, homes: Mapping[str, str], modules: Iterable[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The functions `__getattr__` and `__dir__` of a package, and its `__all__`.

    `homes` are the names by the module that defines them, and `modules` the submodules that are names, too.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    known = frozenset(modules)

    def get(name: str) -> object:
        if name in known:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of, *known})

    return get, names, [name for name in home_of if not name.startswith("_")]
