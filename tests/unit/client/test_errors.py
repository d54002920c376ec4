import pickle

from felice.client.error import KafkaError, KafkaException, error_of, failure, kafka_error, kafka_exception
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
