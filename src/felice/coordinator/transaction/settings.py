"""The broker's options that the transaction coordinator uses."""

from __future__ import annotations

from felice.config import BrokerConfig
from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and times of transactions; the defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    removal_interval_ms: int = 3_600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        """The settings in a broker's configuration."""
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            removal_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
