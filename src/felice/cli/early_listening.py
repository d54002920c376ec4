"""Listens for clients before the broker's modules are imported.

Most of the time of a start is the import of modules. A client that is started together with the broker would be refused
meanwhile, and try again after a pause: librdkafka's pauses double up to 640 ms and more. The kernel keeps early
connections until the broker is ready.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

# The default of socket.listen.backlog.size. The broker sets its own when it is ready.
_BACKLOG = 1024


@contextmanager
def listening_early(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Listens at an IPv4 address. Yields no socket for other addresses, and if the address cannot be used.

    The broker then listens itself, and reports what is wrong.
    """
    with ExitStack() as stack:
        try:
            socket.inet_pton(socket.AF_INET, host)
            sockets = (
                [stack.enter_context(socket.create_server((host, port), backlog=_BACKLOG))] if port else []
            )
        except OSError:
            sockets = []
        yield sockets
