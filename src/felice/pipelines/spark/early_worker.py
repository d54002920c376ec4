"""Starts a Python worker of Spark that reports before it imports PySpark.

Keeps true: Spark's Java hears from the process as soon as Python runs. It waits ten seconds, which no setting changes;
            on a machine with much other work PySpark's imports alone take longer. Java waits without a limit for what
            comes next, the process's id, so the worker's module sends that after its imports.
How:        Such a worker calls `pyspark.util.local_connect_and_auth` to report, and gets the connection that is open.
"""

from __future__ import annotations

import os
import runpy
import socket
import struct
import sys
from collections.abc import Mapping
from typing import BinaryIO, cast

PORT, PATH = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"
"""Java sets one of these for a worker that must connect to it, and none for a daemon and its workers."""
SECRET = "PYTHON_WORKER_FACTORY_SECRET"
_LENGTH = struct.Struct(">i")

Connection = tuple[BinaryIO, socket.socket]


def report(environment: Mapping[str, str]) -> Connection:
    """Connects to Spark's Java and proves that this is its worker. Raises `ConnectionError` if Java refuses it."""
    if (path := environment.get(PATH)) is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(path)
        return _stream(sock, environment), sock
    host = "::1" if environment.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    sock = socket.create_connection((host, int(environment[PORT])))
    stream = _stream(sock, environment)
    secret = environment[SECRET].encode()
    stream.write(_LENGTH.pack(len(secret)) + secret)
    stream.flush()
    answer = stream.read(*_LENGTH.unpack(stream.read(_LENGTH.size)))
    if answer != b"ok":
        raise ConnectionError(f"Spark refused its worker: {answer!r}")
    return stream, sock


def _stream(sock: socket.socket, environment: Mapping[str, str]) -> BinaryIO:
    return cast(BinaryIO, sock.makefile("rwb", int(environment.get("SPARK_BUFFER_SIZE", 65536))))


def main() -> None:
    """Report, then run the module as `python -m` does."""
    connection = report(os.environ)
    _, module, *arguments = sys.argv[1:]
    import pyspark.util

    pyspark.util.local_connect_and_auth = lambda *address: connection
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
