"""Real ZooKeeper servers for tests: quick to start, and quick to find out that somebody has gone.

`with require_ensemble(tmp_path) as ensemble:` gives `felice.ensemble.Ensemble`, whose nodes can be
killed, paused and started again one by one; `ensemble.leader()` is the one that leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from felice.ensemble import Ensemble, EnsembleError
from felice.env import SystemClock
from felice.metadata.zookeeper import ZooKeeperSettings, ZooKeeperStore

# Sessions are looked after this often, so one ends at most so much later than it asked for.
TICK_MS = 200


def require_ensemble(
    directory: Path, nodes: int = 3, *, settings: Mapping[str, str] | None = None, with_tls: bool = False
) -> Ensemble:
    """An ensemble, not started yet; skips where there is no Java or no PySpark."""
    # The longest session is twenty ticks unless said otherwise.
    extra = {"maxSessionTimeout": "60000", "forceSync": "no", **(settings or {})}
    try:
        return Ensemble(
            directory, nodes, 0, tick_ms=TICK_MS, settings=extra, with_logs=False, with_tls=with_tls
        )
    except EnsembleError as missing:
        pytest.skip(str(missing))


async def open_zookeeper(
    connect: str, chroot: str = "", *, session_timeout_ms: int = 4_000, connection_timeout_ms: int = 15_000
) -> ZooKeeperStore:
    hosts = tuple(connect.split(","))
    settings = ZooKeeperSettings(
        hosts, chroot, session_timeout_ms=session_timeout_ms, connection_timeout_ms=connection_timeout_ms
    )
    return await ZooKeeperStore.open(settings, SystemClock())


def secure_port(port: int, certificates: Path) -> dict[str, str]:
    """Settings of a node that takes TLS on this port, from clients with a certificate (`peers.certificates`)."""
    return {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates / "server.pem"),
        "ssl.trustStore.location": str(certificates / "ca.pem"),
    }
