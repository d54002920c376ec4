"""A broker with delegation tokens, Felice or Apache Kafka, and logins with tokens."""

from __future__ import annotations

import base64
import contextlib
import random
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.secured import Secured, prepared, secured
from conformance.topics import wait_until
from conformance.wire import Wire
from felice.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from felice.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from felice.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from felice.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest
from felice.security.sasl.scram import ScramClient

SECRET = "a secret of the cluster"
MAX_LIFETIME_MS = 3_600_000
EXPIRY_MS = 600_000
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"

TOKEN_SETTINGS = {
    "delegation.token.secret.key": SECRET,
    "delegation.token.max.lifetime.ms": str(MAX_LIFETIME_MS),
    "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    "listener.name.admin.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.admin.scram-sha-256.sasl.jaas.config": _SCRAM_MODULE,
    "listener.name.admin.scram-sha-512.sasl.jaas.config": _SCRAM_MODULE,
}


def with_tokens(
    directory: Path, settings: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[Secured]:
    """The broker under test, with the users alice and bob."""
    return secured(directory, {**TOKEN_SETTINGS, **(settings or {})})


def create(
    wire: Wire,
    *renewers: str,
    owner: str | None = None,
    owner_kind: str = "User",
    max_lifetime_ms: int = -1,
    kind: str = "User",
) -> Any:
    """The answer to the creation of a token; renewers are names of users."""
    return wire.ask(
        CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner_kind,
            owner_principal_name=owner,
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers],
            max_lifetime_ms=max_lifetime_ms,
        )
    )


def created(wire: Wire, *renewers: str, **options: Any) -> Any:
    """A token that the broker shows."""
    token = create(wire, *renewers, **options)
    assert token.error_code == 0
    wait_until(lambda: token.token_id in ids(describe(wire)))
    return token


def renew(wire: Wire, hmac: bytes, period_ms: int = -1) -> Any:
    return wire.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))


def expire(wire: Wire, hmac: bytes, period_ms: int = -1) -> Any:
    return wire.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))


def describe(wire: Wire, *owners: str, nobody: bool = False) -> Any:
    """The tokens of these users; all if none is named."""
    rows = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    return wire.ask(DescribeDelegationTokenRequest(owners=rows if owners or nobody else None))


def ids(answer: Any) -> set[str]:
    assert answer.error_code == 0
    return {token.token_id for token in answer.tokens}


def token_client(token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    password = base64.b64encode(hmac).decode()
    return ScramClient(mechanism, token_id, password, f"nonce{random.getrandbits(64)}", is_token=True)


def authenticate(wire: Wire, client: ScramClient) -> Any:
    """The last answer of a login."""
    assert wire.ask(SaslHandshakeRequest(mechanism=client.name)).error_code == 0
    token: bytes | None = client.first()
    while token is not None:
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code:
            return answer
        token = client.respond(bytes(answer.auth_bytes))
    return answer


def prepared_with_token(broker: Secured) -> uuid.UUID:
    """As `prepared`, and creates a token of bob. Returns the id of the topic t."""
    with broker.user("bob") as wire:
        created(wire)
    return prepared(broker)


def log_in_with(broker: Secured, token: Any, mechanism: str = "SCRAM-SHA-256") -> tuple[Wire, Any]:
    """A connection that logged in with a token, and the last answer of the login."""
    wire = Wire(broker.admin_address)
    return wire, authenticate(wire, token_client(token.token_id, bytes(token.hmac), mechanism))
