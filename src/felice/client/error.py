"""Errors as applications see them: `KafkaError` in a message or a report, `KafkaException` when raised.

Keeps true:  Every code of the protocol, and every local code, has one name and one text. The names are those that
             applications of librdkafka already use. Inside the client, a failure is an `ApiError` of the protocol or
             a `KafkaException`; only this module converts an `ApiError` to a `KafkaError`.
"""

from __future__ import annotations

import builtins
import os
import re
import ssl
from collections.abc import Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any

from felice.client.arguments import expect
from felice.protocol.errors import ApiError, ErrorCode

# librdkafka's names from before Kafka renamed these errors; all other names are the protocol's.
_OLD_NAMES = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    2: "INVALID_MSG",
    3: "UNKNOWN_TOPIC_OR_PART",
    4: "INVALID_MSG_SIZE",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MSG_SIZE_TOO_LARGE",
    11: "STALE_CTRL_EPOCH",
    17: "TOPIC_EXCEPTION",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
}

_LOCAL = {
    -199: ("_BAD_MSG", "Bad message format"),
    -198: ("_BAD_COMPRESSION", "Invalid compressed data"),
    -197: ("_DESTROY", "The client was closed"),
    -196: ("_FAIL", "Communication failure with broker"),
    -195: ("_TRANSPORT", "Broker transport failure"),
    -194: ("_CRIT_SYS_RESOURCE", "Critical system resource failure"),
    -193: ("_RESOLVE", "Host resolution failure"),
    -192: ("_MSG_TIMED_OUT", "Message timed out"),
    -191: ("_PARTITION_EOF", "Broker: No more messages"),
    -190: ("_UNKNOWN_PARTITION", "Unknown partition"),
    -189: ("_FS", "File or filesystem error"),
    -188: ("_UNKNOWN_TOPIC", "Unknown topic"),
    -187: ("_ALL_BROKERS_DOWN", "All broker connections are down"),
    -186: ("_INVALID_ARG", "Invalid argument or configuration"),
    -185: ("_TIMED_OUT", "Timed out"),
    -184: ("_QUEUE_FULL", "Queue full"),
    -183: ("_ISR_INSUFF", "ISR count insufficient"),
    -182: ("_NODE_UPDATE", "Broker node update"),
    -181: ("_SSL", "SSL error"),
    -180: ("_WAIT_COORD", "Waiting for coordinator"),
    -179: ("_UNKNOWN_GROUP", "Unknown group"),
    -178: ("_IN_PROGRESS", "Operation in progress"),
    -177: ("_PREV_IN_PROGRESS", "Previous operation in progress"),
    -176: ("_EXISTING_SUBSCRIPTION", "Existing subscription"),
    -175: ("_ASSIGN_PARTITIONS", "Assign partitions"),
    -174: ("_REVOKE_PARTITIONS", "Revoke partitions"),
    -173: ("_CONFLICT", "Conflicting use"),
    -172: ("_STATE", "Erroneous state"),
    -171: ("_UNKNOWN_PROTOCOL", "Unknown protocol"),
    -170: ("_NOT_IMPLEMENTED", "Not implemented"),
    -169: ("_AUTHENTICATION", "Authentication failure"),
    -168: ("_NO_OFFSET", "No offset stored"),
    -167: ("_OUTDATED", "Outdated"),
    -166: ("_TIMED_OUT_QUEUE", "Timed out in queue"),
    -165: ("_UNSUPPORTED_FEATURE", "Required feature not supported by broker"),
    -164: ("_WAIT_CACHE", "Awaiting cache update"),
    -163: ("_INTR", "Operation interrupted"),
    -162: ("_KEY_SERIALIZATION", "Key serialization error"),
    -161: ("_VALUE_SERIALIZATION", "Value serialization error"),
    -160: ("_KEY_DESERIALIZATION", "Key deserialization error"),
    -159: ("_VALUE_DESERIALIZATION", "Value deserialization error"),
    -158: ("_PARTIAL", "Partial response"),
    -157: ("_READ_ONLY", "Read-only object"),
    -156: ("_NOENT", "No such entry"),
    -155: ("_UNDERFLOW", "Read underflow"),
    -154: ("_INVALID_TYPE", "Invalid type"),
    -153: ("_RETRY", "Retry operation"),
    -152: ("_PURGE_QUEUE", "Purged in queue"),
    -151: ("_PURGE_INFLIGHT", "Purged in flight"),
    -150: ("_FATAL", "Fatal error"),
    -149: ("_INCONSISTENT", "Inconsistent state"),
    -148: ("_GAPLESS_GUARANTEE", "Gap-less ordering would not be guaranteed"),
    -147: ("_MAX_POLL_EXCEEDED", "Maximum application poll interval (max.poll.interval.ms) exceeded"),
    -146: ("_UNKNOWN_BROKER", "Unknown broker"),
    -145: ("_NOT_CONFIGURED", "Functionality not configured"),
    -144: ("_FENCED", "This instance has been fenced by a newer instance"),
    -143: ("_APPLICATION", "Application generated error"),
    -142: ("_ASSIGNMENT_LOST", "Group partition assignment lost"),
    -141: ("_NOOP", "No operation performed"),
    -140: ("_AUTO_OFFSET_RESET", "No offset to automatically reset to"),
    -139: ("_LOG_TRUNCATION", "Partition log truncation detected"),
    -138: ("_INVALID_DIFFERENT_RECORD", "A different record in the batch was invalid"),
    -137: ("_DESTROY_BROKER", "Broker handle destroyed without termination"),
}


def _names() -> dict[int, str]:
    names = {int(code): _OLD_NAMES.get(int(code), code.name) for code in ErrorCode}
    names.update({code: name for code, (name, _) in _LOCAL.items()})
    return names


_NAMES = _names()


def _text(code: int) -> str:
    if code in _LOCAL:
        text = _LOCAL[code][1]
        return text if text.startswith("Broker:") else f"Local: {text}"
    if code == 0:
        return "Success"
    if code in _NAMES:
        return f"Broker: {ErrorCode(code).message.rstrip('.')}"
    return f"Err-{code}?"


class _Codes(type):
    """Makes every code of the tables above an attribute of the class, by its name."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> int: ...


class KafkaError(metaclass=_Codes):
    """One error: a code, a text, and whether a retry can succeed. It equals its code."""

    __slots__ = ("_code", "_fatal", "_reason", "_retriable", "_txn_requires_abort")

    def __init__(
        self,
        error: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        expect("error", error, int)
        expect("reason", reason, str, NoneType)
        self._code = int(error)
        self._reason = reason or _text(self._code)
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """The code: the protocol's number, or a number below -100 for an error of this client."""
        return self._code

    def name(self) -> builtins.str:
        """The code's name, such as `UNKNOWN_TOPIC_OR_PART` or `_TIMED_OUT`."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> builtins.str:
        """The text: the meaning of the code, and the reason if known."""
        return self._reason

    def retriable(self) -> bool:
        """True if the same call can succeed later."""
        return self._retriable

    def fatal(self) -> bool:
        """True if the client can no longer be used: close it and create a new one."""
        return self._fatal

    def txn_requires_abort(self) -> bool:
        """True if the transaction must be aborted before a new one."""
        return self._txn_requires_abort

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code == other._code
        return self._code == other if isinstance(other, int) else NotImplemented

    def __lt__(self, other: KafkaError | int) -> bool:
        return self._code < int(other)

    def __le__(self, other: KafkaError | int) -> bool:
        return self._code <= int(other)

    def __gt__(self, other: KafkaError | int) -> bool:
        return self._code > int(other)

    def __ge__(self, other: KafkaError | int) -> bool:
        return self._code >= int(other)

    def __int__(self) -> int:
        return self._code

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> builtins.str:
        fatal = "FATAL," if self._fatal else ""
        return f'KafkaError{{{fatal}code={self.name()},val={self._code},str="{self._reason}"}}'

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        return KafkaError, (self._code, self._reason, self._fatal, self._retriable, self._txn_requires_abort)


for _code, _name in _NAMES.items():
    setattr(KafkaError, _name, _code)


class KafkaException(Exception):
    """Raised if there is no message to carry the error; `args[0]` is the `KafkaError`."""

    @property
    def error(self) -> KafkaError:
        """The `KafkaError` given to the constructor."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(first))

    @property
    def code(self) -> int:
        """The error's code."""
        return self.error.code()


class _KafkaClientError(KafkaException):
    """An error with its cause: `exception` was raised by the application's code, and `kafka_message` is the message
    that could not be delivered. It is a `Message`, a type of `model`, which imports this module.
    """

    def __init__(
        self,
        kafka_error: KafkaError,
        exception: Exception | None = None,
        kafka_message: Any = None,
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def name(self) -> str:
        """The error's name, such as `_KEY_DESERIALIZATION`."""
        return self.error.name()


class SerializationError(KafkaException):
    """Raised by serializers and deserializers."""


class ConsumeError(_KafkaClientError):
    """An error while consuming."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key deserializer raised `exception`; `kafka_message` still has the bytes."""

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        super().__init__(
            KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception)), exception, kafka_message
        )


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value deserializer raised `exception`; `kafka_message` still has the bytes."""

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        super().__init__(
            KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception)), exception, kafka_message
        )


class ProduceError(_KafkaClientError):
    """An error while producing."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """The key serializer raised `exception`; nothing was produced."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value serializer raised `exception`; nothing was produced."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)


class IllegalStateException(RuntimeError):
    """A call that the client's state does not allow."""


class ConcurrentModificationException(RuntimeError):
    """Another thread is using a client that only one thread at a time may use."""


def failure(code: int, reason: str | None = None, *, retriable: bool | None = None) -> KafkaException:
    """Return the exception for a code, ready to raise. See `error_of` for the arguments."""
    return KafkaException(error_of(code, reason, retriable=retriable))


def error_of(code: int, reason: str | None = None, *, retriable: bool | None = None) -> KafkaError:
    """Return the error for a code: its text is the meaning of the code, and the reason if it says more.

    The protocol defines which of its codes are retriable, and the client's own codes are not; `retriable` overrides it.
    """
    text = _text(int(code))
    if retriable is None:
        retriable = int(code) in _NAMES and int(code) >= -1 and ErrorCode(code).retriable
    reason = beyond_the_code(code, reason)
    return KafkaError(int(code), f"{text}: {reason}" if reason else text, retriable=retriable)


def no_broker_answers(errors: Iterable[KafkaError]) -> KafkaException:
    """Return the exception for a request that no broker answered, with the reasons of all attempts."""
    reasons = (detail_of(error) if error == KafkaError._TRANSPORT else error.str() for error in errors)
    return failure(KafkaError._ALL_BROKERS_DOWN, "; ".join(dict.fromkeys(reasons)), retriable=True)


def detail_of(error: KafkaError) -> str:
    """Return the text of an error without the meaning of its code."""
    return error.str().removeprefix(f"{_text(error.code())}: ")


def system_reason(error: OSError) -> str:
    """Return the operating system's words for an error. asyncio replaces them by its own."""
    if isinstance(error, ssl.SSLError) or (error.errno or 0) < 0:
        return str(error)  # Their numbers are not those of the system.
    # asyncio has one text for the errors of all addresses of a host.
    numbers = [error.errno] if error.errno else map(int, re.findall(r"\[Errno (\d+)\]", str(error)))
    return ", ".join(dict.fromkeys(map(os.strerror, numbers))) or str(error)


def beyond_the_code(code: int, message: str | None) -> str:
    """Return a broker's message, or an empty text if it only repeats what the error code says."""
    if message is None or f"Broker: {message.rstrip('.')}" == _text(int(code)):
        return ""
    return message


def kafka_error(error: BaseException) -> KafkaError:
    """Convert any exception to the error that the application sees."""
    if isinstance(error, KafkaException):
        return error.error
    if isinstance(error, ApiError):
        return error_of(int(error.code), error.message)
    if isinstance(error, TimeoutError):
        return error_of(KafkaError._TIMED_OUT, str(error) or None, retriable=True)
    if isinstance(error, OSError):
        return error_of(KafkaError._TRANSPORT, str(error), retriable=True)
    return error_of(KafkaError._FAIL, f"{type(error).__name__}: {error}")


def kafka_exception(error: BaseException) -> KafkaException:
    """Convert any exception to a `KafkaException`."""
    return error if isinstance(error, KafkaException) else KafkaException(kafka_error(error))
