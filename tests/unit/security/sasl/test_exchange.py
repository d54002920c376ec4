"""The order of a login, and re-authentication."""

from __future__ import annotations

import pytest

from felice.protocol.errors import ErrorCode
from felice.security.principal import ANONYMOUS, Principal
from felice.security.sasl.exchange import Exchange, Offered, Phase
from felice.security.sasl.mechanism import AuthenticationFailed, Challenge, MalformedToken, Success


class Scripted:
    """A mechanism in which the client's token says what happens."""

    name = "TEST"

    def respond(self, token: bytes, now_ms: int) -> Challenge | Success:
        word, _, rest = token.decode().partition(":")
        if word == "more":
            return Challenge(b"go on")
        if word == "wrong":
            raise AuthenticationFailed("wrong password")
        if word == "malformed":
            raise MalformedToken("what this is must not be told")
        return Success(Principal("User", word), b"done", int(rest) if rest else None)


def exchange(max_session_ms: int = 0) -> Exchange:
    offered = {"TEST": Offered(Scripted, max_session_ms), "OTHER": Offered(Scripted, max_session_ms)}
    return Exchange(lambda: offered)


def logged_in(max_session_ms: int = 0, token: bytes = b"alice") -> Exchange:
    found = exchange(max_session_ms)
    assert found.on_handshake("TEST", 1, 0).error == ErrorCode.NONE
    assert found.on_token(token, 0).error == ErrorCode.NONE
    return found


def test_a_login_takes_several_tokens() -> None:
    found = exchange()
    assert found.may_ask_versions()
    found.on_versions_answered()
    assert not found.may_ask_versions()
    assert found.on_handshake("TEST", 1, 0).error == ErrorCode.NONE
    assert found.on_token(b"more", 0).token == b"go on"
    assert (found.is_open(0), found.principal) == (False, ANONYMOUS)
    answer = found.on_token(b"alice", 0)
    assert (answer.token, answer.session_ms) == (b"done", 0)
    assert (found.is_open(10**15), str(found.principal)) == (True, "User:alice")


def test_an_unknown_mechanism_ends_the_login_with_the_list_of_mechanisms() -> None:
    found = exchange()
    assert found.on_handshake("GSSAPI", 1, 0).error == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert (found.phase, found.mechanisms) == (Phase.FAILED, ["TEST", "OTHER"])


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"wrong", "wrong password"),
        (
            b"malformed",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism TEST",
        ),
        (
            b"alice:0",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism TEST",
        ),
    ],
)
def test_a_failed_login_has_an_error_and_a_message(token: bytes, message: str) -> None:
    found = exchange()
    found.on_handshake("TEST", 1, 0)
    answer = found.on_token(token, 0)
    assert (answer.error, answer.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert (found.phase, found.principal) == (Phase.FAILED, ANONYMOUS)
    assert found.on_token(b"alice", 0).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.on_handshake("TEST", 1, 0).error == ErrorCode.ILLEGAL_SASL_STATE
    assert not found.is_open(0)


def test_tokens_need_a_handshake() -> None:
    found = exchange()
    assert found.on_token(b"alice", 0).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.phase is Phase.FAILED


def test_a_second_handshake_in_the_middle_of_a_login_ends_it() -> None:
    found = exchange()
    found.on_handshake("TEST", 1, 0)
    assert found.on_handshake("TEST", 1, 0).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.phase is Phase.FAILED


def test_the_old_handshake_is_followed_by_bare_tokens() -> None:
    found = exchange()
    found.on_handshake("TEST", 0, 0)
    assert found.phase is Phase.RAW_TOKENS


def test_a_session_without_limit_cannot_be_renewed_and_lives_on() -> None:
    found = logged_in()
    assert found.on_handshake("TEST", 1, 5000).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.on_token(b"alice", 5000).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.is_open(5000)


@pytest.mark.parametrize(
    ("limit", "token", "session_ms"),
    [
        (0, b"alice", 0),
        (7000, b"alice", 7000),
        (0, b"alice:3000", 3000),
        (7000, b"alice:3000", 3000),
        (7000, b"alice:9000", 7000),
    ],
)
def test_a_session_lasts_as_long_as_limit_and_credential_allow(
    limit: int, token: bytes, session_ms: int
) -> None:
    found = exchange(limit)
    found.on_handshake("TEST", 1, 0)
    assert found.on_token(token, 0).session_ms == session_ms
    if session_ms:
        assert found.is_open(session_ms - 1)
        assert not found.is_open(session_ms)


def test_a_client_authenticates_again_as_the_same_principal() -> None:
    found = logged_in(7000)
    assert found.on_handshake("TEST", 1, 6000).error == ErrorCode.NONE
    assert not found.is_open(6000)
    assert found.on_token(b"alice", 6000).session_ms == 7000
    assert found.is_open(12_999)


def test_an_expired_session_can_still_be_renewed() -> None:
    found = logged_in(7000)
    assert found.on_handshake("TEST", 1, 8000).error == ErrorCode.NONE
    assert found.on_token(b"alice", 8000).error == ErrorCode.NONE


def test_a_client_cannot_become_another_principal() -> None:
    found = logged_in(7000)
    found.on_handshake("TEST", 1, 6000)
    assert found.on_token(b"bob", 6000).error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (found.phase, str(found.principal)) == (Phase.FAILED, "User:alice")


def test_a_client_cannot_change_its_mechanism() -> None:
    found = logged_in(7000)
    assert found.on_handshake("OTHER", 1, 6000).error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert found.phase is Phase.FAILED


def test_a_client_cannot_authenticate_again_within_a_second() -> None:
    found = logged_in(7000)
    assert found.on_handshake("TEST", 1, 999).error == ErrorCode.ILLEGAL_SASL_STATE
    assert found.is_open(999)
    assert found.on_handshake("TEST", 1, 1000).error == ErrorCode.NONE
