"""Delegation tokens of the cluster (KIP-48): creation, renewal, expiry, and the credentials for logins with them.

Keeps true: a token that has expired, or was deleted, logs nobody in. Without `delegation.token.secret.key` there are no
            tokens.
Leaves:     who may do what to the handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from felice.config import BrokerConfig
from felice.controller.token_changes import TokenChanges
from felice.env import Environment
from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.uuids import format_uuid
from felice.security.delegation_tokens import DelegationToken, token_password, token_secret
from felice.security.principal import USER, Principal
from felice.security.sasl.scram import MIN_ITERATIONS, ScramCredential, ScramUser

_log = logging.getLogger("felice.server")

_SALT_BITS = 256


class DelegationTokens:
    """The tokens in the metadata store. `config` is the broker's own: the options cannot change while it runs."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        image: Callable[[], ClusterImage],
        changes: TokenChanges,
    ) -> None:
        self._config = config
        self._key = config.delegation_token_secret_key or ""
        self._clock = env.clock
        self._random = env.random
        self._image = image
        self._changes = changes
        self._indexed: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether the broker has the key of the tokens."""
        return bool(self._key)

    @property
    def all(self) -> Iterable[DelegationToken]:
        """Every token, also those that have expired and were not deleted yet."""
        return self._image().tokens.values()

    def secret(self, token: DelegationToken) -> bytes:
        """The HMAC of a token."""
        return token_secret(self._key, token.token_id)

    async def create(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], max_lifetime_ms: int
    ) -> DelegationToken:
        """Creates a token. A lifetime of 0 or less means `delegation.token.max.lifetime.ms`.

        Raises `ApiError`: DELEGATION_TOKEN_AUTH_DISABLED without a key, POLICY_VIOLATION if there are too many tokens.
        """
        self._check_enabled()
        self._check_room(owner)
        now_ms = self._clock.now_ms()
        longest_ms = self._config.delegation_token_max_lifetime_ms
        max_ms = now_ms + (min(max_lifetime_ms, longest_ms) if max_lifetime_ms > 0 else longest_ms)
        token = DelegationToken(
            token_id=format_uuid(UUID(int=self._random.getrandbits(128), version=4)),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + self._config.delegation_token_expiry_time_ms),
            max_ms=max_ms,
        )
        await self._changes.create(token)
        return token

    def _check_room(self, owner: Principal) -> None:
        tokens, config = self._image().tokens, self._config
        if len(tokens) >= config.felice_delegation_tokens_max:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "there are too many delegation tokens")
        of_owner = sum(token.owner.is_same_as(owner) for token in tokens.values())
        if of_owner >= config.felice_delegation_tokens_per_owner_max:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{owner} has too many delegation tokens")

    async def renew(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Lets the token with this HMAC expire `period_ms` from now, and returns that time in ms since 1970.

        A period of 0 or less, or a longer one, means `delegation.token.expiry.time.ms`. The token's greatest lifetime
        stays. Raises `ApiError`: DELEGATION_TOKEN_NOT_FOUND, _EXPIRED, _OWNER_MISMATCH or _AUTH_DISABLED.
        """
        self._check_enabled()
        longest_ms = self._config.delegation_token_expiry_time_ms
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + (min(period_ms, longest_ms) if period_ms > 0 else longest_ms)

        def renewed(token: DelegationToken) -> DelegationToken:
            _check_not_expired(token, now_ms)
            _check_may_renew(token, principal)
            return replace(token, expires_ms=min(token.max_ms, expires_ms))

        changed = await self._changes.change(self._id_of(secret), renewed)
        assert changed is not None
        return changed.expires_ms

    async def expire(self, secret: bytes, principal: Principal, period_ms: int) -> int:
        """Lets the token with this HMAC expire `period_ms` from now, or deletes it at once if that is negative.

        Returns when the token expires, in ms since 1970. Raises `ApiError` as `renew` does.
        """
        self._check_enabled()
        now_ms = self._clock.now_ms()

        def expired(token: DelegationToken) -> DelegationToken | None:
            _check_may_renew(token, principal)
            if period_ms < 0:
                return None
            _check_not_expired(token, now_ms)
            return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))

        changed = await self._changes.change(self._id_of(secret), expired)
        return now_ms if changed is None else changed.expires_ms

    async def delete_expired(self) -> None:
        """Deletes the tokens that have expired. The controller calls this."""
        now_ms = self._clock.now_ms()

        def gone(token: DelegationToken) -> DelegationToken | None:
            """None, unless the token was renewed meanwhile."""
            return None if token.is_expired(now_ms) else token

        for token in [token for token in self.all if token.is_expired(now_ms)]:
            try:
                if await self._changes.change(token.token_id, gone) is None:
                    _log.info(
                        "a delegation token has expired",
                        extra={"token": token.token_id, "owner": str(token.owner)},
                    )
            except ApiError as error:
                if error.code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
                    raise

    def user(self, token_id: str, mechanism: str) -> ScramUser | None:
        """The user that logs in with a token, or None if the token does not exist or has expired."""
        token = self._image().tokens.get(token_id)
        if token is None or not self.is_enabled or token.is_expired(self._clock.now_ms()):
            return None
        owner = Principal(USER, token.owner.name, token_authenticated=True)
        return ScramUser(self._credential(token, mechanism), owner, token.expires_ms)

    def _credential(self, token: DelegationToken, mechanism: str) -> ScramCredential:
        """The credential of a token. It is kept, because deriving it takes thousands of hashes."""
        self._index()
        key = (token.token_id, mechanism)
        found = self._credentials.get(key)
        if found is None:
            salt = self._random.getrandbits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
            password = token_password(self.secret(token))
            found = ScramCredential.of_password(mechanism, password, salt, MIN_ITERATIONS)
            self._credentials[key] = found
        return found

    def _id_of(self, secret: bytes) -> str:
        self._index()
        found = self._ids.get(secret)
        if found is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return found

    def _index(self) -> None:
        """Brings the ids by secret up to date with the image."""
        tokens = self._image().tokens
        if tokens is self._indexed:
            return
        known = {token_id: secret for secret, token_id in self._ids.items()}
        self._ids = {
            known.get(token_id) or token_secret(self._key, token_id): token_id for token_id in tokens
        }
        self._credentials = {key: found for key, found in self._credentials.items() if key[0] in tokens}
        self._indexed = tokens

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_may_renew(token: DelegationToken, principal: Principal) -> None:
    if not token.may_be_renewed_by(principal):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
