"""Every error code of the protocol with its message and the client's reaction, and the exception with a code.

Keeps true:  every error that a client can receive is a row here.
             `retriable` and `refreshes_metadata` agree with Apache Kafka's Java client.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class _Advice(IntEnum):
    """The reaction of the Java client to an error."""

    FAIL = 0
    RETRY = 1
    REFRESH = 2
    """Refresh metadata, then try again."""


_FAIL, _RETRY, _REFRESH = _Advice


class ErrorCode(IntEnum):
    """An error code of the wire protocol, with its message."""

    retriable: bool
    refreshes_metadata: bool
    message: str

    def __new__(cls, code: int, message: str = "", advice: _Advice = _FAIL) -> Self:
        """Create a member that is an int and has the fields of its row."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = advice is not _FAIL
        member.refreshes_metadata = advice is _REFRESH
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the row of `code`. An unknown code, from a newer broker, becomes UNKNOWN_SERVER_ERROR."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = -1, "The broker met an error it did not expect."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside what the partition holds."
    CORRUPT_MESSAGE = 2, "A record batch is damaged or malformed.", _RETRY
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This broker does not know the topic or partition.", _REFRESH
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", _REFRESH
    NOT_LEADER_OR_FOLLOWER = 6, "This broker is not the leader, nor a replica that may answer.", _REFRESH
    REQUEST_TIMED_OUT = 7, "The request was not done in time.", _RETRY
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available here.", _REFRESH
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than the topic allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller has a newer epoch."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata committed with an offset is too large."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", _REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "No coordinator is available.", _RETRY
    NOT_COORDINATOR = 16, "This broker is not the coordinator.", _RETRY
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid, or the topic is internal."
    RECORD_LIST_TOO_LARGE = 18, "The record batches are larger than a segment."
    NOT_ENOUGH_REPLICAS = (
        19,
        "Fewer replicas are in sync than acks=all requires; nothing was written.",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The records were written, but fewer replicas are in sync than acks=all requires.",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the broker's limits."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committed offsets are too large to store."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorised for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorised for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorised for the cluster."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside the range that the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of authentication."
    UNSUPPORTED_VERSION = 35, "The broker does not support this version."
    TOPIC_ALREADY_EXISTS = 36, "The topic exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "A configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", _RETRY
    INVALID_REQUEST = 42, "The request contradicts itself or the rules of its API."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format on the broker is too old for this."
    POLICY_VIOLATION = 44, "The request breaks a policy of the broker."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The sequence number does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the log's."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above the broker's maximum."
    CONCURRENT_TRANSACTIONS = 51, "The previous transaction is still being completed.", _RETRY
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer transaction coordinator has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorised for the transactional id."
    SECURITY_DISABLED = 54, "The broker has no authorizer."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk that holds the partition failed.", _REFRESH
    LOG_DIR_NOT_FOUND = 57, "The log directory is not configured."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The partition has forgotten this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of partitions is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "Only an owner or renewer may do this to a delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens need an authenticated secure channel."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorised for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, "The group has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session does not exist.", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "The epoch of the fetch session is not the expected one.", _RETRY
    LISTENER_NOT_FOUND = 72, "The leader has no listener of the name on which the question came.", _REFRESH
    TOPIC_DELETION_DISABLED = 73, "Topics may not be deleted (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, "The leader epoch in the request is older than the broker's.", _REFRESH
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch in the request is newer than the broker's.", _RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version cannot carry the compression in use."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet.", _RETRY
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", _REFRESH
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available.", _REFRESH
    ELECTION_NOT_NEEDED = 84, "The partition has the leader it should have.", _REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "A record breaks a rule of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction that commits these offsets is still open.", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is exceeded.", _RETRY
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, "The voters named are not those of the quorum."
    INVALID_UPDATE_VERSION = 95, "The given update version is invalid."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This broker does not know the topic id.", _REFRESH
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker has this id already."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id is not that of the log.", _REFRESH
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not that of this cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session mixes topic names and topic ids.", _RETRY
    INELIGIBLE_REPLICA = 107, "The replica may not be in the ISR."
    NEW_LEADER_ELECTED = 108, "The change elected a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage only."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is fenced; join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The broker does not offer this assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is not the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came to an endpoint of the other type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "No controller has this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than allowed."
    INVALID_REGISTRATION = 119, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction must be aborted; the producer may go on after that."
    INVALID_RECORD_STATE = 121, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session does not exist.", _RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "The epoch of the share session is not the expected one.", _RETRY
    FENCED_STATE_EPOCH = 124, "The state's epoch is fenced."
    INVALID_VOTER_KEY = 125, "The voter's key is not the expected one."
    DUPLICATE_VOTER = 126, "The voter is in the quorum already."
    VOTER_NOT_FOUND = 127, "The voter is not in the quorum."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client must rediscover the cluster from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is fenced."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are as many share sessions as may be.", _RETRY


_MESSAGE_MAX_CHARACTERS = 4096
_CUT = " ... (cut)"


def _cut(message: str) -> str:
    if len(message) <= _MESSAGE_MAX_CHARACTERS:
        return message
    return message[: _MESSAGE_MAX_CHARACTERS - len(_CUT)] + _CUT


class ApiError(Exception):
    """A failure with an error code, which a handler returns to a client, or a client raises to its user.

    A long message is cut, because it may repeat a text of the client such as a name of 32 KB, and must fit into every
    response.
    """

    def __init__(self, code: int, message: str = "") -> None:
        self.code = ErrorCode.of(code)
        self.message = _cut(message) or self.code.message
        super().__init__(f"{self.code.name}: {self.message}")


class BrokenInvariant(ApiError):
    """A promise of docs/invariants.md does not hold, because of a bug or of damage. `name` is its number in that page.

    The code that catches this error stops the affected part, for example a partition, and logs the error once. `facts`
    are the values that contradict the promise.
    """

    def __init__(self, name: str, what: str, **facts: object) -> None:
        self.name, self.facts = name, facts
        values = ", ".join(f"{key}={value}" for key, value in facts.items())
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"invariant {name} is broken: {what} ({values})")
