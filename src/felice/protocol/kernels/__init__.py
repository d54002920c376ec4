"""The compiled codec of messages, if the extension was built: see `_kernels.pyx`.

`table` is None for every message without the extension, and if the environment variable `FELICE_PURE` is set. Then
the plain codec (`decoder`, `encoder`) does all the work. Otherwise it does what the tables leave to it.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType
from typing import Protocol, TypeAlias

from felice.env.variables import is_set
from felice.protocol.primitives import Buffer, SizedSource

Part: TypeAlias = Buffer | SizedSource


class Table(Protocol):
    """Reads and writes one message in one version."""

    def read(self, buffer: Buffer, position: int, limit: int, /) -> tuple[object, int] | None:
        """The message at `position`, of at most `limit` elements, and the position behind it."""

    def write(self, message: object, head: bytes, /) -> list[Part] | None:
        """`head` and the message in parts."""


def _load() -> ModuleType | None:
    if is_set("FELICE_PURE"):
        return None
    try:
        return import_module("felice.protocol.kernels._kernels")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        warnings.warn(
            f"the compiled codec does not fit this version, so slow plain Python runs instead ({error}); "
            "build it again: pip install --force-reinstall --no-deps felice, or pip install -e . in a clone",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


_module = _load()
IMPLEMENTATION = "plain" if _module is None else "compiled"


def table(message: type, version: int) -> Table | None:
    """The table of a message in a version; None if the plain codec has to do the work."""
    if _module is None:
        return None
    from felice.protocol.kernels.plan import Planner

    found: Table = Planner(_module, message, version).struct(message)
    return found
