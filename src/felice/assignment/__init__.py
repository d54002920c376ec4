"""Who consumes what: the partition assignors of Kafka's consumer groups.

Keeps true:  every partition of every topic that somebody subscribes to goes to exactly one of its subscribers
             (the cooperative assignor withholds, for one round, what its old owner has not given up yet).
             The same members and topics give the same assignment, whatever order they come in.

Everything here is a pure function of the members' subscriptions and the topics' partition counts. Leaves to
others: the bytes of the consumer protocol, and when to rebalance.
"""

from felice.assignment.assignors import (
    ASSIGNORS,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    UniformAssignor,
)
from felice.assignment.values import Assignment, RebalanceProtocol, Subscription
from felice.protocol.topic_partition import TopicPartition

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartition",
    "UniformAssignor",
]
