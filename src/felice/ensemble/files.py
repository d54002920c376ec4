"""Finds the jars of ZooKeeper in PySpark, and writes readable configuration files.

It finds the directory of PySpark without importing it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from felice.dataclass import dataclass

_JARS = ("zookeeper-3", "zookeeper-jute-3", "slf4j-api-", "metrics-core-", "snappy-java-")
# They delay a start by half a second, so a node whose log is not needed runs without them.
_LOGGING_JARS = ("log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")
_TLS_JARS = (
    "netty-buffer-",
    "netty-codec-base-",
    "netty-codec-4",
    "netty-common-",
    "netty-handler-4",
    "netty-resolver-4",
    "netty-transport-4",
    "netty-transport-classes-epoll-",
    "netty-transport-native-unix-common-",
)
# How long a follower may take to start, and how far it may fall behind, for any tick length.
_INIT_MS = 20_000
_SYNC_MS = 5_000
_COMMANDS = "conf, cons, dump, envi, isro, mntr, ruok, srvr, stat, wchs"


class EnsembleError(Exception):
    """The ensemble cannot be started or did not come up; the message says why."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one node."""

    client: int
    quorum: int
    election: int


def find_jars(*, with_logs: bool, with_tls: bool) -> list[Path]:
    """Returns the jars of a ZooKeeper server. Raises `EnsembleError` if one is missing."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EnsembleError(
            "ZooKeeper comes with PySpark, which is not installed; try: pip install 'felice[spark]'"
        )
    directory = Path(next(iter(spec.submodule_search_locations))) / "jars"
    found = []
    for prefix in _JARS + (_LOGGING_JARS if with_logs else ()) + (_TLS_JARS if with_tls else ()):
        matching = sorted(directory.glob(f"{prefix}*.jar"))
        if not matching:
            raise EnsembleError(f"this PySpark does not carry {prefix}*.jar in {directory}")
        found.append(matching[0])
    return found


def node_config(
    data_dir: Path,
    host: str,
    all_ports: Sequence[Ports],
    node_id: int,
    tick_ms: int,
    extra: Mapping[str, str],
) -> str:
    """Returns the text of a node's `zoo.cfg`."""
    settings = {
        "dataDir": str(data_dir),
        "clientPort": str(all_ports[node_id - 1].client),
        "clientPortAddress": host,
        "tickTime": str(tick_ms),
        "initLimit": str(max(5, _INIT_MS // tick_ms)),
        "syncLimit": str(max(2, _SYNC_MS // tick_ms)),
        "maxClientCnxns": "0",
        # Small initial log files: the default of 64 MiB per node is too much for a development machine.
        "preAllocSize": "1024",
        "autopurge.snapRetainCount": "3",
        "autopurge.purgeInterval": "1",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": _COMMANDS,
        **extra,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    if len(all_ports) > 1:
        lines += [
            f"server.{number}={host}:{ports.quorum}:{ports.election}"
            for number, ports in enumerate(all_ports, 1)
        ]
    return "# Written at every start by `felice zookeeper start`.\n" + "\n".join(lines) + "\n"


def log_config(path: Path) -> str:
    """Returns a configuration of log4j that writes the log of a node to at most four files of 5 MB."""
    return f"""status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={path}
appender.file.filePattern={path}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{{1}}: %m%n
appender.file.policies.type=SizeBasedTriggeringPolicy
appender.file.policies.size=5MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""
