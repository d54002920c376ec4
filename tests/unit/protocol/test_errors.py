"""Error codes and the exception that carries one."""

from felice.protocol.errors import ApiError, ErrorCode


def test_an_error_code_knows_whether_a_client_should_retry() -> None:
    assert int(ErrorCode.NOT_LEADER_OR_FOLLOWER) == 6
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert not ErrorCode.CORRUPT_MESSAGE.refreshes_metadata
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable


def test_every_code_has_a_message_of_its_own() -> None:
    messages = [code.message for code in ErrorCode]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_codes_have_no_gaps() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_unknown_code_counts_as_unknown_server_error() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(1000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_api_error_says_the_code_and_the_reason() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG, "retention.ms: not a number: 'x'")
    assert error.code is ErrorCode.INVALID_CONFIG
    assert str(error) == "INVALID_CONFIG: retention.ms: not a number: 'x'"
    assert ApiError(36).message == "The topic exists already."
