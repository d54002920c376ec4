"""Calls of the operating system that wait without the interpreter's lock: compiled if the extension was built.

`plain` is the same in Python, which needs the lock again after each call of the system. `IMPLEMENTATION` names the
version that runs. The environment variable `FELICE_PURE=1` selects plain Python.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from felice.env.variables import is_set

if TYPE_CHECKING:
    from felice.env.kernels.plain import receive

    IMPLEMENTATION: str
else:
    try:
        if is_set("FELICE_PURE"):
            raise ModuleNotFoundError("FELICE_PURE asks for plain Python")
        from felice.env.kernels._kernels import receive

        IMPLEMENTATION = "compiled"
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):
            warnings.warn(
                f"the compiled receiver does not fit this version, so plain Python runs instead ({error}); "
                "build it again: pip install --force-reinstall --no-deps felice, or pip install -e . in a clone",
                RuntimeWarning,
                stacklevel=2,
            )
        from felice.env.kernels.plain import receive

        IMPLEMENTATION = "plain"

__all__ = ["IMPLEMENTATION", "receive"]
