"""The broker's options that the group coordinator uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum

from felice.config import BrokerConfig
from felice.coordinator.group.modern.settings import GroupTimes
from felice.dataclass import dataclass

# How long the JoinGroup of a new member may wait. Its client may have come back under another id, and the abandoned
# member would delay every rebalance. Fixed in Kafka as well.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group when its last member of the new protocol leaves."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and times of groups and offsets; the defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_size: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    times_of: Callable[[str], GroupTimes] = field(default=lambda _: GroupTimes())

    @classmethod
    def of(cls, config: BrokerConfig, times_of: Callable[[str], GroupTimes]) -> GroupSettings:
        """The settings in a broker's configuration. `times_of` returns the times of a group, which may change."""
        return cls(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            offset_metadata_max_size=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            consumer_max_size=config.group_consumer_max_size,
            consumer_assignors=tuple(config.group_consumer_assignors),
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            consumer_migration_policy=MigrationPolicy(config.group_consumer_migration_policy),
            times_of=times_of,
        )
