"""The options of a worker as a process: standalone or distributed, its address, topics, files and limits.

Keeps true:  names and defaults are those of Kafka Connect 4.3. An option that cannot be followed is refused when
             leaving it out would make the worker less safe, and is named in a warning otherwise (`WITHOUT_EFFECT`).
Differs:     options that begin with `spark.` are those of Spark's session, `spark.master` among them; `task.slots` is
             the most tasks that a worker runs, and `task.restart.max.attempts` how often one is restarted by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.connector import HEADER_CONVERTER, KEY_CONVERTER, VALUE_CONVERTER
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    invalid,
    one_of,
)
from felice.pipelines.connect.configuration.overrides import (
    ALLOWED_OVERRIDES,
    OVERRIDE_POLICY,
    POLICIES,
)
from felice.pipelines.connect.configuration.worker import (
    BOOTSTRAP,
    EXACTLY_ONCE,
    GROUP,
    OFFSETS_TOPIC,
    TASK_OPTIONS,
)
from felice.pipelines.connect.model.errors import ConfigError

OFFSETS_FILE = "offset.storage.file.filename"
CONFIG_TOPIC, STATUS_TOPIC = "config.storage.topic", "status.storage.topic"
LISTENERS, GRACE_MS = "listeners", "task.shutdown.graceful.timeout.ms"
ADVERTISED_HOST, ADVERTISED_PORT = "rest.advertised.host.name", "rest.advertised.port"
TOPIC_TRACKING, TOPIC_RESET = "topic.tracking.enable", "topic.tracking.allow.reset"
SESSION_MS, HEARTBEAT_MS, REBALANCE_DELAY_MS = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "scheduled.rebalance.max.delay.ms",
)
SLOTS, RESTARTS = "task.slots", "task.restart.max.attempts"
USERS_FILE = "rest.users.file"
_SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
SPARK = "spark."
"""The beginning of options of Spark's session."""
DEFAULT_PORT = 8083

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _listeners(name: str, value: Any) -> None:
    for one in value:
        parts = urlsplit(one)
        try:
            is_whole = parts.port is not None
        except ValueError:
            is_whole = False
        if parts.scheme.lower() not in ("http", "https") or not is_whole:
            raise invalid(name, one, "expected http://host:port or https://host:port")
    if len(value) != 1:
        raise invalid(name, ",".join(value), "a worker has one listener")


def _port(name: str, value: Any) -> None:
    if value is not None and not 0 < value < 65_536:
        raise invalid(name, value, "expected a port from 1 to 65535")


_COMMON = [
    Definition(
        LISTENERS,
        Type.LIST,
        [f"http://127.0.0.1:{DEFAULT_PORT}"],
        "Where the REST API listens, as http://host:port. An empty host is every address.",
        _LOW,
        validator=_listeners,
    ),
    Definition(ADVERTISED_HOST, Type.STRING, None, "The host at which other workers reach this one.", _LOW),
    Definition(
        ADVERTISED_PORT,
        Type.INT,
        None,
        "The port at which other workers reach this one.",
        _LOW,
        validator=_port,
    ),
    Definition(
        GRACE_MS,
        Type.LONG,
        5_000,
        "The time in which a task must stop. Then it is cancelled.",
        _LOW,
        validator=at_least(0),
    ),
    Definition(TOPIC_TRACKING, Type.BOOLEAN, True, "Whether the topics that connectors use are noted.", _LOW),
    Definition(
        TOPIC_RESET, Type.BOOLEAN, True, "Whether a user may make the worker forget these topics.", _LOW
    ),
    Definition(
        OVERRIDE_POLICY,
        Type.STRING,
        "All",
        f"Which options of clients a connector may override: {', '.join(POLICIES)}.",
        _MEDIUM,
        one_of(*POLICIES),
    ),
    Definition(
        ALLOWED_OVERRIDES,
        Type.LIST,
        [],
        "With the policy Allowlist, the options of clients that a connector may override.",
        _MEDIUM,
    ),
    Definition(
        USERS_FILE,
        Type.STRING,
        None,
        "The file of the users that may use the REST API (felice users add). Without it nobody logs in.",
        _MEDIUM,
    ),
    Definition(
        RESTARTS,
        Type.INT,
        0,
        "How many times in a row a task that failed is started again by itself, after waits of 1 s to 60 s.",
        _LOW,
        validator=at_least(0),
    ),
    Definition(
        SLOTS,
        Type.INT,
        64,
        "The most tasks that the worker runs. A waiting task takes memory, and no core.",
        _LOW,
        validator=at_least(1),
    ),
]

STANDALONE = TASK_OPTIONS + ConfigDefinitions(
    [
        *_COMMON,
        Definition(
            OFFSETS_FILE, Type.STRING, documentation="The file of the offsets of sources.", importance=_HIGH
        ),
    ]
)
"""The options of a standalone worker."""


def _of_topic(kind: str, partitions: int | None) -> list[Definition]:
    """The options of one of the worker's topics, but its name."""
    found = [
        Definition(
            f"{kind}.storage.replication.factor",
            Type.SHORT,
            3,
            f"The replicas of the {kind} topic, if it is created.",
            _LOW,
        )
    ]
    if partitions is not None:
        found.append(
            Definition(
                f"{kind}.storage.partitions",
                Type.INT,
                partitions,
                f"The partitions of the {kind} topic, if it is created.",
                _LOW,
                validator=at_least(1),
            )
        )
    return found


DISTRIBUTED = ConfigDefinitions(
    [
        *(one for one in TASK_OPTIONS if one.name not in (GROUP, OFFSETS_TOPIC)),
        *_COMMON,
        Definition(GROUP, Type.STRING, documentation="The name of the group of workers.", importance=_HIGH),
        Definition(OFFSETS_TOPIC, Type.STRING, documentation="The topic of offsets.", importance=_HIGH),
        Definition(CONFIG_TOPIC, Type.STRING, documentation="The topic of configurations.", importance=_HIGH),
        Definition(STATUS_TOPIC, Type.STRING, documentation="The topic of states.", importance=_HIGH),
        *_of_topic("config", None),
        *_of_topic("offset", 25),
        *_of_topic("status", 5),
        Definition(
            SESSION_MS,
            Type.INT,
            10_000,
            "After this time without a heartbeat a worker loses its connectors and tasks.",
            _HIGH,
        ),
        Definition(HEARTBEAT_MS, Type.INT, 3_000, "The time between two heartbeats.", _HIGH),
        Definition(
            REBALANCE_DELAY_MS,
            Type.INT,
            300_000,
            "How long the connectors and tasks of a lost worker wait for its return.",
            _LOW,
            validator=at_least(0),
        ),
    ]
)
"""The options of a distributed worker."""

WITHOUT_EFFECT = frozenset(
    (
        "plugin.path",
        "plugin.discovery",
        "response.http.headers.config",
        "worker.sync.timeout.ms",
        "worker.unsync.backoff.ms",
        "connect.protocol",
        "dedicated.mode.enable.internal.rest",
        "rebalance.timeout.ms",
        "inter.worker.key.generation.algorithm",
        "inter.worker.key.size",
        "inter.worker.key.ttl.ms",
        "inter.worker.signature.algorithm",
        "inter.worker.verification.algorithms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    )
)
"""Kafka's options that say nothing to this worker: Java's plugins and metrics, the protocol between workers, and the
REST API of a mirror, which it always has.
"""
REFUSED = {
    "rest.extension.classes": "extensions are classes of Java; rest.users.file is the file of users that log in",
    "admin.listeners": "the worker has one listener; put a proxy before it to hide /admin",
    "access.control.allow.origin": "pages of other sites may not use the worker; put a proxy before it",
    "access.control.allow.methods": "pages of other sites may not use the worker; put a proxy before it",
    "listeners.https.ssl.client.auth": "set ssl.client.auth",
}
"""Kafka's options without which a worker would not be what its user wants, with the reason."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The options of a worker: as they were given, their values, and the names of those without effect."""

    given: Mapping[str, str]
    values: Mapping[str, Any]
    without_effect: tuple[str, ...]

    @property
    def client(self) -> dict[str, str]:
        """The options of the worker's own clients: those that stand for no option of the worker."""
        found = {name: text for name, text in self.given.items() if is_of_clients(name)}
        return {BOOTSTRAP: self.values[BOOTSTRAP], **found}

    @property
    def spark(self) -> dict[str, str]:
        """The options of Spark's session."""
        return {name: text for name, text in self.given.items() if name.startswith(SPARK)}

    @property
    def is_exactly_once(self) -> bool:
        """Whether sources write in transactions."""
        return str(self.values[EXACTLY_ONCE]).lower() == "enabled"


def worker_config(given: Mapping[str, str], *, distributed: bool) -> WorkerConfig:
    """Reads the options of a worker. Raises `ConfigError`."""
    for name, why in REFUSED.items():
        if name in given:
            raise ConfigError(f"the option {name} cannot be followed: {why}")
    values = (DISTRIBUTED if distributed else STANDALONE).parse(given)
    for name in (KEY_CONVERTER, VALUE_CONVERTER):
        if not given.get(name):
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
    given = {HEADER_CONVERTER: _SIMPLE, **given}
    return WorkerConfig(given, values, tuple(sorted(WITHOUT_EFFECT & given.keys())))


_OWN = frozenset(one.name for one in (*STANDALONE, *DISTRIBUTED)) | WITHOUT_EFFECT
_OWN_PREFIXES = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter",
    "value.converter",
    "header.converter",
    "config.providers",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "listeners",
    SPARK,
)


def is_of_clients(name: str) -> bool:
    """Whether an option stands for no option of the worker, and so is one of its own clients."""
    return name not in _OWN and not name.startswith(_OWN_PREFIXES)
