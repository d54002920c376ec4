"""The partition assignors of Kafka's consumer groups.

Keeps true:  every partition of every subscribed topic is assigned to exactly one subscriber. (The cooperative assignor
             withholds a partition for one round if its previous owner has not given it up yet.)
             The same members and topics give the same assignment in every order of arguments.
Leaves:      the encoding of the consumer protocol, and when to rebalance.

Every assignor is a pure function of the members' subscriptions and the topics' partition counts.
"""

from felice.assignment.assignors import (
    ASSIGNORS,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
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
]
