"""Real ZooKeeper servers for tests: quick to start, and quick to find out that somebody has gone.

`with require_ensemble(tmp_path) as ensemble:` gives `felice.ensemble.Ensemble`, whose nodes can be
killed, paused and started again one by one; `ensemble.leader()` is the one that leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from felice.ensemble import Ensemble, EnsembleError
from felice.env import SystemClock
from felice.metadata.zookeeper import ZooKeeperSettings, ZooKeeperStore

# Sessions are looked after this often, so one ends at most so much later than it asked for.
TICK_MS = 200


def require_ensemble(
    directory: Path,
    nodes: int = 3,
    *,
    settings: Mapping[str, str] | None = None,
    with_tls: bool = False,
    java_options: Sequence[str] = (),
) -> Ensemble:
    """An ensemble, not started yet; skips where there is no Java or no PySpark."""
    # The longest session is twenty ticks unless said otherwise.
    extra = {"maxSessionTimeout": "60000", "forceSync": "no", **(settings or {})}
    try:
        return Ensemble(
            directory,
            nodes,
            0,
            tick_ms=TICK_MS,
            settings=extra,
            with_logs=False,
            with_tls=with_tls,
            java_options=java_options,
        )
    except EnsembleError as missing:
        pytest.skip(str(missing))


async def open_zookeeper(
    connect: str, chroot: str = "", *, session_timeout_ms: int = 30_000, connection_timeout_ms: int = 60_000
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


DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def require_ensemble_with_users(
    directory: Path, users: Mapping[str, str], nodes: int = 1, settings: Mapping[str, str] | None = None
) -> Ensemble:
    """An ensemble where these users (with passwords) may log in by SASL."""
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    jaas = directory / "server-jaas.conf"
    jaas.write_text(f"Server {{ {DIGEST_MODULE} required {known}; }};\n")
    provider = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    option = f"-Djava.security.auth.login.config={jaas}"
    # ZooKeeper's code for logins refers to classes of its TLS.
    return require_ensemble(
        directory, nodes, settings={**provider, **(settings or {})}, with_tls=True, java_options=[option]
    )


def write_login(path: Path, user: str, password: str, section: str = "Client") -> Path:
    """Writes a broker's JAAS file."""
    path.write_text(
        f'{section} {{\n  {DIGEST_MODULE} required\n  username="{user}"\n  password="{password}";\n}};\n'
    )
    return path
