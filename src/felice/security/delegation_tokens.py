"""Delegation tokens (KIP-48): short-lived secrets with which a client logs in as the owner of the token.

Keeps true: the secret of a token is an HMAC of its id with the key of the cluster (`delegation.token.secret.key`). It
            is stored nowhere.
Leaves:     storage to `metadata.token_nodes`, the login to `security.sasl.scram`.
"""

from __future__ import annotations

import base64
import hmac

from felice.dataclass import dataclass
from felice.security.principal import Principal

_HASH = "sha512"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. `requester` created it, for itself or for another owner (KIP-373)."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The token cannot be renewed beyond this time."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token cannot be used any more."""
        return min(self.expires_ms, self.max_ms) < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether a principal may renew or expire the token: its owner and its renewers."""
        return any(principal.is_same_as(one) for one in (self.owner, *self.renewers))

    def concerns(self, principal: Principal) -> bool:
        """Whether a principal is the token's owner, its requester, or one of its renewers."""
        return principal.is_same_as(self.requester) or self.may_be_renewed_by(principal)


def token_secret(key: str, token_id: str) -> bytes:
    """The HMAC of a token, by which clients name it."""
    return hmac.digest(key.encode(), token_id.encode(), _HASH)


def token_password(secret: bytes) -> str:
    """The password with which clients log in: the HMAC in base64."""
    return base64.b64encode(secret).decode()
