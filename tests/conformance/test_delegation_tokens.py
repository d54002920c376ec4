"""Delegation tokens: who may create, renew, expire and see them, and logins with them.

Apache Kafka passes this module, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac as hmac_of
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.delegation_tokens import (
    EXPIRY_MS,
    MAX_LIFETIME_MS,
    SECRET,
    authenticate,
    create,
    created,
    describe,
    expire,
    ids,
    log_in_with,
    renew,
    token_client,
    with_tokens,
)
from conformance.secured import Rule, Secured, secured
from conformance.targets import IS_APACHE
from conformance.topics import wait_until
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.security.acl import Operation, ResourceType
from felice.security.sasl.scram import ScramCredential, salted

DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
UNAUTHORISED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
EXPIRED = ErrorCode.DELEGATION_TOKEN_EXPIRED
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with with_tokens(tmp_path_factory.mktemp("tokens") / "data") as found:
        yield found


@pytest.fixture
def alice(broker: Secured) -> Iterator[Wire]:
    broker.clear()
    with broker.user("alice") as wire:
        yield wire


@pytest.fixture
def bob(broker: Secured) -> Iterator[Wire]:
    with broker.user("bob") as wire:
        yield wire


def test_a_token_is_the_hmac_of_its_id_and_has_kafkas_times(alice: Wire) -> None:
    token = create(alice, "bob")
    assert token.error_code == 0
    assert bytes(token.hmac) == hmac_of.digest(SECRET.encode(), token.token_id.encode(), hashlib.sha512)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.max_timestamp_ms - token.issue_timestamp_ms == MAX_LIFETIME_MS
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == EXPIRY_MS


@pytest.mark.parametrize(
    ("asked_ms", "lifetime_ms"),
    [(1000, 1000), (MAX_LIFETIME_MS + 1, MAX_LIFETIME_MS), (0, MAX_LIFETIME_MS), (-7, MAX_LIFETIME_MS)],
)
def test_a_lifetime_may_be_shorter_than_the_greatest(alice: Wire, asked_ms: int, lifetime_ms: int) -> None:
    token = create(alice, max_lifetime_ms=asked_ms)
    assert token.max_timestamp_ms - token.issue_timestamp_ms == lifetime_ms
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == min(lifetime_ms, EXPIRY_MS)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_its_owner_in_until_it_expires(broker: Secured, alice: Wire, mechanism: str) -> None:
    """With `tokenauth=true`; the session ends with the token."""
    broker.grant(Rule(ResourceType.TOPIC, "t", Operation.CREATE, principal="User:alice"))
    token = created(alice)
    wire, answer = log_in_with(broker, token, mechanism)
    with wire:
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= EXPIRY_MS
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_a_client_with_a_token_may_not_touch_tokens(broker: Secured, alice: Wire) -> None:
    """Otherwise a token would never end."""
    token = created(alice)
    wire, _ = log_in_with(broker, token)
    with wire:
        assert create(wire).error_code == NOT_ALLOWED
        assert renew(wire, bytes(token.hmac)).error_code == NOT_ALLOWED
        assert expire(wire, bytes(token.hmac)).error_code == NOT_ALLOWED
        assert describe(wire).error_code == NOT_ALLOWED


def test_a_client_without_a_login_may_not_touch_tokens(broker: Secured) -> None:
    refused = create(broker.client)
    assert (refused.error_code, bytes(refused.hmac), refused.token_id) == (NOT_ALLOWED, b"", "")
    assert refused.principal_name == "ANONYMOUS"
    assert renew(broker.client, b"x").error_code == NOT_ALLOWED
    assert expire(broker.client, b"x").error_code == NOT_ALLOWED
    assert describe(broker.client).error_code == NOT_ALLOWED


@pytest.mark.parametrize("what", ["another hmac", "another id", "no token"])
def test_wrong_tokens_are_refused_with_one_text(broker: Secured, alice: Wire, what: str) -> None:
    token = created(alice)
    client = {
        "another hmac": lambda: token_client(token.token_id, b"x" * 64),
        "another id": lambda: token_client("x" + token.token_id, bytes(token.hmac)),
        "no token": lambda: token_client("alice", b"secret"),
    }[what]()
    with Wire(broker.admin_address) as wire:
        answer = authenticate(wire, client)
    assert answer.error_code == FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_the_id_of_a_token_is_no_user(broker: Secured, alice: Wire) -> None:
    token = created(alice)
    client = token_client(token.token_id, bytes(token.hmac))
    client._bare = client._bare.replace(",tokenauth=true", "")
    with Wire(broker.admin_address) as wire:
        assert authenticate(wire, client).error_code == FAILED


def test_renewers_must_be_users(alice: Wire) -> None:
    assert create(alice, "bob", kind="Group").error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_owner_and_renewers_renew_a_token(alice: Wire, bob: Wire) -> None:
    token = created(alice, "bob")
    hmac = bytes(token.hmac)
    for wire in (alice, bob):
        shorter = renew(wire, hmac, 120_000)
        assert shorter.error_code == 0
        longer = renew(wire, hmac, EXPIRY_MS * 2)
        assert longer.error_code == 0
        assert longer.expiry_timestamp_ms - shorter.expiry_timestamp_ms >= EXPIRY_MS - 2 * 120_000
        again = renew(wire, hmac, -1)
        assert longer.expiry_timestamp_ms <= again.expiry_timestamp_ms <= token.max_timestamp_ms


def test_a_token_is_not_renewed_beyond_its_lifetime(alice: Wire) -> None:
    token = created(alice, max_lifetime_ms=EXPIRY_MS // 2)
    answer = renew(alice, bytes(token.hmac))
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, token.max_timestamp_ms)


def test_others_neither_renew_nor_expire_a_token(alice: Wire, bob: Wire) -> None:
    hmac = bytes(created(alice).hmac)
    assert renew(bob, hmac).error_code == MISMATCH
    assert expire(bob, hmac).error_code == MISMATCH


def test_an_unknown_token_is_not_found(alice: Wire) -> None:
    assert renew(alice, b"unknown").error_code == NOT_FOUND
    assert expire(alice, b"unknown").error_code == NOT_FOUND


def test_a_deleted_token_is_gone(broker: Secured, alice: Wire) -> None:
    token = created(alice)
    assert expire(alice, bytes(token.hmac)).error_code == 0
    wait_until(lambda: token.token_id not in ids(describe(alice)))
    wire, answer = log_in_with(broker, token)
    wire.close()
    assert answer.error_code == FAILED
    assert expire(alice, bytes(token.hmac)).error_code == NOT_FOUND


def test_a_token_can_expire_later(alice: Wire) -> None:
    token = created(alice)
    answer = expire(alice, bytes(token.hmac), MAX_LIFETIME_MS * 2)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (0, token.max_timestamp_ms)


def test_an_expired_token_logs_nobody_in_and_is_not_renewed(broker: Secured, alice: Wire) -> None:
    token = created(alice)
    assert expire(alice, bytes(token.hmac), 0).error_code == 0
    wait_until(lambda: renew(alice, bytes(token.hmac), 1).error_code == EXPIRED)
    assert expire(alice, bytes(token.hmac), 1000).error_code == EXPIRED
    wire, answer = log_in_with(broker, token)
    wire.close()
    # Kafka accepts an expired token, and a session without limit, until its controller deletes the token.
    assert answer.error_code == (0 if IS_APACHE else FAILED)
    assert expire(alice, bytes(token.hmac), -1).error_code == 0


def test_a_token_for_another_owner_needs_a_permission(broker: Secured, alice: Wire, bob: Wire) -> None:
    refused = create(alice, owner="bob")
    assert (refused.error_code, refused.principal_name) == (UNAUTHORISED, "bob")
    assert refused.token_requester_principal_name == "alice"
    broker.grant(Rule(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS, principal="User:alice"))
    token = created(alice, owner="bob")
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")
    # The requester sees the token, and does not own it.
    assert renew(alice, bytes(token.hmac)).error_code == MISMATCH
    assert renew(bob, bytes(token.hmac)).error_code == 0
    wire, answer = log_in_with(broker, token)
    wire.close()
    assert answer.error_code == 0
    (row,) = [one for one in describe(bob).tokens if one.token_id == token.token_id]
    assert (row.principal_name, row.token_requester_principal_name) == ("bob", "alice")


def test_the_owner_must_be_a_user(broker: Secured, alice: Wire) -> None:
    """Kafka creates the token, and a login with it is that of the user bob."""
    broker.grant(Rule(ResourceType.USER, "Group:bob", Operation.CREATE_TOKENS, principal="User:alice"))
    code = create(alice, owner="bob", owner_kind="Group").error_code
    assert code == (0 if IS_APACHE else ErrorCode.INVALID_PRINCIPAL_TYPE)


def test_tokens_are_seen_by_those_whom_they_concern(broker: Secured, alice: Wire, bob: Wire) -> None:
    own, shared = created(alice).token_id, created(alice, "bob").token_id
    assert {own, shared} <= ids(describe(alice))
    assert ids(describe(bob)) & {own, shared} == {shared}
    assert {own, shared} <= ids(describe(broker.admin))


def test_tokens_are_selected_by_owner(alice: Wire, bob: Wire) -> None:
    own, shared, bobs = created(alice).token_id, created(alice, "bob").token_id, created(bob).token_id
    assert ids(describe(alice, nobody=True)) == set()
    assert ids(describe(alice, "carol")) == set()
    assert {own, shared} <= ids(describe(alice, "alice"))
    assert ids(describe(bob, "alice", "bob")) & {own, shared, bobs} == {shared, bobs}
    assert ids(describe(bob, "alice")) & {own, shared, bobs} == {shared}


def test_a_described_token_is_complete(alice: Wire) -> None:
    token = created(alice, "bob", "carol")
    (row,) = [one for one in describe(alice).tokens if one.token_id == token.token_id]
    assert bytes(row.hmac) == bytes(token.hmac)
    assert [renewer.principal_name for renewer in row.renewers] == ["bob", "carol"]
    assert (row.issue_timestamp, row.expiry_timestamp, row.max_timestamp) == (
        token.issue_timestamp_ms,
        token.expiry_timestamp_ms,
        token.max_timestamp_ms,
    )


def test_every_version_is_answered(alice: Wire) -> None:
    from conformance.wire import api_of
    from felice.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from felice.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
    from felice.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
    from felice.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

    for version in (1, 2, 3):
        token = alice.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
        wait_until(lambda token=token: token.token_id in ids(describe(alice)))
        assert token.token_id in ids(alice.ask(DescribeDelegationTokenRequest(owners=None), version))
        later = min(version, api_of(RenewDelegationTokenRequest()).versions.max)
        request = RenewDelegationTokenRequest(hmac=bytes(token.hmac), renew_period_ms=-1)
        assert alice.ask(request, later).error_code == 0
        ending = ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1)
        assert alice.ask(ending, later).error_code == 0


def test_without_a_key_there_are_no_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    with secured(tmp_path_factory.mktemp("no-tokens") / "data") as broker, broker.user("alice") as alice:
        created, *others = create(alice), renew(alice, b"x"), expire(alice, b"x")
        assert (created.error_code, created.issue_timestamp_ms, created.max_timestamp_ms) == (DISABLED, 0, 0)
        for answer in (created, *others):
            assert (answer.error_code, answer.expiry_timestamp_ms) == (DISABLED, 0)
        assert describe(alice).error_code == DISABLED
        refused = create(broker.client)
        assert (refused.error_code, refused.issue_timestamp_ms) == (NOT_ALLOWED, -1)


@pytest.mark.felice_only
def test_no_secret_is_described_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Security rule 32: keys, JAAS texts, SCRAM credentials and tokens."""
    caplog.set_level(1)
    password = "a-password-for-scram"
    with with_tokens(tmp_path / "data") as broker, broker.user("alice") as alice:
        salted_password = salted("SCRAM-SHA-256", password, b"salt", 4096)
        upsertion = ScramCredentialUpsertion(
            name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted_password
        )
        changed = broker.admin.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
        assert changed.results[0].error_code == 0
        token = created(alice)
        log_in_with(broker, token)[0].close()
        with Wire(broker.admin_address) as wire:
            assert authenticate(wire, token_client(token.token_id, b"wrong")).error_code == FAILED
        asked = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
        (described,) = broker.admin.ask(request).results
        users = broker.admin.ask(DescribeUserScramCredentialsRequest(users=None))
    rows = {row.name: row for row in described.configs}
    for name in ("delegation.token.secret.key", "listener.name.admin.plain.sasl.jaas.config"):
        assert (rows[name].value, rows[name].is_sensitive) == (None, True)
    credential = ScramCredential.of_salted("SCRAM-SHA-256", salted_password, b"salt", 4096)
    secrets = [SECRET, password, 'user_alice="']
    secrets += [
        text
        for one in (bytes(token.hmac), salted_password, credential.stored_key, credential.server_key)
        for text in (base64.b64encode(one).decode(), one.hex(), repr(one))
    ]
    shown = f"{described} {users} {caplog.text} {[vars(record) for record in caplog.records]}"
    assert [text for text in secrets if text in shown] == []
    assert "carol" in str(users)
