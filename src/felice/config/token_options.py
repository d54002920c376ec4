"""Options of delegation tokens, under Kafka's names."""

from __future__ import annotations

from felice.config.option import Kind, option
from felice.dataclass import dataclass

_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=False)
class TokenOptions:
    """Options of delegation tokens. All others have an effect only if there is a secret key."""

    delegation_token_secret_key: str | None = option(
        "delegation.token.secret.key",
        Kind.PASSWORD,
        None,
        "The key from which brokers derive the secrets of delegation tokens, the same on every broker. Not set or "
        "empty: there are no delegation tokens.",
        synonyms=(("delegation.token.master.key", 1),),
    )
    delegation_token_max_lifetime_ms: int = option(
        "delegation.token.max.lifetime.ms",
        Kind.LONG,
        7 * _DAY_MS,
        "How long a delegation token can be renewed after its creation.",
        minimum=1,
    )
    delegation_token_expiry_time_ms: int = option(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        _DAY_MS,
        "How long a delegation token is valid after its creation, and after each renewal.",
        minimum=1,
    )
    delegation_token_expiry_check_interval_ms: int = option(
        "delegation.token.expiry.check.interval.ms",
        Kind.LONG,
        3_600_000,
        "How often the controller deletes delegation tokens that have expired.",
        minimum=1,
    )
    felice_delegation_tokens_max: int = option(
        "felice.delegation.tokens.max",
        Kind.INT,
        10_000,
        "Delegation tokens that may exist in the cluster at the same time. A further token is refused with "
        "POLICY_VIOLATION.",
        minimum=1,
    )
    felice_delegation_tokens_per_owner_max: int = option(
        "felice.delegation.tokens.per.owner.max",
        Kind.INT,
        1000,
        "Delegation tokens that one owner may have at the same time, so that no user takes those of the others. A "
        "further token is refused with POLICY_VIOLATION.",
        minimum=1,
    )
