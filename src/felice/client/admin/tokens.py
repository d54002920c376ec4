"""Delegation tokens (KIP-48): create, renew, expire and describe them.

Only a client that has proved its identity may do this (SASL, or a client certificate), and not with a token.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from felice.client.admin.retries import DEFAULT_TIMEOUT_S, RetryingCalls
from felice.client.arguments import takes_lists
from felice.client.error import failure
from felice.client.net.cluster import Cluster
from felice.dataclass import dataclass
from felice.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from felice.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from felice.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from felice.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from felice.security.principal import Principal

NO_PERIOD = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are texts such as `User:alice`; times are milliseconds since 1970.

    A client logs in with SCRAM: `token_id` is the user, and `password` the password. `sasl.jaas.config` must have
    `tokenauth="true"`.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int

    @property
    def password(self) -> str:
        """The HMAC in base64."""
        return base64.b64encode(self.hmac).decode()


async def create_token(
    cluster: Cluster, owner: str | None, renewers: Iterable[str], max_lifetime_ms: int
) -> DelegationToken:
    """Creates a token for the client itself, or for another owner."""
    of = None if owner is None else Principal.parse(owner)
    names = tuple(renewers)
    parsed = [Principal.parse(name) for name in names]
    response = await cluster.call_any(
        CreateDelegationTokenRequest(
            owner_principal_type=None if of is None else of.kind,
            owner_principal_name=None if of is None else of.name,
            renewers=[CreatableRenewers(principal_type=one.kind, principal_name=one.name) for one in parsed],
            max_lifetime_ms=max_lifetime_ms,
        )
    )
    _check(response)
    return DelegationToken(
        response.token_id,
        bytes(response.hmac),
        _text(response.principal_type, response.principal_name),
        _text(response.token_requester_principal_type, response.token_requester_principal_name),
        names,
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )


async def renew_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Renews a token, and returns when it expires."""
    response = await cluster.call_any(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
    _check(response)
    return int(response.expiry_timestamp_ms)


async def expire_token(cluster: Cluster, hmac: bytes, period_ms: int) -> int:
    """Lets a token expire after a period, or at once. Returns when it expires."""
    response = await cluster.call_any(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    )
    _check(response)
    return int(response.expiry_timestamp_ms)


async def describe_tokens(cluster: Cluster, owners: Iterable[str] | None) -> list[DelegationToken]:
    """The tokens of these principals that the client may see; None: of all principals."""
    wanted = None
    if owners is not None:
        parsed = [Principal.parse(owner) for owner in owners]
        wanted = [
            DescribeDelegationTokenOwner(principal_type=one.kind, principal_name=one.name) for one in parsed
        ]
    response = await cluster.call_any(DescribeDelegationTokenRequest(owners=wanted))
    _check(response)
    return [_described(row) for row in response.tokens]


def _described(row: DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        row.token_id,
        bytes(row.hmac),
        _text(row.principal_type, row.principal_name),
        _text(row.token_requester_principal_type, row.token_requester_principal_name),
        tuple(_text(one.principal_type, one.principal_name) for one in row.renewers),
        row.issue_timestamp,
        row.expiry_timestamp,
        row.max_timestamp,
    )


def _text(kind: str, name: str) -> str:
    return str(Principal(kind, name)) if name else ""


def _check(response: Any) -> None:
    if response.error_code:
        raise failure(response.error_code, None)


@takes_lists
class TokenCalls(RetryingCalls):
    """Delegation tokens, as coroutines."""

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = NO_PERIOD,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> DelegationToken:
        """Create a token for the client itself, or for another owner (`User:NAME`). -1: the broker's lifetime."""
        names = tuple(renewers)
        return await self._ask(timeout_s, create_token, owner, names, max_lifetime_ms)

    async def renew_delegation_token(
        self, hmac: bytes, period_ms: int = NO_PERIOD, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> int:
        """Let a token expire later, and return when (milliseconds since 1970). -1: after the broker's period."""
        return await self._ask(timeout_s, renew_token, hmac, period_ms)

    async def expire_delegation_token(
        self, hmac: bytes, period_ms: int = NO_PERIOD, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> int:
        """Let a token expire after a period, and return when (milliseconds since 1970). -1: delete it at once."""
        return await self._ask(timeout_s, expire_token, hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[DelegationToken]:
        """Return the tokens of these principals (`User:NAME`) that the client may see. None: of all principals."""
        names = None if owners is None else tuple(owners)
        return await self._ask(timeout_s, describe_tokens, names)
