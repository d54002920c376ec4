"""The options of the mirror's connectors, the patterns of topics and groups, and the clients of both clusters."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from felice.client.java_keys import convert_java_keys
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    Validator,
    at_least,
    invalid,
    non_empty,
    one_of,
)
from felice.pipelines.connect.configuration.worker import with_prefix
from felice.pipelines.connect.connectors.mirror.names import Names
from felice.pipelines.java.regex import compiled

SOURCE_ALIAS, TARGET_ALIAS = "source.cluster.alias", "target.cluster.alias"
TOPICS, TOPICS_EXCLUDE = "topics", "topics.exclude"
GROUPS, GROUPS_EXCLUDE = "groups", "groups.exclude"
SYNCS_LOCATION = "offset-syncs.topic.location"
PARTITIONS, ASSIGNED_GROUPS = "task.assigned.partitions", "task.assigned.groups"
"""Options of tasks: what each of them mirrors."""

_PACKAGE = "org.apache.kafka.connect.mirror."
_WITH_PREFIX, _UNCHANGED = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_EXCLUDED_CONFIGS = (
    r"follower\.replication\.throttled\.replicas,leader\.replication\.throttled\.replicas,"
    r"message\.timestamp\.difference\.max\.ms,log\.message\.timestamp\.before\.max\.ms,"
    r"log\.message\.timestamp\.after\.max\.ms,message\.timestamp\.type,unclean\.leader\.election\.enable,"
    r"min\.insync\.replicas"
)

_log = logging.getLogger("felice.connect.mirror")


def _only(*names: str) -> Validator:
    """The classes of Kafka whose work is built in; others are classes of Java."""
    return one_of(*(form for name in names for form in (name, _PACKAGE + name)))


def _patterns(name: str, value: Any) -> None:
    try:
        matching(value)
    except re.error as error:
        raise invalid(name, ",".join(value), f"no regular expression: {error}") from None


def _seconds(name: str, default: int, documentation: str) -> Definition:
    return Definition(name, Type.LONG, default, documentation, _LOW, at_least(1))


def _replicas(name: str, default: int, topics: str) -> Definition:
    return Definition(name, Type.SHORT, default, f"The replicas of {topics}, if created.", _LOW)


def _flag(name: str, documentation: str, *, default: bool = True) -> Definition:
    return Definition(name, Type.BOOLEAN, default, documentation, _LOW)


def _pattern(name: str, default: str, documentation: str) -> Definition:
    return Definition(name, Type.LIST, default.split(","), documentation, _HIGH, _patterns)


COMMON = ConfigDefinitions(
    [
        _flag("enabled", "Whether anything is mirrored from this source to this target."),
        Definition(
            SOURCE_ALIAS,
            Type.STRING,
            documentation="The name of the source cluster.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Definition(TARGET_ALIAS, Type.STRING, "target", "The name of the target cluster.", _HIGH, non_empty),
        *(
            Definition(
                f"{cluster}.cluster.bootstrap.servers",
                Type.STRING,
                documentation=f"The addresses of the {cluster} cluster, with commas between them.",
                importance=_HIGH,
                validator=non_empty,
            )
            for cluster in ("source", "target")
        ),
        Definition(
            "replication.policy.class",
            Type.CLASS,
            _PACKAGE + _WITH_PREFIX,
            f"How mirrored topics are called: {_WITH_PREFIX} puts the source's name before the topic's, "
            f"{_UNCHANGED} keeps it.",
            _LOW,
            _only(_WITH_PREFIX, _UNCHANGED),
        ),
        Definition("replication.policy.separator", Type.STRING, ".", "Stands between both.", _LOW, non_empty),
        _flag(
            "replication.policy.internal.topic.separator.enabled",
            "Whether the mirrors' own topics have this separator, too.",
        ),
        Definition(
            SYNCS_LOCATION,
            Type.STRING,
            "source",
            "The cluster that keeps the topic of offset syncs.",
            _LOW,
            one_of("source", "target"),
        ),
        _replicas("offset-syncs.topic.replication.factor", 3, "the topic of offset syncs"),
        Definition(
            "admin.timeout.ms",
            Type.LONG,
            60_000,
            "The limit of a question to a cluster.",
            _LOW,
            at_least(1),
        ),
        Definition(
            "consumer.poll.timeout.ms",
            Type.LONG,
            1_000,
            "The longest wait of a task for records.",
            _LOW,
            at_least(1),
        ),
    ]
)
_CHOSEN_TOPICS = ConfigDefinitions(
    [
        _pattern(TOPICS, ".*", "The topics that are mirrored: names and regular expressions."),
        _pattern(TOPICS_EXCLUDE, r"mm2.*\.internal,.*\.replica,__.*", "The topics that are not."),
        Definition(
            "topic.filter.class",
            Type.CLASS,
            _PACKAGE + "DefaultTopicFilter",
            "The filter of topics, which is built in.",
            _LOW,
            _only("DefaultTopicFilter"),
        ),
    ]
)
SOURCE = (
    COMMON
    + _CHOSEN_TOPICS
    + ConfigDefinitions(
        [
            _replicas("replication.factor", 2, "mirrored topics"),
            _pattern(
                "config.properties.exclude", _EXCLUDED_CONFIGS, "The options of topics that are not mirrored."
            ),
            Definition(
                "config.property.filter.class",
                Type.CLASS,
                _PACKAGE + "DefaultConfigPropertyFilter",
                "The filter of topics' options, which is built in.",
                _LOW,
                _only("DefaultConfigPropertyFilter"),
            ),
            Definition(
                "use.defaults.from",
                Type.STRING,
                "target",
                "Whether an option that a topic does not set has the target's default, or the source's value.",
                _LOW,
                one_of("source", "target"),
            ),
            _flag("refresh.topics.enabled", "Whether new topics and partitions are looked for."),
            _seconds("refresh.topics.interval.seconds", 600, "How often."),
            _flag("sync.topic.configs.enabled", "Whether the options of topics are mirrored."),
            _seconds("sync.topic.configs.interval.seconds", 600, "How often."),
            _flag(
                "sync.topic.acls.enabled", "Whether the access rules of topics are mirrored, but for writing."
            ),
            _seconds("sync.topic.acls.interval.seconds", 600, "How often."),
            _flag("emit.offset-syncs.enabled", "Whether offset syncs are written; checkpoints need them."),
            Definition(
                "offset.lag.max",
                Type.LONG,
                100,
                "After how many records an offset sync is written.",
                _LOW,
                at_least(0),
            ),
            _flag("heartbeats.replication.enabled", "Whether topics of heartbeats are mirrored."),
        ]
    )
)
CHECKPOINTS = (
    COMMON
    + _CHOSEN_TOPICS
    + ConfigDefinitions(
        [
            _pattern(GROUPS, ".*", "The groups whose offsets are translated: names and regular expressions."),
            _pattern(
                GROUPS_EXCLUDE, "console-consumer-.*,connect-.*,__.*", "The groups whose offsets are not."
            ),
            Definition(
                "group.filter.class",
                Type.CLASS,
                _PACKAGE + "DefaultGroupFilter",
                "The filter of groups, which is built in.",
                _LOW,
                _only("DefaultGroupFilter"),
            ),
            _flag("refresh.groups.enabled", "Whether new groups are looked for."),
            _seconds("refresh.groups.interval.seconds", 600, "How often."),
            _flag("emit.checkpoints.enabled", "Whether checkpoints are written."),
            _seconds("emit.checkpoints.interval.seconds", 60, "How often."),
            _flag(
                "sync.group.offsets.enabled",
                "Whether groups without members in the target get the translated offsets.",
                default=False,
            ),
            _seconds("sync.group.offsets.interval.seconds", 60, "How often."),
            _replicas("checkpoints.topic.replication.factor", 3, "the topic of checkpoints"),
        ]
    )
)
HEARTBEATS = COMMON + ConfigDefinitions(
    [
        _flag("emit.heartbeats.enabled", "Whether heartbeats are written."),
        _seconds("emit.heartbeats.interval.seconds", 1, "How often."),
        _replicas("heartbeats.topic.replication.factor", 3, "the topic of heartbeats"),
    ]
)
LACKING = (
    "add.source.alias.to.metrics",
    "config.properties.blacklist",
    "forwarding.admin.class",
    "groups.blacklist",
    "topics.blacklist",
)
"""Options of Java's classes and metrics, and of older versions: each is refused by its name."""


def names_of(values: Mapping[str, Any]) -> Names:
    """How the connector's topics are called."""
    return Names(
        values["replication.policy.separator"],
        prefixes=not values["replication.policy.class"].endswith(_UNCHANGED),
        separates_internal=values["replication.policy.internal.topic.separator.enabled"],
    )


def matching(patterns: Sequence[str]) -> re.Pattern[str]:
    """A pattern for `fullmatch` of a name by any of them. Raises `re.error`."""
    for one in patterns:
        compiled(one)
    return compiled("|".join(f"(?:{one})" for one in patterns) or "(?!)")


class Chosen:
    """Names that one list of patterns includes, and another does not exclude."""

    def __init__(self, includes: Sequence[str], excludes: Sequence[str]) -> None:
        self._includes, self._excludes = matching(includes), matching(excludes)

    def has(self, name: str) -> bool:
        """Whether a name is chosen."""
        return bool(self._includes.fullmatch(name)) and not self._excludes.fullmatch(name)


def client_options(config: Mapping[str, str], cluster: str, client: str) -> dict[str, str]:
    """The options of a client. `cluster` is `source` or `target`, `client` is `consumer`, `producer` or `admin`.

    They are those with the prefixes `source.cluster.`, `consumer.` and `source.consumer.`: later ones count.
    """
    found: dict[str, str] = {}
    for prefix in (f"{cluster}.cluster.", f"{client}.", f"{cluster}.{client}."):
        found |= with_prefix(config, prefix)
    for name in ("alias", "poll.timeout.ms", "timeout.ms"):  # the mirror's own, which look like a client's
        found.pop(name, None)
    return found


def client_settings(config: Mapping[str, str], cluster: str, client: str) -> dict[str, object]:
    """The settings of a client, from `client_options`.

    Raises `KafkaException` (_INVALID_ARG) for options that cannot be followed.
    """
    settings, without_effect = convert_java_keys(client_options(config, cluster, client))
    if without_effect:
        _log.info("options of the %s's %s without effect: %s", cluster, client, ", ".join(without_effect))
    return dict(settings)
