"""Enumerations of the administrative API, with confluent_kafka's numbers.

If Kafka's protocol has a name or another number for a member, it is an attribute of the member: `wire_name`,
`wire_type`.
"""

from __future__ import annotations

from enum import Enum
from typing import Self

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED


class OrderedEnum(Enum):
    """An enumeration whose members compare by value."""

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if type(other) is type(self) else NotImplemented

    @classmethod
    def chosen(cls, given: object) -> Self:
        """Return the member given, or the one with this name (in any case) or number.

        Raises `ValueError` for a name or number that no member has, `TypeError` for anything else.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str | int):
            raise TypeError(f"expected a {cls.__name__}, its name or its number, not {given!r}")
        for member in cls:
            if given == member.value or (isinstance(given, str) and given.upper() == member.name):
                return member
        raise ValueError(f"{given!r} is not one of {', '.join(kind.name for kind in cls)}")


class ResourceType(OrderedEnum):
    """The kind of resource that a config or an access rule applies to.

    An access rule of BROKER is one of the cluster. confluent_kafka does not have the last two members.
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


# The protocol's numbers of config resources.
WIRE_RESOURCE_TYPES = {ResourceType.TOPIC: 2, ResourceType.BROKER: 4, ResourceType.GROUP: 32}


class AlterConfigOpType(OrderedEnum):
    """How to change a config: set it, return to the default, append to a list, remove from a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(OrderedEnum):
    """Where the value of a config comes from. Described entries have the number, as in confluent_kafka."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class IsolationLevel(OrderedEnum):
    """Whether readers see offsets up to the high watermark, or only up to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(OrderedEnum):
    """Which replica may become leader: the preferred one, or (if no replica is in sync) any live one."""

    PREFERRED = 0
    UNCLEAN = 1


class ConsumerGroupState(OrderedEnum):
    """The state of a consumer group."""

    UNKNOWN = 0
    UNKOWN = 0  # confluent_kafka's misspelling, which programs may use
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5
    # States of KIP-848 groups; confluent_kafka has no members for them.
    ASSIGNING = 6
    RECONCILING = 7

    @property
    def wire_name(self) -> str:
        """The state's name in the protocol."""
        return _STATE_NAMES[self.value]

    @classmethod
    def of(cls, name: str) -> ConsumerGroupState:
        """Return the state with this protocol name, in any case."""
        return next((state for state in cls if state.wire_name.lower() == name.lower()), cls.UNKNOWN)


_STATE_NAMES = (
    "Unknown",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)


class ConsumerGroupType(OrderedEnum):
    """The group protocol of the members: classic, or KIP-848's."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2

    @property
    def wire_name(self) -> str:
        """The type's name in the protocol."""
        return self.name.lower()

    @classmethod
    def of(cls, name: str) -> ConsumerGroupType:
        """Return the type with this protocol name, in any case."""
        return next((kind for kind in cls if kind.wire_name == name.lower()), cls.UNKNOWN)


class AclOperation(OrderedEnum):
    """An operation that a rule allows or denies. The numbers are the protocol's.

    confluent_kafka does not have the last two members.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermissionType(OrderedEnum):
    """Whether a rule allows or denies. The numbers are the protocol's."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePatternType(OrderedEnum):
    """How a rule's resource name matches resources. The numbers are the protocol's."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ScramMechanism(OrderedEnum):
    """The hash function of a SCRAM credential."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


def authorized_operations(bits: int) -> list[AclOperation] | None:
    """Return the operations in a broker's bit set, lowest number first; None if they were not requested."""
    if bits == OPERATIONS_NOT_REQUESTED:
        return None
    return [operation for operation in AclOperation if bits >> operation.value & 1]
