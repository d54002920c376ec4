"""The standard streams of a process that was started with some of them closed: `command <&-`.

Keeps true: no file or socket gets the descriptor of a closed stream, so nothing is read from it or printed into it.
            What is printed to a closed stream is dropped, but records are refused: a group would commit them unseen.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, BinaryIO, TextIO

from felice.cli.faults import Fault


def open_missing() -> None:
    """Gives each closed stream a descriptor and a Python stream. Called once, when the process starts."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is this one.
            os.open(os.devnull, os.O_RDWR)
    # Python has None for a stream that was closed when it started.
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_NoInput()))
    if sys.stdout is None:
        sys.stdout = _NoOutput(open(os.devnull, "wb"))  # noqa: SIM115  open as long as the process
    if sys.stderr is None:
        sys.stderr = _NoOutput(open(os.devnull, "wb"))  # noqa: SIM115


def standard_output() -> BinaryIO:
    """Standard output for records; raises `Fault` if it is closed."""
    if isinstance(sys.stdout, _NoOutput):
        raise Fault("standard output is closed: there is nowhere to print records to")
    out: TextIO = sys.stdout
    return out.buffer


class _NoInput(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        raise Fault("standard input is closed: there is nothing to read")


class _NoOutput(io.TextIOWrapper):
    pass
