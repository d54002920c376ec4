"""The names of confluent_kafka's C module, for programs that import from it: its classes, and its constants."""

from __future__ import annotations

from felice.client.admin.constants import *  # noqa: F403  # all of them
from felice.client.admin.model import NewPartitions as NewPartitions
from felice.client.admin.model import NewTopic as NewTopic
from felice.client.confluent.consumer import Consumer as Consumer
from felice.client.confluent.functions import consistent as consistent
from felice.client.confluent.functions import fnv1a as fnv1a
from felice.client.confluent.functions import libversion as libversion
from felice.client.confluent.functions import murmur2 as murmur2
from felice.client.confluent.functions import version as version
from felice.client.confluent.producer import Producer as Producer
from felice.client.error import ConcurrentModificationException as ConcurrentModificationException
from felice.client.error import IllegalStateException as IllegalStateException
from felice.client.error import KafkaError as KafkaError
from felice.client.error import KafkaException as KafkaException
from felice.client.model import OFFSET_BEGINNING as OFFSET_BEGINNING
from felice.client.model import OFFSET_END as OFFSET_END
from felice.client.model import OFFSET_INVALID as OFFSET_INVALID
from felice.client.model import OFFSET_STORED as OFFSET_STORED
from felice.client.model import TIMESTAMP_CREATE_TIME as TIMESTAMP_CREATE_TIME
from felice.client.model import TIMESTAMP_LOG_APPEND_TIME as TIMESTAMP_LOG_APPEND_TIME
from felice.client.model import TIMESTAMP_NOT_AVAILABLE as TIMESTAMP_NOT_AVAILABLE
from felice.client.model import Message as Message
from felice.client.model import TopicPartition as TopicPartition
from felice.client.model import Uuid as Uuid

ACL_OPERATION_ALL = 2
ACL_OPERATION_ALTER = 7
ACL_OPERATION_ALTER_CONFIGS = 11
ACL_OPERATION_ANY = 1
ACL_OPERATION_CLUSTER_ACTION = 9
ACL_OPERATION_CREATE = 5
ACL_OPERATION_DELETE = 6
ACL_OPERATION_DESCRIBE = 8
ACL_OPERATION_DESCRIBE_CONFIGS = 10
ACL_OPERATION_IDEMPOTENT_WRITE = 12
ACL_OPERATION_READ = 3
ACL_OPERATION_UNKNOWN = 0
ACL_OPERATION_WRITE = 4
ACL_PERMISSION_TYPE_ALLOW = 3
ACL_PERMISSION_TYPE_ANY = 1
ACL_PERMISSION_TYPE_DENY = 2
ACL_PERMISSION_TYPE_UNKNOWN = 0
ALTER_CONFIG_OP_TYPE_APPEND = 2
ALTER_CONFIG_OP_TYPE_DELETE = 1
ALTER_CONFIG_OP_TYPE_SET = 0
ALTER_CONFIG_OP_TYPE_SUBTRACT = 3
CONSUMER_GROUP_STATE_COMPLETING_REBALANCE = 2
CONSUMER_GROUP_STATE_DEAD = 4
CONSUMER_GROUP_STATE_EMPTY = 5
CONSUMER_GROUP_STATE_PREPARING_REBALANCE = 1
CONSUMER_GROUP_STATE_STABLE = 3
CONSUMER_GROUP_STATE_UNKNOWN = 0
CONSUMER_GROUP_TYPE_CLASSIC = 2
CONSUMER_GROUP_TYPE_CONSUMER = 1
CONSUMER_GROUP_TYPE_UNKNOWN = 0
ELECTION_TYPE_PREFERRED = 0
ELECTION_TYPE_UNCLEAN = 1
ISOLATION_LEVEL_READ_COMMITTED = 1
ISOLATION_LEVEL_READ_UNCOMMITTED = 0
OFFSET_SPEC_EARLIEST = -2
OFFSET_SPEC_LATEST = -1
OFFSET_SPEC_MAX_TIMESTAMP = -3
RESOURCE_PATTERN_ANY = 1
RESOURCE_PATTERN_LITERAL = 3
RESOURCE_PATTERN_MATCH = 2
RESOURCE_PATTERN_PREFIXED = 4
RESOURCE_PATTERN_UNKNOWN = 0
SCRAM_MECHANISM_SHA_256 = 1
SCRAM_MECHANISM_SHA_512 = 2
SCRAM_MECHANISM_UNKNOWN = 0
SHARE_ACKNOWLEDGE_TYPE_ACCEPT = 1
SHARE_ACKNOWLEDGE_TYPE_REJECT = 3
SHARE_ACKNOWLEDGE_TYPE_RELEASE = 2
