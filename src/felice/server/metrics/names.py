"""The names of Kafka's metrics in Prometheus. Kafka itself has MBeans; three ways to name them are in use.

Felice knows each metric by its MBean. `exposed` gives the name that a dialect's rules make of it:

| the end of an MBean's name       | strimzi                | confluent         | reporter                |
|----------------------------------|------------------------|-------------------|-------------------------|
| LeaderCount                      | leadercount            | leadercount       | leadercount             |
| IsrShrinksPerSec                 | isrshrinks_total       | isrshrinkspersec  | isrshrinkspersec_total  |
| NetworkProcessorAvgIdlePercent   | ...avgidle_percent     | ...avgidlepercent | ...avgidlepercent       |

Before it come the MBean's domain and type: `kafka_server_replicamanager_leadercount`.
"""

from __future__ import annotations

import re
from enum import Enum

from felice.dataclass import dataclass

_PER_SECOND = "PerSec"
_PERCENT = "Percent"
# Only what stands before `="` is a label's name: a quote inside a value is escaped.
_LABEL_NAME = r'(?:^|(?<=,))[a-zA-Z]+(?==")'


class Dialect(Enum):
    """A way to name Kafka's metrics, by the project whose dashboards use it."""

    STRIMZI = "strimzi"
    """The rules of Strimzi's examples and of jmx_exporter's kafka-2_0_0."""
    CONFLUENT = "confluent"
    """The rules of Confluent's jmx-monitoring-stacks."""
    REPORTER = "reporter"
    """Strimzi's metrics reporter, which runs inside Kafka."""


@dataclass(frozen=True, slots=True)
class MBean:
    """An attribute of one of Kafka's MBeans. `suffix` tells values of one histogram apart."""

    domain: str
    type: str
    name: str
    suffix: str = ""


def exposed(mbean: MBean, dialect: Dialect) -> str:
    """The name of a metric in a dialect."""
    kind = mbean.type.lower()
    kind = kind.replace("-", "") if dialect is Dialect.CONFLUENT else kind.replace("-", "_")
    parts = (mbean.domain.replace(".", "_"), kind, _attribute(mbean.name, dialect))
    return "_".join(parts) + mbean.suffix


def _attribute(name: str, dialect: Dialect) -> str:
    is_strimzi = dialect is Dialect.STRIMZI
    plain = name.lower().replace("-", "_")
    if name.endswith(_PER_SECOND):
        plain = plain.removesuffix(_PER_SECOND.lower()) if is_strimzi else plain
        return plain if dialect is Dialect.CONFLUENT else f"{plain}_total"
    if name.endswith(_PERCENT) and is_strimzi:
        return f"{plain.removesuffix(_PERCENT.lower())}_percent"
    return plain


def labels_in(dialect: Dialect, labels: str) -> str:
    """The labels of a series in a dialect: Confluent's rules lower the case of their names."""
    if dialect is not Dialect.CONFLUENT:
        return labels
    return re.sub(_LABEL_NAME, lambda found: found.group().lower(), labels)
