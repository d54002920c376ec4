"""The program that Spark starts for Python: the driver's Python, whose workers report early (`early_worker`).

Keeps true: every program of Spark runs in the Python of the driver, with the arguments that Spark gave.
Leaves:     Python on other machines, which do not have this program.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from felice.env.own_directory import OwnDirectory
from felice.pipelines.spark.early_worker import PATH, PORT

_PROGRAM = f"""#!/bin/sh
if [ -n "${PORT}${PATH}" ]; then
  exec {{python}} -m felice.pipelines.spark.early_worker "$@"
fi
exec {{python}} "$@"
"""


def early_python(chosen: str) -> str:
    """The program in place of the Python that was `chosen`; `chosen` itself if it is not the Python of this process."""
    return (_program() or chosen) if _is_ours(chosen) else chosen


def _is_ours(chosen: str) -> bool:
    found, own = shutil.which(chosen), Path(sys.executable)
    # Environments share their Python by links, so its directory must be the same, too.
    return found is not None and Path(found).parent == own.parent and Path(found).samefile(own)


@lru_cache
def _directory() -> OwnDirectory:
    """One for the process, which removes it at its end."""
    return OwnDirectory("felice-python-")


@lru_cache
def _program() -> str | None:
    """None if this machine does not run it, for example because the temporary directory may hold no programs."""
    program = _directory().path / "python"
    program.write_text(_PROGRAM.format(python=shlex.quote(sys.executable)))
    program.chmod(0o755)
    return str(program) if os.access("/bin/sh", os.X_OK) and os.access(program, os.X_OK) else None
