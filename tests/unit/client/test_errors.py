import pickle
import socket
import ssl

from felice.client.admin.results import outcome
from felice.client.error import (
    KafkaError,
    KafkaException,
    detail_of,
    error_of,
    failure,
    kafka_error,
    kafka_exception,
    no_broker_answers,
    system_reason,
)
from felice.protocol.errors import ApiError, ErrorCode


def test_every_code_of_the_protocol_has_a_constant_and_a_name() -> None:
    for code in ErrorCode:
        error = KafkaError(code)
        assert getattr(KafkaError, error.name()) == code
        assert error.code() == code


def test_names_that_applications_test_for() -> None:
    assert KafkaError._PARTITION_EOF == -191
    assert KafkaError._ALL_BROKERS_DOWN == -187
    assert KafkaError.UNKNOWN_TOPIC_OR_PART == 3
    assert KafkaError(KafkaError._PARTITION_EOF).name() == "_PARTITION_EOF"
    assert KafkaError(10).name() == "MSG_SIZE_TOO_LARGE"


def test_error_equals_its_code() -> None:
    assert KafkaError(3) == 3
    assert KafkaError(3) == KafkaError(3, "other words")
    assert KafkaError(3) != 4


def test_protocol_codes_are_retriable_as_the_protocol_defines() -> None:
    assert error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER).retriable()
    assert not error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED).retriable()
    assert not error_of(KafkaError._INVALID_ARG).retriable()


def test_a_message_that_only_repeats_the_code_is_left_out() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    plain = error_of(code).str()
    assert error_of(code, code.message).str() == plain
    assert error_of(code, "no rule").str() == f"{plain}: no rule"
    refused = outcome(code, code.message, "user alice")
    assert isinstance(refused, KafkaException)
    assert refused.error.str() == f"{plain}: user alice"


def test_foreign_exceptions_become_errors() -> None:
    assert kafka_error(ApiError(ErrorCode.INVALID_TXN_STATE, "why")).code() == ErrorCode.INVALID_TXN_STATE
    assert kafka_error(TimeoutError()).code() == KafkaError._TIMED_OUT
    assert kafka_error(ConnectionResetError("gone")).code() == KafkaError._TRANSPORT
    assert kafka_error(failure(3)).code() == 3


def test_exceptions_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(KafkaException(KafkaError(3, "text", retriable=True))))
    assert error.args[0].code() == 3 and error.args[0].retriable() and error.args[0].str() == "text"


def test_unknown_code_of_a_newer_broker_is_accepted() -> None:
    assert "9999" in KafkaError(9999).str()
    assert KafkaError(9999).name() == "ERR_9999?"


def test_our_exceptions_are_kept_and_other_exceptions_keep_their_text() -> None:
    ours = failure(3)
    assert kafka_exception(ours) is ours
    foreign = kafka_exception(ConnectionResetError("gone"))
    assert (foreign.code, foreign.error.str()) == (KafkaError._TRANSPORT, kafka_error(OSError("gone")).str())
    assert "gone" in foreign.error.str()


def test_errors_are_ordered_by_their_codes_and_hash_like_them() -> None:
    three, four = KafkaError(3), KafkaError(4)
    assert three < four and three <= four and four > three and four >= three
    assert three <= 3 and three >= 3 and not three < 3 and not three > 3
    assert sorted([four, three]) == [3, 4]
    assert {three: "x"}[KafkaError(3, "other")] == "x" and hash(three) == hash(3) and int(three) == 3
    assert three != "3"


def test_an_error_keeps_what_it_was_given() -> None:
    error = KafkaError(3, "why", fatal=True, retriable=True, txn_requires_abort=True)
    assert (error.str(), error.fatal(), error.retriable(), error.txn_requires_abort()) == (
        "why",
        True,
        True,
        True,
    )
    plain = KafkaError(3)
    assert (plain.fatal(), plain.retriable(), plain.txn_requires_abort()) == (False, False, False)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.fatal(), copy.retriable(), copy.txn_requires_abort()) == (True, True, True)


def test_texts_of_codes() -> None:
    assert KafkaError(0).str() == "Success"
    assert KafkaError(KafkaError._TIMED_OUT).str() == "Local: Timed out"
    assert KafkaError(KafkaError._PARTITION_EOF).str() == "Broker: No more messages"
    assert KafkaError(3).str() == f"Broker: {ErrorCode(3).message.rstrip('.')}"
    assert KafkaError(9999).str() == "Err-9999?"
    assert error_of(KafkaError._TIMED_OUT, "why").str() == "Local: Timed out: why"


def test_a_retry_may_be_decided_otherwise_than_by_the_protocol() -> None:
    assert error_of(KafkaError._TIMED_OUT, retriable=True).retriable()
    assert not error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, retriable=False).retriable()
    assert failure(KafkaError._TIMED_OUT, retriable=True).error.retriable()
    assert not error_of(-1).retriable() and not error_of(9999).retriable()


def test_an_exception_without_an_error_is_unknown() -> None:
    assert KafkaException().code == KafkaException("text").code == KafkaError.UNKNOWN
    assert KafkaException("text").error.str() == "text"


def test_foreign_exceptions_keep_their_reasons() -> None:
    assert kafka_error(ApiError(ErrorCode.INVALID_TXN_STATE, "why")).str().endswith(": why")
    usual = kafka_error(ApiError(ErrorCode.INVALID_TXN_STATE))
    assert usual.str() == KafkaError(ErrorCode.INVALID_TXN_STATE).str()
    assert kafka_error(TimeoutError("late")).str() == "Local: Timed out: late"
    assert kafka_error(TimeoutError()).str() == "Local: Timed out" and kafka_error(TimeoutError()).retriable()
    assert kafka_error(OSError("gone")).str().endswith(": gone") and kafka_error(OSError("gone")).retriable()
    odd = kafka_error(ZeroDivisionError("odd"))
    assert (odd.code(), odd.str().endswith(": ZeroDivisionError: odd")) == (KafkaError._FAIL, True)
    assert not odd.retriable()


def test_the_reasons_why_no_broker_answers_are_named_once_and_in_the_systems_words() -> None:
    refused = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9092)")
    assert system_reason(refused) == "Connection refused"
    assert system_reason(OSError("the broker closed the connection")) == "the broker closed the connection"
    both = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 9092, 0, 0), [Errno 111] Connect call …"
    )
    assert system_reason(both) == "Connection refused"
    refused_by_tls = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] certificate required")
    assert "certificate required" in system_reason(refused_by_tls)
    assert system_reason(socket.gaierror(-2, "Name or service not known")).endswith(
        "Name or service not known"
    )
    transport = error_of(KafkaError._TRANSPORT, f"a:9092: {system_reason(refused)}")
    unresolved = error_of(KafkaError._RESOLVE, "b:9092: Name or service not known")
    error = no_broker_answers([transport, unresolved, transport]).error
    assert error == KafkaError._ALL_BROKERS_DOWN and error.retriable()
    assert detail_of(error) == (
        "a:9092: Connection refused; Local: Host resolution failure: b:9092: Name or service not known"
    )
    assert error.str() == f"Local: All broker connections are down: {detail_of(error)}"
