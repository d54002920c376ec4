"""Tells systemd that the service is ready or stops (sd_notify): a datagram to the socket that NOTIFY_SOCKET names.

Without the variable nothing is sent. A socket that cannot be written is no reason to fail.
"""

from __future__ import annotations

import asyncio
import os
import socket

NOTIFY_SOCKET = "NOTIFY_SOCKET"


class ServiceManager:
    """The notifications of one service. After `ready`, systemd's watchdog is notified while the event loop runs."""

    def __init__(self) -> None:
        self._address = os.environ.get(NOTIFY_SOCKET, "")
        self._interval_s = _watchdog_interval_s()
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """The service serves. `systemctl status` shows the status."""
        self._send(f"READY=1\nSTATUS={status}")
        self._watch()

    def stopping(self) -> None:
        """The service begins to stop."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def stopped(self) -> None:
        """Ends the watch."""
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        if self._address and self._interval_s > 0:
            self._send("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._watch)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is in Linux's abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            try:
                sending.sendto(message.encode(), address)
            except OSError:
                return


def _watchdog_interval_s() -> float:
    """Half of the time after which systemd restarts a silent service; 0 without a watchdog for this process."""
    text, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not text.isdigit() or (process and process != str(os.getpid())):
        return 0.0
    return int(text) / 2_000_000
