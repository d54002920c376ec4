"""The compiled codec of messages, if the extension was built: see `_kernels.pyx`.

`table` is None for every message without the extension, and if the environment variable `FELICE_PURE` is set. Then
the plain codec (`decoder`, `encoder`) does all the work. Otherwise it does what the tables leave to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from felice.env.variables import is_set
from felice.protocol.primitives import Buffer, SizedSource

Part: TypeAlias = Buffer | SizedSource


class Table(Protocol):
    """Reads and writes one message in one version."""

    def read(self, buffer: Buffer, position: int, limit: int, /) -> tuple[Any, int] | None:
        """The message at `position`, of at most `limit` elements, and the position behind it."""

    def write(self, message: object, head: bytes, is_frame: bool = False, /) -> list[Part] | None:
        """`head` and the message in parts; the first four bytes of a frame become the size of the rest."""


_NAMES = ("Field", "Struct", "Type", "memory_of", "request_header", "whole_frames")


def _load() -> ModuleType | None:
    if is_set("FELICE_PURE"):
        return None
    try:
        found = import_module("felice.protocol.kernels._kernels")
        missing = [name for name in _NAMES if not hasattr(found, name)]
        if missing:
            raise ImportError(f"it has no {', '.join(missing)}")
        return found
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


def _no_header(frame: Buffer, /) -> tuple[int, int, int, str | None, int] | None:
    return None


def _no_frames(memory: Buffer, end: int, max_bytes: int, /) -> tuple[list[memoryview], int]:
    return [], 0


_module = _load()
IMPLEMENTATION = "plain" if _module is None else "compiled"

request_header: Callable[[Buffer], tuple[int, int, int, str | None, int] | None]
"""Key, version, correlation id and client id of a request, and the position behind them; None: `frames` reads them."""

whole_frames: Callable[[Buffer, int, int], tuple[list[memoryview], int]]
"""Copies of frames that are whole in the first bytes of the memory, and the position behind the last of them.

`connection` cuts those that it leaves: without the extension all of them.
"""

memory_of: Callable[[int], bytearray]
"""A bytearray of this size whose content is undefined."""

memory_of = bytearray if _module is None else _module.memory_of
request_header = _no_header if _module is None else _module.request_header
whole_frames = _no_frames if _module is None else _module.whole_frames


def table(message: type, version: int) -> Table | None:
    """The table of a message in a version; None if the plain codec has to do the work."""
    if _module is None:
        return None
    from felice.protocol.kernels.plan import Planner

    found: Table = Planner(_module, message, version).struct(message)
    return found
