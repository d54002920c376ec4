"""The calls of `AdminClient` about delegation tokens, with the names of Java's Admin."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from felice.client.admin.futures import FutureCalls
from felice.client.admin.retries import DEFAULT_TIMEOUT_S
from felice.client.admin.tokens import NO_PERIOD, DelegationToken
from felice.client.arguments import takes_lists


@takes_lists
class TokenFutures(FutureCalls):
    """Delegation tokens, as futures."""

    def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = NO_PERIOD,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Future[DelegationToken]:
        """Create a token for the client itself, or for another owner (`User:NAME`). -1: the broker's lifetime."""
        return self._one(
            self._admin.create_delegation_token(
                renewers, owner=owner, max_lifetime_ms=max_lifetime_ms, timeout_s=request_timeout
            )
        )

    def renew_delegation_token(
        self, hmac: bytes, period_ms: int = NO_PERIOD, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[int]:
        """Let a token expire later, and return when (milliseconds since 1970). -1: after the broker's period."""
        return self._one(self._admin.renew_delegation_token(hmac, period_ms, timeout_s=request_timeout))

    def expire_delegation_token(
        self, hmac: bytes, period_ms: int = NO_PERIOD, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[int]:
        """Let a token expire after a period, and return when (milliseconds since 1970). -1: delete it at once."""
        return self._one(self._admin.expire_delegation_token(hmac, period_ms, timeout_s=request_timeout))

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[list[DelegationToken]]:
        """Return the tokens of these principals (`User:NAME`) that the client may see. None: of all principals."""
        return self._one(self._admin.describe_delegation_tokens(owners, timeout_s=request_timeout))
