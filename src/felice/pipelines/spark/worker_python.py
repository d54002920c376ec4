"""The program that Spark starts as Python: the Python of the driver, forked from a process with all imports.

Keeps true: every program of Spark runs in the Python of the driver, with the arguments that Spark gave. Programs are
            forked (`prepared`) where they can be. Otherwise they are started, and report early (`early_worker`).
Leaves:     Python on other machines, which do not have this program.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import pyspark

from felice.env.forks import Owner
from felice.env.own_directory import OwnDirectory
from felice.pipelines.spark import ask_for_fork, prepared
from felice.pipelines.spark.early_worker import PATH, PORT

_PROGRAM = f"""#!/bin/sh
if [ -n "${PORT}${PATH}" ]; then
  early="-m felice.pipelines.spark.early_worker"
fi
if [ "$1" = -m ] && [ -S {{socket}} ]; then
  exec {{python}} -I -S {{ask_for_fork}} {{socket}} "$early" "$@"
fi
exec {{python}} $early "$@"
"""
_ENDS_WITHIN_S = 30


def early_python(chosen: str) -> str:
    """The program in place of the Python that was `chosen`; `chosen` itself if it is not the Python of this process."""
    return (_program() or chosen) if _is_ours(chosen) else chosen


class PreparedProcess:
    """The process that programs are forked from, as long as Spark runs in this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = Owner()

    def start(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it unless it runs. `environment` is what Spark adds for its workers."""
        if self._process is not None and self._process.poll() is None and self._owner.is_here:
            return
        if _program() is None or not prepared.is_possible(_socket()) or _is_other_spark():
            return
        _socket().unlink(missing_ok=True)
        self._process, self._owner = prepared.start(_socket(), modules, environment), Owner()

    def end(self) -> None:
        """Programs that run go on."""
        if self._process is None or not self._owner.is_here:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_ENDS_WITHIN_S)
        self._process = None


prepared_process = PreparedProcess()
atexit.register(prepared_process.end)


def directory_of_workers() -> Path:
    """A directory of this user alone, which is removed when this process ends."""
    return _directory().path


def _is_ours(chosen: str) -> bool:
    found, own = shutil.which(chosen), Path(sys.executable)
    # Environments share their Python by links, so its directory must be the same, too.
    return found is not None and Path(found).parent == own.parent and Path(found).samefile(own)


def _is_other_spark() -> bool:
    """Then Spark's programs must import its PySpark, not the one of this process."""
    home = os.environ.get("SPARK_HOME")
    return home is not None and Path(home).resolve() != Path(pyspark.__file__).resolve().parent


@lru_cache
def _directory() -> OwnDirectory:
    """One for the process, which removes it at its end."""
    return OwnDirectory("felice-python-")


def _socket() -> Path:
    return _directory().path / "prepared"


@lru_cache
def _program() -> str | None:
    """None if this machine does not run it, for example because the temporary directory may hold no programs."""
    program = _directory().path / "python"
    text = _PROGRAM.format(
        python=shlex.quote(sys.executable),
        ask_for_fork=shlex.quote(ask_for_fork.__file__),
        socket=shlex.quote(str(_socket())),
    )
    program.write_text(text)
    program.chmod(0o755)
    return str(program) if os.access("/bin/sh", os.X_OK) and os.access(program, os.X_OK) else None
